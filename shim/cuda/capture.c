#include "cuda/capture.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/ordering_rules.h"
#include "cuda/capture_mode.h"
#include "cuda/driver.h"
#include "cuda/streams.h"

#define WAITING_NS 100000000u /* how long a capture waits for waits that began before it */

atomic_uint ps_captures;

/* The stream on which the calling thread's call holds back records. */
static __thread struct ps_stream *beginning __attribute__((tls_model("initial-exec")));

static atomic_uint waiting; /* threads that wait for a whole context, or are about to */

static void one_is_over(void)
{
    unsigned now = atomic_load(&ps_captures);

    while (now && !atomic_compare_exchange_weak(&ps_captures, &now, now - 1)) {
    }
}

bool ps_capture_keep_out(void)
{
    /* Either this thread sees the capture that begins, or the capturing thread sees this one. */
    atomic_fetch_add(&waiting, 1);
    if (!atomic_load(&ps_captures))
        return true;
    ps_capture_let_in();
    return false;
}

void ps_capture_let_in(void)
{
    atomic_fetch_sub(&waiting, 1);
}

/*
 * Two clocks: a tick covers the stream's work so far, before any work on it is captured. If the
 * stream is destroyed while it is captured, no event can be recorded any more. This tick is then
 * the last one.
 */
static void cover(struct ps_stream *s)
{
    const int r = ps_ordering_rule(CAPTURED_WITH_TICK) ? ps_stream_tick(s) : -EINVAL;

    if (r != -EBUSY) /* otherwise the stream is captured already, or another capture bars it */
        atomic_store(&s->covered, !r);
}

static void hold_records(CUstream stream, bool per_thread_default)
{
    struct ps_stream *legacy = ps_stream_find_legacy();

    beginning = ps_stream_find(stream, per_thread_default);
    /* This may be a blocking stream. During its capture, the legacy stream can't record. */
    if (legacy && ps_stream_orders_others(legacy))
        cover(legacy);
    if (!beginning)
        return;
    cover(beginning);
    ps_stream_hold_records(beginning);
}

void ps_capture_begins(CUstream stream, bool per_thread_default)
{
    const uint64_t since = ps_now_ns();

    atomic_fetch_add(&ps_captures, 1);
    while (atomic_load(&waiting) && ps_sleep_within(since, WAITING_NS, 1000000)) {
    }
    hold_records(stream, per_thread_default);
}

static void let_record(void)
{
    if (beginning)
        ps_stream_let_record(beginning);
    beginning = NULL;
}

void ps_capture_began(bool succeeded)
{
    if (!succeeded)
        one_is_over();
    else if (beginning)
        atomic_store(&beginning->captured_from, true);
    let_record();
}

void ps_capture_may_be_joined(CUstream stream, bool per_thread_default)
{
    /*
     * If the event was recorded in a capture, that capture began before this call and is counted.
     */
    if (!ps_capture_anywhere() || !ps_ordering_rule(JOINING_HOLDS_RECORDS))
        return;
    hold_records(stream, per_thread_default);
}

void ps_capture_was_joined(void)
{
    let_record();
}

/* ---- captures that nothing counted ---- */

#define UNCOUNTED_MAX 64u

/*
 * Captures of per-thread default streams that began uncounted. Only the stream's own thread can ask
 * about one, so each counts until its thread looks. Changed under uncounted_lock.
 */
atomic_uint ps_capture_own_uncounted;
static bool own_are_counted; /* ps_capture_count has counted them, so new ones count at once */
/* The calling thread has begun such a capture, and has not looked since. */
static __thread bool own_began __attribute__((tls_model("initial-exec")));

/* Streams that still exist, on which the program has begun captures before they were counted. */
static pthread_mutex_t uncounted_lock = PTHREAD_MUTEX_INITIALIZER;
static CUstream uncounted[UNCOUNTED_MAX];
static unsigned uncounted_count;

static void own_begins(void)
{
    if (own_began)
        return;
    ps_thread_number(); /* the thread's end is noticed */
    own_began = true;
    pthread_mutex_lock(&uncounted_lock);
    if (own_are_counted)
        atomic_fetch_add(&ps_captures, 1);
    else
        atomic_fetch_add(&ps_capture_own_uncounted, 1);
    pthread_mutex_unlock(&uncounted_lock);
}

