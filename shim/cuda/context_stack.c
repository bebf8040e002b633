#include "cuda/context_stack.h"

#include "cuda/driver.h"

int ps_context_enter(CUcontext context, CUcontext *pushed)
{
    CUcontext now = NULL;

    *pushed = NULL;
    if (ps_cu.cuCtxGetCurrent(&now) == CUDA_SUCCESS && now == context)
        return 0;
    const int r = ps_cuda_errno(ps_cu.cuCtxPushCurrent(context));
    if (!r)
        *pushed = context;
    return r;
}

/*
 * A call may return an earlier kernel's error although it did its work. So a refused call is not
 * simply repeated. cuCtxSetCurrent(NULL) pops, too (cuda.h).
 */
void ps_context_leave(CUcontext pushed)
{
    CUcontext now = NULL;

    if (pushed && ps_cu.cuCtxPopCurrent(&now) != CUDA_SUCCESS && ps_cu.cuCtxGetCurrent(&now) == CUDA_SUCCESS &&
        now == pushed)
        ps_cu.cuCtxSetCurrent(NULL);
}
