/* The simulated device: failures on request, refused requests, forks, and the ledger afterwards. */
#include <time.h>

#include "unit_device.h"

static struct unit_device device;

static const CUmemAllocationProp device_properties = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
};
static const CUmemAllocationProp host_properties = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {.type = CU_MEM_LOCATION_TYPE_HOST, .id = 0},
};

static void the_nth_call_fails(void)
{
    open_device(&device);
    CUdeviceptr address;
    EXPECT_OK(cuMemAlloc(&address, 64));
    EXPECT_OK(cuMemAlloc(&address, 64));
    EXPECT_CUDA(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&address, 64));
    EXPECT_OK(cuMemAlloc(&address, 64));
    CUevent event;
    EXPECT_CUDA(CUDA_ERROR_UNKNOWN, cuEventCreate(&event, 0));
    EXPECT_CUDA(CUDA_ERROR_UNKNOWN, cuEventCreate(&event, 0));
    CUstream stream;
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuStreamCreate(&stream, 0));
    EXPECT_OK(cuStreamCreate(&stream, 0));
}

static void host_and_device_handles_fail_apart(void)
{
    open_device(&device);
    CUmemGenericAllocationHandle handle;
    EXPECT_OK(cuMemCreate(&handle, device.granularity, &device_properties, 0));
    EXPECT_OK(cuMemCreate(&handle, device.granularity, &device_properties, 0));
    EXPECT_CUDA(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, device.granularity, &host_properties, 0));
    EXPECT_OK(cuMemCreate(&handle, device.granularity, &host_properties, 0));
    EXPECT_CUDA(CUDA_ERROR_UNKNOWN, cuMemCreate(&handle, device.granularity, &device_properties, 0));
    EXPECT_OK(cuMemCreate(&handle, device.granularity, &device_properties, 0));
}

static void unimplemented_calls_say_so(void)
{
    open_device(&device);
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR descriptor = {.Width = 4, .Height = 4, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuArrayCreate(&array, &descriptor));
}

static void names_are_looked_up(void)
{
    void *found = NULL, *versioned = NULL;
    CUdriverProcAddressQueryResult status;
    EXPECT_OK(cuGetProcAddress("cuMemAlloc", &found, 13000, 0, &status));
    EXPECT(found == (void *)cuMemAlloc);
    EXPECT_OK(cuGetProcAddress("cuLaunchKernel", &found, 13000, 0, &status));
    EXPECT_OK(
        cuGetProcAddress("cuLaunchKernel", &versioned, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
    EXPECT(found && versioned && found != versioned);
    EXPECT_OK(cuGetProcAddress("cuNoSuchCall", &found, 13000, 0, &status));
    EXPECT_INT(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, status);
    EXPECT(!found);
    EXPECT_CUDA(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("cuNoSuchCall", &found, 13000, 0, NULL));
    const char *text = NULL;
    EXPECT_OK(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
    EXPECT_TEXT("CUDA_ERROR_ILLEGAL_ADDRESS", text);
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGetErrorName((CUresult)123456, &text));
}

static void calls_need_a_context(void)
{
    CUdeviceptr address;
    CUstream stream;
    int count;
    EXPECT_CUDA(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
    EXPECT_CUDA(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc(&address, 4));
    EXPECT_OK(cuInit(0));
    EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc(&address, 4));
    EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, cuStreamCreate(&stream, 0));
    open_device(&device);
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&address, 0));
    EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
                launch_fill(&device, 0, 0, 0, NULL) == CUDA_SUCCESS ? cuMemFree(12345) : CUDA_SUCCESS);
    EXPECT_OK(cuDevicePrimaryCtxReset(0));
    EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc(&address, 4));
}

static int use_in_child(void *argument)
{
    (void)argument;
    int count;
    return cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED && cuInit(0) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1;
}

static void a_forked_child_has_no_device(void)
{
    open_device(&device);
    CUdeviceptr address;
    EXPECT_OK(cuMemAlloc(&address, 4096));
    EXPECT_OK(cuMemsetD8Async(address, 1, 4096, NULL));
    EXPECT_INT(0, run_child(use_in_child, NULL));
    EXPECT_OK(cuCtxSynchronize());
}

/* ---- the ledger ---- */

static char ledger_path[] = "/tmp/cudasim-ledger-XXXXXX";
static char ledger[1 << 16];

