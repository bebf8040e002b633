#include "residency/event_ring.h"

#include <errno.h>
#include <stdlib.h>

/* `turn`: the position whose putter it waits for, or one more once the record is there. */
struct ps_event_cell {
    _Atomic uint64_t turn;
    struct ps_event_record record;
};

int ps_event_ring_open(struct ps_event_ring *ring, size_t capacity)
{
    ring->cells = calloc(capacity, sizeof *ring->cells);
    if (!ring->cells)
        return -ENOMEM;
    for (size_t i = 0; i < capacity; i++)
        atomic_init(&ring->cells[i].turn, i);
    ring->mask = capacity - 1;
    atomic_init(&ring->written, 0);
    ring->taken = 0;
    return 0;
}

void ps_event_ring_close(struct ps_event_ring *ring)
{
    free(ring->cells);
    ring->cells = NULL;
}

bool ps_event_ring_put(struct ps_event_ring *ring, const struct ps_event_record *record)
{
    uint64_t at = atomic_load_explicit(&ring->written, memory_order_relaxed);

    for (;;) {
        struct ps_event_cell *cell = &ring->cells[at & ring->mask];
        int64_t ahead = (int64_t)(atomic_load_explicit(&cell->turn, memory_order_acquire) - at);
        if (ahead < 0)
            return false; /* what was put here a round ago has not been taken */
        if (ahead > 0) {
            at = atomic_load_explicit(&ring->written, memory_order_relaxed);
            continue;
        }
        if (!atomic_compare_exchange_weak_explicit(&ring->written, &at, at + 1, memory_order_relaxed,
                                                   memory_order_relaxed))
            continue;
        cell->record = *record;
        atomic_store_explicit(&cell->turn, at + 1, memory_order_release);
        return true;
    }
}

bool ps_event_ring_take(struct ps_event_ring *ring, struct ps_event_record *record)
{
    struct ps_event_cell *cell = &ring->cells[ring->taken & ring->mask];

    if (atomic_load_explicit(&cell->turn, memory_order_acquire) != ring->taken + 1)
        return false;
    *record = cell->record;
    atomic_store_explicit(&cell->turn, ring->taken + ring->mask + 1, memory_order_release);
    ring->taken++;
    return true;
}
