/*
 * Kernels by name: what their cubins tell, and how often they were used. An image that comes again
 * is not read again.
 *
 * Generated kernels reuse names. So two images may tell different things of one name. Then its
 * parameters are ambiguous, and it is proved only if both are (kernel_scan.h). After an image that
 * can't be read, or that may have come unseen, no kernel is proved: it may have any name. A module
 * that is loaded before the first allocation of the program is not seen.
 *
 * Threads: any, also inside a CUPTI callback. No driver call is made with a lock held. What a
 * pointer leads to lives as long as the process.
 */
#ifndef PS_NAMED_KERNELS_H
#define PS_NAMED_KERNELS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernel_scan.h"

/* What is known of a kernel. */
struct ps_kernel_facts {
    bool has_sizes;             /* a cubin tells the sizes of its parameters, and no other cubin differs */
    uint32_t count;             /* parameters */
    const uint32_t *size;       /* bytes of each */
    struct ps_kernel_scan scan; /* PS_DOUBT_CODE: no cubin with the kernel was read */
};

/* The lock guards all but `uses`. */
struct ps_named_kernel {
    _Atomic uint64_t uses;
    struct ps_named_kernel *next;
    uint64_t hash;
    uint64_t scanned_in;          /* the last image whose scan told of it; 0: none */
    bool is_ambiguous;            /* two cubins differ about the parameters */
    bool is_asked_for;            /* no cubin has brought it so far */
    bool is_given;                /* by ps_named_kernel: a caller relies on what is known */
    struct ps_kernel_facts facts; /* `size` and the scan's name are owned */
};

/*
 * A cubin was loaded: takes what it tells of its kernels. The image is read and not kept. Returns
 * 0, or -errno if it can't be read or kept; -ENOTSUP: libelf is missing. Sets `changed` if what
 * ps_named_kernel has told of a kernel holds no longer.
 */
int ps_named_kernels_add_cubin(const void *image, size_t bytes, bool *changed);

/*
 * Returns the kernel of that name (mangled), and sets what is known of it. Returns NULL if it is
 * new and can't be kept; then nothing is known of it.
 */
struct ps_named_kernel *ps_named_kernel(const char *name, struct ps_kernel_facts *facts);

/*
 * A cubin may have been loaded unseen, or differs from the code that runs. From now on no kernel is
 * proved. Returns whether that is new.
 */
bool ps_named_kernels_missed(void);
bool ps_named_kernels_have_missed(void);

/* What was read is not what the driver runs: the kernel is proved no longer. */
void ps_named_kernel_is_another(struct ps_named_kernel *kernel);

/*
 * Counts one use; NULL: does nothing. The count is about right: where threads use a kernel at the
 * same time, some uses are lost. An exact count would cost each launch more.
 */
static inline void ps_named_kernel_count(struct ps_named_kernel *kernel)
{
    if (kernel)
        atomic_store_explicit(&kernel->uses, atomic_load_explicit(&kernel->uses, memory_order_relaxed) + 1,
                              memory_order_relaxed);
}

/* Receives a kernel that was used, and its uses so far. A value other than 0 ends the walk. */
typedef int (*ps_named_kernel_fn)(const struct ps_kernel_scan *scan, uint64_t uses, void *ctx);

/*
 * Calls `each` for each kernel that was used, in no order, with the lock held. Returns 0, its
 * value, or -EAGAIN if the lock is not free for some time: the caller may be a signal handler that
 * interrupts its holder.
 */
int ps_named_kernels_each_used(ps_named_kernel_fn each, void *ctx);

#endif
