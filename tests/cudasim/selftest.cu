/*
 * A program that uses the CUDA runtime in every way the sample trainers do, and some more, and checks what comes of it. It knows nothing of
 * the simulator: the same checks hold on a GPU. Prints one line a check that fails, a closing line, and exits with the number of them (at
 * most 125).
 *
 * Without arguments it runs the checks that hold on either device. An argument names something that ends the context's life, or that has an
 * answer of its own on the simulator: illegal-address, cubin (either), missing, unsupported (simulator only).
 *
 * Compiled by tests/10-cudart.bats: with the legacy default stream, with a default stream per thread, and as a shared object.
 */
#include <dlfcn.h>
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <thread>

#include <cuda.h>
#include <cuda_runtime.h>
#include <cupti.h>

#include "../samples/kernel.h"

static unsigned checks_made;
static unsigned checks_failed;

#define EXPECT(condition) \
    do { \
        checks_made++; \
        if (!(condition)) { \
            checks_failed++; \
            fprintf(stderr, "selftest.cu:%d: %s: not so: %s\n", __LINE__, __func__, #condition); \
        } \
    } while (0)

/* A result that has to be a certain error, which must not linger as the last error. */
#define EXPECT_ERROR(call, expected) \
    do { \
        cudaError_t got_ = (call); \
        checks_made++; \
        if (got_ != (expected)) { \
            checks_failed++; \
            fprintf(stderr, "selftest.cu:%d: %s: %s gave %s, not %s\n", __LINE__, __func__, #call, cudaGetErrorName(got_), \
                    cudaGetErrorName(expected)); \
        } \
        cudaGetLastError(); \
    } while (0)

/* One double between words of other sizes, so that a layout that is off by one word shows. */
struct affine {
    float factor;
    double offset;
    const float *in;
    uint32_t tag;
};

static const size_t ITEMS = 100000;
static const size_t BYTES = ITEMS * sizeof(float);

KERNEL(saxpy, (float *y, const float *x, float a, size_t count), (y, x, a, count))
{
    FOR_EACH_ITEM(i, count)
        y[i] += a * x[i];
}

KERNEL(fill, (float *out, float value, size_t count), (out, value, count))
{
    FOR_EACH_ITEM(i, count)
        out[i] = value;
}

KERNEL(apply_affine, (float *out, struct affine how, size_t count), (out, how, count))
{
    FOR_EACH_ITEM(i, count)
        out[i] = how.tag == 7 ? static_cast<float>(how.factor * how.in[i] + how.offset) : -1.0f;
}

/* How many of `count` floats on the device differ from `value`; copies them back synchronously. */
static size_t count_other_than(const float *device, float value, size_t count)
{
    float *host = static_cast<float *>(malloc(count * sizeof(float)));
    size_t others = 0;

    CHECK(cudaMemcpy(host, device, count * sizeof(float), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++)
        others += host[i] != value;
    free(host);
    return others;
}

static float *new_floats(float value, size_t count)
{
    float *device = NULL;

    CHECK(cudaMalloc(&device, count * sizeof(float)));
    LAUNCH(0, count, fill, device, value, count);
    return device;
}

static void kernels_compute(void)
{
    float *x = new_floats(3.0f, ITEMS);
    float *y = new_floats(1.0f, ITEMS);

    LAUNCH(0, ITEMS, saxpy, y, x, 2.0f, ITEMS);
    EXPECT(count_other_than(y, 7.0f, ITEMS) == 0);

    struct affine how = {0.5f, 100.0, x, 7};
    LAUNCH(0, ITEMS, apply_affine, y, how, ITEMS);
    how.tag = 8; /* parameters are copied at launch: the kernel must not see this */
    EXPECT(count_other_than(y, 101.5f, ITEMS) == 0);
    CHECK(cudaFree(x));
    CHECK(cudaFree(y));
}

static void launches_take_every_form(void)
{
    float *y = new_floats(0.0f, ITEMS);
    float value = 1.0f;
    size_t count = ITEMS;
    void *args[] = {&y, &value, &count};
    const void *stub = reinterpret_cast<const void *>(fill);

    CHECK(cudaLaunchKernel(stub, dim3(8), dim3(64), args, 0, 0));
    EXPECT(count_other_than(y, 1.0f, ITEMS) == 0);

    value = 2.0f;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(4);
    config.blockDim = dim3(32);
    CHECK(cudaLaunchKernelExC(&config, stub, args));
    EXPECT(count_other_than(y, 2.0f, ITEMS) == 0);

    value = 3.0f;
    CHECK(cudaLaunchCooperativeKernel(stub, dim3(2), dim3(32), args, 0, 0));
    EXPECT(count_other_than(y, 3.0f, ITEMS) == 0);

    value = 4.0f;
    cudaKernel_t kernel = NULL;
    CHECK(cudaGetKernel(&kernel, stub));
    CHECK(cudaLaunchKernel(reinterpret_cast<const void *>(kernel), dim3(8), dim3(64), args, 0, 0));
    EXPECT(count_other_than(y, 4.0f, ITEMS) == 0);

    EXPECT_ERROR(cudaLaunchKernel(stub, dim3(0), dim3(64), args, 0, 0), cudaErrorInvalidConfiguration);
    EXPECT_ERROR(cudaLaunchKernel(stub, dim3(1), dim3(2048), args, 0, 0), cudaErrorInvalidConfiguration);
    EXPECT_ERROR(cudaLaunchKernel(&value, dim3(1), dim3(1), args, 0, 0), cudaErrorInvalidDeviceFunction);
    CHECK(cudaFree(y));
}

/* Launches `fill` and passes `value` on: an argument that is itself a launch nests two configurations. */
static float fill_and_pass(float *out, float value)
{
    fill<<<3, 33>>>(out, value, ITEMS);
    return value;
}

static void launches_nest(void)
{
    float *inner = new_floats(0.0f, ITEMS);
    float *outer = new_floats(0.0f, ITEMS);

    fill<<<5, 55>>>(outer, fill_and_pass(inner, 6.0f) + 1.0f, ITEMS);
    CHECK(cudaGetLastError());
    EXPECT(count_other_than(inner, 6.0f, ITEMS) == 0);
    EXPECT(count_other_than(outer, 7.0f, ITEMS) == 0);
    CHECK(cudaFree(inner));
    CHECK(cudaFree(outer));
}

static void kernels_tell_their_parameters(void)
{
    const void *stub = reinterpret_cast<const void *>(apply_affine);
    const size_t offsets[] = {0, 8, 8 + sizeof(struct affine)};
    const size_t sizes[] = {8, sizeof(struct affine), 8};

    size_t offset = 0;
    size_t size = 0;
    for (size_t i = 0; i < 3; i++) {
        CHECK(cudaFuncGetParamInfo(stub, i, &offset, &size));
        EXPECT(offset == offsets[i] && size == sizes[i]);
    }
    EXPECT_ERROR(cudaFuncGetParamInfo(stub, 3, &offset, &size), cudaErrorInvalidValue);

    const char *name = NULL;
    cudaFunction_t function = NULL;
    CHECK(cudaFuncGetName(&name, stub));
    EXPECT(name != NULL && strcmp(name, "apply_affine") == 0);
    CHECK(cudaGetFuncBySymbol(&function, stub));
    EXPECT(function != NULL);

    struct cudaFuncAttributes attributes;
    CHECK(cudaFuncGetAttributes(&attributes, stub));
    EXPECT(attributes.maxThreadsPerBlock >= KERNEL_BLOCK);
}

/* Each of many rounds hands a value from one stream to the other and back; a wait that does not hold shows as a wrong value. */
static void events_order_streams(void)
{
    cudaStream_t first, second;
    cudaEvent_t filled, added;
    float *x = new_floats(0.0f, ITEMS);
    float *y = new_floats(0.0f, ITEMS);

    CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithPriority(&second, cudaStreamNonBlocking, 0));
    CHECK(cudaEventCreateWithFlags(&filled, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&added, cudaEventDisableTiming));
    CHECK(cudaDeviceSynchronize());
    for (int round = 1; round <= 10; round++) {
        CHECK(cudaStreamWaitEvent(first, added, 0)); /* never recorded in round 1: no wait */
        LAUNCH(first, ITEMS, fill, x, static_cast<float>(round), ITEMS);
        CHECK(cudaEventRecord(filled, first));
        CHECK(cudaStreamWaitEvent(second, filled, 0));
        LAUNCH(second, ITEMS, saxpy, y, x, 1.0f, ITEMS);
        CHECK(cudaEventRecord(added, second));
    }
    CHECK(cudaEventSynchronize(added));
    CHECK(cudaEventQuery(added));
    EXPECT(count_other_than(y, 55.0f, ITEMS) == 0);

    CHECK(cudaEventDestroy(filled));
    CHECK(cudaEventDestroy(added));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
    CHECK(cudaFree(x));
    CHECK(cudaFree(y));
}

static void blocking_streams_follow_the_default_stream(void)
{
    cudaStream_t stream;
    float *y = NULL;

    CHECK(cudaMalloc(&y, BYTES));
    CHECK(cudaStreamCreate(&stream));
    for (int round = 0; round < 5; round++) {
        LAUNCH(cudaStreamLegacy, ITEMS, fill, y, 1.0f, ITEMS);
        LAUNCH(stream, ITEMS, saxpy, y, y, 1.0f, ITEMS);
        LAUNCH(cudaStreamLegacy, ITEMS, saxpy, y, y, 1.0f, ITEMS);
    }
    CHECK(cudaDeviceSynchronize());
    EXPECT(count_other_than(y, 4.0f, ITEMS) == 0);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(y));
}

