#include "plan/following.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/per_device.h"
#include "cuda/helper_thread.h"
#include "memory/blocks.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "memory/shutdown.h"
#include "plan/preallocation.h"
#include "plan/schedule.h"
#include "plan/step_figures.h"
#include "residency/block_order.h"
#include "residency/copies.h"
#include "residency/events.h"
#include "residency/eviction.h"
#include "residency/eviction_queue.h"
#include "residency/grace.h"
#include "residency/guard.h"
#include "residency/page_supply.h"
#include "residency/residency.h"
#include "residency/run_ahead.h"

/*
 * Where a launch lies in a plan, for waits that are reported later. Launches are numbered from the
 * start. The ring is longer than the distance that a device lags behind.
 */
#define RECENT 16384u
struct recent {
    uint64_t launch;
    uint64_t round; /* round of any plan, counted from 1 */
    const struct ps_plan_schedule *schedule;
    uint32_t place;
};

/* Capacity of the queue of due reloads. Further reloads are left to the launches that need them. */
#define DUE_MAX 4096u

/*
 * Capacity of the queue of put-off evictions. An eviction is put off when its span was named again
 * or is in use by a thread.
 */
#define PUT_OFF_MAX 512u

/* The report omits shorter waits. */
#define SAID_FROM_NS 100000u

/* A reload thread that gets no pages for this long needs another thread to react. */
#define STARVED_NS 3000000u
/*
 * Longer than two groups of queued copies take. When the queue of reloads stands still for this
 * long, no thread waits for it until it moves.
 */
#define STUCK_NS 250000000u

/* All guarded by the registry lock. */
static PS_PER_DEVICE struct {
    /* Constant once set up. */
    uint32_t grace;
    uint64_t (*named_by)(uint64_t launch, uint32_t place);

    struct ps_plan_schedule *schedules[PS_PATTERNS_MAX];
    struct ps_plan_schedule *now; /* the plan in force, or NULL */
    uint32_t last_place;          /* place in the step of the launch before */
    uint64_t last_launch;         /* number of the launch before */
    bool whole_round;             /* in force since the round's first launch */
    struct recent *recent;        /* RECENT entries; made with the first schedule */
    uint64_t round_number;
    uint64_t work; /* ns: the value of ps_following_work */
    uint64_t told; /* all waits before launches of a lower number have been reported */
    struct {
        struct ps_plan_schedule *schedule;
        uint32_t move;
    } due[DUE_MAX];
    uint64_t due_written, due_done;
    uint64_t starved_since; /* ns: since when the reload at the head of the queue finds no pages; 0: it finds some */
    uint64_t head_since;    /* ns: when the queue last moved or began */
    struct {
        struct ps_plan_schedule *schedule;
        uint32_t move;
        uint64_t until; /* launch at which it is tried again; entries are in this order */
    } put_off[PUT_OFF_MAX];
    uint64_t put_off_written, put_off_done;
    struct ps_lazy_thread thread;
    struct ps_following_summary summary;
} first_dev;
#define dev (&PS_HERE(first_dev))

void ps_following_open(uint32_t grace_launches, uint64_t (*named)(uint64_t launch, uint32_t place))
{
    dev->grace = grace_launches;
    dev->named_by = named;
}

bool ps_following_is_on(void)
{
    return dev->now != NULL;
}

bool ps_following_moves_spans(void)
{
    return dev->now && dev->now->moves;
}

uint64_t ps_following_work(void)
{
    return dev->work;
}

uint64_t ps_following_run_ahead(void)
{
    if (!ps_following_moves_spans())
        return 0;
    return dev->starved_since ? PS_RUN_AHEAD_SHORT_NS : PS_RUN_AHEAD_NS;
}

uint64_t ps_following_steps(void)
{
    return dev->summary.steps;
}

/* ---- reloads ---- */

/* The reload at the head of the queue has begun, or is void. [locked] */
static void head_is_done(void)
{
    dev->due_done++;
    dev->head_since = ps_now_ns();
    dev->starved_since = 0;
}

/* Returns the move's span if it must be reloaded now; NULL if nothing is left to do. [locked] */
static struct ps_span *span_to_reload(const struct ps_plan_schedule *s, uint32_t move)
{
    struct ps_span *span = s->bound[move].span;

