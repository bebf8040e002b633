/*
 * Kernel parameter layouts from a cubin: the place of each parameter in each kernel's parameter
 * buffer. They are read from the .nv.info.KERNEL sections with libelf.
 *
 * Threads: no state of its own; any thread, also inside a CUPTI callback. The image is only read,
 * and not trusted: a malformed image gives -EINVAL, never a read outside it.
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
    uint32_t bytes;                       /* end of the last parameter, or cubin's size if more */
    uint32_t count;                       /* number of parameters */
    const struct ps_kernel_param *params; /* in the order of the arguments; no two overlap */
};

/*
 * Receives each kernel. The layout lives until the function returns. A value other than 0 ends the
 * parse, which returns that value.
 */
typedef int (*ps_kernel_params_fn)(const struct ps_kernel_layout *layout, void *ctx);

/*
 * Calls `each` for every kernel of the cubin at `image`, `bytes` long. A cubin is a 64-bit
 * little-endian ELF image for machine 190. Nothing has to be aligned. Returns 0, -errno, or the
 * value that `each` returned. -EINVAL: the image is malformed or no cubin; `each` has received the
 * kernels before the fault. -ENOTSUP: libelf is missing. -ENOMEM: no memory.
 */
int ps_kernel_params_parse(const void *image, size_t bytes, ps_kernel_params_fn each, void *ctx);

#endif
