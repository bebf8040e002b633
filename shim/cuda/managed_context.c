#include "cuda/managed_context.h"

#include <errno.h>

#include "cuda/capture.h"
#include "cuda/capture_mode.h"
#include "cuda/context_stack.h"
#include "cuda/device_memory.h"
#include "cuda/devices.h"
#include "cuda/driver.h"
#include "cuda/helper_thread.h"

struct ps_managed_context ps_managed_context_enter(void)
{
    struct ps_managed_context context;

    ps_inside++;
    ps_context_enter(ps_device.context, &context.pushed);
    ps_capture_enter();
    return context;
}

struct ps_managed_context ps_managed_context_enter_at(unsigned device)
{
    if (ps_devices_several)
        ps_devices_enter(device);
    return ps_managed_context_enter();
}

struct ps_managed_context ps_managed_context_enter_for(CUdeviceptr address)
{
    ps_devices_enter_address(address);
    return ps_managed_context_enter();
}

int ps_managed_context_wait(void)
{
    struct ps_managed_context context = ps_managed_context_enter();
    int r = -EBUSY;

    if (ps_capture_keep_out()) {
        r = ps_cuda_errno(ps_cu.cuCtxSynchronize());
        ps_capture_let_in();
    }
    ps_managed_context_leave(context);
    return r;
}

void ps_managed_context_leave(struct ps_managed_context context)
{
    ps_capture_mode_leave();
    ps_context_leave(context.pushed);
    ps_inside--;
}