    if (!span || span->number != s->bound[move].number || span->life != PS_LIFE_LIVE)
        return NULL;
    return span->residency == PS_EVICTED || span->residency == PS_EVICTING ? span : NULL;
}

/*
 * Two clocks: a reload is due when the host has queued the launch that the plan names. The device
 * may be far behind. Pages of a span that was freed earlier in host order are taken at once. The
 * H2D waits for their last use by an event. Pages that must be released first are waited for on
 * this thread, which holds up no other thread.
 */
static void reload_what_is_due(void)
{
    ps_registry_lock();
    ps_shutdown_helper_begins();
    for (;;) {
        ps_shutdown_park_if_due();
        if (dev->due_done == dev->due_written || ps_eviction_is_held()) {
            ps_registry_rest(PS_HELPER_RELOAD, PS_HELPER_LOOKS_NS);
            continue;
        }
        struct ps_plan_schedule *s = dev->due[dev->due_done % DUE_MAX].schedule;
        struct ps_span *span = s ? span_to_reload(s, dev->due[dev->due_done % DUE_MAX].move) : NULL;
        if (!span) {
            head_is_done();
            continue;
        }
        uint64_t at = dev->due_done;
        ps_registry_unlock();
        ps_copies_wait_for_reloads();
        ps_registry_lock();
        span = at == dev->due_done && dev->due[at % DUE_MAX].schedule
                   ? span_to_reload(dev->due[at % DUE_MAX].schedule, dev->due[at % DUE_MAX].move)
                   : NULL;
        if (!span)
            continue;
        int r = ps_residency_bring(span);
        if (r == -EBUSY) { /* another thread makes driver calls on the span: no pages are missing */
            ps_registry_wait_changed(1000000u);
            continue;
        }
        if (r != -EAGAIN) {
            if (!r)
                dev->summary.reloads++;
            head_is_done();
            continue;
        }
        if (ps_page_supply_make_some_room(span->bytes)) {
            dev->starved_since = 0;
            continue;
        }
        if (!dev->starved_since)
            dev->starved_since = ps_now_ns();
        ps_budget.waiting++;
        ps_registry_wait_changed(1000000u);
        ps_budget.waiting--;
    }
}

bool ps_following_will_bring(const struct ps_span *span)
{
    uint64_t at = span->plan.due - 1;

    if (!dev->thread.started || ps_shutdown_has_begun() || ps_eviction_is_held())
        return false;
    if (!span->plan.due || at < dev->due_done || at >= dev->due_written || !dev->due[at % DUE_MAX].schedule)
        return false;
    if (span_to_reload(dev->due[at % DUE_MAX].schedule, dev->due[at % DUE_MAX].move) != span)
        return false;
    uint64_t ns = ps_now_ns();
    return ns - dev->head_since < STUCK_NS && (!dev->starved_since || ns - dev->starved_since < STARVED_NS);
}

/* The schedule is freed or left: its queued reloads and put-off evictions become void. [locked] */
static void forget_due(const struct ps_plan_schedule *s)
{
    for (uint64_t i = dev->put_off_done; i < dev->put_off_written; i++)
        if (dev->put_off[i % PUT_OFF_MAX].schedule == s)
            dev->put_off[i % PUT_OFF_MAX].schedule = NULL;
    for (uint64_t i = dev->due_done; i < dev->due_written; i++)
        if (dev->due[i % DUE_MAX].schedule == s)
            dev->due[i % DUE_MAX].schedule = NULL;
}

/* ---- following ---- */

static void leave(void)
{
    if (!dev->now)
        return;
    forget_due(dev->now);
    ps_preallocation_leave();
    dev->now = NULL;
}

void ps_following_forget(uint32_t pattern)
{
    struct ps_plan_schedule *s = dev->schedules[pattern];

    if (!s)
        return;
    if (s == dev->now)
        leave();
    for (uint32_t i = 0; i < RECENT; i++)
        if (dev->recent[i].schedule == s)
            dev->recent[i].schedule = NULL;
    dev->schedules[pattern] = NULL;
    ps_plan_schedule_free(s);
}

/*
 * Returns the number of launches from one place of the step to another, across its end if need be.
 */
static uint32_t places(const struct ps_plan_schedule *s, uint32_t from, uint32_t to)
{
    return (to + s->length - from) % s->length;
}

