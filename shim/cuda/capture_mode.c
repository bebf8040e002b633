#include "cuda/capture_mode.h"

#include <stdbool.h>

#include "base/log.h"
#include "base/ordering_rules.h"
#include "cuda/driver.h"

static __thread struct {
    unsigned depth;
    bool is_relaxed, for_good;
    CUstreamCaptureMode before; /* the program's mode, while is_relaxed */
} mine __attribute__((tls_model("initial-exec")));

/* Tries twice: the driver may refuse for a moment, and a call in the wrong mode ends a capture. */
static bool exchange(CUstreamCaptureMode *mode)
{
    if (!ps_ordering_rule(CAPTURE_STAYS_VALID) || !ps_cu.cuThreadExchangeStreamCaptureMode)
        return false;
    CUresult result = ps_cu.cuThreadExchangeStreamCaptureMode(mode);
    if (result != CUDA_SUCCESS)
        result = ps_cu.cuThreadExchangeStreamCaptureMode(mode);
    if (result == CUDA_SUCCESS)
        return true;
    /* Then no capture goes on. */
    if (ps_cuda_has_ended(result) || ps_cuda_is_fault(result) || result == CUDA_ERROR_NOT_INITIALIZED)
        return false;
    ps_log_warn_once(PROCESS, "the driver refuses a capture mode in which other calls are allowed: the driver may "
                              "refuse a capture of the program's; see `penstock doctor`");
    return false;
}

void ps_capture_mode_enter(void)
{
    mine.depth++;
}

void ps_capture_mode_leave(void)
{
    if (--mine.depth || !mine.is_relaxed)
        return;
    mine.is_relaxed = false;
    exchange(&mine.before);
}

void ps_capture_mode_relax(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    if (mine.is_relaxed || mine.for_good || !mine.depth || !exchange(&mode))
        return;
    mine.before = mode;
    mine.is_relaxed = true;
}

void ps_capture_mode_relax_for_good(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    mine.for_good = exchange(&mode);
}
