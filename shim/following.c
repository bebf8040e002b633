#include "following.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "budget.h"
#include "copies.h"
#include "eviction.h"
#include "stopping.h"
#include "helper_thread.h"
#include "log.h"
#include "moments.h"
#include "registry.h"
#include "residency.h"
#include "step_figures.h"

/* What moves at which launch: lists of move numbers, one list a launch, list i in item[start[i] .. start[i + 1]). */
struct timetable {
    uint32_t *start;
    uint32_t *item;
};

/* The span that a move is about in this round. */
struct bound {
    struct ps_span *span;
    uint64_t number; /* of the life that was meant; another one: the move is void */
    uint64_t named;  /* the launch that named it last when it was bound: named again since, it stays */
};

/*
 * What tells that the span in a launch's place is the one that was planned for: structures passed by value hold stale pointers now and then, which
 * shift the places. A span of the step: born so many launches before. One that outlives it: its number.
 */
struct identity {
    uint64_t bytes;
    uint64_t number; /* 0: it is born in the step */
    uint32_t age;    /* launches */
};

/* A plan made ready to be followed. */
struct schedule {
    uint32_t length; /* launches of the step */
    uint32_t moves;
    struct penstock_move *move;
    uint16_t *ordinal;         /* of the span among those of the launch that it is bound at */
    struct identity *identity; /* of the span, by which it is known again */
    struct timetable bind, evict, reload;
    struct bound *bound;
    struct ps_step_figures *figures;
    uint64_t predicted_ns, plain_ns;
    uint64_t rounds;      /* ended, whole ones */
    uint64_t whole_round; /* number of the latest whole one */
};

/* Where a launch lies, for what is told of it later. Launches are numbered from the start; the ring is longer than a device lags behind. */
#define RECENT 16384u
struct recent {
    uint64_t launch;
    uint64_t round; /* of any plan, counted from 1 */
    const struct schedule *schedule;
    uint32_t place;
};

/* Reloads that are due and not begun. More than that at once are left to the launches that need them. */
#define DUE_MAX 4096u

/* All guarded by the registry lock. */
static struct schedule *schedules[PS_PATTERNS_MAX];
static struct schedule *now; /* the plan in force, or NULL */
static uint32_t last_place;  /* in the step, of the launch before */
static bool whole_round;     /* in force since the round's first launch */
static struct recent recent[RECENT];
static uint64_t round_number;
static struct {
    struct schedule *schedule;
    uint32_t move;
} due[DUE_MAX];
static uint64_t due_written, due_done;
static uint32_t grace;
static bool thread_started, thread_failed;
static struct ps_following_summary summary;

void ps_following_open(uint32_t grace_launches)
{
    grace = grace_launches;
}

bool ps_following_is_on(void)
{
    return now != NULL;
}

/* ---- a plan made ready ---- */

static void free_timetable(struct timetable *t)
{
    free(t->start);
    free(t->item);
}

static void discard(struct schedule *s)
{
    if (!s)
        return;
    free_timetable(&s->bind);
    free_timetable(&s->evict);
    free_timetable(&s->reload);
    free(s->move);
    free(s->ordinal);
    free(s->identity);
    free(s->bound);
    ps_step_figures_free(s->figures);
    free(s);
}

/* Launch of each move in `at` (PENSTOCK_NEVER: none) to lists by launch; in a list moves keep their order. 0 or -ENOMEM */
static int make_timetable(struct timetable *t, const uint32_t *at, uint32_t moves, uint32_t length)
{
    t->start = calloc(length + 1u, sizeof *t->start);
    t->item = calloc(moves + 1u, sizeof *t->item);
    if (!t->start || !t->item)
        return -ENOMEM;
    for (uint32_t m = 0; m < moves; m++)
        if (at[m] < length)
            t->start[at[m] + 1]++;
    for (uint32_t i = 0; i < length; i++)
        t->start[i + 1] += t->start[i];
    /* Filled from the back, so that each list's start ends where it belongs without another array. */
    for (uint32_t m = moves; m-- > 0;)
        if (at[m] < length)
            t->item[--t->start[at[m] + 1]] = m;
    memmove(t->start, t->start + 1, length * sizeof *t->start);
    t->start[length] = 0;
    for (uint32_t m = 0; m < moves; m++)
        t->start[length] += at[m] < length;
    return 0;
}