/*
 * Returns whether `place` lies in the move's gap. The gap opens after the grace of the span's last
 * use. It closes when fewer launches are left than a grace has.
 */
static bool gap_is_open(const struct ps_plan_schedule *s, uint32_t move, uint32_t place)
{
    const struct penstock_move *m = &s->move[move];
    uint32_t end = m->reload_from == PENSTOCK_NEVER ? m->evict_after : m->reload_from;
    uint32_t gap = places(s, m->evict_after, end), in = places(s, m->evict_after, place);

    return s->grace[move] != PENSTOCK_NEVER && in > s->grace[move] && in + dev->grace < (gap ? gap : s->length);
}

static void try_later(struct ps_plan_schedule *s, uint32_t move, uint64_t launch)
{
    if (dev->put_off_written - dev->put_off_done == PUT_OFF_MAX)
        return;
    dev->put_off[dev->put_off_written % PUT_OFF_MAX].schedule = s;
    dev->put_off[dev->put_off_written % PUT_OFF_MAX].move = move;
    dev->put_off[dev->put_off_written++ % PUT_OFF_MAX].until = launch + dev->grace + 1;
    dev->summary.put_off++;
}

/*
 * Begins the move's eviction, or puts it off. `launch`: the last launch that was queued. A put-off
 * span leaves later in its gap. Evictions are put off in three cases. The span was named since it
 * was bound: structures passed by value hold stale pointers now and then. Or the span is in use by
 * a thread. Or its grace goes on: copies have places in a step, but are no launches of a grace.
 */
static void evict(struct ps_plan_schedule *s, uint32_t move, struct ps_stream *stream, uint64_t launch)
{
    const struct ps_bound *b = &s->bound[move];
    struct ps_span *span = b->span;

    if (!span || span->number != b->number || span->life != PS_LIFE_LIVE || !span->has_pages ||
        span->residency == PS_EVICTING)
        return;
    if (span->plan.mentioned != b->named || span->busy || span->holds.launching || ps_block_order_holds(span) ||
        (s->grace[move] && !ps_grace_is_queued(span))) {
        try_later(s, move, launch);
        return;
    }
    if (!ps_eviction_may_leave(span))
        return;
    /*
     * Launches of the grace may have used the span without naming it. So the D2H comes after them
     * too.
     */
    if (stream && !stream->per_thread)
        ps_uses_note(&span->order.uses, stream);
    /*
     * A span that the step does not use again before its free is kept for some purpose. Now and
     * then that is an access that is not seen.
     */
    const bool brought_back = s->move[move].reload_from != PENSTOCK_NEVER;
    if (!ps_eviction_start_planned(span, brought_back && ps_guard_sees_all(span, s->identity[move].number != 0)))
        dev->summary.evictions++;
}

size_t ps_following_leaving(struct ps_span **spans, size_t room)
{
    size_t n = 0;

    for (uint32_t m = 0; dev->now && m < dev->now->moves && n < room; m++)
        if (ps_plan_schedule_is_in_grace(dev->now, m, dev->last_place, dev->grace))
            spans[n++] = dev->now->bound[m].span;
    return n;
}

/*
 * Returns whether each use of the span (or NULL) is seen, so that it needs no grace. A span that is
 * born in the step needs one: the launch that named it last may have passed its address on. A piece
 * needs one, too: a launch may use more pieces than it is believed to use.
 */
static bool needs_no_grace(const struct ps_span *span)
{
    return span && !ps_block_of(span) && ps_guard_sees_all(span, true);
}

/*
 * Returns whether the move planned no grace, but a kernel may have kept the span's address by now.
 */
static bool became_known(const struct ps_plan_schedule *s, uint32_t move)
{
    return s->grace[move] < dev->grace && s->bound[move].span && !needs_no_grace(s->bound[move].span);
}

/* Gives these spans a grace for good. */
static void give_grace_to_known(struct ps_plan_schedule *s)
{
    bool some = false;

    for (uint32_t m = 0; m < s->moves; m++)
        if (became_known(s, m)) {
            ps_plan_schedule_give_grace(s, m, dev->grace);
            some = true;
        }
    if (some)
        ps_plan_schedule_moves_changed(s);
}

