#include "hooks/external_holds.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "cuda/helper_thread.h"
#include "cuda/managed_context.h"
#include "memory/registry.h"
#include "process.h"
#include "residency/residency.h"

/* False: no memory. */
static bool add(struct ps_external_hold *staying, struct ps_span *span)
{
    struct ps_span **grown = ps_grown_array(staying->span, staying->count, &staying->room, 4, sizeof(struct ps_span *));

    if (!grown)
        return false;
    staying->span = grown;
    staying->span[staying->count++] = span;
    return true;
}

struct ps_external_hold ps_external_holds_begin(CUdeviceptr first, size_t bytes)
{
    struct ps_external_hold staying = {.is_on_pages = true, .is_whole = true};
    CUdeviceptr behind = first + (bytes ? bytes : 1);

    if (ps_inside || !ps_process_has_begun())
        return staying;
    for (CUdeviceptr at = first; at < behind && ps_address_is_a_spans(at);) {
        struct ps_span *span = ps_address_span(at);
        if (span && !add(&staying, span)) {
            staying.is_whole = false;
            break;
        }
        at = span ? span->address + span->bytes : at + ps_reservation.granularity - at % ps_reservation.granularity;
    }
    if (!staying.count)
        return staying;
    staying.device = staying.span[0]->device;
    struct ps_managed_context context = ps_managed_context_enter_at(staying.device);
    ps_residency_hold(staying.span, &staying.count);
    staying.is_on_pages = ps_residency_settle(staying.span, staying.count, true);
    ps_managed_context_leave(context);
    return staying;
}

void ps_external_holds_stays(const struct ps_external_hold *staying, uint64_t *numbers)
{
    int error = errno;

    if (!staying->count)
        return;
    struct ps_managed_context context = ps_managed_context_enter_at(staying->device);
    ps_residency_pin(staying->span, staying->count);
    ps_registry_lock();
    for (size_t i = 0; numbers && i < staying->count; i++)
        numbers[i] = staying->span[i]->number;
    ps_registry_unlock();
    ps_managed_context_leave(context);
    errno = error;
}

void ps_external_holds_end(struct ps_external_hold *staying)
{
    int error = errno;

    if (staying->count) {
        struct ps_managed_context context = ps_managed_context_enter_at(staying->device);
        ps_residency_let_go(staying->span, staying->count, NULL);
        ps_managed_context_leave(context);
    }
    free(staying->span);
    staying->span = NULL;
    staying->count = 0;
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
        ps_uses_note_all_streams(&span->uses);
        if (span->user_pins)
            span->user_pins--;
    }
    ps_registry_unlock();
    ps_managed_context_leave(context);
}
