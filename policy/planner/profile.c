#include "policy/planner/profile.h"

#include <string.h>

#include "policy/planner/gaps.h"
#include "policy/planner/playback.h"

/* A gap shorter than the step's time divided by this is left out: it could not be seen. */
#define SHORTEST_GAP 200u

/* The times of a move's events in the last round, by enum ps_played, since the round's begin. */
struct times {
    uint64_t at[PS_PLAYED_BACK + 1];
};

struct maker {
    const struct penstock_step *step;
    struct ps_profile *profile;
    int64_t *demand;             /* by moment */
    struct penstock_move *move;  /* the plan's, copied */
    struct times *times;         /* by move */
    uint32_t *first_move, *next; /* by span: its moves; PENSTOCK_NEVER ends the list */
    uint64_t *idle;              /* by span: the launches of its longest gap */
    void *playback;
    double begun;
};

static void *take(char **memory, size_t bytes)
{
    void *taken = *memory;

    *memory += (bytes + 15) / 16 * 16;
    return taken;
}

static size_t lay_out(const struct penstock_step *step, const struct penstock_plan *plan, struct maker *m, void *memory)
{
    char *start = memory, *at = start;

    m->demand = take(&at, step->moments * sizeof *m->demand);
    m->move = take(&at, (plan->moves + 1u) * sizeof *m->move);
    m->times = take(&at, (plan->moves + 1u) * sizeof *m->times);
    m->next = take(&at, (plan->moves + 1u) * sizeof *m->next);
    m->first_move = take(&at, (step->spans + 1u) * sizeof *m->first_move);
    m->idle = take(&at, (step->spans + 1u) * sizeof *m->idle);
    m->playback = take(&at, ps_playback_bytes(step));
    return (size_t)(at - start);
}

size_t ps_profile_workspace_bytes(const struct penstock_step *step, const struct penstock_plan *plan)
{
    static max_align_t nowhere;
    struct maker m;

    return lay_out(step, plan, &m, &nowhere);
}

/* ---- the playback's calls; each round overwrites the last one's figures ---- */

static uint64_t since(const struct maker *m, double at)
{
    return at > m->begun ? (uint64_t)(at - m->begun) : 0;
}

static uint32_t bin_of(const struct maker *m, uint64_t ns)
{
    uint64_t round = m->profile->round_ns ? m->profile->round_ns : 1;
    uint64_t bin = ns / round ? PS_PROFILE_BINS - 1 : (uint64_t)((double)ns / (double)round * PS_PROFILE_BINS);

    return bin < PS_PROFILE_BINS ? (uint32_t)bin : PS_PROFILE_BINS - 1;
}

static void round_begins(void *ctx, double at)
{
    struct maker *m = ctx;

    m->begun = at;
    memset(m->profile->bin, 0, sizeof m->profile->bin);
}

static void launch_begins(void *ctx, uint32_t launch, double at)
{
    struct maker *m = ctx;

    m->profile->launch[launch].at_ns = since(m, at);
}

static void passed(void *ctx, double from, double to, uint32_t moment, int64_t held, double out_bytes, double in_bytes)
{
    struct maker *m = ctx;
    uint64_t start = since(m, from), end = since(m, to);
    uint32_t last = bin_of(m, end);
    uint64_t demand = (uint64_t)m->demand[moment], holds = held > 0 ? (uint64_t)held : 0;
    double length = to - from, width = (double)m->profile->round_ns / PS_PROFILE_BINS;

    for (uint32_t i = bin_of(m, start); i <= last; i++) {
        struct ps_profile_bin *bin = &m->profile->bin[i];
        double begins = m->begun + i * width, ends = i + 1 < PS_PROFILE_BINS ? begins + width : to;
        double within = (to < ends ? to : ends) - (from > begins ? from : begins);
        double share = length > 0 && within > 0 ? within / length : 0;
        bin->demand_bytes = demand > bin->demand_bytes ? demand : bin->demand_bytes;
        bin->held_bytes = holds > bin->held_bytes ? holds : bin->held_bytes;
        bin->out_bytes += (uint64_t)(out_bytes * share + 0.5);
        bin->in_bytes += (uint64_t)(in_bytes * share + 0.5);
    }
}

static void moved(void *ctx, enum ps_played what, uint32_t move, double at)
{
    struct maker *m = ctx;

    m->times[move].at[what] = since(m, at);
}

