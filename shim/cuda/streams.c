#include "cuda/streams.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/ordering_rules.h"
#include "cuda/capture.h"
#include "cuda/context_stack.h"
#include "cuda/device_memory.h"
#include "cuda/devices.h"
#include "cuda/driver.h"
#include "cuda/green_contexts.h"
#include "cuda/streams_inside.h"

static struct ps_stream *_Atomic table[PS_STREAMS_MAX];
static _Atomic uint32_t count;
static _Atomic uint32_t generation = 1; /* changes when a stream goes; caches of threads are void then */
/* Stands for the streams that found no place. */
static struct ps_stream unplaced = {.index = PS_STREAMS_MAX, .record_lock = PTHREAD_MUTEX_INITIALIZER};
static atomic_bool overflowed;
static atomic_bool were_made; /* the program has created streams */
static atomic_bool may_block; /* the program may have blocking streams beside the legacy one */
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;

/* The stream that this thread found last. */
static __thread struct {
    CUstream handle;
    uint32_t generation;
    struct ps_stream *stream;
} last;

/* This thread's own default stream, once it has used it. */
static __thread struct ps_stream *own_stream;

/*
 * This thread's number, from 1; 0: the thread has not used its own stream. It is not the pthread_t,
 * which a later thread may get.
 */
static __thread uint64_t self;
static pthread_key_t thread_ends;
static bool has_thread_ends;
static pthread_once_t thread_ends_made = PTHREAD_ONCE_INIT;

/* Returns whether the handle stands for a default stream of the current context. */
static bool is_default(CUstream handle)
{
    return !handle || handle == CU_STREAM_PER_THREAD;
}

/*
 * Returns the context of this handle's stream for the calling thread; NULL: an error. A thread
 * without a context is about to get the device's.
 */
static CUcontext context_of(CUstream handle)
{
    CUcontext context = NULL;

    if ((is_default(handle) ? ps_cu.cuCtxGetCurrent(&context) : ps_cu.cuStreamGetCtx(handle, &context)) != CUDA_SUCCESS)
        return NULL;
    return context ? context : ps_device.context;
}

/*
 * Makes the stream's context current. Handles of default streams mean the current context's
 * streams, and an event can be recorded only in its own context. For another stream of a green
 * context the primary context serves: the green one may be current to one thread only. Returns what
 * ps_context_leave takes.
 */
static CUcontext enter(const struct ps_stream *s)
{
    CUcontext its = is_default(s->handle) ? s->context : ps_green_contexts_primary(s->context), pushed = NULL;

    if (its)
        ps_context_enter(its, &pushed);
    return pushed;
}

bool ps_stream_is_foreign(const struct ps_stream *stream)
{
    return ps_devices_several && stream->context && ps_green_contexts_primary(stream->context) != ps_device.context;
}

static struct ps_stream *search(CUstream handle, CUcontext context, bool per_thread)
{
    uint32_t n = atomic_load_explicit(&count, memory_order_acquire);

    for (uint32_t i = 0; i < n; i++) {
        struct ps_stream *s = atomic_load_explicit(&table[i], memory_order_relaxed);
        if (s->handle == handle && s->context == context && !atomic_load(&s->gone) && (!per_thread || s->owner == self))
            return s;
    }
    return NULL;
}

/*
 * The answer true is remembered. While the driver is asked, another thread may put a new stream in
 * this place, which is not over. A per-thread stream without a recorded tick has no noted use.
 */
bool ps_stream_is_over(struct ps_stream *s)
{
    uint64_t last_tick = atomic_load(&s->recorded);

    if (atomic_load_explicit(&s->over, memory_order_relaxed))
        return true;
    if (!atomic_load(&s->gone) || (last_tick && ps_cu.cuEventQuery(s->ring[last_tick % PS_TICK_RING]) != CUDA_SUCCESS))
        return false;
    pthread_mutex_lock(&s->record_lock);
    bool is = atomic_load(&s->gone) && atomic_load(&s->recorded) == last_tick && (last_tick || s->per_thread);
    if (is)
        atomic_store_explicit(&s->over, true, memory_order_relaxed);
    pthread_mutex_unlock(&s->record_lock);
    return is;
}

