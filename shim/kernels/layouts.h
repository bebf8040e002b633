/*
 * Kernel parameter layouts as the launch path wants them: by function handle, found without a lock.
 *
 * A layout comes from the kernel's cubin (kernel_params.c, fed by CUPTI's module-loaded callback) and from the driver
 * (cuFuncGetParamInfo, cuKernelGetParamInfo); where both are there they are compared, and the driver's is used if they differ.
 */
#ifndef PS_LAYOUTS_H
#define PS_LAYOUTS_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/known_kernels.h"
#include "kernels/torch_tensor_lists.h"

/*
 * Only sizes: kernelParams points to each parameter, so offsets don't matter at a launch. One for all kernels that are alike, for the
 * process's life.
 */
struct ps_layout {
    const struct ps_layout *next; /* of those that are kept */
    uint32_t count;
    enum ps_known_kernel known;
    struct ps_torch_tensor_lists tensor_lists; /* of the parameter that is such a structure, if one is */
    uint32_t size[];                           /* bytes of each parameter */
};

/* The layout of a kernel's parameters, or NULL if nobody knows it. `function` may be a CUkernel, as launches pass it. Any thread. */
const struct ps_layout *ps_layout_of(CUfunction function);

/* A cubin was loaded: its kernels' layouts are kept by name. The image is read and not kept. Any thread. */
void ps_layouts_add_cubin(const void *image, size_t bytes);

/* A module goes: its function handles may mean other kernels from now on. Any thread. */
void ps_layouts_module_gone(void);
unsigned ps_layouts_generation(void); /* changes each time */

/* The kernel's name as the driver has it (mangled), or NULL. The driver's string: copy it before a module goes. Any thread. */
const char *ps_layouts_kernel_name(CUfunction function);

#endif
