#include "residency/events.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/observers.h"
#include "base/per_device.h"
#include "base/probes.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "memory/slab.h"
#include "memory/span.h"
#include "residency/event_ring.h"
#include "residency/plan_table.h"

atomic_bool ps_events_traces;

static PS_PER_DEVICE struct {
    /* Guarded by the registry lock. */
    struct ps_recorded_layer layer; /* the layer of the latest launch */
    struct ps_steps_state step;     /* the latest news of the detector */
    unsigned step_begins_in;        /* launches; 0: no step is about to begin */

    _Atomic uint32_t reloads_queued; /* reloads queued and not seen over */
    uint32_t (*evictions)(void);     /* returns the D2H copies under way; constant after the set-up */
} first_dev = {.layer.number = PENSTOCK_NEVER};
#define dev (&PS_HERE(first_dev))

void ps_events_count_evictions_by(uint32_t (*count)(void))
{
    dev->evictions = count;
}

static int32_t this_thread(void)
{
    static __thread int32_t id __attribute__((tls_model("initial-exec")));

    if (!id)
        id = (int32_t)syscall(SYS_gettid);
    return id;
}

/* [locked] */
static struct ps_event_levels levels(void)
{
    const struct ps_slab_figures slab = ps_slab_figures();

    return (struct ps_event_levels){
        .held = ps_budget.held,
        .live = ps_registry.live_bytes,
        .slab_used = slab.used_bytes,
        .evictions = dev->evictions ? dev->evictions() : 0,
        .reloads = atomic_load_explicit(&dev->reloads_queued, memory_order_relaxed),
        .known = true,
    };
}

/* Reports the record with the levels, which the caller's lock guards. [locked] */
static bool put_with_levels(struct ps_event_record *record)
{
    record->told_ns = ps_now_ns();
    record->levels = levels();
    return ps_observers.event(record);
}

static void put_instant(struct ps_event_record record)
{
    record.begin_ns = ps_now_ns();
    record.thread = this_thread();
    put_with_levels(&record);
}

/* ---- moves ---- */

static void begin_move(struct ps_events_move *move, const struct ps_span *span, bool planned)
{
    *move = (struct ps_events_move){
        .number = span->number, .address = span->address, .bytes = span->bytes, .planned = planned};
    if (!ps_events_is_tracing())
        return;
    move->queued_ns = ps_now_ns();
    move->layer = dev->layer;
    move->begin = ps_device_clock_take();
}

static struct ps_event_record record_of(const struct ps_events_move *move, enum ps_event_kind kind)
{
    return (struct ps_event_record){
        .kind = kind,
        .why = move->planned,
        .begin_ns = move->begin_ns,
        .end_ns = move->end_ns,
        .queued_ns = move->queued_ns,
        .bytes = move->bytes,
        .address = move->address,
        .number = move->number,
        .layer = move->layer.number,
        .layer_name = move->layer.name,
        .direction = (uint8_t)move->layer.direction,
    };
}

void ps_events_eviction_begins(struct ps_events_move *move, const struct ps_span *span, bool planned)
{
    PS_PROBE4(eviction_begin, span->number, span->address, span->bytes, (int)planned);
    begin_move(move, span, planned);
}

void ps_events_eviction_copied(struct ps_events_move *move, CUevent done)
{
    if (!move->queued_ns)
        return;
    if (!ps_device_clock_when(done, &move->end_ns))
        move->end_ns = ps_now_ns();
    if (!ps_device_clock_when_marked(move->begin, &move->begin_ns))
        move->begin_ns = 0;
    ps_device_clock_give(move->begin);
    move->begin = NULL;
}

void ps_events_eviction_ends(struct ps_events_move *move, bool left)
{
    PS_PROBE3(eviction_end, move->number, move->bytes, (int)left);
    ps_device_clock_give(move->begin);
    move->begin = NULL;
    if (!ps_events_is_tracing() || !move->end_ns)
        return; /* nothing was copied, or tracing was off */
    struct ps_event_record record = record_of(move, left ? PS_EVENT_EVICTION : PS_EVENT_VOID_EVICTION);
    put_with_levels(&record);
}

void ps_events_eviction_cancelled(const struct ps_span *span)
{
    if (ps_events_is_tracing())
        put_instant((struct ps_event_record){
            .kind = PS_EVENT_EVICTION_CANCELLED, .number = span->number, .bytes = span->bytes});
}

void ps_events_reload_begins(struct ps_events_move *move, const struct ps_span *span, bool planned)
{
    PS_PROBE4(reload_begin, span->number, span->address, span->bytes, (int)planned);
    begin_move(move, span, planned);
    if (move->begin)
        move->end = ps_device_clock_take();
    if (!move->end) {
        ps_device_clock_give(move->begin);
        move->begin = NULL;
    }
}