/*
 * The thread ends: no call names its own default streams any more. Two clocks: its queued work may
 * still run, but the ticks of all noted uses have been recorded (ps_stream_settle). Makes no driver
 * call, because the driver's own data of the thread may be gone.
 */
static void end_own_streams(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&table_lock);
    for (uint32_t i = 0, n = atomic_load(&count); i < n; i++) {
        struct ps_stream *s = atomic_load(&table[i]);
        if (!s->per_thread || s->owner != self)
            continue;
        pthread_mutex_lock(&s->record_lock);
        atomic_store(&s->gone, true);
        pthread_mutex_unlock(&s->record_lock);
        ps_capture_ended_with(s);
    }
    pthread_mutex_unlock(&table_lock);
    ps_capture_own_ends();
    last.stream = own_stream = NULL; /* a destructor that comes later may use the stream again */
}

static void make_thread_ends(void)
{
    has_thread_ends = !pthread_key_create(&thread_ends, end_own_streams);
}

uint64_t ps_thread_number(void)
{
    static _Atomic uint64_t numbers;

    if (!self)
        self = atomic_fetch_add(&numbers, 1) + 1;
    pthread_once(&thread_ends_made, make_thread_ends);
    if (has_thread_ends) /* otherwise the places of its streams stay taken */
        pthread_setspecific(thread_ends, &self);
    return self;
}

void ps_streams_created(unsigned flags)
{
    atomic_store(&were_made, true);
    if (!(flags & CU_STREAM_NON_BLOCKING))
        atomic_store(&may_block, true);
}

/*
 * Covers streams created before set-up or by a call that is not hooked. The driver does not tell
 * the flags of a captured stream: the question makes its capture invalid, in every mode (asked on
 * an H200). So that stream may block.
 */
static void look_whether_blocking(CUstream handle)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    unsigned flags = CU_STREAM_DEFAULT; /* a per-thread default stream has these */

    if (!handle || atomic_load_explicit(&may_block, memory_order_relaxed))
        return;
    const bool may_ask = !is_default(handle) && ps_cu.cuStreamGetFlags && ps_cu.cuStreamIsCapturing &&
                         ps_cu.cuStreamIsCapturing(handle, &status) == CUDA_SUCCESS &&
                         status == CU_STREAM_CAPTURE_STATUS_NONE;
    if (may_ask && ps_cu.cuStreamGetFlags(handle, &flags) != CUDA_SUCCESS)
        return;
    ps_streams_created(flags);
}

static struct ps_stream *begin(struct ps_stream *s, CUstream handle, CUcontext context, bool per_thread)
{
    s->handle = handle;
    s->context = context;
    s->per_thread = per_thread;
    s->legacy = !handle;
    s->owner = per_thread ? ps_thread_number() : 0;
    look_whether_blocking(handle);
    return s;
}

/*
 * Puts a new stream in the place of one that is over. Ticks go on from where they are. A use of the
 * old stream may have been noted after its last record, with the tick that was next. So that tick
 * counts as over, and the new stream begins behind it. Returns NULL if there is no such place. The
 * first 64 places are not reused: spans remember which of them have waited.
 */
static struct ps_stream *reuse(CUstream handle, CUcontext context, bool per_thread)
{
    uint32_t n = atomic_load(&count);

    for (uint32_t i = 64; i < n; i++) {
        struct ps_stream *s = atomic_load(&table[i]);
        /* The events in the ring belong to the old stream's context. */
        if (!ps_stream_is_over(s) || (s->context && s->context != context))
            continue;
        pthread_mutex_lock(&s->record_lock);
        begin(s, handle, context, per_thread);
        atomic_store(&s->done, atomic_fetch_add(&s->next, 1));
        atomic_store(&s->grace.came_back, 0); /* the new stream has waited for no span's H2D */
        atomic_store(&s->over, false);
        atomic_store(&s->gone, false);
        pthread_mutex_unlock(&s->record_lock);
        return s;
    }
    return NULL;
}

