/*
 * Attributes of launches and kernels. Some change how a kernel runs on a device and never what it
 * computes; these have no effect. An attribute that the simulated device would have to obey, and
 * does not, is refused.
 */
#include "kernels.h"

static CUresult one_cluster(unsigned int x, unsigned int y, unsigned int z)
{
    return x <= 1 && y <= 1 && z <= 1 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult refused_if(int asked)
{
    return asked ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

static CUresult launch_attribute(const CUlaunchAttribute *attribute)
{
    const CUlaunchAttributeValue *value = &attribute->value;

    switch ((unsigned int)attribute->id) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE: /* the blocks of a grid run together in any case */
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        return one_cluster(value->clusterDim.x, value->clusterDim.y, value->clusterDim.z);
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
        return one_cluster(value->preferredClusterDim.x, value->preferredClusterDim.y, value->preferredClusterDim.z);
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        return refused_if(value->programmaticStreamSerializationAllowed);
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        return refused_if(value->deviceUpdatableKernelNode.deviceUpdatable);
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        return CUDA_ERROR_NOT_SUPPORTED;
    default: /* of streams alone, or unknown */
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cudasim_launch_attributes(const CUlaunchAttribute *attributes, unsigned int count)
{
    CUresult result = attributes || !count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

    for (unsigned int i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = launch_attribute(&attributes[i]);
    return result;
}

CUresult cudasim_settable_attribute(CUfunction_attribute attribute, int value)
{
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
        return refused_if(value > 1);
    default: /* attributes that only a compiler sets */
        return CUDA_ERROR_INVALID_VALUE;
    }
}
