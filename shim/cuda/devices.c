#include "cuda/devices.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/device_memory.h"
#include "cuda/driver.h"
#include "cuda/green_contexts.h"

/* The linker's names for the ends of the section of per_device.h. */
extern char first_start[] __asm__("__start_ps_per_device") __attribute__((visibility("hidden")));
extern char first_end[] __asm__("__stop_ps_per_device") __attribute__((visibility("hidden")));

bool ps_devices_several;

/* A copy of the section as it was loaded. NULL: the process sees one device only, or no memory. */
static void *as_loaded;
/*
 * The variables of each device. Only these pointers keep the compiler from dropping them as unused.
 */
static char *variables[PS_DEVICES_MAX];
static ptrdiff_t place[PS_DEVICES_MAX]; /* the distance of a device's variables from the first device's */
static atomic_uint managed;

/*
 * Known contexts, with the numbers of their devices. One thread at a time adds an entry at the end;
 * any thread reads.
 */
#define CONTEXTS_MAX 64u
#define NO_DEVICE UINT32_MAX
static struct {
    CUcontext context;
    uint32_t number;
} known[CONTEXTS_MAX];
static atomic_uint known_count;

static size_t section_bytes(void)
{
    return (uintptr_t)first_end - (uintptr_t)first_start;
}

void ps_devices_open(unsigned visible)
{
    if (visible < 2)
        return;
    as_loaded = malloc(section_bytes());
    if (as_loaded)
        memcpy(as_loaded, first_start, section_bytes());
    ps_devices_several = true;
}

int ps_devices_new(void)
{
    unsigned number = ps_devices_count();

    if (!as_loaded || number == PS_DEVICES_MAX)
        return -ENOSPC;
    /* A refused device has left its memory, which is used again. */
    if (!variables[number] && posix_memalign((void **)&variables[number], 64, section_bytes()))
        return -ENOMEM;
    memcpy(variables[number], as_loaded, section_bytes());
    ps_here = (ptrdiff_t)((uintptr_t)variables[number] - (uintptr_t)first_start);
    return 0;
}

static void know(CUcontext context, uint32_t number)
{
    unsigned n = atomic_load(&known_count);

    if (n == CONTEXTS_MAX)
        return;
    known[n].context = context;
    known[n].number = number;
    atomic_store_explicit(&known_count, n + 1, memory_order_release);
}

void ps_devices_add(CUcontext context)
{
    unsigned number = atomic_load(&managed);

    place[number] = ps_here;
    atomic_store_explicit(&managed, number + 1, memory_order_release);
    know(context, number);
}

void ps_devices_refuse(CUcontext context)
{
    know(context, NO_DEVICE);
    ps_here = 0;
}

unsigned ps_devices_count(void)
{
    return atomic_load_explicit(&managed, memory_order_acquire);
}

void ps_devices_enter(unsigned number)
{
    /* The number may come from a word that only looks like an address, in an area of no device. */
    if (number < ps_devices_count())
        ps_here = place[number];
}

/* Returns the index of the context among the known ones, or CONTEXTS_MAX. */
static unsigned find(CUcontext context)
{
    unsigned n = atomic_load_explicit(&known_count, memory_order_acquire);

    for (unsigned i = 0; i < n; i++)
        if (known[i].context == context)
            return i;
    return CONTEXTS_MAX;
}

enum ps_devices_current ps_devices_enter_current(void)
{
    CUcontext context = NULL;

    if (ps_cu.cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context)
        return PS_DEVICES_REFUSED;
    context = ps_green_contexts_primary(context);
    if (!ps_devices_several)
        return context == ps_device.context ? PS_DEVICES_MANAGED : PS_DEVICES_REFUSED;
    unsigned i = find(context);
    if (i == CONTEXTS_MAX)
        return atomic_load(&known_count) < CONTEXTS_MAX ? PS_DEVICES_UNKNOWN : PS_DEVICES_REFUSED;
    if (known[i].number == NO_DEVICE)
        return PS_DEVICES_REFUSED;
    ps_devices_enter(known[i].number);
    return PS_DEVICES_MANAGED;
}

bool ps_devices_has_context(CUcontext context)
{
    unsigned i = find(context);

    return i != CONTEXTS_MAX && known[i].number != NO_DEVICE;
}

bool ps_devices_primary_is_there(CUdevice device)
{
    unsigned int flags;
    int active = 0;

    return ps_cu.cuDevicePrimaryCtxGetState &&
           ps_cu.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active;
}

CUcontext ps_devices_primary(CUdevice device)
{
    CUcontext primary = NULL;

    if (!ps_devices_primary_is_there(device) || !ps_cu.cuDevicePrimaryCtxRetain || !ps_cu.cuDevicePrimaryCtxRelease ||
        ps_cu.cuDevicePrimaryCtxRetain(&primary, device) != CUDA_SUCCESS)
        return NULL;
    ps_cu.cuDevicePrimaryCtxRelease(device); /* the program keeps the context alive */
    return primary;
}

bool ps_devices_find(int ordinal, unsigned *number)
{
    const ptrdiff_t before = ps_here;
    const unsigned n = ps_devices_count();
    unsigned i = 0;

    for (; i < n; i++) {
        ps_devices_enter(i);
        if (ps_device.ordinal == ordinal)
            break;
    }
    ps_here = before;
    *number = i;
    return i < n;
}