static struct ps_stream *add(CUstream handle, CUcontext context, bool per_thread)
{
    uint32_t n = atomic_load(&count);
    struct ps_stream *s = reuse(handle, context, per_thread);

    if (s)
        return s;
    s = n < PS_STREAMS_MAX ? calloc(1, sizeof *s) : NULL;
    if (!s) {
        if (!atomic_exchange(&overflowed, true))
            ps_log_warn(TRACER,
                        "no memory to track more than %u streams: for work on other streams the "
                        "host waits for the whole device, which is slow; use fewer streams",
                        n);
        return &unplaced;
    }
    begin(s, handle, context, per_thread);
    s->index = n;
    atomic_store(&s->next, 1);
    pthread_mutex_init(&s->record_lock, NULL);
    atomic_store_explicit(&table[n], s, memory_order_relaxed);
    atomic_store_explicit(&count, n + 1, memory_order_release);
    return s;
}

struct ps_stream *ps_stream_find(CUstream handle, bool per_thread_default)
{
    if (!handle && per_thread_default)
        handle = CU_STREAM_PER_THREAD;
    if (handle == CU_STREAM_LEGACY)
        handle = NULL;

    uint32_t now = atomic_load_explicit(&generation, memory_order_acquire);
    bool per_thread = handle == CU_STREAM_PER_THREAD,
         is_last = last.stream && last.handle == handle && last.generation == now;
    /* Other handles than those of default streams have one context while they live. */
    if (is_last && !is_default(handle))
        return last.stream;

    CUcontext context = context_of(handle);
    if (is_last && last.stream->context == context)
        return last.stream;
    pthread_mutex_lock(&table_lock);
    struct ps_stream *s = search(handle, context, per_thread);
    if (!s)
        s = add(handle, context, per_thread);
    pthread_mutex_unlock(&table_lock);
    last.handle = handle;
    last.generation = now;
    last.stream = s;
    if (s->per_thread)
        own_stream = s;
    return s;
}

bool ps_stream_is_unplaced(const struct ps_stream *s)
{
    return s == &unplaced;
}

bool ps_streams_are_unplaced(void)
{
    return atomic_load(&overflowed);
}

bool ps_stream_is_marked_here(const struct ps_stream *s)
{
    return !s->per_thread || s->owner == self;
}

uint32_t ps_streams_count(void)
{
    return atomic_load_explicit(&count, memory_order_acquire);
}

struct ps_stream *ps_stream_find_legacy(void)
{
    CUcontext context = NULL;

    for (uint32_t i = 0, n = ps_streams_count(); i < n; i++) {
        struct ps_stream *s = ps_streams_at(i);
        if (!s->legacy || atomic_load(&s->gone))
            continue;
        if (!context && ps_cu.cuCtxGetCurrent(&context) != CUDA_SUCCESS)
            return NULL;
        if (s->context == context)
            return s;
    }
    return NULL;
}

bool ps_streams_may_be_several(void)
{
    return ps_streams_count() > 1 || atomic_load_explicit(&were_made, memory_order_relaxed);
}

struct ps_stream *ps_streams_at(uint32_t index)
{
    return atomic_load_explicit(&table[index], memory_order_relaxed);
}

void ps_streams_wait_begins(struct ps_streams_wait *wait)
{
    const uint32_t n = ps_streams_count();

    /*
     * Two clocks: a use that is noted from now on gets a later tick. Its work may have been queued
     * before the wait or after it.
     */
    wait->moment = ps_uses_moments();
    wait->count = n < PS_STREAMS_WAITED ? n : PS_STREAMS_WAITED;
    for (uint32_t i = 0; i < wait->count; i++) {
        struct ps_stream *s = ps_streams_at(i);
        wait->tick[i] = 0;
        if (s->context != ps_device.context || atomic_load(&s->gone)) /* the wait is for this context only */
            continue;
        wait->tick[i] = s->per_thread ? atomic_load(&s->recorded) : atomic_fetch_add(&s->next, 1);
    }
}

