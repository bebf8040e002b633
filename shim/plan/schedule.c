#include "plan/schedule.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "policy/planner/gaps.h"

static void free_timetable(struct ps_timetable *t)
{
    free(t->start);
    free(t->item);
}

void ps_plan_schedule_free(struct ps_plan_schedule *s)
{
    if (!s)
        return;
    free_timetable(&s->bind);
    free_timetable(&s->evict);
    free_timetable(&s->reload);
    free(s->move);
    free(s->ordinal);
    free(s->identity);
    free(s->grace);
    free(s->bound);
    free(s->correction);
    free(s->scratch);
    free(s->duration_ns);
    ps_step_figures_free(s->figures);
    ps_step_profile_free(s->profile);
    ps_preallocation_free(s->preallocation);
    free(s);
}

/*
 * Sorts moves into lists by launch. at[m] is the launch of move m; PENSTOCK_NEVER: none. In a list
 * moves keep their order.
 */
static void fill_timetable(struct ps_timetable *t, const uint32_t *at, uint32_t moves, uint32_t length)
{
    memset(t->start, 0, (length + 1u) * sizeof *t->start);
    for (uint32_t m = 0; m < moves; m++)
        if (at[m] < length)
            t->start[at[m] + 1]++;
    for (uint32_t i = 0; i < length; i++)
        t->start[i + 1] += t->start[i];
    /*
     * The lists are filled from the back. Then each start ends in its place without another array.
     */
    for (uint32_t m = moves; m-- > 0;)
        if (at[m] < length)
            t->item[--t->start[at[m] + 1]] = m;
    memmove(t->start, t->start + 1, length * sizeof *t->start);
    t->start[length] = 0;
    for (uint32_t m = 0; m < moves; m++)
        t->start[length] += at[m] < length;
}

/* Allocates and fills the timetable. Returns 0 or -ENOMEM. */
static int make_timetable(struct ps_timetable *t, const uint32_t *at, uint32_t moves, uint32_t length)
{
    t->start = calloc(length + 1u, sizeof *t->start);
    t->item = calloc(moves + 1u, sizeof *t->item);
    if (!t->start || !t->item)
        return -ENOMEM;
    fill_timetable(t, at, moves, length);
    return 0;
}

/*
 * Returns the use of the move's span at or last before launch `evict_after`, across the step's end
 * if need be. The span can be recognised there.
 */
static uint32_t binding_use(const struct penstock_step *step, const struct penstock_move *move)
{
    const struct penstock_step_span *span = &step->span[move->span];
    const uint32_t *use = step->use + span->first_use;
    uint32_t best = span->uses - 1; /* the last use of the round before, if none comes first in this one */

    for (uint32_t i = 0; i < span->uses && use[i] <= move->evict_after; i++)
        best = i;
    return span->first_use + best;
}

/*
 * Returns the order in which reloads of one due launch begin: the number of launches until the span
 * is needed.
 */
static uint64_t urgency(const struct penstock_move *move, uint32_t length)
{
    return (move->needed_by + length - move->reload_from) % length;
}

/*
 * Sorts the reloads of each launch by urgency. Few moves fall due together, so an insertion sort
 * will do.
 */
static void order_reloads(struct ps_plan_schedule *s)
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

/*
 * Returns the mark by which span `index` is known again. `place`: the launch at which it is bound.
 */
static struct ps_identity identity_of(const struct penstock_step *step, uint32_t index, uint32_t place,
                                      const uint64_t *numbers)
{
    const struct penstock_step_span *span = &step->span[index];

    if (span->born == PENSTOCK_NEVER)
        return (struct ps_identity){.bytes = span->bytes, .number = numbers[index]};
    uint32_t born = ps_launch_from(step, span->born) % step->launches;
    return (struct ps_identity){.bytes = span->bytes, .age = (place + step->launches - born) % step->launches};
}

/*
 * Returns whether the move's span is on its slot at that launch. It is away from its eviction to
 * the start of its reload, across the step's end if need be.
 */
