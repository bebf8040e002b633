/*
 * The policy `plan`: the least predicted exposed time. This file finds the possible evictions and
 * the bytes that must be evicted; search.c finds the best plan.
 */
#include <penstock/policy.h>

#include <errno.h>
#include <string.h>

#include "policy/planner/planner.h"

static void *take(char **memory, size_t bytes)
{
    void *taken = *memory;

    *memory += (bytes + 15) / 16 * 16;
    return taken;
}

static size_t lay_out(const struct penstock_step *step, struct ps_planner *p, void *memory)
{
    struct ps_planner measured;
    char *start = memory, *at = start;
    size_t gaps = (size_t)step->uses + 1;

    if (!p)
        p = &measured;
    take(&at, sizeof *p);
    p->demand = take(&at, step->moments * sizeof *p->demand);
    p->excess = take(&at, step->moments * sizeof *p->excess);
    p->closing = take(&at, ((size_t)step->moments + 1) * sizeof *p->closing);
    p->launch_at = take(&at, step->moments * sizeof *p->launch_at);
    p->start_ns = take(&at, ((size_t)step->launches + 1) * sizeof *p->start_ns);
    p->gap = take(&at, gaps * sizeof *p->gap);
    p->key = take(&at, gaps * sizeof *p->key);
    p->chosen = take(&at, gaps);
    p->delay = take(&at, gaps);
    p->best_chosen = take(&at, gaps);
    p->best_delay = take(&at, gaps);
    /* A gap that is open at both ends of a sweep is pushed twice. */
    p->heap = take(&at, 2 * gaps * sizeof *p->heap);
    p->order = take(&at, gaps * sizeof *p->order);
    p->move = take(&at, gaps * sizeof *p->move);
    p->best_move = take(&at, gaps * sizeof *p->best_move);
    p->room_memory = take(&at, ps_range_max_bytes(step->moments));
    p->slab_memory = take(&at, ps_range_max_bytes(step->moments));
    p->playback = take(&at, ps_playback_bytes(step));
    return (size_t)(at - start);
}

static size_t workspace_bytes(const struct penstock_step *step)
{
    static max_align_t nowhere;
    size_t planning = lay_out(step, NULL, &nowhere), predicting = penstock_predict_workspace_bytes(step);

    return planning > predicting ? planning : predicting;
}

/* ---- possible evictions ---- */

static void find_times(struct ps_planner *p)
{
    const struct penstock_step *step = p->step;
    uint32_t next = step->launches;

    p->start_ns[0] = 0;
    for (uint32_t l = 0; l < step->launches; l++)
        p->start_ns[l + 1] = p->start_ns[l] + (double)step->launch[l].duration_ns;
    for (uint32_t m = step->moments; m-- > 0;) {
        if (next > 0 && step->launch[next - 1].moment == m)
            next--;
        p->launch_at[m] = next;
    }
}

static void find_excess(struct ps_planner *p)
{
    uint32_t moments = p->step->moments, least = 0;
    int64_t budget = p->step->budget_bytes < INT64_MAX ? (int64_t)p->step->budget_bytes : INT64_MAX;

    ps_demand(p->step, p->demand);
    for (uint32_t m = 0; m < moments; m++) {
        p->excess[m] = p->demand[m] - budget;
        if (p->demand[m] < p->demand[least])
            least = m;
    }
    p->origin = least + 1 < moments ? least + 1 : 0;
}

/*
 * Returns whether the stretch has a tight moment. `over[m]` is the number of tight moments before
 * m.
 */
static bool covers_tight(const struct ps_planner *p, struct ps_stretch cover, const uint32_t *over)
{
    uint32_t moments = p->step->moments;
    uint64_t end = (uint64_t)cover.from + cover.count;

    if (end <= moments)
        return over[end] > over[cover.from];
    return over[moments] > over[cover.from] || over[end - moments] > 0;
}

/*
 * Finds the gaps, ordered by the moment in which they open, from the origin on. Uses are stored by
 * span: a counting sort puts the gaps in order.
 */
