/*
 * The policy `layers`, which the user controls by hand. A span that forward leaves for backward is
 * evicted after the layer that used it last in forward. It is reloaded some layers ahead of the one
 * that needs it. The options set both distances. The largest spans move first, as many as the
 * budget requires and the slab holds.
 *
 * Visits. Markers give stretches, but only *transitions* count. The step is a sequence of visits to
 * layers, each in a direction. A stretch that is no layer belongs to the visit before it.
 * Neighbouring stretches of one layer are one visit.
 *
 * A phase is a row of visits in one direction. In a phase of backward each layer is visited once,
 * around its longest stretch. Its other stretches in that phase are strays; they belong to the
 * visit that they lie in. They exist because autograd runs the nodes that accumulate gradients at
 * any time, amid other layers' backward. Forward has no strays, but may come twice in a row (an
 * evaluation). A phase of forward ends when its first layer comes again.
 *
 * The step is a ring. Here it is turned so that it begins where forward does; positions count from
 * there.
 */
#include <penstock/policy.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "policy/planner/gaps.h"
#include "policy/planner/range_max.h"

struct visit {
    uint32_t entry; /* position of its first launch; it ends where the next visit begins */
    uint32_t number;
    enum penstock_direction direction;
    uint32_t place;    /* its number among its phase's visits, from 0 */
    uint32_t turn;     /* the first backward visit after it, or the number of visits */
    uint32_t launches; /* while visits are being found: launches of the stretch */
    bool stray;        /* while visits are being found */
    /* Of a turn: the first visit from there on that needs a reload; UINT32_MAX: none. */
    uint32_t highest;
};

/* A gap in which a move is possible. Its fields are positions, not launches. */
struct candidate {
    uint64_t bytes;
    uint32_t span;
    uint32_t turn; /* the visit with which backward begins in it */
    uint32_t evict_after, reload_from, needed_by;
};

struct work {
    const struct penstock_step *step;
    uint32_t origin; /* the launch at position 0 */
    uint32_t visits;
    struct visit *visit;
    uint32_t *visit_of; /* by position */
    struct candidate *candidate;
    uint32_t candidates;
    struct ps_range_max device, host; /* bytes held at each position: on the device; in slots */
};

/* ---- positions ---- */

static uint32_t position_of(const struct work *w, uint32_t launch)
{
    return launch >= w->origin ? launch - w->origin : launch + w->step->launches - w->origin;
}

static uint32_t launch_at(const struct work *w, uint32_t position)
{
    uint64_t launch = (uint64_t)w->origin + position;

    return (uint32_t)(launch >= w->step->launches ? launch - w->step->launches : launch);
}

/* Returns the position of the first launch at or after a moment, which may be in the next round. */
static uint32_t position_after(const struct work *w, uint32_t moment)
{
    uint32_t launch = ps_launch_from(w->step, moment);

    return position_of(w, launch == w->step->launches ? 0 : launch);
}

/* ---- visits ---- */

static bool is_layer(const struct penstock_layer *layer)
{
    return layer->number != PENSTOCK_NEVER && layer->direction != PENSTOCK_DIRECTION_NONE;
}

/*
 * Returns the stretch where forward begins after backward. Returns the number of layers if there is
 * none.
 */
static uint32_t first_forward(const struct penstock_step *step)
{
    enum penstock_direction before = PENSTOCK_DIRECTION_NONE;

    for (uint32_t i = step->layers; i-- > 0 && before == PENSTOCK_DIRECTION_NONE;)
        if (is_layer(&step->layer[i]))
            before = step->layer[i].direction;
    for (uint32_t i = 0; i < step->layers; i++) {
        const struct penstock_layer *layer = &step->layer[i];
        if (!is_layer(layer))
            continue;
        if (layer->direction == PENSTOCK_DIRECTION_FORWARD && before == PENSTOCK_DIRECTION_BACKWARD)
            return i;
        before = layer->direction;
    }
    return step->layers;
}

/* Fills the visits with all stretches of layers; neighbours of one layer are joined. */
static void list_stretches(struct work *w, uint32_t first)
{
    const struct penstock_step *step = w->step;

    for (uint32_t i = 0; i < step->layers; i++) {
        uint32_t at = (first + i) % step->layers;
        const struct penstock_layer *layer = &step->layer[at];
        uint32_t end = at + 1 < step->layers ? step->layer[at + 1].first_launch : step->launches;
        uint32_t launches = end - layer->first_launch;
        struct visit *last = w->visits ? &w->visit[w->visits - 1] : NULL;

        if (!is_layer(layer) || !launches)
            continue;
        if (last && last->number == layer->number && last->direction == layer->direction) {
            last->launches += launches;
            continue;
        }
        w->visit[w->visits++] = (struct visit){.entry = position_of(w, layer->first_launch),
                                               .number = layer->number,
                                               .direction = layer->direction,
                                               .launches = launches};
    }
}