static bool is_away(const struct ps_plan_schedule *s, uint32_t move, uint32_t launch)
{
    uint32_t from = s->move[move].evict_after, to = s->move[move].reload_from;

    if (to == PENSTOCK_NEVER)
        /*
         * The span does not come back, and is freed while away. The part of that time in the next
         * round is left out.
         */
        return launch >= from;
    return from < to ? launch >= from && launch < to : launch >= from || launch < to;
}

size_t *ps_plan_schedule_away_at_once(const struct ps_plan_schedule *s, unsigned *n)
{
    int64_t *change = calloc(s->length + 1u, sizeof *change), away = 0, most = 0;
    size_t *bytes = malloc((s->moves + 1u) * sizeof *bytes);
    uint32_t when = 0;

    *n = 0;
    for (uint32_t m = 0; change && m < s->moves; m++) {
        int64_t of = (int64_t)s->identity[m].bytes;
        away += is_away(s, m, 0) ? of : 0;
        if (s->move[m].evict_after)
            change[s->move[m].evict_after] += of;
        if (s->move[m].reload_from != PENSTOCK_NEVER && s->move[m].reload_from)
            change[s->move[m].reload_from] -= of;
    }
    for (uint32_t l = 0; change && l < s->length; l++) {
        away += change[l];
        if (away > most) {
            most = away;
            when = l;
        }
    }
    for (uint32_t m = 0; bytes && most && m < s->moves; m++)
        if (is_away(s, m, when))
            bytes[(*n)++] = s->identity[m].bytes;
    free(change);
    if (*n)
        return bytes;
    free(bytes);
    return NULL;
}

bool ps_plan_schedule_is_meant(const struct ps_identity *identity, const struct ps_span *span, uint64_t launch)
{
    if (span->bytes != identity->bytes)
        return false;
    return identity->number ? span->number == identity->number : launch - span->plan.born == identity->age;
}

bool ps_plan_schedule_is_in_grace(const struct ps_plan_schedule *s, uint32_t move, uint32_t place, uint32_t grace)
{
    const struct penstock_move *m = &s->move[move];
    const struct ps_bound *b = &s->bound[move];
    uint32_t since = (place + s->length - m->evict_after) % s->length;
    uint32_t away = m->reload_from == PENSTOCK_NEVER ? 0 : (m->reload_from + s->length - m->evict_after) % s->length;

    return since <= grace && since < (away ? away : s->length) && b->span && b->span->number == b->number &&
           b->span->plan.mentioned == b->named;
}

/*
 * Moves the reload behind the grace. The planner queues the D2H at the launch that opens the gap. A
 * reload may be due at the next launch. The grace delays the D2H. A reload that fell due before it
 * would find the span resident and be void. Returns false if the gap is too short.
 */
static bool give_grace(struct penstock_move *move, uint32_t length, uint32_t grace)
{
    if (move->needed_by == PENSTOCK_NEVER)
        return true;
    uint32_t gap = (move->needed_by + length - move->evict_after) % length,
             away = (move->reload_from + length - move->evict_after) % length;
    gap = gap ? gap : length; /* the launch that uses the span last in a round is also its first use in the next */
    if (gap <= grace + 1)
        return false;
    if (away <= grace)
        move->reload_from = (move->evict_after + grace + 1) % length;
    return true;
}

/*
 * Fills move, grace and moves. A span whose uses are all seen needs no grace. With little memory an
 * optimizer's launches each wait for reloads. Four launches are then 12 ms in which the D2H link
 * stands still. (A compiled model in 13 of 20 GiB, H200: 255 ms a step instead of 261.)
 */
static void take_moves(struct ps_plan_schedule *s, const struct penstock_plan *plan, const bool *all_seen,
                       uint32_t grace_of_others)
{
    for (uint32_t m = 0; m < plan->moves; m++) {
        struct penstock_move move = plan->move[m];
        const uint32_t grace = all_seen && all_seen[move.span] ? 0 : grace_of_others;
        if (!give_grace(&move, s->length, grace))
            continue;
        s->grace[s->moves] = grace;
        s->move[s->moves++] = move;
    }
}

