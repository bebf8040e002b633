#include "residency/run_ahead.h"

#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"
#include "base/waits.h"
#include "cuda/capture.h"
#include "cuda/driver.h"
#include "cuda/streams.h"

/*
 * A tick every so many launches with spans: an eviction then waits at most so many launches longer
 * than it must.
 */
#define LAUNCHES_A_TICK 8u
/* And every so much work: ticks show how far the stream is. */
#define TICK_NS 500000u
/* The device is not expected to be busy with so little for so long. */
#define STUCK_NS 250000000u
/* So often the time is halved: from then on it is nothing. */
#define STUCK_TIMES_MAX 16u

static bool is_worth_a_tick(struct ps_lead *lead, uint64_t work)
{
    if (work - atomic_load_explicit(&lead->work, memory_order_relaxed) < TICK_NS)
        return false;
    atomic_store_explicit(&lead->work, work, memory_order_relaxed);
    return true;
}

static bool has_come(const struct ps_stream *s, uint64_t tick)
{
    /*
     * The ring keeps it until long after: overwritten, it stands for a later tick, and the wait is
     * longer.
     */
    CUevent event = s->ring[tick % PS_TICK_RING];

    return !event || ps_cu.cuEventQuery(event) != CUDA_ERROR_NOT_READY;
}

/* The latest tick that is far enough behind; 0: none is. */
static uint64_t tick_to_wait_for(const struct ps_stream *s, uint64_t most, uint64_t work)
{
    uint64_t tick = atomic_load(&s->recorded), oldest = tick > PS_RUN_AHEAD_TICKS ? tick - PS_RUN_AHEAD_TICKS : 0;

    while (tick > oldest &&
           work - atomic_load_explicit(&s->lead.ring_work[tick % PS_TICK_RING], memory_order_relaxed) < most)
        tick--;
    return tick;
}

/*
 * Two clocks: this is where the host's waits for the device's. It waits for a launch of its own,
 * and the device may wait, in one queued before it, for what this thread is yet to queue: so not
 * for ever, nor often.
 */
static void keep_near(struct ps_stream *s, uint64_t most, uint64_t work)
{
    static const struct timespec a_moment = {.tv_nsec = 50000};
    const uint64_t tick = tick_to_wait_for(s, most, work), stuck_at = atomic_load(&s->lead.stuck_at);

    if (!tick || ps_capture_anywhere() || (stuck_at && !has_come(s, stuck_at)))
        return;
    atomic_store(&s->lead.stuck_at, 0);
    if (has_come(s, tick))
        return;
    const uint64_t began = ps_now_ns();
    do {
        nanosleep(&a_moment, NULL);
        if (ps_now_ns() - began <= STUCK_NS >> atomic_load(&s->lead.stuck_times))
            continue;
        if (atomic_load(&s->lead.stuck_times) < STUCK_TIMES_MAX)
            atomic_fetch_add(&s->lead.stuck_times, 1);
        atomic_store(&s->lead.stuck_at, tick);
        break;
    } while (!has_come(s, tick));
    ps_waits_kept_since(began);
}

void ps_run_ahead_launched(struct ps_stream *s, bool gaps_open, uint64_t most, uint64_t work)
{
    bool due = most && is_worth_a_tick(&s->lead, work);

    due |= atomic_fetch_add_explicit(&s->launches, 1, memory_order_relaxed) + 1 >= LAUNCHES_A_TICK;
    if (!due && !gaps_open)
        return;
    ps_stream_tick(s);
    if (most)
        keep_near(s, most, work);
}
