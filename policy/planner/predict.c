/*
 * penstock_predict: checks that the plan is valid for this step, and plays it (playback.h) to
 * predict its time.
 */
#include <penstock/policy.h>

#include <errno.h>
#include <string.h>

#include "policy/planner/gaps.h"
#include "policy/planner/page_reuse.h"
#include "policy/planner/playback.h"

static size_t aligned(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

size_t penstock_predict_workspace_bytes(const struct penstock_step *step)
{
    return 2 * aligned(step->moments * sizeof(int64_t)) + aligned(step->uses) + aligned(ps_playback_bytes(step)) +
           ps_page_reuse_bytes(step);
}

struct page_traffic {
    const struct penstock_step *step;
    struct ps_page_reuse *reuse;
};

/*
 * Pages are made and mapped in parts of this many bytes, in at most this many parts
 * (shim/memory/spare_pages.c).
 */
#define PART_BYTES (UINT64_C(128) << 20)
#define PARTS_MAX 16u

static uint32_t parts_of(uint64_t bytes)
{
    const uint64_t parts = (bytes + PART_BYTES - 1) / PART_BYTES;

    return parts < PARTS_MAX ? (uint32_t)parts : PARTS_MAX;
}

static uint32_t paged(void *ctx, enum ps_paged what, uint32_t span, int64_t held)
{
    struct page_traffic *traffic = ctx;

    if (what == PS_PAGED_FREED) {
        ps_page_reuse_freed(traffic->reuse, span);
        return 0;
    }
    if (!ps_page_reuse_taken(traffic->reuse, span, what == PS_PAGED_BACK, held))
        return 0;
    return parts_of(traffic->step->span[span].bytes);
}

/* Returns NULL, or the problem of the move. Fills the gap that the move lies in. */
static const char *problem_of_move(const struct penstock_step *step, const struct penstock_move *move,
                                   struct ps_gap *gap)
{
    if (move->span >= step->spans)
        return "a move names a span that the step does not have";
    if (step->span[move->span].fixed)
        return "a move names a span that is fixed";
    if (move->evict_after >= step->launches)
        return "a move's evict_after is not a launch of the step";
    if (!ps_gap_at(step, move->span, move->evict_after, gap))
        return "a move's evict_after is not in a gap of its span";
    if (move->needed_by != gap->needed_by)
        return "a move's needed_by is not the end of its gap";
    if (gap->needed_by == PENSTOCK_NEVER)
        return move->reload_from == PENSTOCK_NEVER ? NULL : "a move has a reload, although its gap ends with the free";
    if (move->reload_from >= step->launches)
        return "a move's reload_from is not a launch of the step";
    /* A gap that goes all the way round is one step long, not 0. */
    uint32_t length = ps_ring_distance(move->evict_after, gap->needed_by, step->launches);
    uint32_t reload = ps_ring_distance(move->evict_after, move->reload_from, step->launches);
    if (reload == 0 && length != 0)
        return "a move's reload_from is its evict_after";
    if (length != 0 && reload > length)
        return "a move's reload_from comes after its needed_by";
    return NULL;
}

/* Returns the moments at which the span's bytes are in the slab, at most. */
static struct ps_stretch slab_stretch(const struct penstock_step *step, const struct penstock_move *move)
{
    uint32_t end =
        move->needed_by == PENSTOCK_NEVER ? step->span[move->span].freed : step->launch[move->needed_by].moment;

    return ps_slab_stretch(ps_stretch_between(step->launch[move->evict_after].moment, end, step->moments));
}

static const char *problem_of_plan(const struct penstock_step *step, const struct penstock_plan *plan, int64_t *slab,
                                   uint8_t *taken)
{
    memset(slab, 0, step->moments * sizeof *slab);
    memset(taken, 0, step->uses);
    if (plan->moves > step->uses)
        return "there are more moves than gaps in the step";
    for (uint32_t i = 0; i < plan->moves; i++) {
        struct ps_gap gap;
        const char *problem = problem_of_move(step, &plan->move[i], &gap);
        if (problem)
            return problem;
        if (taken[gap.use])
            return "a span is moved twice in one gap";
        taken[gap.use] = 1;
        if (i > 0 && plan->move[i].evict_after < plan->move[i - 1].evict_after)
            return "the moves are not ordered by evict_after";
        ps_add_difference(slab, step->moments, slab_stretch(step, &plan->move[i]),
                          (int64_t)step->span[plan->move[i].span].bytes);
    }
    int64_t held = 0;
    for (uint32_t m = 0; m < step->moments; m++) {
        held += slab[m];
        if (held > 0 && (uint64_t)held > step->slab_bytes)
            return "the slab can't hold all that is evicted at the same time";
    }
    return NULL;
}

static const char *problem_of_links(const struct penstock_links *links)
{
    bool any =
        links->d2h_bytes_per_s && links->h2d_bytes_per_s && links->d2h_bytes_per_s_both && links->h2d_bytes_per_s_both;

    return any ? NULL : "a link's bandwidth is 0";
}

int penstock_predict(const struct penstock_step *step, void *workspace, struct penstock_plan *plan, const char **why)
{
    char *at = workspace;
    int64_t *demand = (int64_t *)(void *)at, *slab = demand + aligned(step->moments * sizeof *demand) / sizeof *demand;
    uint8_t *taken = (uint8_t *)workspace + 2 * aligned(step->moments * sizeof *demand);
    const char *problem = problem_of_links(&step->links);

    if (!problem)
        problem = problem_of_plan(step, plan, slab, taken);
    if (problem) {
        if (why)
            *why = problem;
        return -EINVAL;
    }
    ps_demand(step, demand);
    struct ps_playback *playback = ps_playback_init(step, demand, taken + aligned(step->uses));
    struct ps_outcome outcome = ps_playback_run(playback, plan->move, plan->moves, PS_PREDICT_ROUNDS);
    const uint64_t without_ns = (uint64_t)(outcome.round_ns + 0.5);
    if (step->links.mapping_ns) {
        struct page_traffic traffic = {
            step, ps_page_reuse_init(step, taken + aligned(step->uses) + aligned(ps_playback_bytes(step)))};
        const struct ps_playback_watch watch = {.paged = paged, .ctx = &traffic};
        ps_playback_show(playback, &watch);
        outcome = ps_playback_run(playback, plan->move, plan->moves, PS_PREDICT_ROUNDS);
    }
    plan->plain_ns = 0;
    for (uint32_t l = 0; l < step->launches; l++)
        plan->plain_ns += step->launch[l].duration_ns;
    plan->evicted_bytes = 0;
    for (uint32_t i = 0; i < plan->moves; i++)
        plan->evicted_bytes += step->span[plan->move[i].span].bytes;
    plan->predicted_ns = (uint64_t)(outcome.round_ns + 0.5);
    plan->mapping_ns = plan->predicted_ns > without_ns ? plan->predicted_ns - without_ns : 0;
    plan->peak_bytes = (uint64_t)outcome.peak_bytes;
    return 0;
}
