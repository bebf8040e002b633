/*
 * The end of a context of the program. The driver may use its handles again: those of kernels,
 * modules and events, and the context's own.
 */
#ifndef PS_CONTEXT_ENDS_H
#define PS_CONTEXT_ENDS_H

#include <cuda.h>

/*
 * Forgets the layouts of kernels, the variables of modules and the events of looks. Call it before
 * the context's end, or behind it where the end is known only then. Any thread, inside Penstock.
 * NULL: a context that was never used with Penstock.
 */
void ps_kernels_context_ends(CUcontext context);

#endif
