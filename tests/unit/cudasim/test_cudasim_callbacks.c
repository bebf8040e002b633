/*
 * The simulated CUPTI: one subscriber, driver callbacks in pairs with the call's parameters,
 * resource callbacks, nested calls.
 */
#include "unit_device.h"

#include <cupti.h>

static struct unit_device device;
static CUpti_SubscriberHandle subscriber;

static int enters, exits, streams_created, streams_destroyed, contexts_created, modules_loaded;
static CUresult exit_result;
static char symbol[64], function_name[64], launch_name[64];
static CUdeviceptr launched_address;
static uint64_t correlation_seen;
static bool nested_call_worked;
static size_t cubin_bytes;

static void on_driver(CUpti_CallbackId cbid, const CUpti_CallbackData *data)
{
    if (data->callbackSite == CUPTI_API_ENTER) {
        enters++;
        *data->correlationData = data->correlationId + 1000u;
        snprintf(function_name, sizeof function_name, "%s", data->functionName);
        snprintf(symbol, sizeof symbol, "%s", data->symbolName ? data->symbolName : "");
        if (cbid == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel || cbid == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz) {
            const cuLaunchKernel_params *params = data->functionParams;
            snprintf(launch_name, sizeof launch_name, "%s", data->functionName);
            launched_address = *(const CUdeviceptr *)params->kernelParams[0];
            /* Asks for the parameters' layout from inside the callback, as a tracer does. */
            size_t offset, size;
            nested_call_worked = cuFuncGetParamInfo(params->f, 1, &offset, &size) == CUDA_ERROR_INVALID_HANDLE &&
                                 cuKernelGetParamInfo((CUkernel)params->f, 1, &offset, &size) == CUDA_SUCCESS &&
                                 offset == 8 && size == 4;
        }
    } else {
        exits++;
        exit_result = *(const CUresult *)data->functionReturnValue;
        correlation_seen = *data->correlationData - data->correlationId;
    }
}

static void on_resource(CUpti_CallbackId cbid, const CUpti_ResourceData *data)
{
    streams_created += cbid == CUPTI_CBID_RESOURCE_STREAM_CREATED;
    streams_destroyed += cbid == CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING;
    contexts_created += cbid == CUPTI_CBID_RESOURCE_CONTEXT_CREATED;
    if (cbid == CUPTI_CBID_RESOURCE_MODULE_LOADED) {
        modules_loaded++;
        cubin_bytes = ((const CUpti_ModuleResourceData *)data->resourceDescriptor)->cubinSize;
    }
}

static void CUPTIAPI on_callback(void *userdata, CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void *data)
{
    if (userdata != &device)
        return;
    if (domain == CUPTI_CB_DOMAIN_DRIVER_API)
        on_driver(cbid, data);
    else if (domain == CUPTI_CB_DOMAIN_RESOURCE)
        on_resource(cbid, data);
}

static void driver_calls_call_back(void)
{
    CUdeviceptr memory;
    EXPECT_INT(CUPTI_SUCCESS, cuptiSubscribe(&subscriber, on_callback, &device));
    EXPECT_INT(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, cuptiSubscribe(&subscriber, on_callback, &device));
    EXPECT_INT(CUPTI_SUCCESS,
               cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel));
    EXPECT_INT(CUPTI_SUCCESS,
               cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2));
    open_device(&device);
    EXPECT_OK(cuMemAlloc(&memory, 64));
    EXPECT_INT(0, enters);
    EXPECT_OK(launch_fill(&device, memory, 4, 1, NULL));
    EXPECT_INT(1, enters);
    EXPECT_INT(1, exits);
    EXPECT_U64(memory, launched_address);
    EXPECT_TEXT("fill_words", symbol);
    EXPECT_TEXT("cuLaunchKernel", launch_name);
    EXPECT_U64(1000, correlation_seen);
    EXPECT(nested_call_worked);
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory + 1));
    EXPECT_INT(2, enters);
    EXPECT_TEXT("cuMemFree_v2", function_name);
    EXPECT_INT(CUDA_ERROR_INVALID_VALUE, exit_result);
    CUfunction function;
    size_t offset, size;
    EXPECT_OK(cuKernelGetFunction(&function, device.fill_words));
    EXPECT_OK(cuFuncGetParamInfo(function, 2, &offset, &size));
    EXPECT_U64(12, offset);
    EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuKernelGetParamInfo((CUkernel)function, 2, &offset, &size));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(function, 3, &offset, &size));
    EXPECT_INT(CUPTI_SUCCESS, cuptiUnsubscribe(subscriber));
    EXPECT_OK(launch_fill(&device, memory, 4, 1, NULL));
    EXPECT_INT(2, enters);
}

