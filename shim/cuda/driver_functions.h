/*
 * The driver's own functions, by the names of those that Penstock has a function in front of.
 * hooks.def and traced_calls.def list them.
 *
 * Threads: any, without a lock of Penstock's, because a look-up may come under the loader's lock.
 */
#ifndef PS_DRIVER_FUNCTIONS_H
#define PS_DRIVER_FUNCTIONS_H

#include <cuda.h>

/* Each function of Penstock's that stands in front of one of the driver's. */
enum ps_driver_function {
#define PS_TRACED(name, declaration, arguments, meaning) PS_DRIVER_FUNCTION_##name,
#define PS_TRACED_BELOW_HOOK(name, meaning)
#define PS_TRACED_PTSZ(name, declaration, arguments, meaning)                                                          \
    PS_DRIVER_FUNCTION_##name, PS_DRIVER_FUNCTION_##name##_ptsz,
#define PS_TRACED_PTDS(name, declaration, arguments, meaning)                                                          \
    PS_DRIVER_FUNCTION_##name, PS_DRIVER_FUNCTION_##name##_ptds,
#define PS_HOOK_CUDA(type, name, parameters, arguments) PS_DRIVER_FUNCTION_##name,
#define PS_HOOK_CUDART(type, name, parameters, arguments)
#include "cuda/hooks.def"
#include "cuda/traced_calls.def"
#undef PS_TRACED
#undef PS_TRACED_BELOW_HOOK
#undef PS_TRACED_PTSZ
#undef PS_TRACED_PTDS
#undef PS_HOOK_CUDA
#undef PS_HOOK_CUDART
    PS_DRIVER_FUNCTIONS
};

/* Returns the driver's own function, or NULL if the driver lacks it or isn't loaded. Any thread. */
void *ps_driver_function(enum ps_driver_function which);

/*
 * The functions found so far. An entry is NULL if the driver lacks it, or no search was made yet.
 */
extern void *_Atomic ps_driver_found[PS_DRIVER_FUNCTIONS];

/* Looks all of them up if the driver is loaded; does not load it. */
void ps_driver_functions_look(void);

#endif