void ps_events_reload_ends(struct ps_events_move *move, int error)
{
    PS_PROBE3(reload_end, move->number, move->bytes, error);
    if (!error && ps_events_is_tracing() && move->queued_ns) {
        struct ps_event_record record = record_of(move, PS_EVENT_RELOAD);
        record.from = move->begin;
        record.to = move->end;
        if (move->end)
            atomic_fetch_add_explicit(&dev->reloads_queued, 1, memory_order_relaxed);
        if (put_with_levels(&record))
            return; /* the record owns the marks now */
        if (move->end)
            ps_events_reload_is_over();
    }
    ps_device_clock_give(move->begin);
    ps_device_clock_give(move->end);
}

void ps_events_reload_is_over(void)
{
    atomic_fetch_sub_explicit(&dev->reloads_queued, 1, memory_order_relaxed);
}

/* ---- waits ---- */

void ps_events_wait_begins(enum ps_events_wait wait, uint64_t bytes)
{
    PS_PROBE2(wait_begin, (int)wait, bytes);
}

void ps_events_waited(enum ps_events_wait wait, uint64_t bytes, uint64_t began_ns, uint64_t ended_ns)
{
    PS_PROBE3(wait_end, (int)wait, bytes, ended_ns - began_ns);
    if (!ps_events_is_tracing())
        return;
    struct ps_event_record record = {.kind = PS_EVENT_WAIT,
                                     .why = (uint8_t)wait,
                                     .thread = this_thread(),
                                     .begin_ns = began_ns,
                                     .end_ns = ended_ns,
                                     .bytes = bytes};
    put_with_levels(&record);
}

void ps_events_stood_still(uint64_t launch, CUevent from, uint64_t ns)
{
    struct ps_event_record record = {.kind = PS_EVENT_STALL, .number = launch};

    if (!ps_events_is_tracing() || !ps_device_clock_when(from, &record.begin_ns))
        return;
    record.end_ns = record.begin_ns + ns;
    /* The trace is stopped, and its events are counted, with this lock held. */
    ps_registry_lock();
    if (ps_events_is_tracing())
        ps_observers.event(&record);
    ps_registry_unlock();
}

/* ---- steps, layers and plans ---- */

void ps_events_step(struct ps_steps_state state)
{
    PS_PROBE4(step, (int)state.event, state.pattern, state.length, state.position);
    if (!ps_events_is_tracing())
        return;
    dev->step = state;
    /* The launch that this call is about is the step's last. */
    dev->step_begins_in = state.event == PS_STEPS_FOUND || state.event == PS_STEPS_WRAPPED ? 2 : 0;
    if (state.event == PS_STEPS_LOST)
        put_instant((struct ps_event_record){.kind = PS_EVENT_STEP_ENDS});
    else if (state.event == PS_STEPS_RECOGNISED)
        put_instant((struct ps_event_record){.kind = PS_EVENT_STEP, .number = state.length, .other = state.pattern});
}

static bool is_same(const struct ps_recorded_layer *a, const struct ps_recorded_layer *b)
{
    return a->stretch == b->stretch && a->number == b->number && a->direction == b->direction && a->name == b->name;
}

void ps_events_launch(const struct ps_recorded_layer *marked)
{
    struct ps_recorded_layer layer = *marked;
    bool step_begins = dev->step_begins_in && !--dev->step_begins_in;

    if (!layer.stretch) /* no markers: a plan that is followed may know the layer */
        ps_plan.layer(&layer);
    if (step_begins)
        put_instant(
            (struct ps_event_record){.kind = PS_EVENT_STEP, .number = dev->step.length, .other = dev->step.pattern});
    if (!step_begins && is_same(&layer, &dev->layer))
        return;
    dev->layer = layer;
    put_instant((struct ps_event_record){.kind = PS_EVENT_LAYER,
                                         .layer = layer.number,
                                         .layer_name = layer.name,
                                         .direction = (uint8_t)layer.direction});
}

void ps_events_plan(bool in_force, uint32_t pattern, uint32_t launches, uint32_t moves)
{
    PS_PROBE4(plan, (int)in_force, pattern, launches, moves);
    if (ps_events_is_tracing())
        put_instant((struct ps_event_record){.kind = in_force ? PS_EVENT_PLAN : PS_EVENT_PLAN_LOST,
                                             .number = launches,
                                             .other = pattern | (uint64_t)moves << 32});
}

void ps_events_out_of_memory(uint64_t bytes)
{
    if (ps_events_is_tracing())
        put_instant((struct ps_event_record){.kind = PS_EVENT_OUT_OF_MEMORY, .bytes = bytes});
}

void ps_events_levels(void)
{
    put_instant((struct ps_event_record){.kind = PS_EVENT_LEVELS});
}