static void find_gaps(struct ps_planner *p)
{
    const struct penstock_step *step = p->step;
    uint32_t *over = (uint32_t *)(void *)p->closing; /* moments + 1 of them fit */
    uint32_t found = 0;

    /*
     * A moment is tight if the demand is over the budget, or if the largest span would no longer
     * fit. Pages that are free sooner there can spare a wait, even if the budget requires nothing.
     * If the demand is never over the budget, nothing moves.
     */
    int64_t largest = 0, most = 0;
    for (uint32_t i = 0; i < step->spans; i++)
        largest = (int64_t)step->span[i].bytes > largest ? (int64_t)step->span[i].bytes : largest;
    for (uint32_t m = 0; m < step->moments; m++)
        most = p->excess[m] > most ? p->excess[m] : most;
    over[0] = 0;
    for (uint32_t m = 0; m < step->moments; m++)
        over[m + 1] = over[m] + (most > 0 && p->excess[m] > -largest);
    /* The memory of best_move holds the gaps while they are sorted. */
    _Static_assert(sizeof(struct ps_gap) <= sizeof(struct penstock_move), "gaps are sorted in the room of moves");
    struct ps_gap *unsorted = (struct ps_gap *)(void *)p->best_move;
    for (uint32_t i = 0; i < step->spans && over[step->moments] > 0; i++) {
        const struct penstock_step_span *span = &step->span[i];
        if (span->fixed || span->bytes == 0 || span->bytes > step->slab_bytes)
            continue;
        for (uint32_t u = 0; u < span->uses; u++) {
            struct ps_gap gap = ps_gap_after(step, i, span->first_use + u);
            if (gap.cover.count > 0 && covers_tight(p, gap.cover, over))
                unsorted[found++] = gap;
        }
    }
    uint32_t *first = over, sum = 0;
    memset(first, 0, ((size_t)step->moments + 1) * sizeof *first);
    for (uint32_t i = 0; i < found; i++)
        first[ps_ring_distance(p->origin, unsorted[i].cover.from, step->moments) + 1]++;
    for (uint32_t m = 0; m <= step->moments; m++) {
        sum += first[m];
        first[m] = sum;
    }
    for (uint32_t i = 0; i < found; i++)
        p->gap[first[ps_ring_distance(p->origin, unsorted[i].cover.from, step->moments)]++] = unsorted[i];
    p->gaps = found;
}

/*
 * Takes out of the excess the bytes that no eviction can free. The best plan then evicts everything
 * that helps.
 */
static void find_limits(struct ps_planner *p)
{
    const struct penstock_step *step = p->step;
    int64_t cover = 0, slab = 0, most = 0;

    memset(p->closing, 0, step->moments * sizeof *p->closing);
    for (uint32_t i = 0; i < p->gaps; i++)
        ps_add_difference(p->closing, step->moments, ps_slab_stretch(p->gap[i].cover),
                          (int64_t)step->span[p->gap[i].span].bytes);
    for (uint32_t m = 0; m < step->moments; m++) {
        slab += p->closing[m];
        most = slab > most ? slab : most;
    }
    p->slab_binds = (uint64_t)most > step->slab_bytes;
    memset(p->closing, 0, step->moments * sizeof *p->closing);
    for (uint32_t i = 0; i < p->gaps; i++)
        ps_add_difference(p->closing, step->moments, p->gap[i].cover, (int64_t)step->span[p->gap[i].span].bytes);
    p->fits = true;
    for (uint32_t m = 0; m < step->moments; m++) {
        cover += p->closing[m];
        if (p->excess[m] > cover) {
            p->excess[m] = cover;
            p->fits = false;
        }
    }
}

static int plan(const struct penstock_step *step, const struct penstock_policy_options *options, void *workspace,
                struct penstock_plan *out)
{
    struct ps_planner *p = workspace;

    (void)options;
    memset(p, 0, sizeof *p);
    lay_out(step, p, workspace);
    p->step = step;
    find_times(p);
    find_excess(p);
    find_gaps(p);
    find_limits(p);
    p->playback = ps_playback_init(step, p->demand, p->playback);
    if (p->gaps > 0)
        ps_search(p);
    bool fits = p->fits && (p->gaps == 0 || p->best_met);
    if (p->best_moves > out->capacity)
        return -ENOSPC;
    memcpy(out->move, p->best_move, p->best_moves * sizeof *out->move);
    out->moves = p->best_moves;
    int rc = penstock_predict(step, workspace, out, NULL);
    if (rc)
        return rc;
    return fits ? 0 : -ERANGE;
}

const struct penstock_policy penstock_policy_plan = {
    .version = PENSTOCK_POLICY_VERSION,
    .name = "plan",
    .choose = penstock_lru_choose,
    .workspace_bytes = workspace_bytes,
    .plan = plan,
};