static int by_entry(const void *a, const void *b)
{
    const struct visit *x = a, *y = b;

    return x->entry < y->entry ? -1 : x->entry > y->entry;
}

/* Orders by layer, then the longest first, then the earliest first. */
static int by_length(const void *a, const void *b)
{
    const struct visit *x = a, *y = b;

    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    if (x->launches != y->launches)
        return x->launches > y->launches ? -1 : 1;
    return by_entry(a, b);
}

/*
 * Turns the stretches of a phase of backward into visits. A visit begins with the first stretch of
 * its layer after the longest one of the visit before it. The strays in between may cut off its
 * beginning. Returns the number of visits.
 */
static uint32_t drop_strays(struct visit *stretch, uint32_t n)
{
    uint32_t kept = 0;

    qsort(stretch, n, sizeof *stretch, by_length);
    for (uint32_t i = 1; i < n; i++)
        stretch[i].stray = stretch[i].number == stretch[i - 1].number;
    qsort(stretch, n, sizeof *stretch, by_entry);
    for (uint32_t i = 0; i < n; i++) {
        if (stretch[i].stray)
            continue;
        uint32_t entry = stretch[i].entry;
        for (uint32_t before = i; before-- > 0 && stretch[before].stray;)
            if (stretch[before].number == stretch[i].number)
                entry = stretch[before].entry;
        stretch[i].entry = entry;
    }
    for (uint32_t i = 0; i < n; i++)
        if (!stretch[i].stray)
            stretch[kept++] = stretch[i];
    return kept;
}

static void find_visits(struct work *w)
{
    uint32_t kept = 0;

    for (uint32_t i = 0, end; i < w->visits; i = end) {
        struct visit *phase = &w->visit[i];
        bool forward = phase->direction == PENSTOCK_DIRECTION_FORWARD;
        for (end = i + 1; end < w->visits && w->visit[end].direction == phase->direction; end++)
            if (forward && w->visit[end].number == phase->number)
                break;
        uint32_t n = forward ? end - i : drop_strays(phase, end - i);
        for (uint32_t j = 0; j < n; j++) {
            w->visit[kept] = phase[j];
            w->visit[kept++].place = j;
        }
    }
    w->visits = kept;
    for (uint32_t i = kept, turn = kept; i-- > 0;) {
        w->visit[i].turn = turn;
        w->visit[i].highest = UINT32_MAX;
        if (w->visit[i].direction == PENSTOCK_DIRECTION_BACKWARD)
            turn = i;
    }
    for (uint32_t i = 0; i < kept; i++) {
        uint32_t end = i + 1 < kept ? w->visit[i + 1].entry : w->step->launches;
        for (uint32_t p = w->visit[i].entry; p < end; p++)
            w->visit_of[p] = i;
    }
}

/* Returns the number of layers of the longest forward phase. */
static uint32_t forward_layers(const struct work *w)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < w->visits; i++)
        if (w->visit[i].direction == PENSTOCK_DIRECTION_FORWARD && w->visit[i].place + 1 > most)
            most = w->visit[i].place + 1;
    return most;
}

/* ---- gaps ---- */

/*
 * Returns the last position of the visit `after` visits later; UINT32_MAX if the step ends before.
 */
static uint32_t last_of(const struct work *w, uint32_t visit, uint32_t after)
{
    uint64_t next = (uint64_t)visit + after + 1;

    return next < w->visits ? w->visit[next].entry - 1 : UINT32_MAX;
}

static bool is_saved_for_backward(const struct work *w, const struct penstock_step_span *span)
{
    if (span->fixed || span->born == PENSTOCK_NEVER || span->class_ == PENSTOCK_CLASS_WORKSPACE)
        return false;
    if (span->class_ == PENSTOCK_CLASS_ACTIVATION)
        return true;
    return w->visit[w->visit_of[position_after(w, span->born)]].direction == PENSTOCK_DIRECTION_FORWARD;
}

