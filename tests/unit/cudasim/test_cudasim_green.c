/* The simulated device: green contexts, their resources, streams, events and ends. */
#include "unit_device.h"
#include "unit_words.h"

static CUdevResource device_resource(void)
{
    CUdevResource all;
    EXPECT_OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    return all;
}

/* Returns a green context of `sm_count` multiprocessors. */
static CUgreenCtx new_green(unsigned int sm_count)
{
    CUdevResource all = device_resource(), part;
    CUdevResourceDesc descriptor;
    CUgreenCtx green = NULL;
    unsigned int groups = 1;
    EXPECT_OK(cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, sm_count));
    EXPECT_INT(1, groups);
    EXPECT_OK(cuDevResourceGenerateDesc(&descriptor, &part, 1));
    EXPECT_OK(cuGreenCtxCreate(&green, descriptor, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
}

static CUstream green_stream(CUgreenCtx green)
{
    CUstream stream = NULL;
    EXPECT_OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    return stream;
}

static CUcontext context_of_green(CUgreenCtx green)
{
    CUcontext context = NULL;
    EXPECT_OK(cuCtxFromGreenCtx(&context, green));
    return context;
}

struct gate {
    uint32_t *word;
};

/* Holds back all later work of the stream. */
static struct gate hold(CUstream stream)
{
    struct gate gate;
    EXPECT_OK(cuMemHostAlloc((void **)&gate.word, sizeof *gate.word, 0));
    *gate.word = 0;
    EXPECT_OK(cuStreamWaitValue32(stream, (CUdeviceptr)(uintptr_t)gate.word, 1, CU_STREAM_WAIT_VALUE_EQ));
    return gate;
}

static void let_go(struct gate gate)
{
    __atomic_store_n(gate.word, 1, __ATOMIC_SEQ_CST);
}

static void resources_are_split_by_the_rules(void)
{
    open_device(&device);
    CUdevResource all = device_resource(), part[64], rest, other;
    CUdevResourceDesc descriptor;
    unsigned int groups = 0, most = all.sm.smCount / 16;
    EXPECT_INT(CU_DEV_RESOURCE_TYPE_SM, all.type);
    EXPECT_CUDA(CUDA_ERROR_INVALID_RESOURCE_TYPE, cuDeviceGetDevResource(0, &other, CU_DEV_RESOURCE_TYPE_INVALID));
    EXPECT_CUDA(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetDevResource(7, &other, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT_OK(cuDevSmResourceSplitByCount(NULL, &groups, &all, NULL, 0, 9));
    EXPECT_INT(most, groups); /* 9 becomes 16 */
    groups = 2;
    EXPECT_OK(cuDevSmResourceSplitByCount(part, &groups, &all, &rest, 0, 9));
    EXPECT_INT(2, groups);
    EXPECT_INT(16, part[0].sm.smCount);
    EXPECT_INT(all.sm.smCount - 32, rest.sm.smCount);
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
                cuDevSmResourceSplitByCount(part, &groups, &all, NULL, 0, all.sm.smCount + 1));
    EXPECT_CUDA(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
                cuDevSmResourceSplitByCount(NULL, &groups, &part[0], NULL, 0, 8));
    /* Parts of two splits do not go together; those of one do, the rest too. */
    groups = 1;
    EXPECT_OK(cuDevSmResourceSplitByCount(&other, &groups, &all, NULL, 0, 8));
    part[2] = other;
    EXPECT_CUDA(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, cuDevResourceGenerateDesc(&descriptor, part, 3));
    part[2] = rest;
    EXPECT_OK(cuDevResourceGenerateDesc(&descriptor, part, 3));
    CUgreenCtx green;
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGreenCtxCreate(&green, descriptor, 0, 0));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGreenCtxCreate(&green, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    EXPECT_OK(cuGreenCtxCreate(&green, descriptor, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    EXPECT_OK(cuGreenCtxGetDevResource(green, &other, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT_INT(all.sm.smCount, other.sm.smCount);
    EXPECT_OK(cuCtxGetDevResource(device.context, &other, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT_INT(all.sm.smCount, other.sm.smCount);
    EXPECT_OK(cuGreenCtxDestroy(green));
    /* A context's resource may be split again. */
    green = new_green(16);
    EXPECT_OK(cuCtxGetDevResource(context_of_green(green), &other, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT_INT(16, other.sm.smCount);
    EXPECT_OK(cuDevSmResourceSplitByCount(NULL, &groups, &other, NULL, 0, 8));
    EXPECT_INT(2, groups);
}

static void streams_belong_to_their_context_and_share_memory(void)
{
    open_device(&device);
    CUgreenCtx green = new_green(8), of = NULL;
    CUcontext context = context_of_green(green), is = NULL;
    CUstream stream = green_stream(green), ordinary = new_stream(CU_STREAM_NON_BLOCKING), here;
    unsigned long long id = 0, other = 0;
    EXPECT(context != device.context);
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGreenCtxStreamCreate(&here, green, CU_STREAM_DEFAULT, 0));
    EXPECT_OK(cuStreamGetCtx(stream, &is));
    EXPECT(is == context);
    EXPECT_OK(cuStreamGetGreenCtx(stream, &of));
    EXPECT(of == green);
    EXPECT_OK(cuStreamGetGreenCtx(ordinary, &of));
    EXPECT(!of);
    EXPECT_OK(cuGreenCtxGetId(green, &id));
    EXPECT_OK(cuCtxGetId(device.context, &other));
    EXPECT(id != other);
    CUdeviceptr memory = allocate(), made;
    EXPECT_OK(launch_fill(&device, memory, WORDS, 5, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_U64(WORDS, words_with(memory, 5));
    /* With the context current: its default stream, streams made there, and memory. */
    EXPECT_OK(cuCtxPushCurrent(context));
    EXPECT_OK(cuStreamGetGreenCtx(NULL, &of));
    EXPECT(of == green);
    EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(CU_STREAM_PER_THREAD));
    EXPECT_OK(cuStreamCreate(&here, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuStreamGetGreenCtx(here, &of));
    EXPECT(of == green);
    EXPECT_OK(cuMemAlloc(&made, BYTES));
    EXPECT_OK(cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_CONTEXT, made));
    EXPECT(is == device.context);
    EXPECT_OK(launch_fill(&device, made, WORDS, 6, NULL));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_OK(cuCtxPopCurrent(NULL));
    EXPECT_U64(WORDS, words_with(made, 6));
    EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy(context));
}

/* Waits for the primary context wait for green work; those for a green one do not. */
static void waits_of_contexts_cover_green_work(void)
{
    open_device(&device);
    CUgreenCtx green = new_green(8);
    CUstream stream = green_stream(green), ordinary = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr memory = allocate();
    CUevent of_all = new_event(), of_green = new_event(), in_stream = new_event();
    struct gate gate = hold(stream);
    EXPECT_OK(launch_fill(&device, memory, WORDS, 7, stream));
    EXPECT_OK(cuEventRecord(in_stream, stream)); /* an event of the primary context */
    EXPECT_OK(cuCtxRecordEvent(device.context, of_all));
    EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuEventQuery(of_all));
    EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuEventQuery(in_stream));
    let_go(gate);
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_OK(cuEventQuery(in_stream));
    EXPECT_U64(WORDS, words_with(memory, 7));
    gate = hold(stream);
    EXPECT_OK(launch_fill(&device, memory, WORDS, 7, stream));
    let_go(gate);
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_OK(cuStreamQuery(stream));

    gate = hold(ordinary);
    EXPECT_OK(launch_fill(&device, memory, WORDS, 8, stream));
    EXPECT_OK(cuGreenCtxRecordEvent(green, of_green)); /* not of the ordinary stream's work */
    EXPECT_OK(cuEventSynchronize(of_green));
    EXPECT_OK(cuEventRecord(in_stream, ordinary));
    EXPECT_OK(cuGreenCtxWaitEvent(green, in_stream));
    EXPECT_OK(launch_fill(&device, memory, WORDS, 9, stream));
    EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    let_go(gate);
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_U64(WORDS, words_with(memory, 9));

    /* A wait of the primary context holds green work too. */
    gate = hold(ordinary);
    EXPECT_OK(cuEventRecord(in_stream, ordinary));
    EXPECT_OK(cuCtxWaitEvent(device.context, in_stream));
    EXPECT_OK(launch_fill(&device, memory, WORDS, 10, stream));
    EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    let_go(gate);
    EXPECT_OK(cuStreamSynchronize(stream));
}

/* The primary context lives as long as its green ones, and errors are of all of them. */
static void ends_are_as_documented(void)
{
    open_device(&device);
    CUgreenCtx green = new_green(8);
    CUcontext context = context_of_green(green), is;
    CUstream stream = green_stream(green);
    CUdeviceptr memory = allocate();
    EXPECT_OK(cuDevicePrimaryCtxRelease(0)); /* the green context still holds it */
    EXPECT_OK(launch_fill(&device, memory, WORDS, 1, stream));
    EXPECT_OK(cuDevicePrimaryCtxRetain(&is, 0));
    EXPECT(is == device.context);
    EXPECT_OK(cuGreenCtxDestroy(green));
    EXPECT_CUDA(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuGreenCtxDestroy(green));
    EXPECT_CUDA(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamQuery(stream));
    EXPECT_CUDA(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamDestroy(stream));
    EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, cuCtxFromGreenCtx(&is, green));
    EXPECT_OK(cuCtxPushCurrent(context));
    EXPECT_CUDA(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc(&memory, 4096));
    EXPECT_OK(cuCtxPopCurrent(NULL));
    green = new_green(8);
    stream = green_stream(green);
    EXPECT_OK(cuMemAlloc(&memory, BYTES));
    EXPECT_OK(cuMemFree(memory));
    EXPECT_OK(launch_fill(&device, memory, WORDS, 1, stream));
    EXPECT_CUDA(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    EXPECT_CUDA(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc(&memory, 4096));
}

int main(void)
{
    RUN_CASE(resources_are_split_by_the_rules);
    RUN_CASE(streams_belong_to_their_context_and_share_memory);
    RUN_CASE(waits_of_contexts_cover_green_work);
    RUN_CASE(ends_are_as_documented);
    return expect_status();
}