static void events_measure_time(void)
{
    cudaEvent_t start, end;
    float milliseconds = -1.0f;
    float *y = new_floats(0.0f, ITEMS);

    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaEventRecord(start));
    LAUNCH(0, ITEMS, fill, y, 1.0f, ITEMS);
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&milliseconds, start, end));
    EXPECT(milliseconds >= 0.0f && milliseconds < 60000.0f);
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(end));
    CHECK(cudaFree(y));
}

static void memory_is_allocated_in_stream_order(void)
{
    cudaStream_t stream;
    cudaMemPool_t pool;
    uint64_t used = 0;
    float *x, *y;
    float *host;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMallocHost(&host, BYTES));
    CHECK(cudaMallocAsync(&x, BYTES, stream));
    LAUNCH(stream, ITEMS, fill, x, 2.0f, ITEMS);
    CHECK(cudaMallocAsync(&y, BYTES, stream));
    CHECK(cudaMemsetAsync(y, 0, BYTES, stream));
    LAUNCH(stream, ITEMS, saxpy, y, x, 3.0f, ITEMS);
    CHECK(cudaFreeAsync(x, stream));
    CHECK(cudaMallocAsync(&x, BYTES, stream)); /* may be the same memory: only order keeps the copy below right */
    LAUNCH(stream, ITEMS, fill, x, -1.0f, ITEMS);
    CHECK(cudaMemcpyAsync(host, y, BYTES, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    EXPECT(used >= 2 * BYTES);
    CHECK(cudaFreeAsync(x, stream));
    CHECK(cudaFreeAsync(y, stream));
    CHECK(cudaStreamSynchronize(stream));
    size_t wrong = 0;
    for (size_t i = 0; i < ITEMS; i++)
        wrong += host[i] != 6.0f;
    EXPECT(wrong == 0);
    CHECK(cudaMemPoolTrimTo(pool, 0));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    EXPECT(used == 0);
    CHECK(cudaFreeHost(host));
    CHECK(cudaStreamDestroy(stream));
}

static void copies_go_every_way(void)
{
    float *host = static_cast<float *>(malloc(BYTES));
    float *back = static_cast<float *>(malloc(BYTES));
    float *x = new_floats(0.0f, ITEMS);
    float *y = new_floats(0.0f, ITEMS);

    for (size_t i = 0; i < ITEMS; i++)
        host[i] = static_cast<float>(i);
    CHECK(cudaMemcpy(x, host, BYTES, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(y, x, BYTES, cudaMemcpyDeviceToDevice));
    CHECK(cudaMemcpy(back, y, BYTES, cudaMemcpyDefault));
    EXPECT(memcmp(host, back, BYTES) == 0);

    CHECK(cudaMemcpyAsync(x, host, BYTES, cudaMemcpyHostToDevice, 0));
    memset(host, 0xff, BYTES); /* pageable memory is taken before the call returns */
    CHECK(cudaMemcpyAsync(y, x, BYTES, cudaMemcpyDefault, 0));
    memset(back, 0, BYTES);
    CHECK(cudaMemcpy(back, y, BYTES, cudaMemcpyDeviceToHost));
    EXPECT(back[1] == 1.0f && back[ITEMS - 1] == static_cast<float>(ITEMS - 1));

    CHECK(cudaMemcpy(back, host, BYTES, cudaMemcpyHostToHost));
    EXPECT(memcmp(host, back, BYTES) == 0);
    EXPECT_ERROR(cudaMemcpy(x, host, BYTES, static_cast<enum cudaMemcpyKind>(17)), cudaErrorInvalidMemcpyDirection);
    CHECK(cudaFree(x));
    CHECK(cudaFree(y));
    free(host);
    free(back);
}

static void pitched_memory_keeps_its_rows(void)
{
    enum { WIDTH = 100, HEIGHT = 7, DEPTH = 3 };
    unsigned char host[DEPTH][HEIGHT][WIDTH];
    unsigned char back[DEPTH][HEIGHT][WIDTH];
    unsigned char *device;
    size_t pitch = 0;

    for (size_t i = 0; i < sizeof host; i++)
        (&host[0][0][0])[i] = static_cast<unsigned char>(i * 7);
    CHECK(cudaMallocPitch(&device, &pitch, WIDTH, HEIGHT));
    EXPECT(pitch >= WIDTH);
    CHECK(cudaMemset2D(device, pitch, 0xab, WIDTH, HEIGHT));
    CHECK(cudaMemcpy2D(device, pitch, host, WIDTH, WIDTH - 1, HEIGHT, cudaMemcpyHostToDevice)); /* the last column stays */
    CHECK(cudaMemcpy2DAsync(back, WIDTH, device, pitch, WIDTH, HEIGHT, cudaMemcpyDeviceToHost, 0));
    CHECK(cudaStreamSynchronize(0));
    size_t wrong = 0;
    for (size_t row = 0; row < HEIGHT; row++)
        wrong += memcmp(host[0][row], back[0][row], WIDTH - 1) != 0 || back[0][row][WIDTH - 1] != 0xab;
    EXPECT(wrong == 0);
    EXPECT_ERROR(cudaMemcpy2D(device, pitch, host, WIDTH / 2, WIDTH, HEIGHT, cudaMemcpyHostToDevice), cudaErrorInvalidPitchValue);
    CHECK(cudaFree(device));

    struct cudaPitchedPtr volume;
    CHECK(cudaMalloc3D(&volume, make_cudaExtent(WIDTH, HEIGHT, DEPTH)));
    CHECK(cudaMemset3D(volume, 0, make_cudaExtent(WIDTH, HEIGHT, DEPTH)));
    struct cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(host, WIDTH, WIDTH, HEIGHT);
    copy.dstPtr = volume;
    copy.extent = make_cudaExtent(WIDTH, HEIGHT, DEPTH);
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
    copy.srcPtr = volume;
    copy.dstPtr = make_cudaPitchedPtr(back, WIDTH, WIDTH, HEIGHT);
    copy.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3DAsync(&copy, 0));
    CHECK(cudaStreamSynchronize(0));
    EXPECT(memcmp(host, back, sizeof host) == 0);
    CHECK(cudaFree(volume.ptr));
}

static void host_memory_is_known(void)
{
    float *pinned = NULL;
    float *mapped = NULL;
    float on_stack = 0.0f;
    float *device = new_floats(0.0f, ITEMS);
    struct cudaPointerAttributes attributes;

    CHECK(cudaHostAlloc(&pinned, BYTES, cudaHostAllocMapped));
    CHECK(cudaHostGetDevicePointer(&mapped, pinned, 0));
    LAUNCH(0, ITEMS, fill, mapped, 5.0f, ITEMS);
    CHECK(cudaDeviceSynchronize());
    EXPECT(pinned[0] == 5.0f && pinned[ITEMS - 1] == 5.0f);

    CHECK(cudaPointerGetAttributes(&attributes, pinned));
    EXPECT(attributes.type == cudaMemoryTypeHost && attributes.hostPointer == pinned);
    CHECK(cudaPointerGetAttributes(&attributes, device + 1));
    EXPECT(attributes.type == cudaMemoryTypeDevice && attributes.device == 0 && attributes.devicePointer == device + 1);
    CHECK(cudaPointerGetAttributes(&attributes, &on_stack));
    EXPECT(attributes.type == cudaMemoryTypeUnregistered && attributes.devicePointer == NULL);
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(device));
}

