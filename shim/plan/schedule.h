/*
 * A plan made ready to be followed. For each launch of the step it lists the spans to recognise and
 * the evictions and reloads to begin. following.c carries it out.
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

/*
 * The moves of each launch: lists of move numbers, one list a launch. List i is item[start[i] ..
 * start[i + 1]).
 */
struct ps_timetable {
    uint32_t *start;
    uint32_t *item;
};

/* The span that a move is about in this round. */
struct ps_bound {
    struct ps_span *span;
    uint64_t number; /* of the life that was meant; with another number the move is void */
    /* the launch that named it last when it was bound; if named again since, it stays */
    uint64_t named;
};

/*
 * Tells whether the span in a launch's place is the planned one. Structures passed by value hold
 * stale pointers now and then, which shift the places. A span of the step is known by its age: the
 * launches since its birth. A span that outlives the step is known by its number.
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
    /* index of the span among those of the launch that it is bound at */
    uint16_t *ordinal;
    struct ps_identity *identity; /* by which the span is known again */
    /* by move: launches from evict_after to the D2H; PENSTOCK_NEVER: its gap is too short */
    uint32_t *grace;
    struct ps_timetable bind, evict, reload;
    struct ps_bound *bound;
    struct ps_step_figures *figures;
    struct ps_step_profile *profile; /* or NULL */
    struct ps_preallocation *preallocation;
    struct ps_correction *correction; /* of the moves' reload_from */
    bool may_correct;
    uint32_t *scratch;                           /* by move */
    uint64_t *duration_ns;                       /* by launch, as it was recorded */
    uint64_t predicted_ns, mapping_ns, plain_ns; /* as in penstock_plan */
    uint64_t rounds;                             /* whole rounds that have ended */
    uint64_t whole_round;                        /* number of the latest whole round */
    /* first of the unbroken run of whole rounds up to whole_round; no reload_from changed since */
    uint64_t first_round;
    uint64_t corrected; /* the latest round that was examined to correct the moves */
};

/*
 * Makes the schedule from copies of the step, the plan and the arrays. `numbers[i]` is the number
 * of span i when the step was recorded. `ordinal[k]` is the index of use k's span among those of
 * its launch. `all_seen[i]` says that each use of span i is seen (NULL: of no span). Evictions of
 * such spans come at the launch that opens the gap; others come `grace` launches later. Reloads
 * come after these. A move is left out if its gap is then too short for the reload. Returns NULL if
 * memory is missing.
 */
struct ps_plan_schedule *ps_plan_schedule_make(const struct penstock_step *step, const struct penstock_plan *plan,
                                               const uint64_t *numbers, const uint16_t *ordinal, const bool *all_seen,
                                               uint32_t grace);
void ps_plan_schedule_free(struct ps_plan_schedule *plan); /* NULL is nothing */

/*
 * Returns the sizes of the spans that are away when most bytes are, and sets `*n` to their number.
 * The caller frees the array. NULL: no span is away, or no memory.
 */
size_t *ps_plan_schedule_away_at_once(const struct ps_plan_schedule *plan, unsigned *n);

/* From now on this move's eviction waits for a grace, and its reload for that. */
void ps_plan_schedule_give_grace(struct ps_plan_schedule *plan, uint32_t move, uint32_t grace);

/* Rebuilds the timetables after a move's reload_from has changed or a grace was given. */
void ps_plan_schedule_moves_changed(struct ps_plan_schedule *plan);

/*
 * Returns whether at `place` of the step the move's span is in its grace. The span is bound as
 * planned, and would leave now but for the grace after its last use. [locked]
 */
bool ps_plan_schedule_is_in_grace(const struct ps_plan_schedule *s, uint32_t move, uint32_t place, uint32_t grace);

/* Returns whether `span`, in the place to be bound at launch `launch`, is the planned one. */
bool ps_plan_schedule_is_meant(const struct ps_identity *identity, const struct ps_span *span, uint64_t launch);

#endif
