/*
 * Kernel parameter layouts for the launch path: found by function handle, without a lock. With each
 * comes whether the kernel is proved (kernel_scan.h).
 *
 * A layout comes from the kernel's cubin and from the driver. The cubin's is read by
 * kernel_params.c, from CUPTI's module-loaded callback. The driver's comes from cuFuncGetParamInfo
 * and cuKernelGetParamInfo. If both exist they are compared, and the driver's is used if they
 * differ.
 */
#ifndef PS_LAYOUTS_H
#define PS_LAYOUTS_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernel_scan.h"
#include "kernels/known_kernels.h"
#include "kernels/torch_tensor_lists.h"

/*
 * A layout has only sizes: kernelParams points to each parameter, so a launch needs no offsets.
 * Kernels that are alike share one layout, which lives as long as the process.
 */
struct ps_layout {
    const struct ps_layout *next; /* in the list of kept layouts */
    uint32_t count;
    enum ps_known_kernel known;
    enum ps_kernel_doubt doubt;                /* why the kernel is not proved, as far as was known then */
    struct ps_torch_tensor_lists tensor_lists; /* of the parameter that holds such lists, if any */
    uint32_t size[];                           /* bytes of each parameter */
};

/*
 * Returns the layout of a kernel's parameters, or NULL if it is unknown. Counts a use of the kernel
 * (named_kernels.h). `function` may be a CUkernel, as launches pass it. Any thread.
 *
 * CUPTI may deliver a kernel's cubin inside its first launch, behind the call here. So ask again
 * before what `doubt` says is relied on.
 */
const struct ps_layout *ps_layout_of(CUfunction function);

/*
 * A cubin was loaded: keeps its kernels' layouts by name, and which ones are proved. The image is
 * read and not kept; NULL: it can't be had. Any thread.
 */
void ps_layouts_add_cubin(const void *image, size_t bytes);

/* Cubins may have been loaded unseen: no kernel is proved from now on. Any thread. */
void ps_layouts_missed_cubins(void);

/* A module is unloaded: its function handles may mean other kernels from now on. Any thread. */
void ps_layouts_module_gone(void);
unsigned ps_layouts_generation(void); /* changes at each unload */

/*
 * Returns the kernel's name in the driver (mangled), or NULL. The string is the driver's: copy it
 * before its module is unloaded. Any thread.
 */
const char *ps_layouts_kernel_name(CUfunction function);

#endif