/* Tries again the evictions that were put off until this launch, if their gaps are still open. */
static void evict_what_was_put_off(struct ps_plan_schedule *s, uint32_t place, struct ps_stream *stream,
                                   uint64_t launch)
{
    while (dev->put_off_done != dev->put_off_written && dev->put_off[dev->put_off_done % PUT_OFF_MAX].until <= launch) {
        uint32_t move = dev->put_off[dev->put_off_done % PUT_OFF_MAX].move;
        if (dev->put_off[dev->put_off_done++ % PUT_OFF_MAX].schedule != s || !gap_is_open(s, move, place))
            continue;
        struct ps_bound *b = &s->bound[move];
        if (b->span && launch - b->span->plan.mentioned > dev->grace)
            b->named = b->span->plan.mentioned; /* idle again for the launches of a grace */
        evict(s, move, stream, launch);
    }
}

/* Binds the move's span, which launch number `launch` named last. */
static void bind(struct ps_plan_schedule *s, uint32_t move, struct ps_span *span, uint64_t launch)
{
    s->bound[move] = (struct ps_bound){span, span->number, launch};
    span->holds.excluded = false; /* the rules let it move, now that its place in the step is known */
    span->plan.move = move + 1;
}

/*
 * The plan comes into force in the middle of a step, at launch number `launch`. Finds the spans
 * that earlier launches of the step named, in the recorded launches. Binds a span only if it is the
 * planned one and was not named again.
 */
static void bind_past(struct ps_plan_schedule *s, uint32_t place, uint64_t launch)
{
    for (uint32_t at = 0; at < s->length; at++) {
        uint64_t past = launch - places(s, at, place);
        if (past > launch)
            continue; /* the program had not begun */
        for (uint32_t i = s->bind.start[at]; i < s->bind.start[at + 1]; i++) {
            uint32_t m = s->bind.item[i];
            uint64_t number = dev->named_by(past, s->ordinal[m]);
            struct ps_span *span = number ? ps_registry_numbered(number) : NULL;
            if (span && span->plan.mentioned == past && ps_plan_schedule_is_meant(&s->identity[m], span, past))
                bind(s, m, span, past);
        }
    }
}

/* Begins the evictions that a plan in force would have begun before `place`. */
static void catch_up(struct ps_plan_schedule *s, uint32_t place, uint64_t launch)
{
    bind_past(s, place, launch);
    give_grace_to_known(s);
    for (uint32_t m = 0; m < s->moves; m++)
        if (s->bound[m].span && gap_is_open(s, m, place))
            evict(s, m, NULL, launch);
}

int ps_following_install(uint32_t pattern, const struct penstock_step *step, const struct penstock_plan *plan,
                         const uint64_t *numbers, const uint16_t *ordinal, bool may_correct)
{
    bool *all_seen = calloc(step->spans + 1u, sizeof *all_seen);

    for (uint32_t i = 0; all_seen && i < step->spans; i++)
        all_seen[i] = step->span[i].born == PENSTOCK_NEVER && needs_no_grace(ps_registry_numbered(numbers[i]));
    struct ps_plan_schedule *s = ps_plan_schedule_make(step, plan, numbers, ordinal, all_seen, dev->grace);
    free(all_seen);

    if (!dev->recent)
        dev->recent = calloc(RECENT, sizeof *dev->recent);
    if (!s || !dev->recent) {
        ps_plan_schedule_free(s);
        return -ENOMEM;
    }
    s->pattern = pattern;
    s->may_correct = may_correct;
    const struct ps_plan_schedule *before = dev->schedules[pattern];
    bool in_force = before && before == dev->now;
    if (before) {
        s->rounds = before->rounds;
        s->whole_round = before->whole_round;
        s->first_round = dev->round_number + 1;
    }
    ps_following_forget(pattern);
    dev->schedules[pattern] = s;
    if (s->moves) {
        unsigned n;
        size_t *bytes = ps_plan_schedule_away_at_once(s, &n);
        ps_registry_thread_is_there(&dev->thread, "penstock-reload", reload_what_is_due);
        ps_eviction_foresee(bytes, n);
    }
    /*
     * Spans that outlive the step are known already. So a gap that is open when the plan comes into
     * force need not wait for the next round.
     */
    for (uint32_t m = 0; m < s->moves; m++) {
        uint32_t index = s->move[m].span;
        struct ps_span *span = step->span[index].born == PENSTOCK_NEVER ? ps_registry_numbered(numbers[index]) : NULL;
        if (span)
            s->bound[m] = (struct ps_bound){span, span->number, span->plan.mentioned};
    }
    if (in_force) { /* a better plan for the step that is followed now: the round goes on under it */
        dev->now = s;
        ps_events_plan(true, pattern, s->length, s->moves);
        ps_preallocation_at(s->preallocation, dev->last_place);
        catch_up(s, dev->last_place, dev->last_launch);
    }
    return 0;
}