/* The use of the move's span at or last before launch `evict_after`, going round: where the span can be recognised. */
static uint32_t binding_use(const struct penstock_step *step, const struct penstock_move *move)
{
    const struct penstock_step_span *span = &step->span[move->span];
    const uint32_t *use = step->use + span->first_use;
    uint32_t best = span->uses - 1; /* the last of the round before, should none come first in this one */

    for (uint32_t i = 0; i < span->uses && use[i] <= move->evict_after; i++)
        best = i;
    return span->first_use + best;
}

/* Order in which reloads are begun: as they fall due, among equals as they are needed, going round from the due launch. */
static uint64_t urgency(const struct penstock_move *move, uint32_t length)
{
    return (move->needed_by + length - move->reload_from) % length;
}

/* Moves that fall due together are few: an insertion sort within each list. */
static void order_reloads(struct schedule *s)
{
    for (uint32_t launch = 0; launch < s->length; launch++)
        for (uint32_t i = s->reload.start[launch] + 1; i < s->reload.start[launch + 1]; i++)
            for (uint32_t k = i; k > s->reload.start[launch]; k--) {
                uint32_t *a = &s->reload.item[k - 1], *b = &s->reload.item[k], one = *a;
                if (urgency(&s->move[*a], s->length) <= urgency(&s->move[*b], s->length))
                    break;
                *a = *b;
                *b = one;
            }
}

/* `place`: the launch at which it is bound. */
static struct identity identity_of(const struct penstock_step *step, uint32_t index, uint32_t place, const uint64_t *numbers)
{
    const struct penstock_step_span *span = &step->span[index];

    if (span->born == PENSTOCK_NEVER)
        return (struct identity){.bytes = span->bytes, .number = numbers[index]};
    uint32_t born = ps_launch_from(step, span->born) % step->launches;
    return (struct identity){.bytes = span->bytes, .age = (place + step->launches - born) % step->launches};
}

static bool is_meant(const struct identity *identity, const struct ps_span *span, uint64_t launch)
{
    if (span->bytes != identity->bytes)
        return false;
    return identity->number ? span->number == identity->number : launch - span->born == identity->age;
}

static struct schedule *make_schedule(const struct penstock_step *step, const struct penstock_plan *plan, const uint64_t *numbers,
                                      const uint16_t *ordinal)
{
    struct schedule *s = calloc(1, sizeof *s);
    uint32_t *at = calloc(plan->moves + 1u, sizeof *at);
    int r = -ENOMEM;

    if (!s || !at)
        goto out;
    s->length = step->launches;
    s->moves = plan->moves;
    s->predicted_ns = plan->predicted_ns;
    s->plain_ns = plan->plain_ns;
    s->move = calloc(s->moves + 1u, sizeof *s->move);
    s->ordinal = calloc(s->moves + 1u, sizeof *s->ordinal);
    s->identity = calloc(s->moves + 1u, sizeof *s->identity);
    s->bound = calloc(s->moves + 1u, sizeof *s->bound);
    s->figures = ps_step_figures_make(step, plan);
    if (!s->move || !s->ordinal || !s->identity || !s->bound || !s->figures)
        goto out;
    memcpy(s->move, plan->move, s->moves * sizeof *s->move);

    for (uint32_t m = 0; m < s->moves; m++) {
        uint32_t use = binding_use(step, &s->move[m]);
        at[m] = step->use[use];
        s->ordinal[m] = ordinal[use];
        s->identity[m] = identity_of(step, s->move[m].span, at[m], numbers);
    }
    r = make_timetable(&s->bind, at, s->moves, s->length);
    /* An access that parameters don't show may follow a visible one within the grace: the D2H is queued after it. */
    for (uint32_t m = 0; m < s->moves; m++)
        at[m] = (s->move[m].evict_after + grace) % s->length;
    if (!r)
        r = make_timetable(&s->evict, at, s->moves, s->length);
    for (uint32_t m = 0; m < s->moves; m++)
        at[m] = s->move[m].reload_from;
    if (!r)
        r = make_timetable(&s->reload, at, s->moves, s->length);
    if (!r)
        order_reloads(s);
out:
    free(at);
    if (r) {
        discard(s);
        s = NULL;
    }
    return s;
}

/* ---- reloads ---- */

/* The move's span if it is to be brought now; NULL: nothing (more) to do. [locked] */
static struct ps_span *span_to_reload(const struct schedule *s, uint32_t move)
{
    struct ps_span *span = s->bound[move].span;

