/*
 * Brings the calling thread into Penstock, with the managed context of its device current. Calls of
 * libraries (NCCL) choose the device themselves. Threads with another current context, or without
 * one, may make them. The thread is also relaxed as capture_mode.h says.
 *
 * Any thread. The thread that entered must leave.
 */
#ifndef PS_MANAGED_CONTEXT_H
#define PS_MANAGED_CONTEXT_H

#include <cuda.h>

struct ps_managed_context {
    CUcontext pushed; /* NULL: it was current already, or the driver refused */
};

/* Enters at the thread's device. ps_managed_context_leave takes the result. */
struct ps_managed_context ps_managed_context_enter(void);

/* The same at the device of that number. */
struct ps_managed_context ps_managed_context_enter_at(unsigned device);

/* The same at the device of an address of the reservation. */
struct ps_managed_context ps_managed_context_enter_for(CUdeviceptr address);

/*
 * Waits on the host for all work queued in the managed context of the thread's device, whatever
 * context is current. Returns 0, or -EBUSY if a capture is under way, which such a wait would
 * break. After another -errno nothing was waited for.
 */
int ps_managed_context_wait(void);

/* Restores the thread's context and capture mode from before the enter. */
void ps_managed_context_leave(struct ps_managed_context context);

#endif
