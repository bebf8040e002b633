/*
 * What the program gets when it looks a function of the driver up by name: dlsym in libcuda.so.1, as its own code, cuDNN, cuBLASLt and every
 * statically linked runtime do, cuGetProcAddress, from which the runtimes take nearly all (FACTS), and the runtime's own look-up. Who opens the shared
 * runtime and looks up its functions is answered likewise. What is found is replaced by our function of that name, if we have one and the caller is
 * to have it:
 *  - those of traced_calls.def everybody, unless PENSTOCK_TRACER=cupti: they only pass on until they are a source of the tracer's (start.h);
 *  - those of hooks.def every caller but NVIDIA's own libraries, whose memory is left to them; those among them that are not about memory, where
 *    the former are given, NVIDIA's too.
 *
 * Replaced is what is, by its address, the function that the driver exports under that name. So versions and per-thread twins are told apart
 * as the driver tells them apart, and a look-up that gives something else (another tool's function) is left as it is.
 *
 * NCCL's functions (nccl.def) are replaced likewise, whoever traces: programs that open libnccl.so.2 themselves look them up. So are
 * CUPTI's cuptiSubscribe (cupti_subscribe.h) and some of cuFile's (external_access.h).
 *
 * Two clocks: nothing here is queued or waited for. dlsym may be called before any constructor has run, in any process, under the loader's
 * lock: for names that can't be CUDA's or NCCL's nothing happens but a jump.
 */
#ifndef PS_SYMBOL_LOOKUP_H
#define PS_SYMBOL_LOOKUP_H

#include <cuda.h>
#include <stdbool.h>

/* Each function of ours that stands in front of one of the driver's. */
enum ps_driver_function {
#define PS_TRACED(name, declaration, arguments, meaning) PS_DRIVER_FUNCTION_##name,
#define PS_TRACED_BELOW_HOOK(name, meaning)
#define PS_TRACED_PTSZ(name, declaration, arguments, meaning) PS_DRIVER_FUNCTION_##name, PS_DRIVER_FUNCTION_##name##_ptsz,
#define PS_TRACED_PTDS(name, declaration, arguments, meaning) PS_DRIVER_FUNCTION_##name, PS_DRIVER_FUNCTION_##name##_ptds,
#define PS_HOOK_CUDA(type, name, parameters, arguments) PS_DRIVER_FUNCTION_##name,
#define PS_HOOK_CUDART(type, name, parameters, arguments)
#include "hooks/hooks.def"
#include "tracer/traced_calls.def"
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

/*
 * Whether launches and copies are among what we answer: unless PENSTOCK_TRACER=cupti. Decided once, from the environment as it is at the first
 * look-up. Any thread.
 */
bool ps_symbol_lookup_is_ours(void);

/* Whether the environment announced a tool that wants CUPTI, at that time. Any thread. */
bool ps_symbol_lookup_tool_is_announced(void);

/* Whether a kernel launch function of ours was given to anybody: the runtime passes through it then. Any thread. */
bool ps_symbol_lookup_gave_launch(void);

/*
 * What `caller` would call by that name if we did not export it: what the library that it lies in was linked with (Python's modules are seen by nobody
 * else), else `looked_up`, else what comes after us in the order of libraries; NULL: nothing. Takes the loader's lock: not for calls that are many.
 */
void *ps_symbol_behind(const char *name, void *looked_up, const void *caller);

#endif
