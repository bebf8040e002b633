/*
 * Inside the planner: what plan.c (which plans to try), plan_choose.c (which gaps to evict in) and plan_reload.c (when to bring back) share.
 *
 * A choice of gaps is good for the budget when at each moment the gaps that cover it make up for what is over the budget there. Such a choice
 * is turned into moves, and the playback says what it costs.
 *
 * Pure: memory from the caller. Threads: one planner each.
 */
#ifndef PENSTOCK_POLICY_PLANNER_H
#define PENSTOCK_POLICY_PLANNER_H

#include <stdbool.h>

#include "gaps.h"
#include "penstock/policy.h"
#include "playback.h"
#include "room.h"

struct ps_planner {
    const struct penstock_step *step;
    uint32_t origin; /* the moment after the one with the least demand: sweeps begin there */
    int64_t *demand; /* by moment */
    int64_t *excess; /* by moment: what must be evicted there; negative: room */
    bool fits;       /* with all that can move evicted, the step keeps within budget and slab */

    /* Gaps in which evicting could help, by the moment in which they open, from the origin on. */
    struct ps_gap *gap;
    uint32_t gaps;
    double *key;         /* by gap: those with the largest are chosen first */
    uint8_t *chosen;     /* by gap */
    uint32_t *heap;      /* of gaps */
    uint32_t *order;     /* of gaps: scratch */
    int64_t *closing;    /* by moment: bytes of the chosen gaps that end there; scratch */
    uint32_t *launch_at; /* by moment: the first launch at or after it; step->launches: none until the ring's end */
    double *start_ns;    /* by launch: when it starts if nothing moves; one more at the end */

    struct ps_room room; /* excess, less what the choice evicts */
    struct ps_room slab; /* what the choice puts there */
    void *room_memory, *slab_memory;
    bool slab_binds; /* all gaps together would not fit into the slab */
    struct ps_playback *playback;

    struct penstock_move *move, *best_move; /* room for step->uses each */
    uint32_t moves, best_moves;
    struct ps_outcome outcome, best;
    bool any;
    uint64_t work, work_limit; /* moments played and swept */
};

/* plan_choose.c: fills planner->chosen by the keys; every chosen gap is needed by then. False when the slab stood in the way. */
bool ps_choose(struct ps_planner *planner);

/* Whether the choice at hand would do without this gap or with it: leaves `room` and `slab` as the choice says. */
void ps_choice_to_rooms(struct ps_planner *planner);

/* plan_reload.c: makes planner->move of planner->chosen. `in_order`: no reload is allowed before one that is needed sooner. */
void ps_schedule(struct ps_planner *planner, bool in_order);

#endif