static void leave_traces(void)
{
    open_device(&device);
    CUdeviceptr plain, leaked;
    CUmemGenericAllocationHandle handle;
    CUstream stream;
    void *pinned;
    EXPECT_OK(cuMemAlloc(&plain, 8192));
    EXPECT_OK(cuMemAlloc(&leaked, 4096));
    EXPECT_OK(cuMemCreate(&handle, device.granularity, &device_properties, 0));
    EXPECT_OK(cuStreamCreate(&stream, 0));
    EXPECT_OK(cuMemHostAlloc(&pinned, 8192, 0));
    EXPECT_OK(cuMemcpyDtoHAsync(pinned, plain, 8192, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_OK(launch_fill(&device, plain, 1, 1, stream));
    EXPECT_OK(cuMemFree(plain));
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuGraphDebugDotPrint(NULL, "", 0));
    EXPECT_OK(launch_fill(&device, plain, 1, 1, stream));
    EXPECT_CUDA(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

static void expect_in_ledger(const char *line)
{
    if (!EXPECT(strstr(ledger, line) != NULL))
        fprintf(stderr, "  the ledger has no %s\n", line);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A record takes 2 ms, a query 100 us, and any other call 50 us. */
static void calls_take_their_time(void)
{
    CUevent event;
    uint64_t start;
    if (!open_device(&device))
        return;
    start = now_ns();
    EXPECT_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    EXPECT(now_ns() - start >= 50000);
    start = now_ns();
    for (unsigned int i = 0; i < 10; i++)
        EXPECT_OK(cuEventRecord(event, NULL));
    EXPECT(now_ns() - start >= 10 * 2000000);
    EXPECT_OK(cuCtxSynchronize());
    start = now_ns();
    for (unsigned int i = 0; i < 10; i++)
        cuEventQuery(event);
    EXPECT(now_ns() - start >= 10 * 100000);
}

static void the_ledger_tells(void)
{
    int descriptor = mkstemp(ledger_path);
    EXPECT(descriptor >= 0);
    close(descriptor);
    RUN_CASE(leave_traces, "CUDASIM_LEDGER", ledger_path);
    FILE *file = fopen(ledger_path, "r");
    size_t length = file ? fread(ledger, 1, sizeof ledger - 1, file) : 0;
    ledger[length] = 0;
    if (file)
        fclose(file);
    unlink(ledger_path);
    expect_in_ledger("\"cuMemAlloc_v2\": 2");
    expect_in_ledger("\"cuMemcpyDtoHAsync_v2\": 1");
    expect_in_ledger("\"cuGraphDebugDotPrint\": 1");
    expect_in_ledger("\"not_supported_calls\": 1");
    expect_in_ledger("\"bytes_async\": {\"h2d\": 0, \"d2h\": 8192,");
    expect_in_ledger("\"fill_words\": 1");
    expect_in_ledger("\"held\": {\"vmm\": 2097152, \"plain\": 4096, \"pool\": 0, \"device\": 2101248,");
    expect_in_ledger("\"peak\": {\"vmm\": 2097152, \"plain\": 12288, \"pool\": 0, \"device\": 2109440,");
    expect_in_ledger(
        "\"leaks\": {\"handles\": 1, \"mappings\": 0, \"reservations\": 0, \"events\": 0, \"streams\": 1, \"plain\": 1,");
    expect_in_ledger("\"unmapped_accesses\": 1");
    expect_in_ledger("\"unmapped_sites\": [{\"in\": \"fill_words\"");
    expect_in_ledger("\"poison_copied\": 2");
    expect_in_ledger("\"sticky_error\": \"CUDA_ERROR_ILLEGAL_ADDRESS\"");
}

int main(void)
{
    RUN_CASE(the_nth_call_fails, "CUDASIM_FAULT",
             "cuMemAlloc_v2:oom@3,cuEventCreate:error@1+,cuStreamCreate:notsupported@1");
    RUN_CASE(host_and_device_handles_fail_apart, "CUDASIM_FAULT", "cuMemCreate@host:oom@1,cuMemCreate@device:error@3");
    RUN_CASE(unimplemented_calls_say_so);
    RUN_CASE(names_are_looked_up);
    RUN_CASE(calls_need_a_context);
    RUN_CASE(a_forked_child_has_no_device);
    RUN_CASE(calls_take_their_time, "CUDASIM_CALL_NS", "others:50000,cuEventRecord:2000000,cuEventQuery:100000");
    the_ledger_tells();
    return expect_status();
}
