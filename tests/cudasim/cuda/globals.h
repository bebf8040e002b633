/*
 * Variables of modules: __device__ and __constant__. An image lists them in its symbols. Each
 * context in which the image is used has a copy of its own, made at the first need: a kernel's
 * launch, or a look-up by name. It begins with the image's values. As code, it takes none of the
 * device's bytes that programs can allocate.
 *
 * All functions: under the device lock, unless they say otherwise.
 */
#ifndef CUDASIM_GLOBALS_H
#define CUDASIM_GLOBALS_H

#include <cuda.h>
#include <stddef.h>

struct cudasim_globals;   /* the variables of one image; never freed */
struct cudasim_variables; /* one context's copy of them; its structure is never freed */

/*
 * Reads the variables of an image: a cubin, or a fatbinary with one that fits. `bytes`: its length;
 * SIZE_MAX: the image tells. Stores NULL without variables. PTX has none, because nothing compiles
 * it here. Returns CUDA_ERROR_NOT_SUPPORTED for initial values that name other things than
 * variables, and CUDA_ERROR_INVALID_IMAGE for a damaged cubin.
 */
CUresult cudasim_globals_read(const void *image, size_t bytes, struct cudasim_globals **globals);

/* Returns the context's copy, which it may make; NULL without memory. */
struct cudasim_variables *cudasim_globals_in(struct cudasim_globals *globals, CUcontext context);

/* Stores a variable's place in the copy, or returns CUDA_ERROR_NOT_FOUND. Any lock or none. */
CUresult cudasim_variables_find(const struct cudasim_variables *variables, const char *name, CUdeviceptr *address,
                                size_t *bytes);

/*
 * Frees all copies, after a wait for the work of their contexts. Releases the lock meanwhile.
 * Kernels that are launched later fault there.
 */
void cudasim_globals_unload(struct cudasim_globals *globals);

/* Frees all copies in a context that is idle and ends. */
void cudasim_globals_end_context(CUcontext context);

#endif
