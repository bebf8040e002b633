/*
 * The kernels that are known to keep no address. Names are those of the driver on an H200 under
 * torch 2.11, and some that only resemble them.
 */
#include "kernels/known_kernels.h"

#include <stddef.h>

#include "expect.h"

int main(void)
{
    static const char *const keep_none[] = {
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_",
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_22CUDAFunctorOnSelf_addIfEESt5arrayIPcLm2EEEEviT0_T1_",
        "_ZN2at6native27unrolled_elementwise_kernelINS0_15direct_copy_kernel_cudaERNS_18TensorIteratorBaseEEviT_T0_",
        "_ZN2at6native12_GLOBAL__N_125multi_tensor_apply_kernelINS1_32FusedOptimizerTensorListMetadataILi4EEENS1_20FusedAdamMathFunctorIfLi4EEEEEvT_T0_",
        "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_7NormOpsIfEEjfLi4ELi4EEEEEvT1_",
        "_ZN2at6native18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_nocastIvEEvRNS_18TensorIteratorBaseERKT_EUliE_EEviT1_",
        "_ZN2at6native40_GLOBAL__N__0f1a8107_8_Shape_cu_49f7391c19CatArrayBatchedCopyINS1_10OpaqueTypeILj2EEEjLi1ELi128ELi1EEEvPT_",
        "_ZN2at6native40_GLOBAL__N__0f1a8107_8_Shape_cu_49f7391c36CatArrayBatchedCopy_aligned16_contigINS1_10OpaqueTypeILj16EEEjLi4ELi64ELi64EEEvPT_",
    };
    static const char *const may_keep[] = {
        "_ZN2at6native29vectorized_elementwise_kernelILi2ENS0_11FillFunctorIlEESt5arrayIPcLm1EEEEviT0_T1_",
        "_ZN2at6native29vectorized_elementwise_kernelILi2ENS0_22CUDAFunctorOnSelf_addIlEESt5arrayIPcLm2EEEEviT0_T1_",
        "_ZN2at6native29vectorized_elementwise_kernelILi2ENS0_13AUnaryFunctorIlllNS0_15binary_internal10MulFunctorIlEEEESt5arrayIPcLm2EEEEviT0_T1_",
        "_ZN2at6native29elementwise_kernel_with_indexIiZZZNS0_15arange_cuda_outERKN3c106ScalarES5_S5_RNS_6TensorEENKUlvE_clEvENKUlvE2_clEvEUllE_EEvT_T0_PN15function_traitsISD_E11result_typeE",
        "vectorized_elementwise_kernel",
        "_Z29vectorized_elementwise_kernelv",
        "_ZN2at4cuda29vectorized_elementwise_kernelIfEEvv",
        "_ZN2at6native25index_elementwise_kernelXILi128EEEvv",
        "_ZN2at6native24index_elementwise_kernelILi128EEEvv",
        "_ZN2at6native29vectorized_elementwise_kernel6secondIfEEvv",
        "_ZN5other6native13reduce_kernelILi512EEEvv",
        "_ZN5other6native19CatArrayBatchedCopyIfjLi1ELi128ELi1EEEvv",
        "_ZN2at6native999reduce_kernelILi512EEEvv",
        "_ZN2at6nativeE",
        "_ZN2at13reduce_kernelIfEEvv",
        "_ZN",
        "",
        "nvjet_tst_128x256_64x4_2x1_v_bz_coopB_TNT",
        "triton_poi_fused_add_0",
        "_Z12no_ncclDevKernel",
    };

    static const char *const of_nccl[] = {
        "_Z40ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE",
        "_Z37ncclKernel_AllReduce_RING_LL_Sum_floatP11ncclDevCommmP8ncclWork",
        "ncclDevKernel_Simulated",
    };

    for (size_t i = 0; i < sizeof keep_none / sizeof *keep_none; i++)
        EXPECT_INT(PS_KERNEL_KEEPS_NO_ADDRESS, ps_kernel_known(keep_none[i]));
    for (size_t i = 0; i < sizeof of_nccl / sizeof *of_nccl; i++)
        EXPECT_INT(PS_KERNEL_NCCL, ps_kernel_known(of_nccl[i]));
    for (size_t i = 0; i < sizeof may_keep / sizeof *may_keep; i++)
        EXPECT_INT(PS_KERNEL_UNKNOWN, ps_kernel_known(may_keep[i]));
    EXPECT_INT(PS_KERNEL_UNKNOWN, ps_kernel_known(NULL));
    return expect_status();
}