static void add_one(void *data)
{
    ++*static_cast<int *>(data);
}

static void CUDART_CB add_two(cudaStream_t, cudaError_t status, void *data)
{
    *static_cast<int *>(data) += status == cudaSuccess ? 2 : 100;
}

static void host_functions_run_in_order(void)
{
    cudaStream_t stream;
    int count = 0;

    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaLaunchHostFunc(stream, add_one, &count));
    CHECK(cudaStreamAddCallback(stream, add_two, &count, 0));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(count == 3);
    CHECK(cudaStreamDestroy(stream));
}

static void errors_are_kept_per_thread(void)
{
    void *pointer = NULL;

    EXPECT(cudaMalloc(&pointer, static_cast<size_t>(1) << 60) == cudaErrorMemoryAllocation);
    EXPECT(cudaPeekAtLastError() == cudaErrorMemoryAllocation);
    cudaError_t elsewhere = cudaErrorUnknown;
    std::thread([&elsewhere] { elsewhere = cudaGetLastError(); }).join();
    EXPECT(elsewhere == cudaSuccess);
    CHECK(cudaDeviceSynchronize()); /* a success does not clear it */
    EXPECT(cudaGetLastError() == cudaErrorMemoryAllocation);
    EXPECT(cudaGetLastError() == cudaSuccess);

    EXPECT_ERROR(cudaFree(&pointer), cudaErrorInvalidValue);
    EXPECT_ERROR(cudaSetDevice(99), cudaErrorInvalidDevice);
    EXPECT(strcmp(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation") == 0);
    EXPECT(strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory") == 0);
    CHECK(cudaFree(NULL));
    CHECK(cudaMalloc(&pointer, 0));
    EXPECT(pointer == NULL);
}

static void queries_leave_no_error(void)
{
    cudaStream_t stream;
    float *x = new_floats(0.0f, ITEMS);

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaDeviceSynchronize()); /* the default stream filled `x` */
    for (int i = 0; i < 50; i++)
        LAUNCH(stream, ITEMS, fill, x, 1.0f, ITEMS);
    cudaError_t state = cudaStreamQuery(stream);
    EXPECT(state == cudaSuccess || state == cudaErrorNotReady);
    EXPECT(cudaPeekAtLastError() == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(x));
}

static void devices_describe_themselves(void)
{
    struct cudaDeviceProp properties;
    int count = 0;
    int device = -1;
    int major = 0;
    int runtime = 0;
    size_t free_bytes = 0;
    size_t total_bytes = 0;

    CHECK(cudaGetDeviceCount(&count));
    EXPECT(count >= 1);
    CHECK(cudaGetDevice(&device));
    EXPECT(device == 0);
    CHECK(cudaGetDeviceProperties(&properties, device));
    CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    EXPECT(properties.name[0] != 0 && properties.major == major && properties.warpSize == 32);
    CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    EXPECT(free_bytes <= total_bytes && total_bytes <= properties.totalGlobalMem);
    CHECK(cudaRuntimeGetVersion(&runtime));
    EXPECT(runtime == CUDART_VERSION);
}

static void driver_entry_points_are_found(void)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult status;

    CHECK(cudaGetDriverEntryPointByVersion("cuMemCreate", &function, 12000, cudaEnableDefault, &status));
    EXPECT(function != NULL && status == cudaDriverEntryPointSuccess);
    cudaError_t error = cudaGetDriverEntryPointByVersion("cuNoSuchCall", &function, 12000, cudaEnableDefault, &status);
    EXPECT(error == cudaSuccess && function == NULL && status == cudaDriverEntryPointSymbolNotFound);
}

static void work_of_one_thread(float value, size_t *wrong)
{
    float *x = new_floats(value, ITEMS);
    float *y = new_floats(value, ITEMS);

    for (int i = 0; i < 20; i++)
        LAUNCH(cudaStreamPerThread, ITEMS, fill, y, value, ITEMS);
    CHECK(cudaStreamSynchronize(0)); /* `x` and `y` were filled on the default stream that this file was compiled for */
    LAUNCH(cudaStreamPerThread, ITEMS, saxpy, y, x, 1.0f, ITEMS);
    CHECK(cudaStreamSynchronize(cudaStreamPerThread));
    *wrong = count_other_than(y, 2 * value, ITEMS);
    CHECK(cudaFree(x));
    CHECK(cudaFree(y));
}

static void threads_work_side_by_side(void)
{
    enum { THREADS = 4 };
    std::thread threads[THREADS];
    size_t wrong[THREADS];

    for (int i = 0; i < THREADS; i++)
        threads[i] = std::thread(work_of_one_thread, 1.0f + i, &wrong[i]);
    for (int i = 0; i < THREADS; i++) {
        threads[i].join();
        EXPECT(wrong[i] == 0);
    }
}

static void graphs_replay_what_was_captured(void)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    enum cudaStreamCaptureStatus status;
    float *x = new_floats(1.0f, ITEMS);
    float *y = new_floats(0.0f, ITEMS);

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaStreamIsCapturing(stream, &status));
    EXPECT(status == cudaStreamCaptureStatusActive);
    LAUNCH(stream, ITEMS, saxpy, y, x, 1.0f, ITEMS);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(count_other_than(y, 0.0f, ITEMS) == 0);
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 3; i++)
        CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(count_other_than(y, 3.0f, ITEMS) == 0);
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(x));
    CHECK(cudaFree(y));
}

