/*
 * Entry points for which "stream 0" is the calling thread's own default stream: see
 * default_stream_legacy.c.
 */
#define CUDA_API_PER_THREAD_DEFAULT_STREAM 1

#include "per_stream.h"

#define DEFAULT_STREAM_FLAG CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
#define __cudaLaunchKernel __cudaLaunchKernel_ptsz

#include "per_stream_calls.h"
#include "per_stream_copies.h"
