/*
 * Inside the planner: what plan.c (the step as the planner sees it), search.c (which plans to try), choose_gaps.c (which gaps
 * to evict in) and place_reloads.c (when to bring back) share.
 *
 * A choice of gaps is good for the budget when at each moment the gaps that cover it make up for what is over the budget there. Such a choice
 * is turned into moves, and the playback says what it costs.
 *
 * Pure: memory from the caller. Threads: one planner each.
 */
#ifndef PS_PLANNER_H
#define PS_PLANNER_H

#include <stdbool.h>

#include "penstock/policy.h"
#include "policy/planner/gaps.h"
#include "policy/planner/playback.h"
#include "policy/planner/range_max.h"

#define PS_KEY_CHOSEN 1e6

/* A delay of so much: not before it is needed. */
#define PS_DELAY_MAX 16u

/* In which order spans leave that are idle from the same launch on. */
enum ps_leaving { PS_LEAVING_SOONEST_NEEDED, PS_LEAVING_LATEST_NEEDED, PS_LEAVING_SMALLEST, PS_LEAVINGS };

/* Whose reload is given room first. */
enum ps_claiming {
    PS_CLAIMING_BY_NEED,
    PS_CLAIMING_IN_ORDER, /* by need, and none is allowed before one that is needed sooner */
    PS_CLAIMING_REVERSED, /* what is needed last */
    PS_CLAIMINGS
};

/* How a choice is turned into moves. */
struct ps_way {
    enum ps_claiming claiming;
    enum ps_leaving leaving;
};

struct ps_planner {
    const struct penstock_step *step;
    uint32_t origin; /* the moment after the one with the least demand: sweeps begin there */
    int64_t *demand; /* by moment */
    int64_t *excess; /* by moment: what must be evicted there; negative: room */
    bool fits;       /* with all that can move evicted, the step keeps within budget and slab */

    /* Gaps in which evicting could help, by the moment in which they open, from the origin on. */
    struct ps_gap *gap;
    uint32_t gaps;
    double *key;     /* by gap: those with the largest are chosen first */
    uint8_t *chosen; /* by gap */
    uint8_t *delay;  /* by gap: how late its reload is allowed, in shares (PS_DELAY_MAX) of what could be */
    uint8_t *best_chosen, *best_delay;
    uint32_t *heap;      /* of gaps */
    uint32_t *order;     /* of gaps: scratch */
    int64_t *closing;    /* by moment: bytes of the chosen gaps that end there; scratch */
    uint32_t *launch_at; /* by moment: the first launch at or after it; step->launches: none until the ring's end */
    double *start_ns;    /* by launch: when it starts if nothing moves; one more at the end */

    struct ps_range_max room; /* excess, less what the choice evicts */
    struct ps_range_max slab; /* what the choice puts there */
    void *room_memory, *slab_memory;
    bool slab_binds; /* all gaps together would not fit into the slab */
    struct ps_playback *playback;

    struct penstock_move *move, *best_move; /* room for step->uses each */
    uint32_t moves, best_moves;
    struct ps_way best_way;
    struct ps_outcome best;    /* what best_move came to */
    bool any, best_met;        /* there is one; and it evicts all that is over the budget */
    uint64_t work, work_limit; /* moments played and swept */
};

/* choose_gaps.c: fills planner->chosen by the keys; every chosen gap is needed then, or has PS_KEY_CHOSEN. False when the slab stood in the way. */
bool ps_choose(struct ps_planner *planner);

/* Makes planner->room say what is over the budget with the choice at hand. */
void ps_choice_to_room(struct ps_planner *planner);

/* search.c: tries choices and keeps the best plan. */
void ps_search(struct ps_planner *planner);

/* place_reloads.c: makes planner->move of planner->chosen. */
void ps_schedule(struct ps_planner *planner, struct ps_way way);

#endif
