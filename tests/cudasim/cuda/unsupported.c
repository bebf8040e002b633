/*
 * The entry points that are exported but not implemented. Each is defined under a name of its own
 * and exported under the real one. cuda.h declares the real one with parameters that nothing here
 * reads.
 */
#include <cuda.h>

#include "ledger.h"

#define CUDASIM_UNSUPPORTED(name)                                                                                      \
    __attribute__((visibility("default"))) CUresult cudasim_unsupported_##name(void) __asm__(#name);                   \
    CUresult cudasim_unsupported_##name(void)                                                                          \
    {                                                                                                                  \
        cudasim_ledger_unsupported(#name);                                                                             \
        return CUDA_ERROR_NOT_SUPPORTED;                                                                               \
    }
#include "unsupported.def"
