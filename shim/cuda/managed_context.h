/*
 * The calling thread inside Penstock, with the context current that its device is managed in, wherever it comes from: calls of libraries (NCCL) choose the device
 * themselves, and may be made by threads that have another context current, or none. While anybody captures a stream it is relaxed as well.
 *
 * Any thread; leave on the one that entered.
 */
#ifndef PS_MANAGED_CONTEXT_H
#define PS_MANAGED_CONTEXT_H

#include <cuda.h>
#include <stdbool.h>

#include "cuda/capture.h"

struct ps_managed_context {
    bool pushed;
    struct ps_capture_mode mode;
};
struct ps_managed_context ps_managed_context_enter(void);

/* The same at the device of that number. */
struct ps_managed_context ps_managed_context_enter_at(unsigned device);

/* The same at the device of an address of the reservation. */
struct ps_managed_context ps_managed_context_enter_for(CUdeviceptr address);

/*
 * Waits on the host until everything is over that was queued in the managed context of the thread's device, whatever is current. 0; -EBUSY: somebody captures a stream,
 * which such a wait would break; other -errno: nothing was waited for.
 */
int ps_managed_context_wait(void);

void ps_managed_context_leave(struct ps_managed_context context);

#endif
