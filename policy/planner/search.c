/*
 * Chooses the plans to try. On a small step, it tries every choice of gaps. On others, it makes
 * choices by rules and changes the best of them one gap at a time. Then it delays reloads one at a
 * time. A reload that begins early can be in the way of one that is needed sooner. Work is bounded;
 * the bound grows with the step.
 */
#include "policy/planner/planner.h"

#include <string.h>

#define NS_PER_S 1e9
/* Rounds until the time settles. penstock_predict has the last word. */
#define ROUNDS 6
/*
 * A plan that is better by less than this doesn't count as better: the plans tried first move
 * least.
 */
#define SAME_NS 1.0
#define SAME_SHARE 2e-4
/*
 * Operations, as planner->work counts them; 40 to 75 take a microsecond. WORK_BASE leaves out the
 * other costs of a step of many moments.
 */
#define WORK_LEAST 3000000u
#define WORK_BASE 1900000u
#define WORK_PER_MOMENT 24u
/* All choices are tried if there are at most this many gaps. */
#define EXHAUSTIVE_GAPS 12
/* The key of a gap that is left out if the others are enough. */
#define KEY_LEFT_OUT (-PS_KEY_CHOSEN)

static bool has_work(const struct ps_planner *p)
{
    return p->work < p->work_limit;
}

/* Returns whether the best plan waits for nothing; no plan can be better. */
static bool is_perfect(const struct ps_planner *p, double plain)
{
    return p->best_met && p->best.round_ns <= plain + SAME_NS;
}

/*
 * Plays the current choice and delays, and keeps the plan if it is the best so far. Returns the
 * round's time in ns.
 */
static double try_way(struct ps_planner *p, bool met, struct ps_way way)
{
    ps_schedule(p, way);
    struct ps_outcome outcome = ps_playback_run(p->playback, p->move, p->moves, ROUNDS);
    p->work += 3 * (uint64_t)p->step->moments + 16 * (uint64_t)p->moves;
    if (p->any && (p->best_met > met ||
                   (p->best_met == met && outcome.round_ns >= p->best.round_ns * (1 - SAME_SHARE) - SAME_NS)))
        return outcome.round_ns;
    p->any = true;
    p->best_met = met;
    p->best = outcome;
    p->best_way = way;
    p->best_moves = p->moves;
    memcpy(p->best_move, p->move, p->moves * sizeof *p->move);
    memcpy(p->best_chosen, p->chosen, p->gaps);
    memcpy(p->best_delay, p->delay, p->gaps);
    return outcome.round_ns;
}

/*
 * Tries the current choice in several ways: all on a small step; else the two that are usually
 * best. Sets *best to the best way and returns its time in ns.
 */
static double try_choice(struct ps_planner *p, bool met, struct ps_way *best)
{
    bool small = p->gaps <= EXHAUSTIVE_GAPS;
    unsigned claimings = small ? PS_CLAIMINGS : PS_CLAIMING_IN_ORDER + 1, leavings = small ? PS_LEAVINGS : 1;
    double least = 0;

    for (unsigned i = 0; i < claimings * leavings; i++) {
        struct ps_way way = {(enum ps_claiming)(i % claimings), (enum ps_leaving)(i / claimings)};
        double time = try_way(p, met, way);
        if (i == 0 || time < least) {
            least = time;
            *best = way;
        }
    }
    return least;
}

static bool improves(struct ps_planner *p, bool met)
{
    double before = p->any ? p->best.round_ns : 0;
    bool met_before = p->any && p->best_met;
    struct ps_way way;

    try_choice(p, met, &way);
    return p->best.round_ns != before || p->best_met != met_before;
}

/* ---- rules ---- */

/*
 * Sets the keys by two weighted wishes. A gap should open early, so that its D2H is over early. It
 * should end late, so that its reload has time. Both count in shares of a round. Guarded spans are
 * put back by `guarded` rounds.
 */
