/*
 * Tells which kernels of a cubin are proved: what they write depends only on their parameters and
 * on the memory that they read. Such a kernel can be launched again for the same result. The
 * scan reads the instructions, of 128 bits each. It doubts each one that it does not know to be
 * harmless. So an instruction that NVIDIA adds later only makes fewer kernels proved.
 *
 * A proof does not cover three things. Threads may write to one address, or wait for each other,
 * without atomics. A kernel may read memory before it has written it. And it may store which
 * threads are active after a branch.
 *
 * Threads: no state of its own; any thread, also inside a CUPTI callback. The image is only read,
 * and not trusted.
 */
#ifndef PS_KERNEL_SCAN_H
#define PS_KERNEL_SCAN_H

#include <stddef.h>
#include <stdint.h>

/* Why a kernel is not proved: the first doubt in its code. */
enum ps_kernel_doubt {
    PS_DOUBT_NONE,        /* the kernel is proved */
    PS_DOUBT_ATOMICS,     /* an atomic operation or a reduction: the order of threads may show */
    PS_DOUBT_FENCES,      /* it orders its accesses for other blocks, or waits for other kernels */
    PS_DOUBT_SHARING,     /* volatile or synchronizing accesses, which other threads may change or see */
    PS_DOUBT_CLOCK,       /* a clock, a timer or a performance counter */
    PS_DOUBT_PLACE,       /* the number of its multiprocessor, or of its place there */
    PS_DOUBT_LAUNCH,      /* what the driver notes of each launch, such as the number of the grid */
    PS_DOUBT_CALLS,       /* code outside the kernel's own section, or a jump by a register */
    PS_DOUBT_VARIABLES,   /* variables of the module, constant ones included */
    PS_DOUBT_INSTRUCTION, /* an instruction that is not known */
    PS_DOUBT_CODE,        /* no code of an architecture from sm_80 to sm_90, or none that can be read */
    PS_DOUBTS,
};

/* One kernel, or one function that kernels call. Both have a section of their own. */
struct ps_kernel_scan {
    const char *name; /* the symbol, mangled; lives until `each` returns */
    enum ps_kernel_doubt doubt;
    uint32_t at;          /* of the instruction of the doubt: bytes from the section's start */
    uint16_t instruction; /* its opcode: the lowest 12 bits */
};

/* Receives each kernel. A value other than 0 ends the scan, which returns that value. */
typedef int (*ps_kernel_scan_fn)(const struct ps_kernel_scan *scan, void *ctx);

/*
 * Calls `each` for every kernel of the cubin at `image`, `bytes` long. Nothing has to be aligned.
 * Returns 0, -errno, or the value that `each` returned. -EINVAL: the image is malformed or no
 * cubin; `each` has received no kernel. -ENOTSUP: libelf is missing. -ENOMEM: no memory.
 */
int ps_kernel_scan(const void *image, size_t bytes, ps_kernel_scan_fn each, void *ctx);

/* Returns a doubt as words for messages, such as "atomic operations". */
const char *ps_kernel_doubt_text(enum ps_kernel_doubt doubt);

#endif