void ps_capture_own_ends(void)
{
    if (!own_began)
        return;
    own_began = false;
    pthread_mutex_lock(&uncounted_lock);
    if (own_are_counted)
        one_is_over();
    else
        atomic_fetch_sub(&ps_capture_own_uncounted, 1);
    pthread_mutex_unlock(&uncounted_lock);
}

void ps_capture_look_at_own(void)
{
    if (!own_began || beginning) /* ps_capture_count takes record locks while it holds uncounted_lock */
        return;
    if (!ps_capture_is_on(CU_STREAM_PER_THREAD)) {
        ps_capture_own_ends();
        return;
    }
    pthread_mutex_lock(&uncounted_lock);
    const bool is_counted = own_are_counted;
    pthread_mutex_unlock(&uncounted_lock);
    struct ps_stream *s = is_counted ? ps_stream_find(CU_STREAM_PER_THREAD, false) : NULL;
    if (!s || s->index >= PS_STREAMS_MAX)
        return;
    own_began = false;
    if (atomic_exchange(&s->captured_from, true))
        one_is_over();
}

void ps_capture_begins_uncounted(CUstream stream, bool per_thread_default)
{
    unsigned i = 0;

    if (stream == CU_STREAM_PER_THREAD || (!stream && per_thread_default)) {
        own_begins();
        return;
    }
    if (!stream)
        return;
    pthread_mutex_lock(&uncounted_lock);
    while (i < uncounted_count && uncounted[i] != stream)
        i++;
    if (i == uncounted_count && i < UNCOUNTED_MAX)
        uncounted[uncounted_count++] = stream;
    pthread_mutex_unlock(&uncounted_lock);
}

void ps_capture_uncounted_goes(CUstream stream)
{
    pthread_mutex_lock(&uncounted_lock);
    for (unsigned i = uncounted_count; i-- > 0;)
        if (!stream || uncounted[i] == stream)
            uncounted[i] = uncounted[--uncounted_count];
    pthread_mutex_unlock(&uncounted_lock);
}

/* Returns whether the driver has told whether a stream is captured, or that no such stream is. */
static bool is_told(CUresult result)
{
    return result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
           result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_NOT_INITIALIZED || ps_cuda_is_fault(result) ||
           ps_cuda_has_ended(result);
}

/*
 * Asks the driver for the stream's status, twice if need be: it may refuse for a moment. Says that
 * it goes on refusing. Returns the driver's answer.
 */
static CUresult ask(CUstream stream, CUstreamCaptureStatus *status)
{
    CUresult result = ps_cu.cuStreamIsCapturing(stream, status);

    if (!is_told(result))
        result = ps_cu.cuStreamIsCapturing(stream, status);
    if (!is_told(result))
        ps_log_warn_once(PROCESS,
                         "the driver can't tell whether a stream is captured (error %d): the driver may refuse a "
                         "capture of the program's; see `penstock doctor`",
                         result);
    return result;
}