static void per_thread_calls_have_ids_of_their_own(void)
{
    typedef CUresult (*launch_call)(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
                                    unsigned int, unsigned int, CUstream, void **, void **);
    void *found = NULL;
    CUdeviceptr memory;
    uint32_t count = 4, value = 1;
    void *params[] = {&memory, &count, &value};
    EXPECT_INT(CUPTI_SUCCESS, cuptiSubscribe(&subscriber, on_callback, &device));
    EXPECT_INT(CUPTI_SUCCESS, cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API));
    open_device(&device);
    EXPECT_OK(cuMemAlloc(&memory, 64));
    EXPECT_OK(cuGetProcAddress("cuLaunchKernel", &found, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL));
    EXPECT_OK(((launch_call)found)((CUfunction)device.fill_words, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    EXPECT_TEXT("cuLaunchKernel_ptsz", launch_name);
    EXPECT_U64(memory, launched_address);
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_INT(enters, exits);
}

static void resources_call_back(void)
{
    static const char cubin[] = "not really an image";
    CUdeviceptr memory;
    CUstream stream;
    EXPECT_INT(CUPTI_SUCCESS, cuptiSubscribe(&subscriber, on_callback, &device));
    EXPECT_INT(CUPTI_SUCCESS, cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE));
    open_device(&device);
    EXPECT_INT(1, contexts_created);
    EXPECT_OK(cuStreamCreate(&stream, 0));
    EXPECT_INT(1, streams_created);
    EXPECT_OK(cuStreamDestroy(stream));
    EXPECT_INT(1, streams_destroyed);
    /* An image is announced when the first of its kernels is used, once. */
    CUkernel one = cudasim_register_kernel("one", &fill_words_code, cubin, sizeof cubin);
    CUkernel two = cudasim_register_kernel("two", &fill_words_code, cubin, sizeof cubin);
    EXPECT_INT(0, modules_loaded);
    EXPECT_OK(cuMemAlloc(&memory, 64));
    struct unit_device with_image = device;
    with_image.fill_words = one;
    EXPECT_OK(launch_fill(&with_image, memory, 1, 1, NULL));
    EXPECT_INT(1, modules_loaded);
    EXPECT_U64(sizeof cubin, cubin_bytes);
    with_image.fill_words = two;
    EXPECT_OK(launch_fill(&with_image, memory, 1, 1, NULL));
    EXPECT_INT(1, modules_loaded);
}

static void a_profiler_can_be_there_first(void)
{
    EXPECT_INT(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, cuptiSubscribe(&subscriber, on_callback, &device));
    const char *name = NULL;
    EXPECT_INT(CUPTI_SUCCESS, cuptiGetResultString(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, &name));
    EXPECT_TEXT("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED", name);
    EXPECT_INT(CUPTI_SUCCESS,
               cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz, &name));
    EXPECT_TEXT("cuLaunchKernel_ptsz", name);
}

int main(void)
{
    RUN_CASE(driver_calls_call_back);
    RUN_CASE(per_thread_calls_have_ids_of_their_own);
    RUN_CASE(resources_call_back);
    RUN_CASE(a_profiler_can_be_there_first, "CUDASIM_CUPTI_TAKEN", "1");
    return expect_status();
}
