/*
 * Includes the <name>_params structures of generated_cuda_meta.h, which CUPTI subscribers receive.
 * That header also describes entry points from before 64-bit addresses. cuda.h declares the types
 * of those only in a special mode. They are declared here and never used.
 */
#ifndef CUDASIM_CALL_PARAMS_H
#define CUDASIM_CALL_PARAMS_H

#include <cuda.h>

typedef unsigned int CUdeviceptr_v1;
typedef struct CUDA_MEMCPY2D_v1_st CUDA_MEMCPY2D_v1;
typedef struct CUDA_MEMCPY3D_v1_st CUDA_MEMCPY3D_v1;
typedef struct CUDA_ARRAY_DESCRIPTOR_v1_st CUDA_ARRAY_DESCRIPTOR_v1;
typedef struct CUDA_ARRAY3D_DESCRIPTOR_v1_st CUDA_ARRAY3D_DESCRIPTOR_v1;

#include <generated_cuda_meta.h>

#endif
