/*
 * Makes another context current to the calling thread for a while. The program's own context is
 * current again afterwards, also if the driver refuses one of the calls.
 *
 * Any thread, no lock.
 */
#ifndef PS_CONTEXT_STACK_H
#define PS_CONTEXT_STACK_H

#include <cuda.h>

/*
 * Makes `context` current, unless it is already. `*pushed` receives what ps_context_leave takes:
 * NULL if the thread's contexts are as before. Returns 0, or -errno if the driver refuses.
 */
int ps_context_enter(CUcontext context, CUcontext *pushed);

/* Takes the context off the thread's stack again. NULL: does nothing. */
void ps_context_leave(CUcontext pushed);

#endif