/* Adds the gap between two successive uses, if it begins in forward and backward begins in it. */
static void consider(struct work *w, const struct penstock_policy_options *options, uint32_t keep, uint32_t span,
                     uint32_t from, uint32_t to)
{
    uint32_t freed = position_after(w, w->step->span[span].freed);
    uint32_t used_in = w->visit_of[from], needed_in = w->visit_of[to], turn = w->visit[used_in].turn;

    if (from >= to || w->visit[used_in].direction != PENSTOCK_DIRECTION_FORWARD || turn > needed_in)
        return;
    /* if freed in between, these are two spans, one after the other */
    if (turn - used_in <= keep || (freed > from && freed <= to))
        return;
    uint32_t evict_after = options->defer_layers ? last_of(w, used_in, options->defer_layers) : from;
    /*
     * Reloads never begin before backward. All reloads due earlier begin right before backward's
     * first kernel.
     */
    uint32_t ahead = options->prefetch_layers < needed_in - turn ? needed_in - options->prefetch_layers : turn;
    uint32_t reload_from = w->visit[ahead].entry - 1;
    if (evict_after >= reload_from)
        return;
    w->candidate[w->candidates++] = (struct candidate){.bytes = w->step->span[span].bytes,
                                                       .span = span,
                                                       .turn = turn,
                                                       .evict_after = evict_after,
                                                       .reload_from = reload_from,
                                                       .needed_by = to};
}

static void find_candidates(struct work *w, const struct penstock_policy_options *options)
{
    const struct penstock_step *step = w->step;
    uint32_t layers = forward_layers(w);
    uint32_t keep = options->keep_last < layers ? options->keep_last : layers - 1;

    for (uint32_t i = 0; i < step->spans; i++) {
        const struct penstock_step_span *span = &step->span[i];
        if (span->uses < 2 || !is_saved_for_backward(w, span))
            continue;
        const uint32_t *use = &step->use[span->first_use];
        for (uint32_t k = 0; k < span->uses; k++)
            consider(w, options, keep, i, position_of(w, use[k]), position_of(w, use[(k + 1) % span->uses]));
    }
}

/*
 * Reloads the highest evicted layer, which backward needs first, before backward's first kernel.
 * This holds however few layers ahead the options say.
 */
static void reload_highest_before_backward(struct work *w)
{
    for (uint32_t i = 0; i < w->candidates; i++) {
        struct visit *turn = &w->visit[w->candidate[i].turn];
        uint32_t needed_in = w->visit_of[w->candidate[i].needed_by];
        if (needed_in < turn->highest)
            turn->highest = needed_in;
    }
    for (uint32_t i = 0; i < w->candidates; i++) {
        struct candidate *c = &w->candidate[i];
        const struct visit *turn = &w->visit[c->turn];
        if (w->visit_of[c->needed_by] == turn->highest && turn->entry - 1 > c->evict_after)
            c->reload_from = turn->entry - 1;
    }
}

/* ---- choosing ---- */

/* Adds bytes to the positions [from, to). */
static void hold(struct ps_range_max *held, uint32_t from, uint32_t to, int64_t bytes)
{
    if (from < to)
        ps_range_max_add(held, (struct ps_stretch){from, to - from}, bytes);
}

/* Returns the most bytes held at one of the positions [from, to); 0 for an empty range. */
static int64_t most_held(const struct ps_range_max *held, uint32_t from, uint32_t to)
{
    return from < to ? ps_range_max_most(held, (struct ps_stretch){from, to - from}) : 0;
}

/*
 * Counts the bytes that the step's spans hold at each launch if nothing moves. A span counts from
 * the launch after its birth to the launch after its free.
 */
static void count_demand(struct work *w)
{
    const struct penstock_step *step = w->step;

    for (uint32_t i = 0; i < step->spans; i++) {
        const struct penstock_step_span *span = &step->span[i];
        if (span->born == PENSTOCK_NEVER) {
            hold(&w->device, 0, step->launches, (int64_t)span->bytes);
            continue;
        }
        uint32_t from = position_after(w, span->born), to = position_after(w, span->freed);
        /*
         * A span born and freed between the same two launches lives through none of them, or
         * through all.
         */
        uint32_t first = ps_ring_distance(span->born, step->launch[launch_at(w, from)].moment, step->moments);
        if (from < to || (from == to && first > ps_ring_distance(span->born, span->freed, step->moments))) {
            hold(&w->device, from, to + 1, (int64_t)span->bytes);
        } else {
            hold(&w->device, from, step->launches, (int64_t)span->bytes);
            hold(&w->device, 0, to + (from != to), (int64_t)span->bytes);
        }
    }
}