    if (!span || span->number != s->bound[move].number || span->life != PS_LIFE_LIVE)
        return NULL;
    return span->residency == PS_EVICTED || span->residency == PS_EVICTING ? span : NULL;
}

/*
 * Two clocks: a reload is due when the host has queued the launch that the plan names; the device may be far behind. Pages of a span that was freed
 * in host order before are taken at once, and the H2D waits for their last use by an event; pages that must be released first are waited for
 * here, on this thread, which holds up nobody.
 */
static void reload_what_is_due(void)
{
    ps_registry_lock();
    ps_stopping_helper_begins();
    for (;;) {
        ps_stopping_park_if_due();
        if (due_done == due_written || ps_eviction_is_held()) {
            ps_registry_wait_changed(3600ull * 1000000000u);
            continue;
        }
        struct schedule *s = due[due_done % DUE_MAX].schedule;
        struct ps_span *span = s ? span_to_reload(s, due[due_done % DUE_MAX].move) : NULL;
        if (!span) {
            due_done++;
            continue;
        }
        uint64_t at = due_done;
        ps_registry_unlock();
        ps_copies_wait_for_reloads(PS_COPIES_QUEUED_MAX);
        ps_registry_lock();
        span = at == due_done && due[at % DUE_MAX].schedule ? span_to_reload(due[at % DUE_MAX].schedule, due[at % DUE_MAX].move) : NULL;
        if (!span)
            continue;
        int r = ps_residency_bring(span);
        if (r == -EBUSY) { /* somebody makes driver calls on it: no pages are missing */
            ps_registry_wait_changed(1000000u);
            continue;
        }
        if (r != -EAGAIN) {
            if (!r)
                summary.reloads++;
            if (at == due_done)
                due_done++;
            continue;
        }
        if (ps_budget_make_some_room(span->bytes))
            continue;
        ps_budget.waiting++;
        ps_registry_wait_changed(1000000u);
        ps_budget.waiting--;
    }
}

static void start_thread(void)
{
    if (thread_started || thread_failed)
        return;
    thread_started = !ps_helper_thread_start("penstock-reload", reload_what_is_due);
    thread_failed = !thread_started;
}

/* The schedule goes or is left: what is due of it is not any more. [locked] */
static void forget_due(const struct schedule *s)
{
    for (uint64_t i = due_done; i < due_written; i++)
        if (due[i % DUE_MAX].schedule == s)
            due[i % DUE_MAX].schedule = NULL;
}

/* ---- following ---- */

static void leave(void)
{
    if (!now)
        return;
    forget_due(now);
    now = NULL;
}

void ps_following_forget(uint32_t pattern)
{
    struct schedule *s = schedules[pattern];

    if (!s)
        return;
    if (s == now)
        leave();
    for (uint32_t i = 0; i < RECENT; i++)
        if (recent[i].schedule == s)
            recent[i].schedule = NULL;
    schedules[pattern] = NULL;
    discard(s);
}

static void evict(struct schedule *s, uint32_t move, struct ps_stream *stream)
{
    const struct bound *b = &s->bound[move];
    struct ps_span *span = b->span;

    if (!span || span->number != b->number || span->mentioned != b->named || !ps_eviction_may_leave(span))
        return;
    /* The launches of the grace may have used it without showing so: the D2H comes after them too. */
    if (stream && !stream->per_thread)
        ps_uses_note(&span->uses, stream);
    if (!ps_eviction_start_later(span))
        summary.evictions++;
}

/* Gaps of bound spans that are open at `place`: their evictions are begun now. */
static void catch_up(struct schedule *s, uint32_t place)
{
    for (uint32_t m = 0; m < s->moves; m++) {
        const struct penstock_move *move = &s->move[m];
        uint32_t end = move->reload_from == PENSTOCK_NEVER ? move->evict_after : move->reload_from;
        uint32_t gap = (end + s->length - move->evict_after) % s->length, in = (place + s->length - move->evict_after) % s->length;
        if (s->bound[m].span && in > grace && in < gap)
            evict(s, m, NULL);
    }
}

