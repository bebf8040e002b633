/*
 * A thread's own context is current again when it leaves Penstock, also if the driver refuses to
 * take Penstock's off, or has taken it off and returns an earlier kernel's error.
 */
#include <cuda.h>
#include <errno.h>

#include "cuda/context_stack.h"
#include "cuda/driver.h"
#include "expect.h"

static CUcontext mine = (CUcontext)0x1000, other = (CUcontext)0x2000;
static CUcontext stack[4];
static unsigned depth;

static struct {
    CUresult get, push, pop; /* what the calls answer */
    bool pops;               /* although it answers an error */
} device;

static CUresult CUDAAPI get_current(CUcontext *context)
{
    *context = depth ? stack[depth - 1] : NULL;
    return device.get;
}

static CUresult CUDAAPI push(CUcontext context)
{
    if (!device.push)
        stack[depth++] = context;
    return device.push;
}

static CUresult CUDAAPI pop(CUcontext *context)
{
    if (!depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = stack[depth - 1];
    depth -= !device.pop || device.pops;
    return device.pop;
}

static CUresult CUDAAPI set_current(CUcontext context)
{
    depth -= depth != 0;
    if (context)
        stack[depth++] = context;
    return CUDA_SUCCESS;
}

/* A thread with `first` current visits the other context. Expects its own stack afterwards. */
static void visit(CUcontext first, int expected)
{
    CUcontext pushed, now;

    depth = 0;
    if (first)
        stack[depth++] = first;
    const unsigned before = depth;
    EXPECT_INT(expected, ps_context_enter(other, &pushed));
    if (!expected)
        EXPECT(depth && stack[depth - 1] == other);
    ps_context_leave(pushed);
    EXPECT_INT(before, depth);
    get_current(&now);
    EXPECT(now == first);
}

int main(void)
{
    ps_cu.cuCtxGetCurrent = get_current;
    ps_cu.cuCtxPushCurrent = push;
    ps_cu.cuCtxPopCurrent = pop;
    ps_cu.cuCtxSetCurrent = set_current;
    for (int i = 0; i < 3; i++) {
        device.pop = i ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
        device.pops = i == 2;
        visit(mine, 0);
        visit(NULL, 0);
        visit(other, 0);
    }
    device.push = CUDA_ERROR_OUT_OF_MEMORY;
    visit(mine, -ENOMEM);
    visit(other, 0);
    return expect_status();
}