static void rule_keys(struct ps_planner *p, double early, double late, double guarded)
{
    const struct penstock_step *step = p->step;
    double round = p->start_ns[step->launches] > 0 ? p->start_ns[step->launches] : 1;
    double origin = p->start_ns[p->launch_at[p->origin]];

    for (uint32_t i = 0; i < p->gaps; i++) {
        const struct ps_gap *gap = &p->gap[i];
        uint32_t end = (uint32_t)((gap->cover.from + (uint64_t)gap->cover.count) % step->moments);
        double opens = p->start_ns[gap->opened_by + 1];
        double idle = p->start_ns[p->launch_at[end]] - opens;
        double since = opens - origin;
        double bytes = (double)step->span[gap->span].bytes;
        double copies =
            bytes * NS_PER_S * (1.0 / (double)step->links.d2h_bytes_per_s + 1.0 / (double)step->links.h2d_bytes_per_s);
        if (idle < 0 || (idle == 0 && gap->cover.count + 1 == step->moments))
            idle += round;
        if (since < 0)
            since += round;
        /* The gap is open at the origin: it opened in the round before. */
        if (ps_ring_distance(p->origin, gap->cover.from, step->moments) + (uint64_t)gap->cover.count > step->moments)
            since -= round;
        p->key[i] = (late * (since + idle) - early * since) / round;
        if (step->span[gap->span].guarded)
            p->key[i] -= guarded;
        /* A gap shorter than its copies comes last. */
        if (gap->needed_by != PENSTOCK_NEVER && copies > idle)
            p->key[i] -= 10;
    }
}

static void try_rules(struct ps_planner *p, double plain)
{
    static const double rules[][2] = {{0, 1}, {1, 1}, {1, 0}, {1, 0.3}}, behind[] = {5, 0.5, 0};
    const size_t all = sizeof rules / sizeof *rules;
    size_t ways = 1, best = 0;

    for (uint32_t i = 0; i < p->gaps && ways == 1; i++)
        if (p->step->span[p->gap[i].span].guarded)
            ways = sizeof behind / sizeof *behind;
    for (size_t i = 0; i < ways * all && !is_perfect(p, plain) && (!p->any || has_work(p)); i++) {
        rule_keys(p, rules[i % all][0], rules[i % all][1], behind[i / all]);
        if (improves(p, ps_choose(p)))
            best = i;
    }
    rule_keys(p, rules[best % all][0], rules[best % all][1], behind[best / all]);
}

/* ---- small steps ---- */

static bool choice_meets_limits(struct ps_planner *p)
{
    const struct penstock_step *step = p->step;
    struct ps_stretch ring = {0, step->moments};

    ps_choice_to_room(p);
    if (ps_range_max_most(&p->room, ring) > 0)
        return false;
    if (!p->slab_binds)
        return true;
    memset(p->room_memory, 0, step->moments * sizeof(int64_t));
    ps_range_max_init(&p->slab, step->moments, p->room_memory, p->slab_memory);
    for (uint32_t i = 0; i < p->gaps; i++) {
        if (p->chosen[i])
            ps_range_max_add(&p->slab, ps_slab_stretch(p->gap[i].cover), (int64_t)step->span[p->gap[i].span].bytes);
    }
    return ps_range_max_most(&p->slab, ring) <= (int64_t)step->slab_bytes;
}

/*
 * Delays the reloads of the current choice, one at a time and in steps of `by`, as long as that
 * helps. Each change is played in this way, or in every way (NULL).
 */
static void change_delays(struct ps_planner *p, bool met, const struct ps_way *way, double time, uint8_t by)
{
    struct ps_way any;

    uint32_t since_better = 0;

    for (uint32_t i = 0; since_better < p->gaps && has_work(p); i = i + 1 < p->gaps ? i + 1 : 0) {
        since_better++;
        if (!p->chosen[i] || p->gap[i].needed_by == PENSTOCK_NEVER)
            continue;
        uint8_t kept = p->delay[i];
        for (uint8_t delay = 0; delay <= PS_DELAY_MAX && has_work(p); delay = (uint8_t)(delay + by)) {
            p->delay[i] = delay;
            double changed = way ? try_way(p, met, *way) : try_choice(p, met, &any);
            if (changed < time - SAME_NS) {
                since_better = 0;
                kept = delay;
                time = changed;
            }
        }
        p->delay[i] = kept;
    }
}

