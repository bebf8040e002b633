#include "residency/graph_pins.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/bytes_text.h"
#include "base/log.h"
#include "base/ordering_rules.h"
#include "cuda/devices.h"
#include "cuda/managed_context.h"
#include "memory/blocks.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "residency/residency.h"

/* The spans of one device that are about to be pinned. */
struct gathered {
    struct ps_span **span;
    size_t count, room;
    bool lacks; /* there was no memory to list a span */
};

static void gather(struct gathered *to, struct ps_span *span)
{
    struct ps_span **grown = ps_grown_array(to->span, to->count, &to->room, 16, sizeof(struct ps_span *));

    if (!grown) {
        to->lacks = true;
        return;
    }
    to->span = grown;
    to->span[to->count++] = span;
}

/* Gathers the span at the address; of a block all pieces, since any may be touched. [locked] */
static void gather_at(struct gathered *to, CUdeviceptr address)
{
    struct ps_span *span = ps_registry_live_at(address);
    const struct ps_block *block = span ? ps_block_of(span) : NULL;

    if (span && !block)
        gather(to, span);
    if (block && to->count && ps_block_of(to->span[to->count - 1]) == block)
        return; /* addresses ascend, so its pieces are listed */
    if (block)
        PS_BLOCK_EACH (span, block)
            gather(to, span);
}

/* [locked] */
static void gather_all(struct gathered *to)
{
    struct ps_span *span;

    for (CUdeviceptr at = ps_registry.start; (span = ps_registry_next(at)); at = span->address + span->bytes)
        if (span->life == PS_LIFE_LIVE)
            gather(to, span);
}

/*
 * Pins the spans, which the caller holds so that they live. Returns the bytes without device pages.
 */
static uint64_t pin(struct ps_graph_pins *pins, const struct gathered *spans, unsigned device)
{
    uint64_t left = 0;

    ps_registry_lock();
    for (size_t i = 0; i < spans->count; i++) {
        struct ps_span *span = spans->span[i];
        struct ps_graph_pin *grown = ps_grown_array(pins->pin, pins->count, &pins->room, 16, sizeof *grown);
        if (span->life != PS_LIFE_LIVE)
            continue;
        span->holds.pinned++;
        left += span->has_pages ? 0 : span->bytes;
        if (!grown)
            continue; /* it stays pinned until it is freed */
        pins->pin = grown;
        pins->pin[pins->count++] = (struct ps_graph_pin){device, span->number};
    }
    ps_registry_unlock();
    return left;
}

/* Brings the spans to the thread's device and pins them. */
static void take(struct ps_graph_pins *pins, struct gathered *spans, unsigned device)
{
    ps_residency_hold(spans->span, &spans->count);
    if (ps_ordering_rule(KERNEL_GRAPH_WAITS))
        ps_residency_settle(spans->span, spans->count, true);
    const uint64_t left = pin(pins, spans, device);
    ps_residency_let_go(spans->span, spans->count, NULL);
    if (left)
        ps_log_warn_once(
            TRACER,
            "a CUDA graph that kernels launch uses more than a budget of %s has room for: %s of it stay on the "
            "host while the graph exists, and its kernels read them there, slowly; raise PENSTOCK_BUDGET",
            ps_bytes_text(ps_budget.limit).text, ps_bytes_text(left).text);
    if (spans->lacks)
        ps_log_warn_once(TRACER,
                         "no memory to record what a CUDA graph that kernels launch uses: that memory may be evicted "
                         "while the graph runs; a lower PENSTOCK_HOST_BUDGET makes the slab smaller");
}

struct ps_graph_pins ps_graph_pins_take(const CUdeviceptr *address, size_t count, bool everything)
{
    struct ps_graph_pins pins = {.pin = NULL};

    if (!ps_ordering_rule(KERNEL_GRAPH_STAYS))
        return pins;
    for (unsigned device = 0; device < ps_devices_count(); device++) {
        struct gathered spans = {.span = NULL};
        struct ps_managed_context context = ps_managed_context_enter_at(device);
        ps_registry_lock();
        if (everything)
            gather_all(&spans);
        for (size_t i = 0; i < count && !everything; i++)
            if (!ps_devices_several || ps_address_device(address[i]) == device)
                gather_at(&spans, address[i]);
        ps_registry_unlock();
        if (spans.count)
            take(&pins, &spans, device);
        ps_managed_context_leave(context);
        free(spans.span);
    }
    return pins;
}

/* Unpins the spans of the thread's device. */
static void drop(const struct ps_graph_pins *pins, unsigned device)
{
    ps_stream_settle(NULL);
    ps_registry_lock();
    for (size_t i = 0; i < pins->count; i++) {
        struct ps_span *span = pins->pin[i].device == device ? ps_registry_numbered(pins->pin[i].number) : NULL;
        if (!span || span->life != PS_LIFE_LIVE || !span->holds.pinned)
            continue;
        ps_uses_note_all_streams(&span->order.uses);
        span->holds.pinned--;
    }
    if (ps_budget.waiting)
        ps_registry_changed();
    ps_registry_unlock();
}

void ps_graph_pins_drop(struct ps_graph_pins *pins)
{
    for (unsigned device = 0; pins->count && device < ps_devices_count(); device++) {
        struct ps_managed_context context = ps_managed_context_enter_at(device);
        drop(pins, device);
        ps_managed_context_leave(context);
    }
    free(pins->pin);
    *pins = (struct ps_graph_pins){.pin = NULL};
}
