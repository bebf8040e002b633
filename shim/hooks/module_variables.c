/*
 * Look-ups of a variable's place. Any copy to the variable follows one: by the program, or by the
 * runtime, which has the driver's function from a look-up that is answered with ours.
 */
#include "kernels/module_variables.h"

#include "cuda/driver.h"
#include "hooks/hooks.h"

/*
 * Ends a look-up that found `size` bytes at `start`, or failed. The program may ask for the place
 * alone; the list of variables needs both.
 */
static CUresult looked_up(CUresult result, enum ps_variable_holder kind, const void *holder, CUdeviceptr start,
                          size_t size, CUdeviceptr *address, size_t *bytes)
{
    if (result != CUDA_SUCCESS)
        return result;
    ps_inside++;
    ps_module_variables_found(kind, holder, start, size);
    ps_inside--;
    *address = start;
    if (bytes)
        *bytes = size;
    return result;
}

#define GLOBAL_OF(call, kind, holder_type)                                                                             \
    PS_EXPORT CUresult call(CUdeviceptr *address, size_t *bytes, holder_type holder, const char *name)                 \
    {                                                                                                                  \
        __typeof__(&call) real = PS_REAL_CUDA(call);                                                                   \
        CUdeviceptr start = 0;                                                                                         \
        size_t size = 0;                                                                                               \
                                                                                                                       \
        if (!real)                                                                                                     \
            return CUDA_ERROR_NOT_INITIALIZED;                                                                         \
        if (!address)                                                                                                  \
            return real(NULL, bytes, holder, name);                                                                    \
        const CUresult result = real(&start, &size, holder, name);                                                     \
        return looked_up(result, kind, holder, start, size, address, bytes);                                           \
    }
GLOBAL_OF(cuModuleGetGlobal_v2, PS_VARIABLE_OF_MODULE, CUmodule)
GLOBAL_OF(cuLibraryGetGlobal, PS_VARIABLE_OF_LIBRARY, CUlibrary)
