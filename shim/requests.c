#include "requests.h"

#include <errno.h>

#include "capture.h"
#include "counters.h"
#include "helper_thread.h"
#include "log.h"
#include "process.h"
#include "registry.h"
#include "residency.h"
#include "tracing.h"

bool ps_request_may_be_span(size_t bytes)
{
    if (ps_inside)
        return false;
    if (!ps_process_is_managing()) {
        ps_count_passthrough(disabled);
        return false;
    }
    if (bytes < ps_settings.min_span) {
        ps_count_passthrough(small);
        return false;
    }
    if (ps_capture_anywhere()) {
        ps_count_passthrough(capture);
        return false;
    }
    return true;
}

enum ps_request ps_request_span(size_t bytes, struct ps_stream *stream, CUdeviceptr *address)
{
    ps_process_bind_thread();
    ps_inside++;
    struct ps_capture_mode mode = ps_capture_relax(); /* one may have begun meanwhile, on another thread */
    ps_tracing_start_if_due(bytes);
    int r = ps_residency_allocate(bytes, stream, address);
    ps_capture_restore(mode);
    ps_inside--;
    if (!r)
        return PS_REQUEST_SPAN;
    if (r == -ENOMEM)
        return PS_REQUEST_OUT_OF_MEMORY;
    ps_count_passthrough(no_addresses);
    return PS_REQUEST_REAL;
}

bool ps_request_free(CUdeviceptr address, struct ps_stream *stream)
{
    ps_process_bind_thread();
    ps_inside++;
    struct ps_capture_mode mode = ps_capture_relax();
    int r = ps_residency_free(address, stream);
    ps_capture_restore(mode);
    ps_inside--;
    if (r)
        ps_log_debug(HOOKS, "a free of %#llx, where no live allocation begins", (unsigned long long)address);
    return r == 0;
}