/* ---- spans ---- */

static uint64_t time_of(const struct maker *m, uint32_t moment)
{
    uint32_t launch = ps_launch_from(m->step, moment);

    return launch < m->step->launches ? m->profile->launch[launch].at_ns : m->profile->round_ns;
}

/* Returns the number of launches of the gap that a use opens, across the ring's end if need be. */
static uint32_t gap_launches(const struct penstock_step *step, const struct ps_gap *gap)
{
    uint32_t end = gap->needed_by;

    if (end == PENSTOCK_NEVER)
        end = ps_launch_from(step, step->span[gap->span].freed) % step->launches;
    else if (end == gap->opened_by)
        return step->launches;
    return ps_ring_distance(gap->opened_by, end, step->launches);
}

static uint64_t longest_gap(const struct penstock_step *step, uint32_t span)
{
    uint64_t longest = 0;

    for (uint32_t i = 0; i < step->span[span].uses; i++) {
        struct ps_gap gap = ps_gap_after(step, span, step->span[span].first_use + i);
        uint64_t launches = gap_launches(step, &gap);
        longest = launches > longest ? launches : longest;
    }
    return longest;
}

/* Returns whether span `a` is shown in preference to `b`. */
static bool comes_first(const struct maker *m, uint32_t a, uint32_t b)
{
    const struct penstock_step_span *one = &m->step->span[a], *other = &m->step->span[b];
    bool moves = m->first_move[a] != PENSTOCK_NEVER, other_moves = m->first_move[b] != PENSTOCK_NEVER;

    if (one->bytes != other->bytes)
        return one->bytes > other->bytes;
    if (moves != other_moves)
        return moves;
    return m->idle[a] != m->idle[b] ? m->idle[a] > m->idle[b] : a < b;
}

static void choose_spans(struct maker *m)
{
    struct ps_profile *profile = m->profile;

    profile->spans = 0;
    for (uint32_t i = 0; i < m->step->spans; i++) {
        uint32_t at = profile->spans;
        while (at > 0 && comes_first(m, i, profile->span[at - 1].span))
            at--;
        if (at == PS_PROFILE_SPANS)
            continue;
        if (profile->spans < PS_PROFILE_SPANS)
            profile->spans++;
        for (uint32_t k = profile->spans - 1; k > at; k--)
            profile->span[k].span = profile->span[k - 1].span;
        profile->span[at].span = i;
    }
}

/*
 * Returns the gap's weight: its length, or UINT64_MAX if the span leaves in it. If there are too
 * many gaps, the one with the least weight is dropped.
 */
static uint64_t weight(const struct maker *m, const struct ps_profile_gap *gap)
{
    uint64_t length =
        gap->to_ns >= gap->from_ns ? gap->to_ns - gap->from_ns : m->profile->round_ns - gap->from_ns + gap->to_ns;

    return gap->leaves_ns != PS_PROFILE_NEVER ? UINT64_MAX : length;
}

static void add_gap(const struct maker *m, struct ps_profile_span *s, struct ps_profile_gap gap)
{
    if (weight(m, &gap) < m->profile->round_ns / SHORTEST_GAP)
        return;
    if (s->gaps == PS_PROFILE_GAPS) {
        uint32_t least = 0;
        for (uint32_t i = 1; i < s->gaps; i++)
            if (weight(m, &s->gap[i]) < weight(m, &s->gap[least]))
                least = i;
        if (weight(m, &gap) <= weight(m, &s->gap[least]))
            return;
        memmove(&s->gap[least], &s->gap[least + 1], (s->gaps - least - 1) * sizeof *s->gap);
        s->gaps--;
    }
    s->gap[s->gaps++] = gap;
}

/* Returns the gap that the use opens, with the times of its move if it has one. */
static struct ps_profile_gap gap_of(const struct maker *m, uint32_t span, uint32_t use)
{
    const struct penstock_step *step = m->step;
    struct ps_gap in_step = ps_gap_after(step, span, use), other;
    struct ps_profile_gap gap = {.leaves_ns = PS_PROFILE_NEVER,
                                 .gone_ns = PS_PROFILE_NEVER,
                                 .comes_ns = PS_PROFILE_NEVER,
                                 .back_ns = PS_PROFILE_NEVER};
    const struct penstock_launch *opens = &step->launch[in_step.opened_by];

