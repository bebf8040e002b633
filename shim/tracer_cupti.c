/*
 * The tracer's usual source of events: a CUPTI subscriber on the driver domain, for launches, copies and memsets, and on the resource domain,
 * for modules and streams. It sees calls by libraries with a static runtime of their own too (FACTS).
 *
 * Callbacks run on the thread that makes the call, before (ENTER) and after (EXIT) the driver queues it; their data is valid only inside.
 */
#include <cupti.h>
#include <errno.h>

#include "helper_thread.h"
#include "layouts.h"
#include "log.h"
#include "real_cupti.h"
#include "tracer.h"

/* cuda.h maps the plain name to the newest version; here every version is meant by its own name. */
#undef cuMemcpyBatchAsync

static bool subscribed;

#define CBID(name) CUPTI_DRIVER_TRACE_CBID_##name

/* A batch of copies; unordered inside, so every address is one access of the call. */
static void name_batch(const CUdeviceptr *dsts, const CUdeviceptr *srcs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ps_trace_address(dsts[i]);
        ps_trace_address(srcs[i]);
    }
}

/* A launch or copy is about to be queued: names what it uses. False: not a call that is looked at. */
static bool name_launch(CUpti_CallbackId id, const void *parameters)
{
#define LAUNCH(name, per_thread)                                                                                                           \
    case CBID(name): {                                                                                                                     \
        const name##_params *p = parameters;                                                                                               \
        ps_trace_begin(p->hStream, per_thread);                                                                                            \
        ps_trace_kernel(p->f, (uint64_t)p->gridDimX * p->gridDimY * p->gridDimZ, p->kernelParams, EXTRA);                                  \
        return true;                                                                                                                       \
    }
#define LAUNCH_EX(name, per_thread)                                                                                                        \
    case CBID(name): {                                                                                                                     \
        const name##_params *p = parameters;                                                                                               \
        ps_trace_begin(p->config->hStream, per_thread);                                                                                    \
        ps_trace_kernel(p->f, (uint64_t)p->config->gridDimX * p->config->gridDimY * p->config->gridDimZ, p->kernelParams, p->extra);       \
        return true;                                                                                                                       \
    }
    switch (id) {
#define EXTRA p->extra
        LAUNCH(cuLaunchKernel, false)
        LAUNCH(cuLaunchKernel_ptsz, true)
#undef EXTRA
#define EXTRA NULL
        LAUNCH(cuLaunchCooperativeKernel, false)
        LAUNCH(cuLaunchCooperativeKernel_ptsz, true)
#undef EXTRA
        LAUNCH_EX(cuLaunchKernelEx, false)
        LAUNCH_EX(cuLaunchKernelEx_ptsz, true)
    default:
        return false;
    }
#undef LAUNCH
#undef LAUNCH_EX
}

static bool name_copy(CUpti_CallbackId id, const void *parameters)
{
#define ONE(full_name, stream, per_thread, a, b)                                                                                           \
    case CBID(full_name): {                                                                                                                \
        const full_name##_params *p = parameters;                                                                                          \
        ps_trace_begin(stream, per_thread);                                                                                                \
        ps_trace_address((CUdeviceptr)(a));                                                                                                \
        ps_trace_address((CUdeviceptr)(b));                                                                                                \
        return true;                                                                                                                       \
    }
#define PS_ASYNC(name, a, b) ONE(name, p->hStream, false, a, b) ONE(name##_ptsz, p->hStream, true, a, b)
#define PS_SYNC(name, a, b) ONE(name, ((void)p, (CUstream)NULL), false, a, b) ONE(name##_ptds, ((void)p, (CUstream)NULL), true, a, b)
#define PS_VALUE(name) ONE(name, p->stream, false, p->addr, 0) ONE(name##_ptsz, p->stream, true, p->addr, 0)
#define BATCH(name, per_thread)                                                                                                            \
    case CBID(name): {                                                                                                                     \
        const name##_params *p = parameters;                                                                                               \
        ps_trace_begin(p->hStream, per_thread);                                                                                            \
        name_batch(p->dsts, p->srcs, p->count);                                                                                            \
        return true;                                                                                                                       \
    }
    switch (id) {
#include "traced_calls.def"
        BATCH(cuMemcpyBatchAsync, false)
        BATCH(cuMemcpyBatchAsync_ptsz, true)
        BATCH(cuMemcpyBatchAsync_v2, false)
        BATCH(cuMemcpyBatchAsync_v2_ptsz, true)
    default:
        return false;
    }
#undef ONE
#undef PS_ASYNC
#undef PS_SYNC
#undef PS_VALUE
#undef BATCH
}

