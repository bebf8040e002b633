/*
 * Driver functions that are newer than the toolkit of the build: their types, CUPTI ids and
 * parameters. Those that hooks.def does not declare are declared here too. All of it is as in
 * cuda.h, cupti_driver_cbid.h and generated_cuda_meta.h of CUDA 13.5. A program with a newer
 * runtime calls these functions on a driver that has them. One object must do for all releases
 * (12.4 to 13.x). Each part is left out where the toolkit has it itself.
 */
#ifndef PS_NEWER_CUDA_H
#define PS_NEWER_CUDA_H

#include <cuda.h>

/*
 * The newest release whose functions were checked for this file. A newer driver may have functions
 * that copy memory or give it away, and that Penstock does not see.
 */
#define PS_NEWEST_CUDA 13050

#if CUDA_VERSION < 13020
enum {
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyWithAttributesAsync = 837,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyWithAttributesAsync_ptsz = 838,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpy3DWithAttributesAsync = 839,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpy3DWithAttributesAsync_ptsz = 840,
};

typedef struct {
    CUdeviceptr dst;
    CUdeviceptr src;
    size_t size;
    CUmemcpyAttributes *attr;
    CUstream hStream;
} cuMemcpyWithAttributesAsync_params, cuMemcpyWithAttributesAsync_ptsz_params;

typedef struct {
    CUDA_MEMCPY3D_BATCH_OP *op;
    unsigned long long flags;
    CUstream hStream;
} cuMemcpy3DWithAttributesAsync_params, cuMemcpy3DWithAttributesAsync_ptsz_params;

CUresult CUDAAPI cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t size, CUmemcpyAttributes *attr,
                                             CUstream hStream);
CUresult CUDAAPI cuMemcpyWithAttributesAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t size,
                                                  CUmemcpyAttributes *attr, CUstream hStream);
CUresult CUDAAPI cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags, CUstream hStream);
CUresult CUDAAPI cuMemcpy3DWithAttributesAsync_ptsz(CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags,
                                                    CUstream hStream);
#endif

#if CUDA_VERSION < 13030
typedef cuuint32_t CUlogicalEndpointId;

enum {
    CUPTI_DRIVER_TRACE_CBID_cuStreamBeginRecaptureToGraph = 846,
    CUPTI_DRIVER_TRACE_CBID_cuStreamBeginRecaptureToGraph_ptsz = 847,
};

typedef CUresult(CUDA_CB *CUgraphRecaptureCallback)(void *data, CUgraphNode node, const CUgraphNodeParams *original,
                                                    const CUgraphNodeParams *recapture, int status);

typedef struct {
    CUstream hStream;
    CUstreamCaptureMode mode;
    CUgraph hGraph;
    CUgraphRecaptureCallback callbackFunc;
    void *userData;
} cuStreamBeginRecaptureToGraph_params, cuStreamBeginRecaptureToGraph_ptsz_params;
#endif

#endif
