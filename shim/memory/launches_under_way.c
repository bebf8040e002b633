#include "memory/launches_under_way.h"

#include <stdatomic.h>

#include "base/per_device.h"
#include "cuda/devices.h"
#include "memory/registry.h"

/* Number of threads that can launch at once. */
#define PLACES 64u
#define UNPLACED PLACES    /* the launch has no place and is only counted */
#define GONE (PLACES + 1u) /* no launch at this device, or no longer */

/* Alone in its cache line, so that threads that launch at once do not take it from each other. */
struct place {
    _Alignas(64) _Atomic uint64_t began; /* launch number plus 1; 0: free */
};

static PS_PER_DEVICE struct {
    struct place place[PLACES];
    atomic_uint used;     /* number of places that were ever taken; these are the first ones */
    atomic_uint unplaced; /* launches under way without a place */
} first_dev;
#define dev (&PS_HERE(first_dev))

/*
 * The calling thread's launch: its place at each device. `last` is the place that it had last,
 * which is most often free again.
 */
static __thread struct {
    unsigned devices; /* 0: no launch is under way */
    uint8_t last;
    uint8_t place[PS_DEVICES_MAX];
} own __attribute__((tls_model("initial-exec")));

static void raise_used(unsigned to)
{
    unsigned now = atomic_load(&dev->used);

    while (now < to && !atomic_compare_exchange_weak(&dev->used, &now, to)) {
    }
}

/*
 * Two clocks: a thread that looks for launches reads launch_number first, then the places. It looks
 * once the number exceeds a launch's grace. A launch that took its place before the number rose is
 * seen there. Or it has left, and then it is queued and known. All these accesses are sequentially
 * consistent.
 */
static bool take(unsigned place, uint64_t number)
{
    uint64_t none = 0;

    if (atomic_load_explicit(&dev->place[place].began, memory_order_relaxed))
        return false;
    raise_used(place + 1);
    return atomic_compare_exchange_strong(&dev->place[place].began, &none, number + 1);
}

static uint8_t take_any(uint8_t first)
{
    const uint64_t number = atomic_load(&ps_registry.launch_number);

    if (first < PLACES && take(first, number))
        return first;
    for (unsigned place = 0; place < PLACES; place++)
        if (take(place, number))
            return (uint8_t)place;
    atomic_fetch_add(&dev->unplaced, 1);
    return UNPLACED;
}

static void leave(uint8_t *place)
{
    if (*place == UNPLACED)
        atomic_fetch_sub(&dev->unplaced, 1);
    else if (*place < PLACES)
        atomic_store_explicit(&dev->place[*place].began, 0, memory_order_release);
    *place = GONE;
}

/* Returns the current device's number. */
static unsigned device_here(void)
{
    return ps_devices_several ? ps_address_device(ps_registry.start) : 0;
}

/*
 * Returns the start number in the place of the thread's launch at the current device; NULL: no
 * place.
 */
static _Atomic uint64_t *own_began(void)
{
    const unsigned device = device_here();

    return device < own.devices && own.place[device] < PLACES ? &dev->place[own.place[device]].began : NULL;
}

static void take_here(unsigned device)
{
    own.place[device] = take_any(own.last);
    if (own.place[device] < PLACES)
        own.last = own.place[device];
}

/* Out of line: a program with one device pays nothing for the others. */
static __attribute__((noinline)) void take_at_each_device(void)
{
    const ptrdiff_t before = ps_here;

    own.devices = ps_devices_count();
    for (unsigned i = 0; i < own.devices; i++) {
        ps_devices_enter(i);
        take_here(i);
    }
    ps_here = before;
}

void ps_launches_under_way_begins(void)
{
    if (own.devices)
        ps_launches_under_way_ends();
    if (ps_devices_several) {
        take_at_each_device();
        return;
    }
    take_here(0);
    own.devices = 1;
}

/* Leaves the places at all devices but one. */
static void leave_all_but(unsigned device)
{
    const ptrdiff_t before = ps_here;

    for (unsigned i = 0; i < own.devices; i++) {
        if (i == device)
            continue;
        if (ps_devices_several)
            ps_devices_enter(i);
        leave(&own.place[i]);
    }
    ps_here = before;
}

void ps_launches_under_way_is_here(void)
{
    if (own.devices > 1)
        leave_all_but(device_here());
}

void ps_launches_under_way_is_numbered(void)
{
    _Atomic uint64_t *began = own_began();

    /*
     * Only this thread writes to it. The current number would wrongly count launches of other
     * threads that came in between.
     */
    if (began)
        atomic_store_explicit(began, atomic_load_explicit(began, memory_order_relaxed) + 1, memory_order_relaxed);
}

void ps_launches_under_way_ends(void)
{
    if (own.devices == 1 && !ps_devices_several)
        leave(&own.place[0]);
    else if (own.devices)
        leave_all_but(PS_DEVICES_MAX);
    own.devices = 0;
}

uint64_t ps_launches_under_way_began(void)
{
    const _Atomic uint64_t *began = own_began();

    return began ? atomic_load_explicit(began, memory_order_relaxed) - 1 : atomic_load(&ps_registry.launch_number);
}

bool ps_launches_under_way_is_any(uint64_t from, uint64_t to)
{
    if (atomic_load(&dev->unplaced))
        return true;
    for (unsigned i = 0, n = atomic_load(&dev->used); i < n; i++) {
        const uint64_t began = atomic_load(&dev->place[i].began);
        if (began > from && began - 1 <= to)
            return true;
    }
    return false;
}
