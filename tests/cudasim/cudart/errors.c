/*
 * Driver results and runtime errors: one table for translation, names and texts; the last error of
 * each thread.
 */
#include <stddef.h>

#include "runtime.h"

struct error_row {
    cudaError_t error;
    CUresult result;
    const char *name;
    const char *text;
};

/* No driver result: translation never chooses these rows. */
#define NO_RESULT ((CUresult)-1)

static const struct error_row ERRORS[] = {
#define BOTH(error, result, text) {error, result, #error, text},
#define RUNTIME_ONLY(error, text) {error, NO_RESULT, #error, text},
#include "error_table.def"
#undef BOTH
#undef RUNTIME_ONLY
};

static _Thread_local cudaError_t last_error = cudaSuccess;

static const struct error_row *row_of_error(cudaError_t error)
{
    for (size_t i = 0; i < sizeof ERRORS / sizeof ERRORS[0]; i++) {
        if (ERRORS[i].error == error)
            return &ERRORS[i];
    }
    return NULL;
}

cudaError_t cudasim_translate_error(CUresult result)
{
    if (result == CUDA_SUCCESS)
        return cudaSuccess;
    for (size_t i = 0; i < sizeof ERRORS / sizeof ERRORS[0]; i++) {
        if (ERRORS[i].result == result)
            return ERRORS[i].error;
    }
    return cudaErrorUnknown;
}

cudaError_t cudasim_runtime_fail(cudaError_t error)
{
    /* Whatever failed may have done so because the kernels are unregistered. */
    if (error != cudaSuccess && cudasim_runtime_unloaded())
        error = cudaErrorCudartUnloading;
    /* "Not ready" is an answer to a query, and the runtime does not report it again. */
    if (error != cudaSuccess && error != cudaErrorNotReady)
        last_error = error;
    return error;
}

cudaError_t cudasim_runtime_end(CUresult result)
{
    return cudasim_runtime_fail(cudasim_translate_error(result));
}

cudaError_t cudasim_runtime_not_supported(const char *entry_point)
{
    cudasim_count_runtime_call(entry_point, 0);
    return cudasim_runtime_fail(cudaErrorNotSupported);
}

cudaError_t cudaGetLastError(void)
{
    cudasim_count_runtime_call(__func__, 1);
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    cudasim_count_runtime_call(__func__, 1);
    return last_error;
}

const char *cudaGetErrorName(cudaError_t error)
{
    const struct error_row *row = row_of_error(error);
    return row != NULL ? row->name : "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    const struct error_row *row = row_of_error(error);
    return row != NULL ? row->text : "unrecognized error code";
}
