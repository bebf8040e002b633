/*
 * The recorder: a ring of events, a ring of launches and a table of the spans alive now. Events are
 * allocations, frees, launches and each launch's accesses. The launches point into the events.
 */
#include "policy/recording/recorder_ring.h"

size_t ps_recorder_bytes(void)
{
    return sizeof(struct ps_recorder);
}

void ps_recorder_init(struct ps_recorder *recorder)
{
    recorder->events = 0;
}

uint64_t ps_recorder_launches(const struct ps_recorder *recorder)
{
    return recorder->launches;
}

uint64_t ps_recorder_unknown_spans(const struct ps_recorder *recorder)
{
    return recorder->unknown;
}

/* ---- the spans alive now ---- */

/*
 * Returns the slot where a span's search begins. Callers number the lives of one place in the top
 * 16 bits. So a place that is allocated and freed repeatedly stays in the same cache line. (Any
 * other numbers work too.)
 */
static uint64_t home_of(uint64_t span)
{
    return ps_hash_u64(span & UINT64_C(0xffffffffffff));
}

/*
 * Returns the span's slot, or the free one where it would be. The table is never more than half
 * full.
 */
static struct ps_recorded_live *find_live(struct ps_recorder *recorder, uint64_t span)
{
    uint64_t i = home_of(span);

    while (recorder->live[i % PS_RECORDER_LIVE_SLOTS].span != 0 &&
           recorder->live[i % PS_RECORDER_LIVE_SLOTS].span != span)
        i++;
    return &recorder->live[i % PS_RECORDER_LIVE_SLOTS];
}

static void add_live(struct ps_recorder *recorder, struct ps_recorded_live *slot, const struct ps_recorded_live *live)
{
    if (slot->span == 0) {
        if (recorder->live_spans == PS_RECORDER_LIVE_MAX) {
            recorder->unknown++;
            return;
        }
        recorder->live_spans++;
    }
    *slot = *live;
}

/* Closes the hole, so that no look-up ends early at it. */
static void remove_live(struct ps_recorder *recorder, struct ps_recorded_live *slot)
{
    uint64_t hole = (uint64_t)(slot - recorder->live);

    for (uint64_t i = (hole + 1) % PS_RECORDER_LIVE_SLOTS; recorder->live[i].span != 0;
         i = (i + 1) % PS_RECORDER_LIVE_SLOTS) {
        uint64_t home = home_of(recorder->live[i].span) % PS_RECORDER_LIVE_SLOTS;
        if ((i - home) % PS_RECORDER_LIVE_SLOTS >= (i - hole) % PS_RECORDER_LIVE_SLOTS) {
            recorder->live[hole] = recorder->live[i];
            hole = i;
        }
    }
    recorder->live[hole].span = 0;
    recorder->live_spans--;
}

/* ---- recording ---- */

static struct ps_recorded_event *add_event(struct ps_recorder *recorder, enum ps_recorded_kind kind, uint64_t span,
                                           uint64_t bytes)
{
    struct ps_recorded_event *event = &recorder->event[recorder->events++ % PS_RECORDER_MOMENTS];

    /*
     * The ring is larger than the caches, so an entry is prefetched 8 events before it is written.
     */
    __builtin_prefetch(&recorder->event[(recorder->events + 8) % PS_RECORDER_MOMENTS], 1);
    *event = (struct ps_recorded_event){.kind = (uint8_t)kind, .span = span, .bytes = bytes, .birth = UINT64_MAX};
    return event;
}

void ps_recorder_allocated(struct ps_recorder *recorder, uint64_t span, uint64_t bytes)
{
    struct ps_recorded_event *event = add_event(recorder, PS_RECORDED_ALLOCATED, span, bytes);
    struct ps_recorded_live live = {
        .span = span, .bytes = bytes, .birth = recorder->launches, .ordinal = recorder->ordinal++};

    event->birth = live.birth;
    event->ordinal = live.ordinal;
    add_live(recorder, find_live(recorder, span), &live);
}

void ps_recorder_freed(struct ps_recorder *recorder, uint64_t span)
{
    struct ps_recorded_event *event = add_event(recorder, PS_RECORDED_FREED, span, 0);
    struct ps_recorded_live *live = find_live(recorder, span);

    if (live->span == 0)
        return;
    event->bytes = live->bytes;
    event->birth = live->birth;
    event->ordinal = live->ordinal;
    event->fixed = live->fixed;
    remove_live(recorder, live);
}

void ps_recorder_launch(struct ps_recorder *recorder, struct ps_step_launch launch, uint32_t stream,
                        struct ps_recorded_layer layer)
{
    recorder->launch[recorder->launches % PS_RECORDER_LAUNCHES] = (struct ps_recorded_launch){
        .event = recorder->events, .fingerprint = launch.fingerprint, .stream = stream, .layer = layer};
    add_event(recorder, PS_RECORDED_LAUNCHED, recorder->launches++, 0);
    recorder->ordinal = 0;
}

void ps_recorder_host(struct ps_recorder *recorder, uint64_t host_ns)
{
    if (recorder->launches)
        recorder->launch[(recorder->launches - 1) % PS_RECORDER_LAUNCHES].host_ns = host_ns;
}

void ps_recorder_access(struct ps_recorder *recorder, uint64_t span, uint64_t bytes, bool fixed)
{
    struct ps_recorded_event *event = add_event(recorder, PS_RECORDED_ACCESSED, span, bytes);
    struct ps_recorded_live *slot = find_live(recorder, span);

    event->fixed = fixed;
    if (slot->span != 0) {
        slot->bytes = bytes;
        slot->fixed = fixed;
        return;
    }
    /* The span is older than the recorder. */
    struct ps_recorded_live live = {.span = span, .bytes = bytes, .birth = UINT64_MAX, .fixed = fixed};
    add_live(recorder, slot, &live);
}

uint64_t ps_recorder_named(const struct ps_recorder *recorder, uint64_t launch, uint32_t place)
{
    if (launch >= recorder->launches || recorder->launches - launch > PS_RECORDER_LAUNCHES)
        return 0;
    /* Accesses follow their launch with nothing in between. */
    uint64_t at = recorder->launch[launch % PS_RECORDER_LAUNCHES].event + 1 + place;
    if (at >= recorder->events ||
        recorder->events - recorder->launch[launch % PS_RECORDER_LAUNCHES].event > PS_RECORDER_MOMENTS)
        return 0;
    for (uint64_t i = at - place; i <= at; i++)
        if (recorder->event[i % PS_RECORDER_MOMENTS].kind != PS_RECORDED_ACCESSED)
            return 0;
    return recorder->event[at % PS_RECORDER_MOMENTS].span;
}

void ps_recorder_duration(struct ps_recorder *recorder, uint64_t launch, uint64_t duration_ns)
{
    if (launch < recorder->launches && recorder->launches - launch <= PS_RECORDER_LAUNCHES)
        recorder->launch[launch % PS_RECORDER_LAUNCHES].duration = duration_ns + 1;
}