void ps_following_profile(uint32_t pattern, struct ps_step_profile *profile)
{
    struct ps_plan_schedule *s = dev->schedules[pattern];

    ps_step_profile_free(s ? s->profile : profile);
    if (s)
        s->profile = profile;
}

/*
 * Two clocks: the host has ended a round with this launch. The device may be in the middle of it,
 * or further behind. So the latest round whose waits have all been reported is examined: a wait
 * that is not reported looks like no wait.
 */
static void correct(struct ps_plan_schedule *s, uint64_t launch)
{
    uint64_t round = s->whole_round;

    while (dev->told <= launch && round > s->first_round && s->whole_round - round < PS_ROUNDS_KEPT - 1) {
        round--;
        launch -= s->length;
    }
    if (dev->told <= launch || round < s->first_round || round <= s->corrected)
        return;
    s->corrected = round;
    if (ps_correction_round(s->correction, ps_step_figures_waits(s->figures, round))) {
        ps_plan_schedule_moves_changed(s);
        s->first_round = s->whole_round + 1;
        dev->summary.corrections++;
    }
}

void ps_following_all_told(uint64_t launch)
{
    dev->told = launch;
}

void ps_following_launch(struct ps_steps_state state, uint64_t launch)
{
    if (!dev->recent)
        return; /* there has been no plan */
    struct recent *r = &dev->recent[launch % RECENT];
    struct ps_plan_schedule *s = state.following ? dev->schedules[state.pattern] : NULL;

    *r = (struct recent){.launch = launch, .schedule = NULL};
    if (dev->now && dev->now != s) {
        ps_events_plan(false, dev->now->pattern, dev->now->length, dev->now->moves);
        leave();
        dev->whole_round = false;
    }
    if (!s)
        return;
    uint32_t place = state.position ? state.position - 1 : s->length - 1;
    if (!dev->now) {
        dev->now = s;
        ps_events_plan(true, s->pattern, s->length, s->moves);
        dev->round_number++;
        dev->whole_round = place == 0;
        catch_up(s, place, launch);
    }
    r->schedule = s;
    r->place = dev->last_place = place;
    dev->last_launch = launch;
    dev->work += s->duration_ns[place];
    r->round = dev->round_number;
    if (s->moves)
        ps_preallocation_at(s->preallocation, place);
    if (place != s->length - 1)
        return;
    if (dev->whole_round) {
        if (!s->rounds || s->whole_round != dev->round_number - 1)
            /* This round lacks evictions and reloads of the round before. */
            s->first_round = dev->round_number + 1;
        s->rounds++;
        s->whole_round = dev->round_number;
        dev->summary.steps++;
        if (s->may_correct)
            correct(s, launch);
    }
    dev->whole_round = true;
    dev->round_number++;
}

