/*
 * A program that uses the CUDA runtime in every way the sample trainers do, and some more, and
 * checks what comes of it. It knows nothing of the simulator: the same checks hold on a GPU. Prints
 * one line a check that fails, a closing line, and exits with the number of them (at most 125).
 *
 * Compiled by tests/bats/device/cudart.bats: with the legacy default stream, with a default stream
 * per thread, and as a shared object.
 */
#include <thread>

#include "selftest.h"
#include "selftest_graphs.h"
#include "selftest_mappings.h"
#include "selftest_variables.h"

/* One double between words of other sizes, so that a layout that is off by one word shows. */
struct affine {
    float factor;
    double offset;
    const float *in;
    uint32_t tag;
};

KERNEL(apply_affine, (float *out, struct affine how, size_t count), (out, how, count))
{
    FOR_EACH_ITEM(i, count)
    out[i] = how.tag == 7 ? static_cast<float>(how.factor * how.in[i] + how.offset) : -1.0f;
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

    /* Answers of H100 and H200 with CUDA 13.0. */
    EXPECT_ERROR(cudaLaunchKernel(stub, dim3(0), dim3(64), args, 0, 0), cudaErrorInvalidValue);
    EXPECT_ERROR(cudaLaunchKernel(stub, dim3(1), dim3(2048), args, 0, 0), cudaErrorInvalidValue);
    EXPECT_ERROR(cudaLaunchKernel(&value, dim3(1), dim3(1), args, 0, 0), cudaErrorInvalidResourceHandle);
    CHECK(cudaFree(y));
}

/*
 * Launches `fill` and passes `value` on: an argument that is itself a launch nests two
 * configurations.
 */
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

/*
 * Each of many rounds hands a value from one stream to the other and back; a wait that does not
 * hold shows as a wrong value.
 */
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
    CHECK(cudaMemcpy2D(device, pitch, host, WIDTH, WIDTH - 1, HEIGHT,
                       cudaMemcpyHostToDevice)); /* the last column stays */
    CHECK(cudaMemcpy2DAsync(back, WIDTH, device, pitch, WIDTH, HEIGHT, cudaMemcpyDeviceToHost, 0));
    CHECK(cudaStreamSynchronize(0));
    size_t wrong = 0;
    for (size_t row = 0; row < HEIGHT; row++)
        wrong += memcmp(host[0][row], back[0][row], WIDTH - 1) != 0 || back[0][row][WIDTH - 1] != 0xab;
    EXPECT(wrong == 0);
    EXPECT_ERROR(cudaMemcpy2D(device, pitch, host, WIDTH / 2, WIDTH, HEIGHT, cudaMemcpyHostToDevice),
                 cudaErrorInvalidPitchValue);
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

/*
 * A diamond: x is filled, each side adds it to a vector of its own, and then the sides are added.
 */
static void branches_of_a_graph_keep_their_order(void)
{
    float *x = new_floats(0.0f, ITEMS), *left = new_floats(0.0f, ITEMS), *right = new_floats(0.0f, ITEMS);
    cudaStream_t stream, side;
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t executable;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    LAUNCH(stream, ITEMS, fill, x, 2.0f, ITEMS);
    CHECK(cudaEventRecord(fork, stream));
    CHECK(cudaStreamWaitEvent(side, fork, 0));
    LAUNCH(stream, ITEMS, saxpy, left, x, 1.0f, ITEMS);
    LAUNCH(side, ITEMS, saxpy, right, x, 3.0f, ITEMS);
    CHECK(cudaEventRecord(join, side));
    CHECK(cudaStreamWaitEvent(stream, join, 0));
    LAUNCH(stream, ITEMS, saxpy, left, right, 1.0f, ITEMS);
    CHECK(cudaMemsetAsync(right, 0, BYTES, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    for (int launch = 1; launch <= 3; launch++) {
        CHECK(cudaGraphLaunch(executable, launch == 2 ? side : stream)); /* launches come one after the other */
        CHECK(cudaDeviceSynchronize());
        EXPECT(count_other_than(left, 8.0f * launch, ITEMS) == 0);
        EXPECT(count_other_than(right, 0.0f, ITEMS) == 0);
    }
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaEventDestroy(fork));
    CHECK(cudaEventDestroy(join));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaStreamDestroy(side));
    CHECK(cudaFree(x));
    CHECK(cudaFree(left));
    CHECK(cudaFree(right));
}

