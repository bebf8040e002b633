/*
 * Helpers that per_stream_copies.h and per_stream_calls.h share with the rest. They do not depend
 * on which default stream is meant.
 */
#ifndef CUDASIM_CUDART_PER_STREAM_H
#define CUDASIM_CUDART_PER_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "runtime.h"

/*
 * A callback of cudaStreamAddCallback with its arguments. The run frees it; if it was never queued,
 * free() does.
 */
struct cudasim_stream_callback;

/* Returns a new one; NULL without memory. */
CUDASIM_HIDDEN struct cudasim_stream_callback *cudasim_stream_callback_new(cudaStream_t stream,
                                                                           cudaStreamCallback_t callback, void *data);

/*
 * The driver's callback: calls the program's callback with the runtime's word for `status`, and
 * frees `call`.
 */
CUDASIM_HIDDEN void CUDA_CB cudasim_stream_callback_run(CUstream stream, CUresult status, void *call);

/*
 * Calls cuGetProcAddress for the entry point `caller`. A missing name is no error if `status` can
 * report it.
 */
CUDASIM_HIDDEN cudaError_t cudasim_driver_entry_point(const char *caller, const char *symbol, void **function,
                                                      unsigned int version, cuuint64_t flags,
                                                      enum cudaDriverEntryPointQueryResult *status);

/* Return the memory types of the two ends of a copy in a given direction. */
static inline CUmemorytype cudasim_source_type(enum cudaMemcpyKind kind)
{
    if (kind == cudaMemcpyDefault)
        return CU_MEMORYTYPE_UNIFIED;
    return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice ? CU_MEMORYTYPE_DEVICE
                                                                              : CU_MEMORYTYPE_HOST;
}

static inline CUmemorytype cudasim_destination_type(enum cudaMemcpyKind kind)
{
    if (kind == cudaMemcpyDefault)
        return CU_MEMORYTYPE_UNIFIED;
    return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice ? CU_MEMORYTYPE_DEVICE
                                                                              : CU_MEMORYTYPE_HOST;
}

#endif
