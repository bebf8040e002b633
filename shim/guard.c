#include "guard.h"

#include "log.h"
#include "per_device.h"
#include "registry.h"
#include "slab.h"
#include "stopping.h"

/*
 * Evicted spans whose addresses lead nowhere yet: the `host` guard's mapping takes longer than the copy did (2.1 against 1.6 ms for 86 MiB with both
 * links busy, on an H200), so it has a thread of its own and holds up no pages. A ring; a span is known by its number.
 */
#define UNGUARDED_MAX 1024u
/*
 * Beyond this the mapping is made before the next pages go: an unforeseen access would fault meanwhile, and pointer queries that go past our hooks
 * (Triton's) would fail. 10 ms or so.
 */
#define UNGUARDED_BYTES_MAX (256ull << 20)
static PS_PER_DEVICE struct {
    struct {
        uint64_t number;
        size_t bytes;
    } unguarded[UNGUARDED_MAX];
    uint64_t unguarded_written, unguarded_done, unguarded_bytes;
} of_first;
#define here PS_HERE(of_first)

void ps_guard_map_to_slot(struct ps_span *span)
{
    if (!span || span->busy || span->residency != PS_EVICTED || span->backing != PS_BACKING_NONE)
        return; /* freed, brought back, or somebody is about it */
    span->busy = true;
    ps_registry_unlock();
    int r = ps_slab_map_row(span->address, span->slot);
    ps_registry_lock();
    span->busy = false;
    if (r)
        ps_log_warn_once(
            RESIDENCY,
            "an evicted span's addresses could not be mapped to its slot (error %d); an access to it there would fault; PENSTOCK_RULES keeps on the device what is used so",
            -r);
    else
        span->backing = PS_BACKING_SLOT;
    ps_registry_changed();
}

/*
 * From the unmapping of its pages until this is done an access that nobody foresaw would fault; everything that is seen maps or reloads the span
 * itself. A reload that comes first spares the work. [locked; may release the lock meanwhile]
 */
void ps_guard_soon(struct ps_span *span)
{
    if (here.unguarded_written - here.unguarded_done == UNGUARDED_MAX || here.unguarded_bytes > UNGUARDED_BYTES_MAX) {
        ps_guard_map_to_slot(span);
        return;
    }
    here.unguarded[here.unguarded_written % UNGUARDED_MAX].number = span->number;
    here.unguarded[here.unguarded_written++ % UNGUARDED_MAX].bytes = span->bytes;
    here.unguarded_bytes += span->bytes;
    ps_registry_call(PS_HELPER_GUARD);
}

void ps_guard_map_to_slots(void)
{
    ps_registry_lock();
    ps_stopping_helper_begins();
    for (;;) {
        ps_stopping_park_if_due();
        if (here.unguarded_done == here.unguarded_written) {
            ps_registry_rest(PS_HELPER_GUARD, PS_HELPER_LOOKS_NS);
            continue;
        }
        uint64_t number = here.unguarded[here.unguarded_done % UNGUARDED_MAX].number;
        here.unguarded_bytes -= here.unguarded[here.unguarded_done++ % UNGUARDED_MAX].bytes;
        ps_guard_map_to_slot(ps_registry_numbered(number));
    }
}