static void raise_to(_Atomic uint64_t *value, uint64_t to)
{
    uint64_t now = atomic_load(value);

    while (now < to && !atomic_compare_exchange_weak(value, &now, to)) {
    }
}

void ps_streams_wait_ended(const struct ps_streams_wait *wait)
{
    for (uint32_t i = 0; i < wait->count; i++) {
        if (!wait->tick[i])
            continue;
        raise_to(&ps_streams_at(i)->done, wait->tick[i]);
        /* On a per-thread stream, a moment does not cover work that its thread has not marked. */
        if (!ps_streams_at(i)->per_thread)
            raise_to(&ps_streams_at(i)->done_at, wait->moment);
    }
}

uint64_t ps_streams_progress(void)
{
    const uint32_t n = ps_streams_count();
    uint64_t sum = 0;

    for (uint32_t i = 0; i < n; i++) {
        struct ps_stream *s = ps_streams_at(i);
        const uint64_t last_tick = atomic_load(&s->recorded);
        uint64_t tick = atomic_load_explicit(&s->come_to, memory_order_relaxed);
        if (last_tick > tick + PS_TICK_RING - 1)
            tick = last_tick - (PS_TICK_RING - 1); /* earlier events have been overwritten */
        /*
         * An event that was overwritten meanwhile stands for a later tick. The number is then too
         * low.
         */
        while (tick < last_tick && ps_cu.cuEventQuery(s->ring[(tick + 1) % PS_TICK_RING]) == CUDA_SUCCESS)
            tick++;
        atomic_store_explicit(&s->come_to, tick, memory_order_relaxed);
        sum += tick;
    }
    return sum;
}

/*
 * Returns whether the stream is being captured. Also true for the legacy stream while a blocking
 * stream is captured. An event recorded there would make that capture invalid.
 */
static bool is_capturing(const struct ps_stream *s)
{
    CUcontext entered = enter(s);
    bool is = ps_capture_has(s->handle, false);

    ps_context_leave(entered);
    return is;
}

bool ps_stream_orders_others(const struct ps_stream *s)
{
    return s->legacy && atomic_load_explicit(&may_block, memory_order_relaxed);
}

/*
 * Finds the stream on which to record an event that comes after all work of `s`. Returns 0, or -EIO
 * if the driver refuses to create it.
 *
 * Two clocks: a blocking stream comes after the work that the legacy stream was given before. So an
 * event on the blocking stream `shadow` comes after it, too. `shadow` has no other work for which
 * the legacy stream, or other streams through it, would wait. [record_lock held, in the stream's
 * context]
 */
static int place_to_record(struct ps_stream *s, CUstream *place)
{
    *place = s->handle;
    if (!ps_stream_orders_others(s))
        return 0;
    if (!s->shadow && ps_cu.cuStreamCreateWithPriority(&s->shadow, CU_STREAM_DEFAULT, 0) != CUDA_SUCCESS)
        s->shadow = NULL;
    *place = s->shadow;
    return s->shadow ? 0 : -EIO;
}

/* Records the event behind the stream's work. [record_lock held, in the stream's context] */
static int record_behind(struct ps_stream *s, CUevent event)
{
    CUstream place;
    int r = place_to_record(s, &place);

    return r ? r : ps_cuda_errno(ps_cu.cuEventRecord(event, place));
}