int ps_following_install(uint32_t pattern, const struct penstock_step *step, const struct penstock_plan *plan, const uint64_t *numbers,
                         const uint16_t *ordinal)
{
    struct schedule *s = make_schedule(step, plan, numbers, ordinal);

    if (!s)
        return -ENOMEM;
    const struct schedule *before = schedules[pattern];
    bool in_force = before && before == now;
    if (before) {
        s->rounds = before->rounds;
        s->whole_round = before->whole_round;
    }
    ps_following_forget(pattern);
    schedules[pattern] = s;
    if (s->moves)
        start_thread();
    /* Spans that outlive the step are known already: a gap that is open when the plan comes into force need not wait a round. */
    for (uint32_t m = 0; m < s->moves; m++) {
        uint32_t index = s->move[m].span;
        struct ps_span *span = step->span[index].born == PENSTOCK_NEVER ? ps_registry_numbered(numbers[index]) : NULL;
        if (span)
            s->bound[m] = (struct bound){span, span->number, span->mentioned};
    }
    if (in_force) { /* a better plan for the step that is being followed: the round goes on under it */
        now = s;
        catch_up(s, last_place);
    }
    return 0;
}

void ps_following_launch(struct ps_steps_state state, uint64_t launch)
{
    struct recent *r = &recent[launch % RECENT];
    struct schedule *s = state.following ? schedules[state.pattern] : NULL;

    *r = (struct recent){.launch = launch, .schedule = NULL};
    if (now && now != s) {
        leave();
        whole_round = false;
    }
    if (!s)
        return;
    uint32_t place = state.position ? state.position - 1 : s->length - 1;
    if (!now) {
        now = s;
        round_number++;
        whole_round = place == 0;
        catch_up(s, place);
    }
    r->schedule = s;
    r->place = last_place = place;
    r->round = round_number;
    if (place != s->length - 1)
        return;
    if (whole_round) {
        s->rounds++;
        s->whole_round = round_number;
        summary.steps++;
    }
    whole_round = true;
    round_number++;
}

bool ps_following_launched(uint64_t launch, struct ps_span *const *spans, size_t count, struct ps_stream *stream)
{
    const struct recent *r = &recent[launch % RECENT];
    struct schedule *s = now;
    bool opens = false;

    if (!s || r->launch != launch || r->schedule != s)
        return false;
    uint32_t place = r->place;
    for (uint32_t i = s->bind.start[place]; i < s->bind.start[place + 1]; i++) {
        uint32_t m = s->bind.item[i];
        struct ps_span *span = s->ordinal[m] < count ? spans[s->ordinal[m]] : NULL;
        if (span && !is_meant(&s->identity[m], span, launch))
            span = NULL;
        s->bound[m] = (struct bound){span, span ? span->number : 0, span ? span->mentioned : 0};
        if (span)
            span->excluded = false; /* the rules let it move, now that its place in the step is known */
    }
    for (uint32_t i = s->evict.start[place]; i < s->evict.start[place + 1]; i++) {
        evict(s, s->evict.item[i], stream);
        opens = true;
    }
    bool woken = false;
    for (uint32_t i = s->reload.start[place]; i < s->reload.start[place + 1]; i++) {
        if (due_written - due_done == DUE_MAX)
            break;
        due[due_written % DUE_MAX].schedule = s;
        due[due_written++ % DUE_MAX].move = s->reload.item[i];
        woken = true;
    }
    if (woken)
        ps_registry_changed();
    return opens;
}

void ps_following_waited(uint64_t launch, uint64_t ns)
{
    const struct recent *r = &recent[launch % RECENT];

    if (r->launch == launch && r->schedule)
        ps_step_figures_waited(r->schedule->figures, r->round, r->place, ns);
}

static const struct schedule *most_followed(void)
{
    const struct schedule *most = NULL;

    for (uint32_t i = 0; i < PS_PATTERNS_MAX; i++)
        if (schedules[i] && schedules[i]->rounds && (!most || schedules[i]->rounds > most->rounds))
            most = schedules[i];
    return most;
}

void ps_following_summary(struct ps_following_summary *out)
{
    const struct schedule *s = most_followed();

    *out = summary;
    if (!s)
        return;
    out->predicted_ns = s->predicted_ns;
    out->plain_ns = s->plain_ns;
    out->exposed_ns = ps_step_figures_exposed_ns(s->figures, s->whole_round);
}

void ps_following_write_layers(struct ps_json *json)
{
    const struct schedule *s = most_followed();

    if (s)
        ps_step_figures_write(s->figures, s->whole_round, json);
}
