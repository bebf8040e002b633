#include "capture.h"

#include <stddef.h>

#include "real_cuda.h"
#include "rules.h"
#include "streams.h"

atomic_uint ps_captures;

/* The stream on which the calling thread's call keeps us from recording. */
static __thread struct ps_stream *beginning __attribute__((tls_model("initial-exec")));

void ps_capture_begins(CUstream stream, bool per_thread_default)
{
    atomic_fetch_add(&ps_captures, 1);
    beginning = ps_stream_find(stream, per_thread_default);
    if (beginning)
        ps_stream_hold_records(beginning);
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
        ps_capture_ended();
    let_record();
}

void ps_capture_may_be_joined(CUstream stream, bool per_thread_default)
{
    /* The event was recorded in a capture before this call, if it was: that capture has been counted. */
    if (!ps_capture_anywhere() || !ps_rule(JOINING_HOLDS_RECORDS))
        return;
    beginning = ps_stream_find(stream, per_thread_default);
    if (beginning)
        ps_stream_hold_records(beginning);
}

void ps_capture_was_joined(void)
{
    let_record();
}

void ps_capture_ended(void)
{
    unsigned now = atomic_load(&ps_captures);

    while (now && !atomic_compare_exchange_weak(&ps_captures, &now, now - 1)) {
    }
}

bool ps_capture_has(CUstream stream, bool per_thread_default)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    if (!ps_capture_anywhere() || !ps_cu.cuStreamIsCapturing)
        return false;
    if (!stream && per_thread_default)
        stream = CU_STREAM_PER_THREAD;
    return ps_cu.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static bool exchange(CUstreamCaptureMode *mode)
{
    return ps_rule(CAPTURE_STAYS_VALID) && ps_cu.cuThreadExchangeStreamCaptureMode &&
           ps_cu.cuThreadExchangeStreamCaptureMode(mode) == CUDA_SUCCESS;
}

void ps_capture_relax_thread(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    exchange(&mode);
}

struct ps_capture_mode ps_capture_relax(void)
{
    struct ps_capture_mode mode = {false, CU_STREAM_CAPTURE_MODE_RELAXED};

    if (ps_capture_anywhere())
        mode.changed = exchange(&mode.before);
    return mode;
}

void ps_capture_restore(struct ps_capture_mode mode)
{
    if (mode.changed)
        exchange(&mode.before);
}
