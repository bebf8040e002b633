/*
 * Answers the program when it looks a function of the driver up by name. Look-ups by dlsym in
 * libcuda.so.1 come from the program's own code, cuDNN, cuBLASLt and every statically linked
 * runtime. The runtimes take nearly all functions from cuGetProcAddress (shim/README.md#look-ups).
 * The third way is the runtime's own look-up. A caller that opens the shared runtime and looks up
 * its functions is answered likewise. The result is replaced by our function of that name, if there
 * is one and the caller should have it:
 *  - Functions of traced_calls.def go to every caller, unless PENSTOCK_TRACER=cupti. They only pass
 *    calls on until they are a source of the tracer's (start.h).
 *  - Functions of hooks.def go to every caller but NVIDIA's own libraries, whose memory is left to
 *    them. Those that are not about memory go to NVIDIA's too, where those of traced_calls.def do.
 *
 * A result is replaced only if its address is that of the function that the driver exports by that
 * name. So versions and per-thread twins are told apart as the driver does it. A look-up that gives
 * something else (another tool's function) is left as it is.
 *
 * NCCL's functions (nccl.def) are replaced likewise, with any tracer source: programs that open
 * libnccl.so.2 themselves look them up. So are CUPTI's cuptiSubscribe (cupti_subscribe.h) and some
 * of cuFile's functions (external_access.h).
 *
 * Two clocks: nothing here is queued or waited for. dlsym may be called before any constructor has
 * run, in any process, under the loader's lock. For names that can't be CUDA's or NCCL's nothing
 * happens but a jump.
 */
#ifndef PS_SYMBOL_LOOKUP_H
#define PS_SYMBOL_LOOKUP_H

/*
 * Returns the function that `caller` would call by that name if we did not export it. First come
 * the library that holds `caller` and those that it was linked with; libraries that Python loads
 * are visible only so. Then comes `looked_up`, then the next library after us. NULL: nothing. Takes
 * the loader's lock: not for frequent calls.
 */
void *ps_symbol_behind(const char *name, void *looked_up, const void *caller);

#endif