/* Returns the launch at which the move's D2H is queued; PENSTOCK_NEVER: it is not queued. */
static uint32_t evicted_at(const struct ps_plan_schedule *s, uint32_t move)
{
    return s->grace[move] == PENSTOCK_NEVER ? PENSTOCK_NEVER : (s->move[move].evict_after + s->grace[move]) % s->length;
}

struct ps_plan_schedule *ps_plan_schedule_make(const struct penstock_step *step, const struct penstock_plan *plan,
                                               const uint64_t *numbers, const uint16_t *ordinal, const bool *all_seen,
                                               uint32_t grace)
{
    struct ps_plan_schedule *s = calloc(1, sizeof *s);
    int r = -ENOMEM;

    if (!s)
        return NULL;
    uint32_t *at = s->scratch = calloc(plan->moves + 1u, sizeof *at);
    void *correction = malloc(ps_correction_bytes(step->launches, plan->moves));
    s->correction = correction;
    s->length = step->launches;
    s->predicted_ns = plan->predicted_ns;
    s->mapping_ns = plan->mapping_ns;
    s->plain_ns = plan->plain_ns;
    s->move = calloc(plan->moves + 1u, sizeof *s->move);
    s->ordinal = calloc(plan->moves + 1u, sizeof *s->ordinal);
    s->identity = calloc(plan->moves + 1u, sizeof *s->identity);
    s->grace = calloc(plan->moves + 1u, sizeof *s->grace);
    s->bound = calloc(plan->moves + 1u, sizeof *s->bound);
    s->preallocation = ps_preallocation_make(step);
    s->duration_ns = calloc(step->launches + 1u, sizeof *s->duration_ns);
    if (!s->duration_ns || !at || !correction || !s->move || !s->ordinal || !s->identity || !s->grace || !s->bound ||
        !s->preallocation)
        goto out;
    take_moves(s, plan, all_seen, grace);
    s->figures = ps_step_figures_make(step, &(struct penstock_plan){.move = s->move, .moves = s->moves});
    if (!s->figures)
        goto out;
    s->correction = ps_correction_init(correction, step, s->move, s->moves, grace);
    for (uint32_t l = 0; l < step->launches; l++)
        s->duration_ns[l] = step->launch[l].duration_ns;

    for (uint32_t m = 0; m < s->moves; m++) {
        uint32_t use = binding_use(step, &s->move[m]);
        at[m] = step->use[use];
        s->ordinal[m] = ordinal[use];
        s->identity[m] = identity_of(step, s->move[m].span, at[m], numbers);
    }
    r = make_timetable(&s->bind, at, s->moves, s->length);
    /*
     * Within the grace, an access that parameters don't show may follow a visible one. So the D2H
     * is queued after the grace.
     */
    for (uint32_t m = 0; m < s->moves; m++)
        at[m] = evicted_at(s, m);
    if (!r)
        r = make_timetable(&s->evict, at, s->moves, s->length);
    for (uint32_t m = 0; m < s->moves; m++)
        at[m] = s->move[m].reload_from;
    if (!r)
        r = make_timetable(&s->reload, at, s->moves, s->length);
    if (!r)
        order_reloads(s);
out:
    if (r) {
        ps_plan_schedule_free(s);
        s = NULL;
    }
    return s;
}

void ps_plan_schedule_give_grace(struct ps_plan_schedule *s, uint32_t move, uint32_t grace)
{
    s->grace[move] = give_grace(&s->move[move], s->length, grace) ? grace : PENSTOCK_NEVER;
}

void ps_plan_schedule_moves_changed(struct ps_plan_schedule *s)
{
    for (uint32_t m = 0; m < s->moves; m++)
        s->scratch[m] = evicted_at(s, m);
    fill_timetable(&s->evict, s->scratch, s->moves, s->length);
    for (uint32_t m = 0; m < s->moves; m++)
        s->scratch[m] = s->move[m].reload_from;
    fill_timetable(&s->reload, s->scratch, s->moves, s->length);
    order_reloads(s);
}