bool ps_following_launched(uint64_t launch, struct ps_span *const *spans, size_t count, struct ps_stream *stream)
{
    const struct recent *r = dev->recent ? &dev->recent[launch % RECENT] : NULL;
    struct ps_plan_schedule *s = dev->now;
    bool opens = false;

    if (!r || !s || r->launch != launch || r->schedule != s)
        return false;
    uint32_t place = r->place;
    for (uint32_t i = s->bind.start[place]; i < s->bind.start[place + 1]; i++) {
        uint32_t m = s->bind.item[i];
        struct ps_span *span = s->ordinal[m] < count ? spans[s->ordinal[m]] : NULL;
        if (span && (span->life != PS_LIFE_LIVE || !ps_plan_schedule_is_meant(&s->identity[m], span, launch)))
            span = NULL;
        s->bound[m] = (struct ps_bound){0};
        if (span)
            bind(s, m, span, span->plan.mentioned);
    }
    /* A span that was reloaded in the middle of its gap, for any reason, leaves again. */
    for (size_t i = 0; i < count; i++) {
        uint32_t m = spans[i]->plan.move - 1;
        if (spans[i]->life == PS_LIFE_LIVE && spans[i]->plan.move && m < s->moves && s->bound[m].span == spans[i] &&
            s->bound[m].number == spans[i]->number && gap_is_open(s, m, place))
            try_later(s, m, launch);
    }
    for (uint32_t i = s->evict.start[place]; i < s->evict.start[place + 1]; i++)
        if (became_known(s, s->evict.item[i])) {
            give_grace_to_known(s); /* spans that would leave here leave later then */
            break;
        }
    evict_what_was_put_off(s, place, stream, launch);
    for (uint32_t i = s->evict.start[place]; i < s->evict.start[place + 1]; i++) {
        evict(s, s->evict.item[i], stream, launch);
        opens = true;
    }
    bool woken = false;
    for (uint32_t i = s->reload.start[place]; i < s->reload.start[place + 1]; i++) {
        if (dev->due_written - dev->due_done == DUE_MAX)
            break;
        if (dev->due_done == dev->due_written)
            dev->head_since = ps_now_ns();
        dev->due[dev->due_written % DUE_MAX].schedule = s;
        dev->due[dev->due_written++ % DUE_MAX].move = s->reload.item[i];
        if (s->bound[s->reload.item[i]].span)
            s->bound[s->reload.item[i]].span->plan.due = dev->due_written;
        woken = true;
    }
    if (woken)
        ps_registry_call(PS_HELPER_RELOAD);
    return opens;
}

void ps_following_layer(struct ps_recorded_layer *layer)
{
    if (dev->now)
        ps_step_figures_layer(dev->now->figures, dev->last_place, layer);
}

void ps_following_waited(uint64_t launch, uint64_t ns)
{
    const struct recent *r = dev->recent ? &dev->recent[launch % RECENT] : NULL;

    if (r && r->launch == launch && r->schedule)
        ps_step_figures_waited(r->schedule->figures, r->round, r->place, ns);
}

static const struct ps_plan_schedule *most_followed(void)
{
    const struct ps_plan_schedule *most = NULL;

    for (uint32_t i = 0; i < PS_PATTERNS_MAX; i++)
        if (dev->schedules[i] && dev->schedules[i]->rounds &&
            (!most || dev->schedules[i]->rounds * dev->schedules[i]->length > most->rounds * most->length))
            most = dev->schedules[i];
    return most;
}

void ps_following_summary(struct ps_following_summary *out)
{
    const struct ps_plan_schedule *s = most_followed();

    *out = dev->summary;
    out->preallocation = ps_preallocation_figures();
    if (!s)
        return;
    out->predicted_ns = s->predicted_ns;
    out->mapping_ns = s->mapping_ns;
    out->plain_ns = s->plain_ns;
    out->exposed_ns = ps_step_figures_exposed_ns(s->figures, s->whole_round);
}

/* Writes the waits of each launch that needs reloads, if it waited or was predicted to wait. */
static void write_waits(const struct ps_plan_schedule *s, struct ps_json *json)
{
    const uint64_t *waited = ps_step_figures_waits(s->figures, s->whole_round);

    ps_json_begin_array(json, "reload_waits");
    for (uint32_t l = 0; l < s->length; l++) {
        uint64_t predicted = ps_correction_predicted(s->correction, l), actual = waited ? waited[l] : 0;
        uint32_t reloads = ps_correction_reloads(s->correction, l),
                 shift = reloads ? ps_correction_shift(s->correction, l) : 0;
        if (!reloads || (predicted < SAID_FROM_NS && actual < SAID_FROM_NS && !shift))
            continue;
        ps_json_begin_object(json, NULL);
        ps_json_u64(json, "launch", l);
        ps_json_u64(json, "reloads", reloads);
        ps_json_u64(json, "predicted_ns", predicted);
        ps_json_u64(json, "actual_ns", actual);
        ps_json_u64(json, "launches_earlier", shift);
        if (s->profile)
            ps_step_profile_write_reloads(s->profile, l, json);
        ps_json_end(json);
    }
    ps_json_end(json);
}

void ps_following_write_layers(struct ps_json *json)
{
    const struct ps_plan_schedule *s = most_followed();

    if (!s)
        return;
    write_waits(s, json);
    ps_step_figures_write(s->figures, s->whole_round, s->profile, json);
    if (s->profile)
        ps_step_profile_write(s->profile, json);
}
