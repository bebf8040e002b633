/*
 * The devices of the process that are managed, each with variables of its own (per_device.h). The first is that of the process's first large
 * allocation; each further one is managed from its own first on. A device is known by the context in which that was asked for: what is allocated in
 * other contexts of it is CUDA's.
 *
 * Which device a call concerns: an allocation the current context's, a free or a query that of the address, a launch those of the spans that it names. Whoever
 * comes into Penstock from the program goes there first; where the process sees one device only, everything here is a look at one flag, and for an
 * allocation at the context.
 *
 * Two clocks: nothing is queued or waited for here. Work on one device's stream that uses another's span is ordered as any use is, by events, which
 * streams of all contexts can wait for.
 *
 * Any thread, unless it says otherwise.
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

/* With the first device's set-up, before any of its variables has changed: the process sees so many devices. One thread at a time. */
void ps_devices_open(unsigned visible);

/* Variables for one more device, as they were when the library was loaded; the calling thread is at it. 0 or -errno. One thread at a time. */
int ps_devices_new(void);

/* The device that the thread is at has been set up, in this context, and is managed from here on; or can't be. One thread at a time. */
void ps_devices_add(CUcontext context);
void ps_devices_refuse(CUcontext context);

/* How many are managed. They are numbered as they came: the areas of the reservation are theirs in that order. */
unsigned ps_devices_count(void);

/* The thread goes to the device of that number. */
void ps_devices_enter(unsigned number);

/* The thread goes to the device of an address of the reservation. */
static inline void ps_devices_enter_address(CUdeviceptr address)
{
    if (__builtin_expect(ps_devices_several, false))
        ps_devices_enter(ps_address_device(address));
}

/* The thread goes to the device of its current context, if that is the one that the device is managed in. */
enum ps_devices_current {
    PS_DEVICES_MANAGED,
    PS_DEVICES_UNKNOWN, /* nobody has asked for memory in that context yet; not where the process sees one device only */
    PS_DEVICES_REFUSED, /* it can't be managed, is another one of a managed device, or there is none */
};
enum ps_devices_current ps_devices_enter_current(void);

/* Whether that is a context of a managed device; goes nowhere. */
bool ps_devices_has_context(CUcontext context);

/* Whether the device (an ordinal) has a primary context at all, and whether that is a context of a managed device. Inside Penstock. */
bool ps_devices_primary_is_there(CUdevice device);
bool ps_devices_primary_is_managed(CUdevice device);

/* Whether that device of the process (an ordinal) is managed, and its number. */
bool ps_devices_find(int ordinal, unsigned *number);

#endif
