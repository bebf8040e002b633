#include "residency/run_ahead.h"

#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"
#include "base/waits.h"
#include "cuda/capture.h"
#include "cuda/driver.h"
#include "cuda/streams.h"

/*
 * A tick is recorded after this number of launches with spans. So an eviction waits for at most
 * this number of launches more than it must.
 */
#define LAUNCHES_A_TICK 8u
/* A tick is also recorded after this much work. Ticks show how far the stream is. */
#define TICK_NS 500000u
/* The longest wait for a tick. The device is expected to take less for so little work. */
#define STUCK_NS 250000000u
/* The wait is halved at most this often; by then it is next to nothing. */
#define STUCK_TIMES_MAX 16u

static bool is_worth_a_tick(struct ps_run_ahead *ahead, uint64_t work)
{
    if (work - atomic_load_explicit(&ahead->work, memory_order_relaxed) < TICK_NS)
        return false;
    atomic_store_explicit(&ahead->work, work, memory_order_relaxed);
    return true;
}

static bool has_come(const struct ps_stream *s, uint64_t tick)
{
    /*
     * The ring keeps an event long enough. An overwritten one stands for a later tick, and the wait
     * is longer.
     */
    CUevent event = s->ring[tick % PS_TICK_RING];

    return !event || ps_cu.cuEventQuery(event) != CUDA_ERROR_NOT_READY;
}

/* Returns the latest tick that is far enough behind, or 0 if none is. */
static uint64_t tick_to_wait_for(const struct ps_stream *s, uint64_t most, uint64_t work)
{
    uint64_t tick = atomic_load(&s->recorded), oldest = tick > PS_RUN_AHEAD_TICKS ? tick - PS_RUN_AHEAD_TICKS : 0;

    while (tick > oldest &&
           work - atomic_load_explicit(&s->run_ahead.ring_work[tick % PS_TICK_RING], memory_order_relaxed) < most)
        tick--;
    return tick;
}

/*
 * Two clocks: here the host waits for the device. It waits for one of its own launches. The device
 * may wait, in an earlier launch, for work that this thread has yet to queue. So the wait is
 * neither endless nor frequent.
 */
static void keep_near(struct ps_stream *s, uint64_t most, uint64_t work)
{
    static const struct timespec a_moment = {.tv_nsec = 50000};
    const uint64_t tick = tick_to_wait_for(s, most, work), stuck_at = atomic_load(&s->run_ahead.stuck_at);

    if (!tick || ps_capture_anywhere() || (stuck_at && !has_come(s, stuck_at)))
        return;
    atomic_store(&s->run_ahead.stuck_at, 0);
    if (has_come(s, tick))
        return;
    const uint64_t began = ps_now_ns();
    do {
        nanosleep(&a_moment, NULL);
        if (ps_now_ns() - began <= STUCK_NS >> atomic_load(&s->run_ahead.stuck_times))
            continue;
        if (atomic_load(&s->run_ahead.stuck_times) < STUCK_TIMES_MAX)
            atomic_fetch_add(&s->run_ahead.stuck_times, 1);
        atomic_store(&s->run_ahead.stuck_at, tick);
        break;
    } while (!has_come(s, tick));
    ps_waits_kept_since(began);
}

void ps_run_ahead_launched(struct ps_stream *s, bool gaps_open, uint64_t most, uint64_t work)
{
    bool due = most && is_worth_a_tick(&s->run_ahead, work);

    due |= atomic_fetch_add_explicit(&s->launches, 1, memory_order_relaxed) + 1 >= LAUNCHES_A_TICK;
    if (!due && !gaps_open)
        return;
    ps_stream_tick(s);
    if (most)
        keep_near(s, most, work);
}
