/*
 * Attributes and flags that the simulated device would have to obey, and does not, are refused.
 * Those that change no result are taken.
 */
#include "unit_device.h"

static struct unit_device device;

#define WORDS 64u

static CUresult launch_with(const CUlaunchAttribute *attributes, unsigned int count)
{
    static CUdeviceptr memory;
    uint32_t words = WORDS, value = 7;
    void *params[] = {&memory, &words, &value};
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, NULL, (CUlaunchAttribute *)attributes, count};
    if (!memory)
        EXPECT_OK(cuMemAlloc(&memory, WORDS * 4));
    return cuLaunchKernelEx(&config, (CUfunction)device.fill_words, params, NULL);
}

static CUresult launch_with_one(CUlaunchAttribute attribute)
{
    return launch_with(&attribute, 1);
}

static CUlaunchAttribute cluster(CUlaunchAttributeID id, unsigned int x)
{
    CUlaunchAttribute attribute = {.id = id};
    if (id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
        attribute.value.clusterDim.x = x, attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
    else
        attribute.value.preferredClusterDim.x = x,
        attribute.value.preferredClusterDim.y = attribute.value.preferredClusterDim.z = 1;
    return attribute;
}

static void launch_attributes(void)
{
    const CUlaunchAttributeID harmless[] = {
        CU_LAUNCH_ATTRIBUTE_IGNORE,          CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
        CU_LAUNCH_ATTRIBUTE_COOPERATIVE,     CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
        CU_LAUNCH_ATTRIBUTE_PRIORITY,        CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
        CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
    };
    CUlaunchAttribute both[2] = {{.id = CU_LAUNCH_ATTRIBUTE_PRIORITY}, {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT}};
    if (!open_device(&device))
        return;
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        EXPECT_OK(launch_with_one((CUlaunchAttribute){.id = harmless[i]}));
    EXPECT_OK(launch_with(NULL, 0));
    EXPECT_OK(launch_with_one(cluster(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, 1)));
    EXPECT_OK(launch_with_one(cluster(CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION, 1)));
    EXPECT_OK(launch_with_one((CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION}));
    EXPECT_OK(launch_with_one((CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE}));

    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, launch_with_one(cluster(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, 2)));
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, launch_with_one(cluster(CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION, 2)));
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED,
                launch_with_one((CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                                    .value.programmaticStreamSerializationAllowed = 1}));
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED,
                launch_with_one((CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE,
                                                    .value.deviceUpdatableKernelNode.deviceUpdatable = 1}));
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED,
                launch_with_one((CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT}));
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, launch_with(both, 2));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
                launch_with_one((CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY}));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, launch_with_one((CUlaunchAttribute){.id = (CUlaunchAttributeID)60}));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, launch_with(NULL, 1));
}

static void kernel_attributes(void)
{
    if (!open_device(&device))
        return;
    CUfunction function = (CUfunction)device.fill_words;
    EXPECT_OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536));
    EXPECT_OK(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1, device.fill_words, 0));
    EXPECT_OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 1));
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 2));
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED,
                cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, 4, device.fill_words, 0));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NUM_REGS, 32));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
                cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET, 1, device.fill_words, 0));
}

static void event_flags(void)
{
    CUevent event, refused;
    CUstream stream;
    if (!open_device(&device))
        return;
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&refused, CU_EVENT_INTERPROCESS));
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuEventCreate(&refused, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&refused, 16));
    EXPECT_OK(cuEventCreate(&event, CU_EVENT_BLOCKING_SYNC));
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(&stream, 2));
    EXPECT_OK(cuEventRecordWithFlags(event, stream, 0));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuEventRecordWithFlags(event, stream, 2));
}

static void graph_flags(void)
{
    CUgraph graph;
    CUgraphExec executable;
    if (!open_device(&device))
        return;
    EXPECT_OK(cuGraphCreate(&graph, 0));
    EXPECT_OK(cuGraphInstantiate(&executable, graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
    EXPECT_OK(cuGraphInstantiate(&executable, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
                cuGraphInstantiate(&executable, graph, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)); /* names no stream */
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&executable, graph,
                                                             CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                                                 CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&executable, graph, 1u << 8));
}

static void word_flags(void)
{
    CUdeviceptr word;
    if (!open_device(&device))
        return;
    EXPECT_OK(cuMemAlloc(&word, 8));
    EXPECT_OK(cuMemsetD32(word, 1, 2));
    EXPECT_OK(cuStreamWaitValue32(NULL, word, 1, CU_STREAM_WAIT_VALUE_EQ | CU_STREAM_WAIT_VALUE_FLUSH));
    EXPECT_OK(cuStreamWriteValue32(NULL, word, 2, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32(NULL, word, 1, 4));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue64(NULL, word, 1, 2));
}

static void context_flags(void)
{
    CUcontext context;
    if (!open_device(&device))
        return;
    EXPECT_OK(cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_BLOCKING_SYNC | CU_CTX_MAP_HOST));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_SPIN | CU_CTX_SCHED_YIELD));
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuCtxSetFlags(CU_CTX_SYNC_MEMOPS));
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuCtxCreate(&context, NULL, CU_CTX_SYNC_MEMOPS, 0));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuCtxCreate(&context, NULL, 1u << 20, 0));
}

static void memory_properties(void)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemPoolProps pool_properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle;
    CUmemoryPool pool;
    static char page[4096];
    if (!open_device(&device))
        return;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, device.granularity, &properties, 0));
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    EXPECT_OK(cuMemCreate(&handle, device.granularity, &properties, 0));
    EXPECT_OK(cuMemPoolCreate(&pool, &pool_properties));
    pool_properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuMemPoolCreate(&pool, &pool_properties));
    pool_properties.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
    pool_properties.maxSize = 1 << 20;
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuMemPoolCreate(&pool, &pool_properties));
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuMemHostRegister(page, sizeof page, CU_MEMHOSTREGISTER_IOMEMORY));
}

int main(void)
{
    RUN_CASE(launch_attributes);
    RUN_CASE(kernel_attributes);
    RUN_CASE(event_flags);
    RUN_CASE(graph_flags);
    RUN_CASE(word_flags);
    RUN_CASE(context_flags);
    RUN_CASE(memory_properties);
    return expect_status();
}
