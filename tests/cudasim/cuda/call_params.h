/*
 * The <name>_params structures of generated_cuda_meta.h, which a CUPTI subscriber is given. That
 * header also describes entry points older than 64-bit addresses, with types that cuda.h only
 * declares in a mode of its own; they are declared here, never used.
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