#define GRID_RELOADS 3

/* Delays a few reloads together too, because each delay may be useless without the others. */
static void try_delay_grid(struct ps_planner *p, struct ps_way way)
{
    uint32_t gap[GRID_RELOADS], count = 0, levels = 5, all = 1;

    for (uint32_t i = 0; i < p->gaps; i++) {
        if (!p->chosen[i] || p->gap[i].needed_by == PENSTOCK_NEVER)
            continue;
        if (count == GRID_RELOADS)
            return;
        gap[count++] = i;
        all *= levels;
    }
    for (uint32_t n = 0; n < all && has_work(p); n++) {
        for (uint32_t i = 0, rest = n; i < count; i++, rest /= levels)
            p->delay[gap[i]] = (uint8_t)(rest % levels * (PS_DELAY_MAX / (levels - 1)));
        try_way(p, true, way);
    }
}

/*
 * Tries all choices. The first passes use one delay for all reloads. The next ones try delays for
 * the better choices, and finer delays for the best ones.
 */
static void try_all_choices(struct ps_planner *p, double plain)
{
    static const struct {
        /* A choice whose time is this many times the best one's, or more, is passed over. */
        double nearly;
        uint8_t by; /* the step between delays; 0: none */
        bool all_ways;
        uint8_t start; /* the delays to begin with */
    } passes[] = {
        {0, 0, true, 0},
        {0, 0, true, PS_DELAY_MAX},
        {1.6, PS_DELAY_MAX / 4, false, 0},
        {1.3, PS_DELAY_MAX / 4, true, 0},
        {1.1, 1, false, PS_DELAY_MAX},
        {1.1, 1, true, 0},
        {1.3, 0, true, 0},
    };

    for (size_t pass = 0; pass < sizeof passes / sizeof *passes; pass++) {
        for (uint32_t set = 0; set < 1u << p->gaps && !is_perfect(p, plain) && has_work(p); set++) {
            struct ps_way way;
            for (uint32_t i = 0; i < p->gaps; i++)
                p->chosen[i] = set >> i & 1;
            if (!choice_meets_limits(p))
                continue;
            memset(p->delay, passes[pass].start, p->gaps);
            double time = try_choice(p, true, &way);
            if (time >= p->best.round_ns * passes[pass].nearly)
                continue;
            if (pass + 1 == sizeof passes / sizeof *passes)
                try_delay_grid(p, way);
            else
                change_delays(p, true, passes[pass].all_ways ? NULL : &way, time, passes[pass].by);
        }
    }
}

/* ---- changes to the best plan ---- */

/* Goes round the gaps and forces each in or out, until none helps. */
static void change_choices(struct ps_planner *p)
{
    uint32_t since_better = 0;

    for (uint32_t i = 0; since_better < p->gaps && has_work(p); i = i + 1 < p->gaps ? i + 1 : 0) {
        double key = p->key[i];
        p->key[i] = p->best_chosen[i] ? KEY_LEFT_OUT : PS_KEY_CHOSEN;
        since_better++;
        if (improves(p, ps_choose(p)))
            since_better = 0;
        else
            p->key[i] = key;
    }
}

void ps_search(struct ps_planner *p)
{
    p->work_limit = WORK_BASE + WORK_PER_MOMENT * (uint64_t)p->step->moments;
    if (p->work_limit < WORK_LEAST)
        p->work_limit = WORK_LEAST;
    double plain = p->start_ns[p->step->launches];

    memset(p->delay, 0, p->gaps);
    try_rules(p, plain);
    if (is_perfect(p, plain))
        return;
    if (p->gaps <= EXHAUSTIVE_GAPS) {
        try_all_choices(p, plain);
        return;
    }
    change_choices(p);
    memcpy(p->chosen, p->best_chosen, p->gaps);
    memcpy(p->delay, p->best_delay, p->gaps);
    struct ps_way best_way = p->best_way;
    if (!is_perfect(p, plain))
        change_delays(p, p->best_met, &best_way, p->best.round_ns, PS_DELAY_MAX / 4);
}