/* Records the next tick. `as_barrier`: on the legacy stream itself. [record_lock held] */
static int record(struct ps_stream *s, bool as_barrier)
{
    /*
     * Claim, then record. A thread that queued a launch and then read this tick from `next` did so
     * before the claim below. The event is recorded after the claim, so it covers the launch. The
     * other way round, a launch could be queued between record and claim. Its noted tick would then
     * miss it.
     */
    uint64_t tick = 0;
    if (ps_ordering_rule(TICK_BEFORE_RECORD))
        tick = atomic_fetch_add(&s->next, 1);
    uint32_t i = (uint32_t)((ps_ordering_rule(TICK_BEFORE_RECORD) ? tick : atomic_load(&s->next)) % PS_TICK_RING);
    const uint64_t moment = ps_uses_moments();
    int r = 0;
    CUcontext entered = enter(s);
    if (!s->ring[i])
        r = ps_cuda_errno(ps_cu.cuEventCreate(&s->ring[i], CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
    if (!r)
        r = as_barrier ? ps_cuda_errno(ps_cu.cuEventRecord(s->ring[i], s->handle)) : record_behind(s, s->ring[i]);
    ps_context_leave(entered);
    if (!ps_ordering_rule(TICK_BEFORE_RECORD)) {
        ps_ordering_rule_widen_window();
        tick = atomic_fetch_add(&s->next, 1);
    }
    if (!r) {
        s->ring_moment[i] = moment;
        atomic_store_explicit(&s->run_ahead.ring_work[i],
                              atomic_load_explicit(&s->run_ahead.work, memory_order_relaxed), memory_order_relaxed);
        atomic_store(&s->ring_tick[i], tick);
        atomic_store(&s->recorded, tick);
        atomic_store_explicit(&s->launches, 0, memory_order_relaxed);
    }
    return r;
}

/* Returns 0 if work may be queued on the stream now, else -errno. [record_lock held] */
static int refusal(const struct ps_stream *s)
{
    if (atomic_load(&s->gone))
        return -ENOENT;
    if ((s->per_thread && s->owner != self) || s == &unplaced)
        return -EXDEV;
    if (ps_capture_anywhere() && is_capturing(s))
        return -EBUSY; /* the work would become a node of the program's graph, or end its capture */
    if (!ps_ordering_rule(JOINING_HOLDS_RECORDS)) {
        ps_ordering_rule_widen_window();
    }
    return 0;
}

void ps_stream_hold_records(struct ps_stream *s)
{
    pthread_mutex_lock(&s->record_lock);
}

void ps_stream_let_record(struct ps_stream *s)
{
    pthread_mutex_unlock(&s->record_lock);
}

static int tick(struct ps_stream *s, bool as_barrier)
{
    pthread_mutex_lock(&s->record_lock);
    int r = refusal(s);
    if (!r)
        r = record(s, as_barrier);
    pthread_mutex_unlock(&s->record_lock);
    return r;
}

int ps_stream_tick(struct ps_stream *s)
{
    if (s->per_thread)
        atomic_store(&s->unmarked, false); /* the owner is in this function and queues nothing meanwhile */
    return tick(s, false);
}

int ps_stream_free_is_barrier(struct ps_stream *s)
{
    if (!ps_stream_orders_others(s) || !ps_ordering_rule(FREE_ON_LEGACY_IS_BARRIER))
        return 0;
    return tick(s, true);
}

void ps_stream_launched_unseen(struct ps_stream *s)
{
    if (s->per_thread && !atomic_load_explicit(&s->unmarked, memory_order_relaxed))
        atomic_store(&s->unmarked, true);
}

void ps_stream_settle(const struct ps_stream *stream)
{
    struct ps_stream *own = stream ? NULL : own_stream;

    if (stream && stream->per_thread)
        own = (struct ps_stream *)stream;
    if (own && ps_stream_tick(own))
        ps_log_warn_once(TRACER, "no event could be recorded on a per-thread default stream");
}

int ps_stream_wait_event(struct ps_stream *s, CUevent event)
{
    pthread_mutex_lock(&s->record_lock);
    int r = refusal(s);
    if (!r)
        r = ps_stream_comes_after(s, event);
    pthread_mutex_unlock(&s->record_lock);
    return r;
}

int ps_stream_record(struct ps_stream *s, CUevent event)
{
    pthread_mutex_lock(&s->record_lock);
    int r = refusal(s);
    CUcontext entered = r ? NULL : enter(s);
    if (!r)
        r = record_behind(s, event);
    ps_context_leave(entered);
    pthread_mutex_unlock(&s->record_lock);
    return r;
}

void ps_stream_retire(CUstream handle)
{
    if (is_default(handle) || handle == CU_STREAM_LEGACY)
        return;
    CUcontext context = context_of(handle);
    pthread_mutex_lock(&table_lock);
    struct ps_stream *s = search(handle, context, false);
    pthread_mutex_unlock(&table_lock);
    if (!s)
        return;
    /*
     * Under the lock, so that another thread uses the handle before, or sees that the stream is
     * gone. If the stream is being captured, no tick is needed. Work from before the capture got a
     * tick when the capture began (capture.c), and work in it never runs.
     */
    pthread_mutex_lock(&s->record_lock);
    if (!(ps_capture_anywhere() && is_capturing(s)) && record(s, false))
        ps_log_info(TRACER, "no event could be recorded on a stream about to be destroyed");
    atomic_store(&s->gone, true);
    pthread_mutex_unlock(&s->record_lock);
    ps_capture_ended_with(s);
    atomic_fetch_add(&generation, 1);
}

/* Returns the context's first stream from that place on, or NULL. [table_lock held] */
static struct ps_stream *next_of(CUcontext context, uint32_t *place)
{
    for (uint32_t n = atomic_load(&count); *place < n;) {
        struct ps_stream *s = atomic_load(&table[(*place)++]);
        if (s->context == context)
            return s;
    }
    return NULL;
}

void ps_streams_end_context(CUcontext context)
{
    uint32_t place = 0;

    pthread_mutex_lock(&table_lock);
    struct ps_stream *s = next_of(context, &place);
    pthread_mutex_unlock(&table_lock);
    if (!s)
        return;
    /*
     * Two clocks: the events of the context go too, and can't show that its work is over. So this
     * thread waits for the work.
     */
    bool is_known = false;
    CUcontext pushed;
    if (!ps_context_enter(context, &pushed))
        is_known = ps_cu.cuCtxSynchronize() == CUDA_SUCCESS;
    ps_context_leave(pushed);
    pthread_mutex_lock(&table_lock);
    for (place = 0; (s = next_of(context, &place));) {
        pthread_mutex_lock(&s->record_lock);
        atomic_store(&s->gone, true);
        atomic_store(&s->over, is_known); /* false: its uses never count as over */
        atomic_store(&s->recorded, 0);
        s->context = NULL;
        s->shadow = NULL;
        memset(s->ring, 0, sizeof s->ring);
        for (unsigned i = 0; i < PS_TICK_RING; i++)
            atomic_store(&s->ring_tick[i], 0);
        pthread_mutex_unlock(&s->record_lock);
        ps_capture_ended_with(s);
    }
    pthread_mutex_unlock(&table_lock);
    atomic_fetch_add(&generation, 1);
}

int ps_stream_comes_after(const struct ps_stream *stream, CUevent event)
{
    if (stream == &unplaced) /* Two clocks: this thread has yet to queue the work. */
        return ps_event_host_wait(event);
    CUcontext entered = is_default(stream->handle) ? enter(stream) : NULL;
    int r = ps_cuda_errno(ps_cu.cuStreamWaitEvent(stream->handle, event, 0));

    ps_context_leave(entered);
    return r;
}

void ps_stream_or_host_comes_after(const struct ps_stream *stream, CUevent event)
{
    if (ps_stream_comes_after(stream, event) && ps_event_host_wait(event))
        ps_cu.cuCtxSynchronize(); /* the last resort, which needs no event */
}