static void note_capture(CUpti_CallbackId id, const CUpti_CallbackData *data)
{
    bool succeeded = data->functionReturnValue && *(const CUresult *)data->functionReturnValue == CUDA_SUCCESS;

    switch (id) {
    case CBID(cuStreamBeginCapture):
    case CBID(cuStreamBeginCapture_ptsz):
    case CBID(cuStreamBeginCapture_v2):
    case CBID(cuStreamBeginCapture_v2_ptsz):
    case CBID(cuStreamBeginCaptureToGraph):
    case CBID(cuStreamBeginCaptureToGraph_ptsz):
        if (succeeded)
            ps_trace_capture_began();
        break;
    case CBID(cuStreamEndCapture):
    case CBID(cuStreamEndCapture_ptsz):
        ps_trace_capture_ended(); /* a capture that became invalid ends here too, with an error */
        break;
    default:
        break;
    }
}

/*
 * A stream is about to be destroyed. Seen where the call begins, not as CUPTI's resource event: that one comes with a lock of the driver's held,
 * and a thread that records on the stream holds the stream's lock while it waits for the driver's (seen on an H200: a deadlock).
 */
static void retire_stream(CUpti_CallbackId id, const void *parameters)
{
    switch (id) {
    case CBID(cuStreamDestroy):
        ps_stream_retire(((const cuStreamDestroy_params *)parameters)->hStream);
        break;
    case CBID(cuStreamDestroy_v2):
        ps_stream_retire(((const cuStreamDestroy_v2_params *)parameters)->hStream);
        break;
    default:
        break;
    }
}

/* A question about an address, by whatever way the program came to the driver. */
static void heed_query(CUpti_CallbackId id, const void *parameters)
{
    switch (id) {
    case CBID(cuPointerGetAttribute):
        ps_trace_asked_about(((const cuPointerGetAttribute_params *)parameters)->ptr);
        break;
    case CBID(cuPointerGetAttributes):
        ps_trace_asked_about(((const cuPointerGetAttributes_params *)parameters)->ptr);
        break;
    case CBID(cuMemGetAddressRange_v2):
        ps_trace_asked_about(((const cuMemGetAddressRange_v2_params *)parameters)->dptr);
        break;
    default:
        break;
    }
}

static void on_driver_call(CUpti_CallbackId id, const CUpti_CallbackData *data)
{
    if (data->callbackSite == CUPTI_API_EXIT) {
        ps_trace_end();
        note_capture(id, data);
        return;
    }
    if (name_launch(id, data->functionParams))
        ps_trace_ready(true);
    else if (name_copy(id, data->functionParams))
        ps_trace_ready(false);
    else {
        retire_stream(id, data->functionParams);
        heed_query(id, data->functionParams);
    }
}

static void on_resource(CUpti_CallbackId id, const CUpti_ResourceData *data)
{
    switch (id) {
    case CUPTI_CBID_RESOURCE_MODULE_LOADED: {
        const CUpti_ModuleResourceData *module = data->resourceDescriptor;
        if (module)
            ps_layouts_add_cubin(module->pCubin, module->cubinSize);
        break;
    }
    case CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING:
        ps_layouts_module_gone();
        break;
    default:
        break;
    }
}

static void CUPTIAPI on_callback(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data)
{
    (void)user;
    if (ps_inside)
        return;
    ps_inside++;
    if (domain == CUPTI_CB_DOMAIN_DRIVER_API)
        on_driver_call(id, data);
    else if (domain == CUPTI_CB_DOMAIN_RESOURCE)
        on_resource(id, data);
    ps_inside--;
}

