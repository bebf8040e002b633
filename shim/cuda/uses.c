#include "cuda/uses.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "base/state.h"
#include "cuda/capture.h"
#include "cuda/device_memory.h"
#include "cuda/driver.h"
#include "cuda/streams.h"
#include "cuda/streams_inside.h"

static _Atomic uint64_t moments; /* the number of moments claimed so far (ps_uses_note_everything) */

uint64_t ps_uses_moments(void)
{
    return atomic_load(&moments);
}

/* Returns the stream's first tick after the moment: a recorded one, or else the next. */
static uint64_t first_tick_after(struct ps_stream *s, uint64_t moment)
{
    pthread_mutex_lock(&s->record_lock);
    uint64_t first = atomic_load(&s->next);
    const uint64_t newest = atomic_load(&s->recorded);
    for (uint64_t t = newest; t && t + PS_TICK_RING > newest; t--) {
        const uint32_t i = (uint32_t)(t % PS_TICK_RING);
        if (atomic_load(&s->ring_tick[i]) != t)
            continue; /* its record failed */
        if (s->ring_moment[i] < moment)
            break;
        first = t;
    }
    pthread_mutex_unlock(&s->record_lock);
    return first;
}

/* Finds the event that covers a tick of the stream; records it if needed. Returns 0 or -errno. */
static int event_for(struct ps_stream *s, uint64_t tick, CUevent *event)
{
    if (atomic_load(&s->recorded) < tick) {
        int r = ps_stream_tick(s);
        /* A destroyed stream's last tick covers everything that was ever queued on it. */
        if (r == -ENOENT && atomic_load(&s->recorded))
            tick = atomic_load(&s->recorded);
        if (r && atomic_load(&s->recorded) < tick)
            return r; /* otherwise another thread has recorded meanwhile */
    }
    uint32_t i = (uint32_t)(tick % PS_TICK_RING);
    if (atomic_load(&s->ring_tick[i]) < tick)
        i = (uint32_t)(atomic_load(&s->recorded) % PS_TICK_RING); /* the tick's own record failed */
    *event = s->ring[i];
    return 0;
}

struct ps_use ps_use_of(struct ps_stream *stream)
{
    /*
     * Only its owner can record on a per-thread stream. So only the ticks that the owner has
     * recorded can be waited for.
     */
    return (struct ps_use){stream, atomic_load(stream->per_thread ? &stream->recorded : &stream->next)};
}

void ps_uses_add_another(struct ps_uses *uses, struct ps_use use)
{
    if (uses->everywhere || ps_stream_is_unplaced(use.stream)) {
        ps_uses_note_everything(uses);
        return;
    }
    if (!use.tick)
        return;
    if (uses->count == PS_USES) {
        ps_uses_note_everything(uses);
        return;
    }
    uses->use[uses->count++] = use;
}

void ps_uses_note_everything(struct ps_uses *uses)
{
    uses->count = 0;
    uses->everywhere = atomic_fetch_add(&moments, 1) + 1;
}

bool ps_uses_note_all_streams(struct ps_uses *uses)
{
    uint32_t n = ps_streams_count();
    bool all = true;

    if (uses->everywhere || ps_streams_are_unplaced())
        ps_uses_note_everything(uses);
    for (uint32_t i = 0; i < n; i++) {
        struct ps_stream *s = ps_streams_at(i);
        /* A destroyed stream counts until its last work is over. */
        if (atomic_load_explicit(&s->over, memory_order_relaxed) || ps_stream_is_foreign(s))
            continue;
        all &= ps_stream_is_marked_here(s) || !atomic_load(&s->unmarked);
        if (!uses->everywhere)
            ps_uses_note(uses, s);
    }
    return all;
}

void ps_uses_mark(const struct ps_uses *uses)
{
    for (unsigned i = 0; i < uses->count; i++)
        if (atomic_load(&uses->use[i].stream->recorded) < uses->use[i].tick)
            ps_stream_tick(uses->use[i].stream); /* on an error, the thread that waits records it */
}