static void everything_works_after_a_reset(void)
{
    CHECK(cudaDeviceReset());
    kernels_compute();
    CHECK(cudaDeviceReset());
}

/* Addresses that are reserved and never mapped: a kernel that writes there ends the context's life. */
static void an_illegal_address_is_sticky(void)
{
    void *function = NULL;
    CUdeviceptr reserved = 0;
    enum cudaDriverEntryPointQueryResult status;
    float *good = new_floats(1.0f, ITEMS);

    CHECK(cudaGetDriverEntryPointByVersion("cuMemAddressReserve", &function, 10020, cudaEnableDefault, &status));
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long) =
        reinterpret_cast<CUresult (*)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)>(function);
    EXPECT(reserve(&reserved, static_cast<size_t>(1) << 30, 0, 0, 0) == CUDA_SUCCESS);
    fill<<<1, 32>>>(reinterpret_cast<float *>(reserved), 1.0f, 1000);
    EXPECT(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    EXPECT(cudaPeekAtLastError() == cudaErrorIllegalAddress);
    EXPECT(cudaMalloc(&good, BYTES) == cudaErrorIllegalAddress);
    fill<<<1, 32>>>(good, 1.0f, 1000);
    EXPECT(cudaGetLastError() == cudaErrorIllegalAddress);
}