/* Every call that on_driver_call looks at. */
static const CUpti_CallbackId driver_calls[] = {
    CBID(cuLaunchKernel),
    CBID(cuLaunchKernel_ptsz),
    CBID(cuLaunchKernelEx),
    CBID(cuLaunchKernelEx_ptsz),
    CBID(cuLaunchCooperativeKernel),
    CBID(cuLaunchCooperativeKernel_ptsz),
#define PS_ASYNC(name, a, b) CBID(name), CBID(name##_ptsz),
#define PS_SYNC(name, a, b) CBID(name), CBID(name##_ptds),
#define PS_VALUE(name) CBID(name), CBID(name##_ptsz),
#include "traced_calls.def"
#undef PS_ASYNC
#undef PS_SYNC
#undef PS_VALUE
    CBID(cuMemcpyBatchAsync),
    CBID(cuMemcpyBatchAsync_ptsz),
    CBID(cuMemcpyBatchAsync_v2),
    CBID(cuMemcpyBatchAsync_v2_ptsz),
    CBID(cuStreamBeginCapture),
    CBID(cuStreamBeginCapture_ptsz),
    CBID(cuStreamBeginCapture_v2),
    CBID(cuStreamBeginCapture_v2_ptsz),
    CBID(cuStreamBeginCaptureToGraph),
    CBID(cuStreamBeginCaptureToGraph_ptsz),
    CBID(cuStreamEndCapture),
    CBID(cuStreamEndCapture_ptsz),
    CBID(cuStreamDestroy),
    CBID(cuStreamDestroy_v2),
    CBID(cuPointerGetAttribute),
    CBID(cuPointerGetAttributes),
    CBID(cuMemGetAddressRange_v2),
};

/* Calls that an older CUPTI does not know: their absence costs nothing. */
static bool may_be_unknown(CUpti_CallbackId id)
{
    return id == CBID(cuMemcpyBatchAsync) || id == CBID(cuMemcpyBatchAsync_ptsz) || id == CBID(cuMemcpyBatchAsync_v2) ||
           id == CBID(cuMemcpyBatchAsync_v2_ptsz) || id == CBID(cuStreamBeginCaptureToGraph) ||
           id == CBID(cuStreamBeginCaptureToGraph_ptsz);
}

int ps_tracer_cupti_start(const char *cupti_path, const char **why)
{
    static const CUpti_CallbackId resource_calls[] = {CUPTI_CBID_RESOURCE_MODULE_LOADED, CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING};
    const struct ps_real_cupti *cupti = ps_real_cupti_load(cupti_path);
    CUpti_SubscriberHandle subscriber;

    *why = "CUPTI (libcupti.so.13 or .12) was not found; PENSTOCK_CUPTI names the file";
    if (!cupti)
        return -ENOENT;
    CUptiResult r = cupti->cuptiSubscribe(&subscriber, on_callback, NULL);
    if (r != CUPTI_SUCCESS) {
        *why = r == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
                   ? "another tool (a profiler, a sanitizer) has subscribed to CUPTI, which serves one at a time"
                   : "CUPTI refused to be subscribed to";
        return r == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED ? -EBUSY : -EIO;
    }
    for (size_t i = 0; i < sizeof driver_calls / sizeof *driver_calls && r == CUPTI_SUCCESS; i++) {
        r = cupti->cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, driver_calls[i]);
        if (r != CUPTI_SUCCESS && may_be_unknown(driver_calls[i]))
            r = CUPTI_SUCCESS;
    }
    for (size_t i = 0; i < sizeof resource_calls / sizeof *resource_calls && r == CUPTI_SUCCESS; i++)
        r = cupti->cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, resource_calls[i]);
    if (r != CUPTI_SUCCESS) {
        cupti->cuptiUnsubscribe(subscriber);
        *why = "CUPTI does not offer the callbacks that are needed";
        return -EIO;
    }
    subscribed = true;
    *why = NULL;
    return 0;
}

const char *ps_tracer_name(void)
{
    return subscribed ? "cupti" : "none";
}
