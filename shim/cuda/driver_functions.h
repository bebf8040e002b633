/*
 * The driver's own functions, by the names of those that we have one in front of: what hooks.def and traced_calls.def list.
 *
 * Threads: any, without a lock of ours: a look-up may come under the loader's.
 */
#ifndef PS_DRIVER_FUNCTIONS_H
#define PS_DRIVER_FUNCTIONS_H

#include <cuda.h>

/* Each function of ours that stands in front of one of the driver's. */
enum ps_driver_function {
#define PS_TRACED(name, declaration, arguments, meaning) PS_DRIVER_FUNCTION_##name,
#define PS_TRACED_BELOW_HOOK(name, meaning)
#define PS_TRACED_PTSZ(name, declaration, arguments, meaning) PS_DRIVER_FUNCTION_##name, PS_DRIVER_FUNCTION_##name##_ptsz,
#define PS_TRACED_PTDS(name, declaration, arguments, meaning) PS_DRIVER_FUNCTION_##name, PS_DRIVER_FUNCTION_##name##_ptds,
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

/* The driver's own function; NULL where it has none of that name, or isn't loaded. Any thread. */
void *ps_driver_function(enum ps_driver_function which);

/* The same without looking for it: NULL where that was not done yet, too. */
extern void *_Atomic ps_driver_found[PS_DRIVER_FUNCTIONS];

/* Looks for all of them if the driver is loaded; does not load it. */
void ps_driver_functions_look(void);

#endif