    gap.from_ns = m->profile->launch[in_step.opened_by].at_ns + opens->duration_ns;
    gap.to_ns = in_step.needed_by == PENSTOCK_NEVER ? time_of(m, step->span[span].freed)
                                                    : m->profile->launch[in_step.needed_by].at_ns;
    /*
     * Times are sums, rounded down. A launch that follows at once may seem to begin before the
     * previous one ends.
     */
    uint32_t end =
        in_step.needed_by == PENSTOCK_NEVER ? ps_launch_from(step, step->span[span].freed) : in_step.needed_by;
    if (end > in_step.opened_by && gap.to_ns < gap.from_ns)
        gap.to_ns = gap.from_ns;
    for (uint32_t i = m->first_move[span]; i != PENSTOCK_NEVER; i = m->next[i]) {
        if (!ps_gap_at(step, span, m->move[i].evict_after, &other) || other.use != use)
            continue;
        gap.leaves_ns = m->times[i].at[PS_PLAYED_LEAVES];
        gap.gone_ns = m->times[i].at[PS_PLAYED_GONE];
        if (m->move[i].needed_by != PENSTOCK_NEVER) {
            gap.comes_ns = m->times[i].at[PS_PLAYED_COMES];
            gap.back_ns = m->times[i].at[PS_PLAYED_BACK];
        }
    }
    return gap;
}

static void fill_span(const struct maker *m, struct ps_profile_span *s)
{
    const struct penstock_step_span *span = &m->step->span[s->span];
    uint32_t launches = m->step->launches;

    s->uses = span->uses;
    s->moves = s->gaps = 0;
    s->born_ns = s->freed_ns = PS_PROFILE_NEVER;
    s->born_layer = PENSTOCK_NEVER;
    if (span->born != PENSTOCK_NEVER) {
        s->born_ns = time_of(m, span->born);
        s->freed_ns = time_of(m, span->freed);
        s->born_layer = m->step->launch[ps_launch_from(m->step, span->born) % launches].layer;
    }
    for (uint32_t i = m->first_move[s->span]; i != PENSTOCK_NEVER; i = m->next[i])
        s->moves++;
    for (uint32_t i = 0; i < span->uses; i++)
        add_gap(m, s, gap_of(m, s->span, span->first_use + i));
}

/* ---- the whole profile ---- */

static void list_moves(const struct maker *m, uint32_t moves)
{
    struct ps_profile_launch *launch = m->profile->launch;

    for (uint32_t i = 0; i < m->step->spans; i++)
        m->first_move[i] = PENSTOCK_NEVER;
    for (uint32_t i = moves; i-- > 0;) {
        uint32_t span = m->move[i].span;
        m->next[i] = m->first_move[span];
        m->first_move[span] = i;
        if (m->move[i].needed_by == PENSTOCK_NEVER)
            continue;
        struct ps_profile_launch *needs = &launch[m->move[i].needed_by];
        needs->reloads_bytes += m->step->span[span].bytes;
        if (needs->largest == PENSTOCK_NEVER || m->step->span[span].bytes > m->step->span[needs->largest].bytes)
            needs->largest = span;
    }
}

void ps_profile_make(const struct penstock_step *step, const struct penstock_plan *plan, void *workspace,
                     struct ps_profile *profile)
{
    struct maker m = {.step = step, .profile = profile};
    const struct ps_playback_watch watch = {
        .round = round_begins, .launch = launch_begins, .passed = passed, .moved = moved, .ctx = &m};

    lay_out(step, plan, &m, workspace);
    for (uint32_t l = 0; l < step->launches; l++)
        profile->launch[l] = (struct ps_profile_launch){.largest = PENSTOCK_NEVER};
    memcpy(m.move, plan->move, plan->moves * sizeof *m.move);
    memset(m.times, 0, plan->moves * sizeof *m.times);
    profile->round_ns = plan->predicted_ns - plan->mapping_ns;
    ps_demand(step, m.demand);
    struct ps_playback *playback = ps_playback_init(step, m.demand, m.playback);
    ps_playback_show(playback, &watch);
    ps_playback_run(playback, m.move, plan->moves, PS_PREDICT_ROUNDS);
    list_moves(&m, plan->moves);
    for (uint32_t i = 0; i < step->spans; i++)
        m.idle[i] = longest_gap(step, i);
    choose_spans(&m);
    for (uint32_t i = 0; i < profile->spans; i++)
        fill_span(&m, &profile->span[i]);
}