static unsigned cubins_loaded;
static bool cubin_describes_saxpy;

static void CUPTIAPI on_module(void *, CUpti_CallbackDomain, CUpti_CallbackId id, const void *data)
{
    const CUpti_ResourceData *resource = static_cast<const CUpti_ResourceData *>(data);
    if (id != CUPTI_CBID_RESOURCE_MODULE_LOADED)
        return;
    const CUpti_ModuleResourceData *module = static_cast<const CUpti_ModuleResourceData *>(resource->resourceDescriptor);
    static const char section[] = ".nv.info.saxpy";
    Elf64_Ehdr header;

    cubins_loaded++;
    EXPECT(module->pCubin != NULL && module->cubinSize > sizeof header);
    memcpy(&header, module->pCubin, sizeof header);
    EXPECT(memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_machine == EM_CUDA);
    if (memmem(module->pCubin, module->cubinSize, section, sizeof section) != NULL)
        cubin_describes_saxpy = true;
}

/* What nvcc put into this program is what a CUPTI subscriber is shown, once, at the first use of a kernel. */
static void the_cubin_is_announced(void)
{
    CUpti_SubscriberHandle subscriber;
    void *cupti = dlopen("libcupti.so.13", RTLD_NOW);
    EXPECT(cupti != NULL);
    if (cupti == NULL)
        return;
    decltype(&cuptiSubscribe) subscribe = reinterpret_cast<decltype(&cuptiSubscribe)>(dlsym(cupti, "cuptiSubscribe"));
    decltype(&cuptiEnableDomain) enable = reinterpret_cast<decltype(&cuptiEnableDomain)>(dlsym(cupti, "cuptiEnableDomain"));

    EXPECT(subscribe(&subscriber, on_module, NULL) == CUPTI_SUCCESS);
    EXPECT(enable(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE) == CUPTI_SUCCESS);
    CHECK(cudaFree(NULL));
    kernels_compute();
    EXPECT(cubins_loaded >= 1);
    EXPECT(cubin_describes_saxpy);
    unsigned loaded = cubins_loaded;
    kernels_compute();
    EXPECT(cubins_loaded == loaded);
}

