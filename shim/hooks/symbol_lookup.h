/*
 * What the program gets when it looks a function of the driver up by name: dlsym in libcuda.so.1, as its own code, cuDNN, cuBLASLt and every
 * statically linked runtime do, cuGetProcAddress, from which the runtimes take nearly all (shim/README.md#look-ups), and the runtime's own look-up. Who opens the shared
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

/*
 * What `caller` would call by that name if we did not export it: what the library that it lies in was linked with (Python's modules are seen by nobody
 * else), else `looked_up`, else what comes after us in the order of libraries; NULL: nothing. Takes the loader's lock: not for calls that are many.
 */
void *ps_symbol_behind(const char *name, void *looked_up, const void *caller);

#endif
