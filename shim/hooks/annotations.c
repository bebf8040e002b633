/*
 * The annotation API (include/penstock/penstock.h). Passes on the facts that the program tells
 * about itself.
 */
#define PENSTOCK_IMPLEMENTATION
#include "penstock/penstock.h"

#include <errno.h>
#include <stdint.h>

#include "base/counters.h"
#include "cuda/devices.h"
#include "memory/blocks.h"
#include "memory/registry.h"
#include "penstock/policy.h"
#include "plan/layer_markers.h"
#include "process.h"
#include "residency/eviction.h"

void penstock_layer_begin(const char *name, int number, enum penstock_direction direction)
{
    if (direction != PENSTOCK_DIRECTION_FORWARD && direction != PENSTOCK_DIRECTION_BACKWARD)
        direction = PENSTOCK_DIRECTION_NONE;
    ps_layer_markers_begin(name, number < 0 ? PENSTOCK_NEVER : (uint32_t)number, direction);
}

void penstock_layer_end(void)
{
    ps_layer_markers_end();
}

void penstock_step(void)
{
    ps_layer_markers_step();
}

/*
 * Runs `tell`, with the registry lock held, on the span at the address or on each piece of its
 * block. Returns the last result, or -ENOENT.
 */
static int with_span(const void *address, int (*tell)(struct ps_span *span))
{
    int r = -ENOENT;

    /* Before the set-up, or in a forked child, there is no span. */
    if (!ps_process_has_begun() || !ps_address_is_a_spans((CUdeviceptr)(uintptr_t)address))
        return r;
    ps_devices_enter_address((CUdeviceptr)(uintptr_t)address);
    ps_registry_lock();
    struct ps_span *span = ps_registry_live_at((CUdeviceptr)(uintptr_t)address);
    const struct ps_block *block = span ? ps_block_of(span) : NULL;
    if (span && !block)
        r = tell(span);
    if (block) {
        PS_BLOCK_EACH (span, block)
            r = tell(span); /* all pieces give the same result, because they are always called together */
    }
    ps_registry_unlock();
    return r;
}

/* [locked] */
static int pin(struct ps_span *span)
{
    if (span->holds.user_pins == UINT32_MAX)
        return -EINVAL;
    span->holds.user_pins++;
    /*
     * A span that is being evicted stays. If a thread is about to queue its copy or to move its
     * mapping (`busy`), the eviction goes on. The span's next use then brings it back.
     */
    if (span->residency == PS_EVICTING && !span->busy)
        ps_eviction_cancel(span);
    return 0;
}

/* [locked] */
static int unpin(struct ps_span *span)
{
    if (!span->holds.user_pins)
        return -EINVAL;
    span->holds.user_pins--;
    return 0;
}

/* [locked] */
static int hint_idle(struct ps_span *span)
{
    ps_registry_hint_idle(span);
    return 0;
}

int penstock_pin(const void *address)
{
    int r = with_span(address, pin);

    if (!r)
        ps_count(user_pins);
    return r;
}

int penstock_unpin(const void *address)
{
    return with_span(address, unpin);
}

int penstock_hint_idle(const void *address)
{
    int r = with_span(address, hint_idle);

    if (!r)
        ps_count(idle_hints);
    return r;
}