/* Orders the largest first; among equals the one needed last, which is idle longest. */
static int by_size(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    if (x->needed_by != y->needed_by)
        return x->needed_by > y->needed_by ? -1 : 1;
    return x->span < y->span ? -1 : x->span > y->span;
}

static int by_evict_after(const void *a, const void *b)
{
    const struct penstock_move *x = a, *y = b;

    if (x->evict_after != y->evict_after)
        return x->evict_after < y->evict_after ? -1 : 1;
    return x->span < y->span ? -1 : x->span > y->span;
}

static void choose(struct work *w, struct penstock_plan *plan)
{
    const struct penstock_step *step = w->step;
    int64_t budget = step->budget_bytes < INT64_MAX ? (int64_t)step->budget_bytes : INT64_MAX;
    int64_t slab = step->slab_bytes < INT64_MAX ? (int64_t)step->slab_bytes : INT64_MAX;

    if (!w->candidates)
        return;
    qsort(w->candidate, w->candidates, sizeof *w->candidate, by_size);
    for (uint32_t i = 0; i < w->candidates && plan->moves < plan->capacity; i++) {
        const struct candidate *c = &w->candidate[i];
        int64_t bytes = (int64_t)c->bytes;
        /*
         * The span is gone from the launch after the one that queues the D2H. It is back with the
         * launch after the one that begins its reload.
         */
        uint32_t gone = c->evict_after + 1, back = c->reload_from + 1;
        if (most_held(&w->device, gone, back) <= budget)
            continue;
        if (bytes > slab || most_held(&w->host, gone, c->needed_by + 1) > slab - bytes)
            continue;
        hold(&w->device, gone, back, -bytes);
        hold(&w->host, gone, c->needed_by + 1, bytes);
        plan->evicted_bytes += c->bytes;
        plan->move[plan->moves++] = (struct penstock_move){.span = c->span,
                                                           .evict_after = launch_at(w, c->evict_after),
                                                           .reload_from = launch_at(w, c->reload_from),
                                                           .needed_by = launch_at(w, c->needed_by)};
    }
    if (plan->moves)
        qsort(plan->move, plan->moves, sizeof *plan->move, by_evict_after);
}

/* ---- the policy ---- */

static size_t workspace_bytes(const struct penstock_step *step)
{
    return 2 * ps_range_max_bytes(step->launches) + (size_t)step->uses * sizeof(struct candidate) +
           (size_t)step->layers * sizeof(struct visit) + (size_t)step->launches * sizeof(uint32_t);
}

/* The arrays with the strictest alignment come first. */
static void lay_out(struct work *w, void *workspace)
{
    const struct penstock_step *step = w->step;
    char *at = workspace;

    memset(workspace, 0, workspace_bytes(step));
    ps_range_max_init(&w->device, step->launches, NULL, at);
    at += ps_range_max_bytes(step->launches);
    ps_range_max_init(&w->host, step->launches, NULL, at);
    at += ps_range_max_bytes(step->launches);
    w->candidate = (struct candidate *)(void *)at;
    at += (size_t)step->uses * sizeof *w->candidate;
    w->visit = (struct visit *)(void *)at;
    at += (size_t)step->layers * sizeof *w->visit;
    w->visit_of = (uint32_t *)(void *)at;
}

static int plan_layers(const struct penstock_step *step, const struct penstock_policy_options *options, void *workspace,
                       struct penstock_plan *plan)
{
    struct work w = {.step = step};
    uint32_t first = first_forward(step);

    lay_out(&w, workspace);
    plan->moves = 0;
    plan->plain_ns = plan->evicted_bytes = 0;
    for (uint32_t i = 0; i < step->launches; i++)
        plan->plain_ns += step->launch[i].duration_ns;
    plan->predicted_ns = plan->plain_ns;
    if (first < step->layers) {
        w.origin = step->layer[first].first_launch;
        list_stretches(&w, first);
        find_visits(&w);
        find_candidates(&w, options);
        reload_highest_before_backward(&w);
    }
    count_demand(&w);
    choose(&w, plan);
    plan->peak_bytes = (uint64_t)most_held(&w.device, 0, step->launches);
    return plan->peak_bytes > step->budget_bytes ? -ERANGE : 0;
}

const struct penstock_policy penstock_policy_layers = {
    .version = PENSTOCK_POLICY_VERSION,
    .name = "layers",
    .choose = penstock_lru_choose,
    .workspace_bytes = workspace_bytes,
    .plan = plan_layers,
};
