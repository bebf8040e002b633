/*
 * A plan made ready to be followed: by launch of the step, which spans are recognised, which evictions and reloads are begun there. following.c
 * carries it out.
 *
 * Threads: all under the registry lock.
 */
#ifndef PS_SCHEDULE_H
#define PS_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/span.h"
#include "penstock/policy.h"
#include "plan/preallocation.h"
#include "plan/step_figures.h"
#include "plan/step_profile.h"
#include "policy/correction.h"

/* What moves at which launch: lists of move numbers, one list a launch, list i in item[start[i] .. start[i + 1]). */
struct ps_timetable {
    uint32_t *start;
    uint32_t *item;
};

/* The span that a move is about in this round. */
struct ps_bound {
    struct ps_span *span;
    uint64_t number; /* of the life that was meant; another one: the move is void */
    uint64_t named;  /* the launch that named it last when it was bound: named again since, it stays */
};

/*
 * What tells that the span in a launch's place is the one that was planned for: structures passed by value hold stale pointers now and then, which
 * shift the places. A span of the step: born so many launches before. One that outlives it: its number.
 */
struct ps_identity {
    uint64_t bytes;
    uint64_t number; /* 0: it is born in the step */
    uint32_t age;    /* launches */
};

/* A plan made ready to be followed. */
struct ps_plan_schedule {
    uint32_t pattern;
    uint32_t length; /* launches of the step */
    uint32_t moves;
    struct penstock_move *move;
    uint16_t *ordinal;            /* of the span among those of the launch that it is bound at */
    struct ps_identity *identity; /* of the span, by which it is known again */
    uint32_t *grace;              /* by move: launches after evict_after at which the D2H is queued; PENSTOCK_NEVER: its gap is too short */
    struct ps_timetable bind, evict, reload;
    struct ps_bound *bound;
    struct ps_step_figures *figures;
    struct ps_step_profile *profile; /* or NULL */
    struct ps_preallocation *preparing;
    struct ps_correction *correction; /* of the moves' reload_from */
    bool may_correct;
    uint32_t *scratch;                           /* by move */
    uint64_t *duration_ns;                       /* by launch, as it was recorded */
    uint64_t predicted_ns, mapping_ns, plain_ns; /* as in penstock_plan */
    uint64_t rounds;                             /* ended, whole ones */
    uint64_t whole_round;                        /* number of the latest whole one */
    uint64_t first_round; /* of the whole ones without a gap that it ends; no move's reload_from has changed since it began */
    uint64_t corrected;   /* the latest that was looked at to correct the moves */
};

/*
 * Copies what it needs of the three. `numbers[i]`: the number of span i when the step was recorded; `ordinal[k]`: which of its launch's spans use k
 * of the step is; evictions come `grace` launches after the one that opens the gap, but at once those of spans of which each use is seen (`all_seen`, by
 * span of the step; NULL: of none), and reloads after these: a move for whose reload the gap is then too short is left out. NULL: no memory.
 */
struct ps_plan_schedule *ps_plan_schedule_make(const struct penstock_step *step, const struct penstock_plan *plan, const uint64_t *numbers,
                                               const uint16_t *ordinal, const bool *all_seen, uint32_t grace);
void ps_plan_schedule_free(struct ps_plan_schedule *plan); /* NULL is nothing */

/*
 * The sizes of the spans that are away when most bytes are, `*n` of them, in memory of malloc's. NULL: none is, or no memory.
 */
size_t *ps_plan_schedule_away_at_once(const struct ps_plan_schedule *plan, unsigned *n);

/* From now on this move's eviction waits for a grace, and its reload for that. */
void ps_plan_schedule_give_grace(struct ps_plan_schedule *plan, uint32_t move, uint32_t grace);

/* The moves' reload_from have changed, or a grace was given: the timetables are made anew. */
void ps_plan_schedule_moves_changed(struct ps_plan_schedule *plan);

/* At `place` of the step, whether the move's span is bound as it was planned, and would be leaving but for the grace that its last use is given. [locked] */
bool ps_plan_schedule_is_in_grace(const struct ps_plan_schedule *s, uint32_t move, uint32_t place, uint32_t grace);

/* Whether the span in the place where one is to be bound, at launch number `launch`, is the one that the plan is about. */
bool ps_plan_schedule_is_meant(const struct ps_identity *identity, const struct ps_span *span, uint64_t launch);

#endif
