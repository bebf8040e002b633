/*
 * The managed devices of the process, each with variables of its own (per_device.h). The first is
 * that of the process's first large allocation. Each further device is managed from its own first
 * one on. A device is known by the context of that allocation. Allocations in its other contexts
 * are CUDA's.
 *
 * An allocation concerns the device of the current context. A free or a query concerns that of the
 * address, and a launch those of the spans that it names. A thread that enters Penstock from the
 * program goes to that device first. If the process sees one device only, these functions look at
 * one flag, and for an allocation at the context.
 *
 * Two clocks: nothing is queued or waited for here. Work on one device's stream that uses another's
 * span is ordered like any use, by events. Streams of all contexts can wait for these.
 *
 * Threads: any, unless a function says otherwise.
 */
#ifndef PS_DEVICES_H
#define PS_DEVICES_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/per_device.h"
#include "cuda/address_map.h"

#define PS_DEVICES_MAX 16u

/* Whether the process sees more than one device. Constant after the set-up. */
extern bool ps_devices_several;

/*
 * Called with the first device's set-up, before any of its variables has changed. `visible`: the
 * devices that the process sees. One thread at a time.
 */
void ps_devices_open(unsigned visible);

/*
 * Makes the variables of one more device, as they were when the library was loaded. The calling
 * thread goes to that device. Returns 0 or -errno. One thread at a time.
 */
int ps_devices_new(void);

/*
 * The thread's device was set up in this context, and is managed from now on. One thread at a time.
 */
void ps_devices_add(CUcontext context);

/*
 * The device of this context can't be managed. The thread goes to the first device. One thread at a
 * time.
 */
void ps_devices_refuse(CUcontext context);

/*
 * Returns the number of managed devices. They are numbered in the order in which they came, and so
 * are their areas of the reservation.
 */
unsigned ps_devices_count(void);

/* Moves the calling thread to the device of that number, if it is managed. */
void ps_devices_enter(unsigned number);

/* Moves the calling thread to the device of an address of the reservation. */
static inline void ps_devices_enter_address(CUdeviceptr address)
{
    if (__builtin_expect(ps_devices_several, false))
        ps_devices_enter(ps_address_device(address));
}

/* The answers of ps_devices_enter_current about the current context. */
enum ps_devices_current {
    PS_DEVICES_MANAGED,
    PS_DEVICES_UNKNOWN, /* no memory was requested in it yet; not if the process sees one device */
    PS_DEVICES_REFUSED, /* no context, one that can't be managed, or a second of a managed device */
};

/* Moves the calling thread to the device of its current context, if the device is managed in it. */
enum ps_devices_current ps_devices_enter_current(void);

/* Returns whether that is a context of a managed device. The thread stays at its device. */
bool ps_devices_has_context(CUcontext context);

/* Returns whether the device (an ordinal) has a primary context at all. Inside Penstock. */
bool ps_devices_primary_is_there(CUdevice device);

/* Returns the device's primary context if it is there, or NULL. Inside Penstock. */
CUcontext ps_devices_primary(CUdevice device);

/* Returns whether that device of the process (an ordinal) is managed, and tells its number. */
bool ps_devices_find(int ordinal, unsigned *number);

#endif
