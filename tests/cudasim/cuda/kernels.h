/*
 * Kernels, and the two kinds of handles that name them. A CUkernel names a kernel that was
 * registered through the runtime; launches take it cast to CUfunction. cuKernelGetFunction and
 * cuModuleGetFunction return a true CUfunction. The parameter queries of one kind refuse the other,
 * as on the device.
 */
#ifndef CUDASIM_KERNELS_H
#define CUDASIM_KERNELS_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../kernel_abi.h"

struct cudasim_globals;
struct cudasim_image;

/* The structure behind a handle: its kind, and the kernel that it names. */
struct CUkern_st {
    uint32_t tag;
    struct cudasim_kernel_entry *entry;
};

struct cudasim_operation;

struct CUfunc_st {
    uint32_t tag;
    struct cudasim_kernel_entry *entry;
};

struct cudasim_kernel_entry {
    const char *name;
    const struct cudasim_kernel *code;
    struct cudasim_image *image;     /* the cubin that holds it, or NULL */
    struct cudasim_globals *globals; /* its module's variables, or NULL */
    struct CUkern_st kernel;
    struct CUfunc_st function;
    uint64_t runs;                           /* under the ledger's lock; of the registered one */
    struct cudasim_kernel_entry *registered; /* in a loaded module: the same kernel as the program registered it */
    struct cudasim_kernel_entry *next;       /* in the list of its module, or of all that are registered */
};

/* Returns the kernel of a launch's function handle (either kind), or NULL. Thread-safe. */
struct cudasim_kernel_entry *cudasim_kernel_of_function(CUfunction function);
/*
 * Returns every kernel ever registered. Entries are only added, at the front. Under the device
 * lock.
 */
struct cudasim_kernel_entry *cudasim_kernels(void);
/* Returns the kernel registered last under that name, or NULL. Under the device lock. */
struct cudasim_kernel_entry *cudasim_kernel_named(const char *name);
/*
 * Makes the operation of a kernel, with a copy of its parameters, for the call in progress. Without
 * the device lock.
 */
CUresult cudasim_kernel_operation(struct cudasim_operation **operation, CUfunction function,
                                  struct cudasim_launch shape, void **params, void **extra);
/*
 * Finds the module's variables in the context that the kernel is launched in. Under the device
 * lock.
 */
CUresult cudasim_kernel_look(struct cudasim_operation *operation, CUcontext context);

/*
 * The kernel is launched, maybe with its graph. Notes memory that its parameters name and its
 * device may not use now: what a graph's kernels may use can change between launches. Under the
 * device lock.
 */
void cudasim_kernel_is_launched(struct cudasim_operation *operation);
/*
 * Returns the registered kernel with the variables of another module, or NULL without memory. The
 * caller keeps it for ever.
 */
struct cudasim_kernel_entry *cudasim_kernel_in_module(struct cudasim_kernel_entry *registered,
                                                      struct cudasim_globals *globals);
/*
 * Answers whether a launch with these attributes can be made as they ask, or with no difference to
 * what it computes. No lock needed.
 */
CUresult cudasim_launch_attributes(const CUlaunchAttribute *attributes, unsigned int count);
/* Answers the same for an attribute that a program gives a kernel. No lock needed. */
CUresult cudasim_settable_attribute(CUfunction_attribute attribute, int value);
/*
 * Returns a library of an image that the program registered, or NULL without memory. No program
 * unloads it. Under the device lock.
 */
CUlibrary cudasim_library_of_image(struct cudasim_globals *globals);
/* Announces the kernel's image to the subscriber at its first use. Without the device lock. */
void cudasim_kernel_first_use(struct cudasim_kernel_entry *entry);

#endif
