#include "residency/guard.h"

#include <time.h>

#include "base/per_device.h"
#include "memory/blocks.h"
#include "memory/registry.h"
#include "memory/shutdown.h"
#include "memory/slab.h"
#include "residency/block_order.h"
#include "residency/eviction.h"

/*
 * A ring of evicted spans, by number, whose addresses lead nowhere yet. The `host` guard's mapping
 * takes longer than the copy did (2.1 against 1.6 ms for 86 MiB with both links busy, on an H200).
 * So it has a thread of its own and holds up no pages.
 */
#define UNGUARDED_MAX 1024u
/*
 * With more bytes than this in the ring, a span is mapped before the next pages go. Until it is
 * mapped, an unforeseen access faults, and pointer queries that go past our hooks (Triton's) fail.
 * The limit keeps that time to 10 ms or so.
 */
#define UNGUARDED_BYTES_MAX (256ull << 20)
static PS_PER_DEVICE struct {
    struct {
        uint64_t number;
        size_t bytes;
    } unguarded[UNGUARDED_MAX];
    uint64_t unguarded_written, unguarded_done, unguarded_bytes;
    bool refused; /* the driver refused the last mapping at every try: the next is tried once */
} first_dev;
#define dev (&PS_HERE(first_dev))

/* The number of tries for one mapping. The pauses between them double, and add up to 127 ms. */
#define TRIES 8
#define FIRST_PAUSE_NS 1000000

/*
 * Maps the span to its slot. The driver may grant a moment later what it refused, and an access
 * faults until then. [unlocked; the span is busy]
 */
static int map_row(const struct ps_span *span, int tries)
{
    struct timespec pause = {.tv_nsec = FIRST_PAUSE_NS};
    int r = ps_slab_map_row(span->address, span->slot);

    while (r && --tries) {
        nanosleep(&pause, NULL);
        pause.tv_nsec *= 2;
        r = ps_slab_map_row(span->address, span->slot);
    }
    return r;
}

static bool leads_nowhere(const struct ps_span *span)
{
    return span && !span->busy && span->residency == PS_EVICTED && span->backing == PS_BACKING_NONE;
}

void ps_guard_map_to_slot(struct ps_span *span)
{
    if (!leads_nowhere(span))
        return; /* freed, brought back, or busy in another thread */
    const bool first = !dev->refused;
    span->busy = true;
    ps_registry_unlock();
    int r = map_row(span, first ? TRIES : 1);
    if (r && first)
        ps_eviction_end(
            "the driver refuses to map host memory at the addresses of an evicted span, so a kernel that uses them faults");
    ps_registry_lock();
    span->busy = false;
    dev->refused = r != 0;
    if (!r) {
        span->backing = PS_BACKING_SLOT;
        ps_block_order_rests(span);
    }
    ps_registry_changed();
}

static void put_in_ring(const struct ps_span *span)
{
    dev->unguarded[dev->unguarded_written % UNGUARDED_MAX].number = span->number;
    dev->unguarded[dev->unguarded_written++ % UNGUARDED_MAX].bytes = span->bytes;
    dev->unguarded_bytes += span->bytes;
}

/*
 * From the unmapping of its pages until this is done, an unforeseen access would fault. Accesses
 * that are seen map or reload the span themselves. A reload that comes first spares the work.
 * [locked; may release the lock meanwhile]
 */
void ps_guard_soon(struct ps_span *span)
{
    if (dev->unguarded_written - dev->unguarded_done == UNGUARDED_MAX || dev->unguarded_bytes > UNGUARDED_BYTES_MAX) {
        ps_guard_map_to_slot(span);
        return;
    }
    put_in_ring(span);
    ps_registry_call(PS_HELPER_GUARD);
}

/*
 * The driver has refused the mapping: puts the span back into the ring if there is room, and
 * pauses. [locked; releases the lock meanwhile]
 */
static void try_later(struct ps_span *span)
{
    static const struct timespec a_moment = {.tv_nsec = 20000000};

    if (dev->unguarded_written - dev->unguarded_done < UNGUARDED_MAX)
        put_in_ring(span);
    ps_registry_unlock();
    nanosleep(&a_moment, NULL);
    ps_registry_lock();
}

void ps_guard_map_to_slots(void)
{
    ps_registry_lock();
    ps_shutdown_helper_begins();
    for (;;) {
        ps_shutdown_park_if_due();
        if (dev->unguarded_done == dev->unguarded_written) {
            ps_registry_rest(PS_HELPER_GUARD, PS_HELPER_LOOKS_NS);
            continue;
        }
        uint64_t number = dev->unguarded[dev->unguarded_done % UNGUARDED_MAX].number;
        dev->unguarded_bytes -= dev->unguarded[dev->unguarded_done++ % UNGUARDED_MAX].bytes;
        ps_guard_map_to_slot(ps_registry_numbered(number));
        if (leads_nowhere(ps_registry_numbered(number)))
            try_later(ps_registry_numbered(number));
    }
}