/* Only devices that share managed memory with the host at all times take prefetches and advice. */
static void managed_memory_is_prefetched(float *managed)
{
    struct cudaMemLocation place = {cudaMemLocationTypeDevice, 0};
    int concurrent = 0, where = -100, mostly = -100;

    CHECK(cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, 0));
    if (!concurrent)
        return;
    CHECK(cudaMemAdvise(managed, BYTES, cudaMemAdviseSetReadMostly, place));
    CHECK(cudaMemRangeGetAttribute(&mostly, sizeof(mostly), cudaMemRangeAttributeReadMostly, managed, BYTES));
    EXPECT(mostly == 1);
    CHECK(cudaMemAdvise(managed, BYTES, cudaMemAdviseUnsetReadMostly, place));
    CHECK(cudaMemRangeGetAttribute(&where, sizeof(where), cudaMemRangeAttributeLastPrefetchLocation, managed, BYTES));
    EXPECT(where == cudaInvalidDeviceId);
    CHECK(cudaMemPrefetchAsync(managed, BYTES, place, 0, 0));
    LAUNCH(0, ITEMS, fill, managed, 2.0f, ITEMS);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemRangeGetAttribute(&where, sizeof(where), cudaMemRangeAttributeLastPrefetchLocation, managed, BYTES));
    EXPECT(where == 0);
    EXPECT(managed[0] == 2.0f && managed[ITEMS - 1] == 2.0f);
    place.type = cudaMemLocationTypeHost;
    CHECK(cudaMemPrefetchAsync(managed, BYTES, place, 0, 0));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemRangeGetAttribute(&where, sizeof(where), cudaMemRangeAttributeLastPrefetchLocation, managed, BYTES));
    EXPECT(where == cudaCpuDeviceId);
    EXPECT(managed[1] == 2.0f);
}

static void managed_memory_is_the_hosts_too(void)
{
    struct cudaPointerAttributes attributes;
    float *managed = NULL;

    CHECK(cudaMallocManaged(&managed, BYTES));
    CHECK(cudaPointerGetAttributes(&attributes, managed));
    EXPECT(attributes.type == cudaMemoryTypeManaged);
    LAUNCH(0, ITEMS, fill, managed, 3.0f, ITEMS);
    CHECK(cudaDeviceSynchronize());
    EXPECT(managed[0] == 3.0f && managed[ITEMS - 1] == 3.0f);
    managed[7] = 5.0f;
    LAUNCH(0, ITEMS, saxpy, managed, managed, 1.0f, ITEMS);
    CHECK(cudaDeviceSynchronize());
    EXPECT(managed[7] == 10.0f && managed[8] == 6.0f);
    managed_memory_is_prefetched(managed);
    CHECK(cudaFree(managed));
}

/* Captures a fill of new memory, and a free of other memory, if any. */
static cudaGraphExec_t capture_memory(cudaStream_t stream, void **made, void *freed)
{
    cudaGraph_t graph;
    cudaGraphExec_t executable;

    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaMallocAsync(made, 4 << 20, stream));
    CHECK(cudaMemsetAsync(*made, 1, 4 << 20, stream));
    if (freed)
        CHECK(cudaFreeAsync(freed, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiateWithFlags(&executable, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
    CHECK(cudaGraphDestroy(graph));
    return executable;
}

static bool is_invalid(cudaError_t result)
{
    cudaGetLastError();
    return result == cudaErrorInvalidValue;
}

static void memory_of_a_graph_is_there_from_its_launch_to_its_free(void)
{
    cudaStream_t stream;
    void *a, *b;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaGraphExec_t first = capture_memory(stream, &a, NULL), second = capture_memory(stream, &b, a);
    EXPECT(is_invalid(cudaFreeAsync(a, stream)));
    EXPECT(is_invalid(cudaGraphLaunch(second, stream)));
    for (int i = 0; i < 2; i++) {
        CHECK(cudaGraphLaunch(first, stream)); /* frees what the one before it left */
        CHECK(cudaGraphLaunch(first, stream));
        CHECK(cudaFreeAsync(a, stream));
        EXPECT(is_invalid(cudaFreeAsync(a, stream)));
        CHECK(cudaGraphLaunch(first, stream));
        CHECK(cudaGraphLaunch(second, stream));
        EXPECT(is_invalid(cudaGraphLaunch(second, stream)));
    }
    CHECK(cudaGraphLaunch(first, stream));
    CHECK(cudaGraphExecDestroy(first));
    CHECK(cudaGraphExecDestroy(second));
    CHECK(cudaFreeAsync(a, stream));
    CHECK(cudaFree(b));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamDestroy(stream));
}

static void everything_works_after_a_reset(void)
{
    float first[3] = {};

    CHECK(cudaMemcpyToSymbol(first_values, first, sizeof(first)));
    CHECK(cudaDeviceReset());
    CHECK(cudaMemcpyFromSymbol(first, first_values, sizeof(first)));
    EXPECT(first[0] == 1.5f && first[2] == 3.5f);
    kernels_compute();
    CHECK(cudaDeviceReset());
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
    branches_of_a_graph_keep_their_order();
    test_graph_nodes();
    managed_memory_is_the_hosts_too();
    host_memory_may_be_the_devices_alone();
    memory_of_a_graph_is_there_from_its_launch_to_its_free();
    variables_are_of_the_device();
    nodes_copy_to_and_from_symbols();
    everything_works_after_a_reset();
}

/* Not only for main: loaded as a shared object, this is called by name. */
extern "C" int run_selftest(void)
{
    all_that_holds_anywhere();
    return selftest_status();
}

int main(void)
{
    return run_selftest();
}