bool ps_uses_are_marked(const struct ps_uses *uses)
{
    for (unsigned i = 0; i < uses->count; i++) {
        const struct ps_stream *s = uses->use[i].stream;
        if (atomic_load(&s->recorded) < uses->use[i].tick && atomic_load(&s->done) < uses->use[i].tick &&
            !atomic_load(&s->gone))
            return false;
    }
    return !uses->everywhere;
}

/* `place`: where the stream's use probably is. `into` has no moment. */
static void merge_at(struct ps_uses *into, struct ps_use use, unsigned place)
{
    unsigned i = place < into->count && into->use[place].stream == use.stream ? place : 0;

    while (i < into->count && into->use[i].stream != use.stream)
        i++;
    if (i == PS_USES)
        ps_uses_note_everything(into);
    else if (i == into->count)
        into->use[into->count++] = use;
    else if (into->use[i].tick < use.tick)
        into->use[i].tick = use.tick;
}

void ps_uses_merge_one(struct ps_uses *into, struct ps_use use)
{
    /* Ticks beside a moment may be later than that moment, but not later than now. */
    if (into->everywhere)
        ps_uses_note_everything(into);
    else
        merge_at(into, use, 0);
}

void ps_uses_merge(struct ps_uses *into, const struct ps_uses *from)
{
    if (from->everywhere > into->everywhere)
        into->everywhere = from->everywhere;
    if (into->everywhere && (into->count || from->count))
        ps_uses_note_everything(into); /* as in ps_uses_merge_one */
    /* Most spans were used on the same streams, in the same order. */
    for (unsigned k = 0; k < from->count && !into->everywhere; k++)
        merge_at(into, from->use[k], k);
}

/* Called for each event that stands for the uses. A result other than 0 ends the walk. */
typedef int (*event_fn)(CUevent event, void *ctx);

/*
 * Like event_for, for callers that need only work that was queued already. Two clocks: a stream
 * that is being captured was given no work since the capture began. The tick of that moment covers
 * the work from before (capture.c).
 */
static int event_for_queued(struct ps_stream *s, uint64_t tick, CUevent *event)
{
    int r = event_for(s, tick, event);

    return r == -EBUSY && atomic_load(&s->covered) ? event_for(s, atomic_load(&s->recorded), event) : r;
}

static int each_event_by(int (*event_of)(struct ps_stream *s, uint64_t tick, CUevent *event),
                         const struct ps_uses *uses, const struct ps_stream *except, event_fn fn, void *ctx)
{
    CUevent event;

    if (uses->everywhere) {
        if (ps_tracing_notes() && !ps_tracing_is_on())
            return -EAGAIN; /* streams that were given work unseen are not in the table */
        if (ps_streams_are_unplaced()) {
            /*
             * Two clocks: only this thread can wait for streams without a place. During a capture
             * it can't wait either.
             */
            if (!ps_capture_keep_out())
                return -EBUSY;
            const CUresult result = ps_cu.cuCtxSynchronize();
            ps_capture_let_in();
            if (result != CUDA_SUCCESS)
                return -EIO;
        }
        uint32_t n = ps_streams_count();
        for (uint32_t i = 0; i < n; i++) {
            struct ps_stream *s = ps_streams_at(i);
            uint64_t tick = first_tick_after(s, uses->everywhere);
            if (atomic_load(&s->gone) || !ps_stream_is_marked_here(s))
                tick = atomic_load(&s->recorded);
            if (s == except || !tick || ps_stream_is_over(s) || uses->everywhere <= atomic_load(&s->done_at))
                continue;
            int r = event_of(s, tick, &event);
            if (!r)
                r = fn(event, ctx);
            if (r)
                return r;
        }
        return 0;
    }
    for (unsigned k = 0; k < uses->count; k++) {
        if (uses->use[k].stream == except || atomic_load_explicit(&uses->use[k].stream->over, memory_order_relaxed) ||
            uses->use[k].tick <= atomic_load(&uses->use[k].stream->done))
            continue;
        int r = event_of(uses->use[k].stream, uses->use[k].tick, &event);
        if (!r)
            r = fn(event, ctx);
        if (r)
            return r;
    }
    return 0;
}

