/*
 * Green contexts of the program: they have a part of a device's multiprocessors and streams of
 * their own, on the memory of the primary context. A request with one current is a request of the
 * primary context. Penstock's own work and events are always in the primary context, which can
 * record on the streams of its green ones. CUDA lets a green context be current to one thread only.
 *
 * At most PS_GREEN_CONTEXTS_MAX are known at a time. Memory of further ones is left to CUDA.
 *
 * Any thread, no lock, unless a comment says otherwise.
 */
#ifndef PS_GREEN_CONTEXTS_H
#define PS_GREEN_CONTEXTS_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>

#define PS_GREEN_CONTEXTS_MAX 64u

/* The program made a green context on the device. Inside Penstock. */
void ps_green_contexts_made(CUgreenCtx green, CUdevice device);

/* Returns the context that a known green context converts to, or NULL. */
CUcontext ps_green_contexts_context(CUgreenCtx green);

/* Stores the device of a known green context. Returns false for another one. */
bool ps_green_contexts_device(CUgreenCtx green, CUdevice *device);

/* The program destroyed a green context. */
void ps_green_contexts_gone(CUgreenCtx green);

extern atomic_uint ps_green_contexts_known; /* the number of known ones; changed under a lock */
static inline bool ps_green_contexts_exist(void)
{
    return atomic_load_explicit(&ps_green_contexts_known, memory_order_relaxed) != 0;
}

/* Returns the primary context of a known green context; any other context is returned itself. */
CUcontext ps_green_contexts_primary_of(CUcontext context);
static inline CUcontext ps_green_contexts_primary(CUcontext context)
{
    return ps_green_contexts_exist() ? ps_green_contexts_primary_of(context) : context;
}

/* Returns whether a known green context is current in the calling thread. */
bool ps_green_contexts_is_current(void);

#endif
