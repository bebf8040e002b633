/*
 * The end of a context of the program. The driver may use its handles again: those of kernels
 * and modules, and the context's own.
 */
#ifndef PS_CONTEXT_ENDS_H
#define PS_CONTEXT_ENDS_H

#include <cuda.h>

/*
 * Forgets the layouts of kernels and the variables of modules. Call it before the
 * context's end, or behind it where the end is known only then. NULL: nothing. Any thread,
 * inside Penstock.
 */
void ps_kernels_context_ends(CUcontext context);

#endif
