/*
 * The inside of the planner, which four files share. plan.c makes the step as the planner sees it.
 * search.c chooses the plans to try. choose_gaps.c chooses the gaps to evict in. place_reloads.c
 * chooses the times of reloads.
 *
 * A choice of gaps keeps the budget if the gaps that cover each moment free its bytes over the
 * budget. The planner turns such a choice into moves, and the playback predicts their cost.
 *
 * Pure: memory from the caller. Threads: each thread has its own planner.
 */
#ifndef PS_PLANNER_H
#define PS_PLANNER_H

#include <stdbool.h>

#include "penstock/policy.h"
#include "policy/planner/gaps.h"
#include "policy/planner/playback.h"
#include "policy/planner/range_max.h"

#define PS_KEY_CHOSEN 1e6

/* With this delay a reload is not allowed before its launch needs it. */
#define PS_DELAY_MAX 16u

/* The order in which spans leave that are idle from the same launch on. */
enum ps_leaving { PS_LEAVING_SOONEST_NEEDED, PS_LEAVING_LATEST_NEEDED, PS_LEAVING_SMALLEST, PS_LEAVINGS };

/* The order in which reloads are given room. */
enum ps_claiming {
    PS_CLAIMING_BY_NEED,  /* the reload needed soonest first */
    PS_CLAIMING_IN_ORDER, /* by need, and no reload is allowed before one that is needed sooner */
    PS_CLAIMING_REVERSED, /* the reload needed last first */
    PS_CLAIMINGS
};

/* The way in which a choice is turned into moves. */
struct ps_way {
    enum ps_claiming claiming;
    enum ps_leaving leaving;
};

struct ps_planner {
    const struct penstock_step *step;
    uint32_t origin; /* the moment after the one with the least demand: sweeps begin there */
    int64_t *demand; /* by moment */
    int64_t *excess; /* by moment: bytes that must be evicted there; negative: room */
    bool fits;       /* with everything movable evicted, the step keeps within budget and slab */

    /*
     * Gaps in which an eviction could help, by the moment in which they open, from the origin on.
     */
    struct ps_gap *gap;
    uint32_t gaps;
    double *key;     /* by gap: gaps with the largest keys are chosen first */
    uint8_t *chosen; /* by gap */
    /* By gap: the delay of its reload, in shares (PS_DELAY_MAX) of the largest possible delay. */
    uint8_t *delay;
    uint8_t *best_chosen, *best_delay;
    uint32_t *heap;   /* of gaps */
    uint32_t *order;  /* of gaps: scratch */
    int64_t *closing; /* by moment: bytes of the chosen gaps that end there; scratch */
    /* By moment: the first launch at or after it; step->launches: none before the ring's end. */
    uint32_t *launch_at;
    double *start_ns; /* by launch: its start if no span moves; one more entry at the end */

    struct ps_range_max room; /* excess, less the bytes that the choice evicts */
    struct ps_range_max slab; /* bytes that the choice puts into the slab */
    void *room_memory, *slab_memory;
    bool slab_binds; /* the spans of all gaps together would not fit into the slab */
    struct ps_playback *playback;

    struct penstock_move *move, *best_move; /* room for step->uses each */
    uint32_t moves, best_moves;
    struct ps_way best_way;
    struct ps_outcome best;    /* the outcome of best_move */
    bool any, best_met;        /* best_move is set; and it evicts all bytes over the budget */
    uint64_t work, work_limit; /* moments played and swept */
};

/*
 * choose_gaps.c: fills planner->chosen by the keys. Every chosen gap is then needed, or has
 * PS_KEY_CHOSEN. Returns false if the slab was too small.
 */
bool ps_choose(struct ps_planner *planner);

/* Sets planner->room to the bytes over the budget, by moment, with the current choice. */
void ps_choice_to_room(struct ps_planner *planner);

/* search.c: tries choices and keeps the best plan. */
void ps_search(struct ps_planner *planner);

/* place_reloads.c: makes planner->move from planner->chosen. */
void ps_schedule(struct ps_planner *planner, struct ps_way way);

#endif