/* A kernel with no version for the host: the simulator can't run it, and must not pretend to. */
extern "C" __global__ void device_only(float *out)
{
    out[threadIdx.x] = 1.0f;
}

static void a_kernel_without_host_version_fails(void)
{
    void *args[] = {NULL};
    EXPECT_ERROR(cudaLaunchKernel(reinterpret_cast<const void *>(device_only), dim3(1), dim3(1), args, 0, 0),
                 cudaErrorNoKernelImageForDevice);
    device_only<<<1, 1>>>(NULL);
    EXPECT(cudaGetLastError() != cudaSuccess);
    CHECK(cudaDeviceSynchronize());
}

__device__ float device_variable;

static void what_is_not_simulated_says_so(void)
{
    cudaArray_t array;
    struct cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    float value = 0.0f;

    CHECK(cudaFree(NULL)); /* the ledger is that of a process that used the device */
    EXPECT(cudaMallocArray(&array, &format, 16, 16) == cudaErrorNotSupported);
    EXPECT(cudaPeekAtLastError() == cudaErrorNotSupported);
    EXPECT_ERROR(cudaMemcpyToSymbol(device_variable, &value, sizeof value), cudaErrorNotSupported);
}

static void all_that_holds_anywhere(void)
{
    kernels_compute();
    launches_take_every_form();
    launches_nest();
    kernels_tell_their_parameters();
    events_order_streams();
    blocking_streams_follow_the_default_stream();
    events_measure_time();
    memory_is_allocated_in_stream_order();
    copies_go_every_way();
    pitched_memory_keeps_its_rows();
    host_memory_is_known();
    host_functions_run_in_order();
    errors_are_kept_per_thread();
    queries_leave_no_error();
    devices_describe_themselves();
    driver_entry_points_are_found();
    threads_work_side_by_side();
    graphs_replay_what_was_captured();
    everything_works_after_a_reset();
}

/* Not only for main: loaded as a shared object, this is called by name. */
extern "C" int run_selftest(const char *what)
{
    if (what == NULL)
        all_that_holds_anywhere();
    else if (strcmp(what, "illegal-address") == 0)
        an_illegal_address_is_sticky();
    else if (strcmp(what, "cubin") == 0)
        the_cubin_is_announced();
    else if (strcmp(what, "missing") == 0)
        a_kernel_without_host_version_fails();
    else if (strcmp(what, "unsupported") == 0)
        what_is_not_simulated_says_so();
    else
        EXPECT(!"a known argument");
    printf("selftest: %u checks, %u failed\n", checks_made, checks_failed);
    fflush(stdout);
    return checks_failed > 125 ? 125 : static_cast<int>(checks_failed);
}

int main(int argc, char **argv)
{
    return run_selftest(argc > 1 ? argv[1] : NULL);
}
