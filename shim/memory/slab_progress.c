#include "memory/slab_progress.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/bytes_text.h"
#include "base/clock.h"
#include "base/log.h"

#define LONG_NS 2000000000u
#define AGAIN_NS 5000000000u

/*
 * One run is a series of slots without a long pause. These are the figures of the run under way, or
 * of the last one.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    uint64_t bytes;
    uint64_t busy_ns;  /* ns spent making slots */
    uint64_t began_ns; /* start of the slot that is being made, or was made last */
    uint64_t ended_ns;
    uint64_t told_ns; /* time of the latest line */
    bool making;
} go; /* guarded by lock */
/* The start of this run was reported, and its end was not. Written under the lock. */
static atomic_bool told;

/* Returns tenths of a second: messages have no floating point numbers. */
static unsigned long long tenths(uint64_t ns)
{
    return ns / 100000000u;
}

void ps_slab_progress_begins(void)
{
    pthread_mutex_lock(&lock);
    go.began_ns = ps_now_ns();
    go.making = true;
    if (!atomic_load(&told) && go.began_ns - go.ended_ns > PS_SLAB_PAUSE_NS)
        go.bytes = go.busy_ns = 0;
    pthread_mutex_unlock(&lock);
}

void ps_slab_progress_made(uint64_t bytes, uint64_t limit)
{
    uint64_t now = ps_now_ns(), made, busy;
    bool due;

    pthread_mutex_lock(&lock);
    go.making = false;
    go.bytes += bytes;
    go.busy_ns += now - go.began_ns;
    go.ended_ns = now;
    due = go.busy_ns > LONG_NS && (!atomic_load(&told) || now - go.told_ns > AGAIN_NS);
    if (due) {
        go.told_ns = now;
        atomic_store(&told, true);
    }
    made = go.bytes;
    busy = go.busy_ns;
    pthread_mutex_unlock(&lock);
    if (due)
        ps_log_warn(SLAB,
                    "pinning host memory for idle tensors: %s in %llu.%llu s so far, %s at most (PENSTOCK_HOST_BUDGET)",
                    ps_bytes_text(made).text, tenths(busy) / 10, tenths(busy) % 10, ps_bytes_text(limit).text);
}

bool ps_slab_progress_is_told(void)
{
    return atomic_load(&told);
}

void ps_slab_progress_end(void)
{
    uint64_t made, busy;
    bool ended;

    pthread_mutex_lock(&lock);
    ended = atomic_load(&told) && !go.making && ps_now_ns() - go.ended_ns > PS_SLAB_PAUSE_NS;
    if (ended)
        atomic_store(&told, false);
    made = go.bytes;
    busy = go.busy_ns;
    pthread_mutex_unlock(&lock);
    if (ended)
        ps_log_warn(SLAB, "host memory for idle tensors is pinned: %s in %llu.%llu s", ps_bytes_text(made).text,
                    tenths(busy) / 10, tenths(busy) % 10);
}
