/*
 * Kernel parameter layouts from a cubin: where in the parameter buffer of each kernel each parameter lies. Read from the .nv.info.KERNEL
 * sections with libelf.
 *
 * Threads: no state of its own; any thread, also inside a CUPTI callback. The image is only read. Nothing in it is trusted: a malformed
 * image gives -EINVAL, never a read outside it.
 */
#ifndef PS_KERNEL_PARAMS_H
#define PS_KERNEL_PARAMS_H

#include <stddef.h>
#include <stdint.h>

/* The parameter area of a kernel is at most 32764 bytes, and every parameter takes at least one. */
#define PS_KERNEL_PARAMS_BYTES_MAX 32764
#define PS_KERNEL_PARAMS_COUNT_MAX 32764

/* One parameter, in bytes from the start of the parameter buffer (as cuFuncGetParamInfo counts). */
struct ps_kernel_param {
    uint32_t offset;
    uint32_t size;
};

struct ps_kernel_layout {
    const char *name;                     /* the kernel's symbol, mangled */
    uint32_t bytes;                       /* end of the last parameter, or the size that the cubin states if that is more */
    uint32_t count;                       /* how many parameters */
    const struct ps_kernel_param *params; /* in the order of the kernel's arguments; no two overlap */
};

/* Told about each kernel; the layout lives until it returns. A value other than 0 ends the parse and is returned from it. */
typedef int (*ps_kernel_params_fn)(const struct ps_kernel_layout *layout, void *ctx);

/*
 * Calls `each` for every kernel of the cubin (a 64-bit little-endian ELF image for machine 190) at `image`, `bytes` long.
 * Nothing has to be aligned. Returns 0; -EINVAL when it is no cubin or a malformed one (kernels before the fault have been told);
 * -ENOTSUP when libelf is missing; -ENOMEM; or what `each` returned.
 */
int ps_kernel_params_parse(const void *image, size_t bytes, ps_kernel_params_fn each, void *ctx);

#endif
