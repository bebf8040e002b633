/*
 * For unit tests of the shim's own modules that call the simulated driver, as Penstock finds a
 * driver. It must be in the loader's path (scripts/dev/test sets that). Such a test is skipped
 * without it.
 */
#ifndef PENSTOCK_TESTS_UNIT_SIM_DRIVER_H
#define PENSTOCK_TESTS_UNIT_SIM_DRIVER_H

#include "cuda/driver.h"
#include "expect.h"

/*
 * Loads the driver and makes device 0's context the thread's. Returns false if there is no driver.
 */
static inline bool sim_driver_begin(CUcontext *context)
{
    CUresult (*init)(unsigned int), (*retain)(CUcontext *, CUdevice);

    if (ps_real_cuda_load() || !ps_real_cuda_symbol("cudasim_register_kernel"))
        return false;
    init = (__typeof__(init))ps_real_cuda_symbol("cuInit");
    retain = (__typeof__(retain))ps_real_cuda_symbol("cuDevicePrimaryCtxRetain");
    EXPECT(!init(0) && !retain(context, 0) && !ps_cu.cuCtxSetCurrent(*context));
    return true;
}

#endif
