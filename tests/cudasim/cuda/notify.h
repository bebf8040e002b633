/*
 * Tells the CUPTI subscriber of events, if there is one. Callers must not hold the device lock,
 * because a subscriber may call the driver. Thread-safe.
 */
#ifndef CUDASIM_NOTIFY_H
#define CUDASIM_NOTIFY_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../callbacks.h"

enum cudasim_notify_stream_kind {
    CUDASIM_NOTIFY_STREAM_CREATED,
    CUDASIM_NOTIFY_STREAM_DESTROY,
};

enum cudasim_notify_context_kind {
    CUDASIM_NOTIFY_CONTEXT_CREATED,
    CUDASIM_NOTIFY_CONTEXT_DESTROY,
};

/* Returns whether there is a subscriber. */
bool cudasim_notify_wanted(void);
void cudasim_notify_api(const struct cudasim_api_event *event);
void cudasim_notify_stream(enum cudasim_notify_stream_kind kind, CUstream stream);
void cudasim_notify_context(enum cudasim_notify_context_kind kind, CUcontext context);
/*
 * Take and release the lock that is held during resource callbacks. Calls that take the real
 * driver's lock take it. Recursive. Not inside the device lock.
 */
void cudasim_driver_lock(void);
void cudasim_driver_unlock(void);
void cudasim_notify_module_loaded(uint32_t module_id, const void *cubin, size_t cubin_bytes);

#endif