bool ps_capture_is_on(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    return ps_cu.cuStreamIsCapturing && ask(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* A thread that begins a capture on the stream now holds its records until it has counted it. */
static void count_if_captured(struct ps_stream *s)
{
    ps_stream_hold_records(s);
    if (ps_capture_is_on(s->handle) && !atomic_exchange(&s->captured_from, true))
        atomic_fetch_add(&ps_captures, 1);
    ps_stream_let_record(s);
    if (atomic_load(&s->captured_from) && !ps_capture_is_on(s->handle)) /* another thread has just ended it */
        ps_capture_ended_with(s);
}

bool ps_capture_some_uncounted(void)
{
    ps_capture_look_at_own();
    pthread_mutex_lock(&uncounted_lock);
    bool are = ps_capture_own_are_uncounted();
    for (unsigned i = 0; i < uncounted_count && !are; i++)
        are = ps_capture_is_on(uncounted[i]);
    pthread_mutex_unlock(&uncounted_lock);
    return are;
}

void ps_capture_count(void)
{
    ps_capture_look_at_own();
    pthread_mutex_lock(&uncounted_lock);
    atomic_fetch_add(&ps_captures, atomic_exchange(&ps_capture_own_uncounted, 0));
    own_are_counted = true;
    for (unsigned i = 0; i < uncounted_count; i++) {
        struct ps_stream *s = ps_capture_is_on(uncounted[i]) ? ps_stream_find(uncounted[i], false) : NULL;
        if (s && s->index < PS_STREAMS_MAX)
            count_if_captured(s);
    }
    uncounted_count = 0;
    pthread_mutex_unlock(&uncounted_lock);
}

/* ---- frees ---- */

#define FREES_MAX 64u

/*
 * Streams that were being captured when memory was freed on them. Streams of captures that are over
 * may stay in the list.
 */
static pthread_mutex_t frees_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ps_stream *freed_on[FREES_MAX];
static unsigned frees;

/* Returns the id of the stream's capture; 0: none. */
static cuuint64_t capture_of(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;

    if (!ps_cu.cuStreamGetCaptureInfo ||
        ps_cu.cuStreamGetCaptureInfo(stream, &status, &id, NULL, NULL, NULL, NULL) != CUDA_SUCCESS)
        return 0;
    return status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? id : 0;
}

void ps_capture_freed_on(CUstream stream, bool per_thread_default)
{
    unsigned i = 0;

    if (!ps_capture_has(stream, per_thread_default))
        return;
    struct ps_stream *s = ps_stream_find(stream, per_thread_default);
    pthread_mutex_lock(&frees_lock);
    while (i < frees && freed_on[i] != s)
        i++;
    if (i == frees && frees < FREES_MAX && !s->per_thread)
        freed_on[frees++] = s;
    pthread_mutex_unlock(&frees_lock);
}

/* Two clocks: both calls go into the graph, where `stream` then comes after the work of `s`. */
static void join(CUstream stream, CUstream s)
{
    CUevent event;

    if (ps_cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return;
    if (ps_cu.cuEventRecord(event, s) == CUDA_SUCCESS)
        ps_cu.cuStreamWaitEvent(stream, event, 0);
    ps_cu.cuEventDestroy(event);
}

void ps_capture_ends(CUstream stream, bool per_thread_default)
{
    unsigned left = 0;

    if (!stream && per_thread_default)
        stream = CU_STREAM_PER_THREAD;
    pthread_mutex_lock(&frees_lock);
    cuuint64_t id = frees ? capture_of(stream) : 0;
    for (unsigned i = 0; id && i < frees; i++) {
        struct ps_stream *s = freed_on[i];
        ps_stream_hold_records(s); /* the handle is valid while `gone`, read under this hold, is false */
        cuuint64_t one = atomic_load(&s->gone) ? 0 : capture_of(s->handle);
        if (one == id && s->handle != stream)
            join(stream, s->handle);
        ps_stream_let_record(s);
        if (one && one != id)
            freed_on[left++] = s;
    }
    if (id)
        frees = left;
    pthread_mutex_unlock(&frees_lock);
}

/* ---- the end ---- */

void ps_capture_ended_with(struct ps_stream *s)
{
    if (atomic_exchange(&s->captured_from, false))
        one_is_over();
}

void ps_capture_ended(CUstream stream, bool per_thread_default, CUresult result)
{
    struct ps_stream *s = ps_stream_find(stream, per_thread_default);
    bool is_over = result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ||
                   result == CUDA_ERROR_STREAM_CAPTURE_UNJOINED;

    /*
     * After other errors (the wrong stream, or no capture) a capture goes on. It has ended if it
     * began on this stream, and the driver says that the stream is not captured.
     */
    if (!is_over && !(atomic_load(&s->captured_from) && !ps_capture_has(stream, per_thread_default)))
        return;
    if (s->index >= PS_STREAMS_MAX)
        one_is_over();
    else
        ps_capture_ended_with(s);
}

/*
 * No capture uses the legacy stream. Yet it can't be used while a blocking stream is captured
 * (cuda.h, cuStreamIsCapturing).
 */
bool ps_capture_has(CUstream stream, bool per_thread_default)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    if (!ps_capture_anywhere() || !ps_cu.cuStreamIsCapturing)
        return false;
    if (!stream && per_thread_default)
        stream = CU_STREAM_PER_THREAD;
    const CUresult result = ask(stream, &status);
    if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
        return ps_ordering_rule(CAPTURE_BARS_LEGACY);
    return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void ps_capture_enter(void)
{
    ps_capture_mode_enter();
    if (ps_capture_anywhere())
        ps_capture_mode_relax();
}
