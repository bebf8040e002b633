#include "hooks/external_holds.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "cuda/helper_thread.h"
#include "cuda/managed_context.h"
#include "memory/registry.h"
#include "process.h"
#include "residency/residency.h"

/* Adds the span to the hold. Returns false if host memory is short. */
static bool add(struct ps_external_hold *hold, struct ps_span *span)
{
    struct ps_span **grown = ps_grown_array(hold->span, hold->count, &hold->room, 4, sizeof(struct ps_span *));

    if (!grown)
        return false;
    hold->span = grown;
    hold->span[hold->count++] = span;
    return true;
}

struct ps_external_hold ps_external_holds_begin(CUdeviceptr first, size_t bytes)
{
    struct ps_external_hold hold = {.is_on_pages = true, .is_whole = true};
    CUdeviceptr behind = first + (bytes ? bytes : 1);

    if (ps_inside || !ps_process_has_begun())
        return hold;
    for (CUdeviceptr at = first; at < behind && ps_address_is_a_spans(at);) {
        struct ps_span *span = ps_address_span(at);
        if (span && !add(&hold, span)) {
            hold.is_whole = false;
            break;
        }
        at = span ? span->address + span->bytes : at + ps_reservation.granularity - at % ps_reservation.granularity;
    }
    if (!hold.count)
        return hold;
    hold.device = hold.span[0]->device;
    struct ps_managed_context context = ps_managed_context_enter_at(hold.device);
    ps_residency_hold(hold.span, &hold.count);
    hold.is_on_pages = ps_residency_settle(hold.span, hold.count, true);
    ps_managed_context_leave(context);
    return hold;
}

void ps_external_holds_stays(const struct ps_external_hold *hold, uint64_t *numbers)
{
    int error = errno;

    if (!hold->count)
        return;
    struct ps_managed_context context = ps_managed_context_enter_at(hold->device);
    ps_residency_pin(hold->span, hold->count);
    ps_registry_lock();
    for (size_t i = 0; numbers && i < hold->count; i++)
        numbers[i] = hold->span[i]->number;
    ps_registry_unlock();
    ps_managed_context_leave(context);
    errno = error;
}

void ps_external_holds_end(struct ps_external_hold *hold)
{
    int error = errno;

    if (hold->count) {
        struct ps_managed_context context = ps_managed_context_enter_at(hold->device);
        ps_residency_let_go(hold->span, hold->count, NULL);
        ps_managed_context_leave(context);
    }
    free(hold->span);
    hold->span = NULL;
    hold->count = 0;
    errno = error;
}

void ps_external_holds_no_more(unsigned device, const uint64_t *numbers, size_t count)
{
    struct ps_managed_context context = ps_managed_context_enter_at(device);

    ps_registry_lock();
    for (size_t i = 0; i < count; i++) {
        struct ps_span *span = ps_registry_numbered(numbers[i]);
        if (!span || span->life != PS_LIFE_LIVE)
            continue;
        ps_uses_note_all_streams(&span->order.uses);
        if (span->holds.user_pins)
            span->holds.user_pins--;
    }
    ps_registry_unlock();
    ps_managed_context_leave(context);
}