static int each_event(const struct ps_uses *uses, const struct ps_stream *except, event_fn fn, void *ctx)
{
    return each_event_by(event_for, uses, except, fn, ctx);
}

static int let_stream_wait(CUevent event, void *ctx)
{
    return ps_cuda_errno(ps_cu.cuStreamWaitEvent(*(CUstream *)ctx, event, 0));
}

static int ask(CUevent event, void *ctx)
{
    (void)ctx;
    return ps_cuda_errno(ps_cu.cuEventQuery(event));
}

static int wait_here(CUevent event, void *ctx)
{
    (void)ctx;
    return ps_event_host_wait(event);
}

int ps_uses_stream_wait(const struct ps_uses *uses, CUstream waiter)
{
    return each_event(uses, NULL, let_stream_wait, &waiter);
}

static int let_come_after(CUevent event, void *ctx)
{
    return ps_stream_comes_after(ctx, event);
}

int ps_stream_comes_after_uses(const struct ps_stream *stream, const struct ps_uses *uses)
{
    return each_event(uses, stream, let_come_after, (void *)stream);
}

static int answer(int r)
{
    return r == -EAGAIN ? 0 : r ? r : 1;
}

int ps_uses_query(const struct ps_uses *uses)
{
    return answer(each_event(uses, NULL, ask, NULL));
}

static int query_queued(const struct ps_uses *uses)
{
    return answer(each_event_by(event_for_queued, uses, NULL, ask, NULL));
}

static void note_late(struct ps_late_uses *late, const struct ps_use *use)
{
    for (unsigned i = 0; i < late->count; i++)
        if (late->use[i].stream == use->stream) {
            late->use[i].tick = use->tick < late->use[i].tick ? use->tick : late->use[i].tick;
            return;
        }
    if (late->count < sizeof late->use / sizeof *late->use)
        late->use[late->count++] = *use;
}

int ps_uses_query_noting(const struct ps_uses *uses, struct ps_late_uses *late)
{
    int over = 1;

    if (uses->everywhere)
        return ps_uses_query(uses);
    for (unsigned k = 0; k < uses->count && over == 1; k++) {
        const struct ps_uses one = {.use = {uses->use[k]}, .count = 1};
        over = ps_uses_query(&one);
        if (!over && late)
            note_late(late, &uses->use[k]);
    }
    return over;
}

bool ps_uses_are_late(const struct ps_uses *uses, const struct ps_late_uses *late)
{
    for (unsigned k = 0; k < uses->count; k++)
        for (unsigned i = 0; i < late->count; i++)
            if (uses->use[k].stream == late->use[i].stream && uses->use[k].tick >= late->use[i].tick)
                return true;
    return false;
}

int ps_uses_host_wait(const struct ps_uses *uses)
{
    return each_event(uses, NULL, wait_here, NULL);
}

static int wait_at_most(const struct ps_uses *uses, uint64_t ns, int (*query)(const struct ps_uses *uses))
{
    static const struct timespec a_moment = {.tv_nsec = 20000};
    const uint64_t since = ps_now_ns();
    int over;

    while (!(over = query(uses)) && ps_now_ns() - since < ns)
        nanosleep(&a_moment, NULL);
    if (over < 0)
        return ps_uses_host_wait(uses); /* the query fails, but a wait may succeed */
    return over ? 0 : -ETIMEDOUT;
}

int ps_uses_host_wait_at_most(const struct ps_uses *uses, uint64_t ns)
{
    return wait_at_most(uses, ns, ps_uses_query);
}

int ps_uses_host_wait_for_queued(const struct ps_uses *uses, uint64_t ns)
{
    return wait_at_most(uses, ns, query_queued);
}
