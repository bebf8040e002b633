/*
 * An example of a policy of one's own: spans leave in their longest gaps first, until the step fits
 * the budget.
 *
 *     cc -shared -fPIC -Iinclude -o policy_example.so tests/samples/policy_example.c
 *     PENSTOCK_POLICY=./policy_example.so penstock run --budget 48GiB -- python train.py
 *
 * It reloads just in time for a link that does one copy at a time. Unlike the policy `plan`, it
 * does not see that several reloads queue up behind each other.
 */
#include <penstock/policy.h>

#include <errno.h>

/* The start of each launch, and the bytes held then, one entry for each launch. */
struct tables {
    uint64_t *start_ns; /* one entry more: the end of the step */
    uint64_t *held;
};

static struct tables tables_in(const struct penstock_step *step, void *workspace)
{
    uint64_t *start_ns = workspace;

    return (struct tables){start_ns, start_ns + step->launches + 1};
}

static size_t workspace_bytes(const struct penstock_step *step)
{
    return (2 * (size_t)step->launches + 1) * sizeof(uint64_t);
}

static uint64_t gap_ns(const struct tables *t, uint32_t from, uint32_t to)
{
    return t->start_ns[to] - t->start_ns[from + 1];
}

static uint64_t copy_ns(uint64_t bytes, uint64_t bytes_per_s)
{
    return bytes_per_s ? (uint64_t)((double)bytes / (double)bytes_per_s * 1e9) : 0;
}

static void fill_tables(const struct penstock_step *step, struct tables *t)
{
    t->start_ns[0] = 0;
    for (uint32_t l = 0; l < step->launches; l++) {
        t->start_ns[l + 1] = t->start_ns[l] + step->launch[l].duration_ns;
        t->held[l] = 0;
        for (uint32_t i = 0; i < step->spans; i++) {
            const struct penstock_step_span *span = &step->span[i];
            uint32_t now = step->launch[l].moment;
            bool wraps = span->freed < span->born;
            if (span->born == PENSTOCK_NEVER ||
                (wraps ? now >= span->born || now <= span->freed : now >= span->born && now <= span->freed))
                t->held[l] += span->bytes;
        }
    }
}

/*
 * Finds the gap of `span` after its k-th use. Returns false if no gap is inside the step, or if a
 * new span begins in it.
 */
static bool gap_after(const struct penstock_step *step, const struct penstock_step_span *span, uint32_t k,
                      uint32_t *from, uint32_t *to)
{
    if (span->fixed || k + 1 >= span->uses)
        return false;
    *from = step->use[span->first_use + k];
    *to = step->use[span->first_use + k + 1];
    /* The gap needs a launch in which the D2H ends, and one with which the H2D begins. */
    if (*to - *from < 3)
        return false;
    return span->born == PENSTOCK_NEVER || span->freed <= step->launch[*from].moment ||
           span->freed > step->launch[*to].moment;
}

/* Returns the launch at which a reload begins in time for `to`. */
static uint32_t reload_point(const struct penstock_step *step, const struct tables *t, uint32_t from, uint32_t to,
                             uint64_t bytes)
{
    uint64_t needs = copy_ns(bytes, step->links.h2d_bytes_per_s_both) + step->links.reload_overhead_ns;
    uint32_t launch = to - 1;

    while (launch > from + 1 && t->start_ns[to] - t->start_ns[launch] < needs)
        launch--;
    return launch;
}

static bool is_taken(const struct penstock_plan *plan, uint32_t span, uint32_t from)
{
    for (uint32_t i = 0; i < plan->moves; i++)
        if (plan->move[i].span == span && plan->move[i].evict_after == from)
            return true;
    return false;
}

/* Finds the longest remaining gap that holds a launch over the budget. */
static bool longest_gap(const struct penstock_step *step, const struct tables *t, const struct penstock_plan *plan,
                        struct penstock_move *out)
{
    uint64_t longest = 0;

    for (uint32_t i = 0; i < step->spans; i++) {
        for (uint32_t k = 0; k < step->span[i].uses; k++) {
            uint32_t from, to;
            bool helps = false;
            if (!gap_after(step, &step->span[i], k, &from, &to) || gap_ns(t, from, to) <= longest ||
                is_taken(plan, i, from))
                continue;
            uint32_t reload_from = reload_point(step, t, from, to, step->span[i].bytes);
            for (uint32_t l = from + 1; l <= reload_from && !helps; l++)
                helps = t->held[l] > step->budget_bytes;
            if (!helps)
                continue;
            longest = gap_ns(t, from, to);
            *out = (struct penstock_move){.span = i, .evict_after = from, .reload_from = reload_from, .needed_by = to};
        }
    }
    return longest > 0;
}

/* Keeps the moves in the order of their evictions. */
static void insert(struct penstock_plan *plan, struct penstock_move move)
{
    uint32_t at = plan->moves++;

    for (; at > 0 && plan->move[at - 1].evict_after > move.evict_after; at--)
        plan->move[at] = plan->move[at - 1];
    plan->move[at] = move;
}

static int plan_longest_gaps(const struct penstock_step *step, const struct penstock_policy_options *options,
                             void *workspace, struct penstock_plan *plan)
{
    struct tables t = tables_in(step, workspace);
    struct penstock_move move;
    uint64_t on_host = 0;

    (void)options;
    fill_tables(step, &t);
    plan->moves = 0;
    plan->evicted_bytes = 0;
    plan->plain_ns = plan->predicted_ns = t.start_ns[step->launches];
    while (plan->moves < plan->capacity && longest_gap(step, &t, plan, &move)) {
        uint64_t bytes = step->span[move.span].bytes;
        if (on_host + bytes > step->slab_bytes)
            break;
        on_host += bytes;
        plan->evicted_bytes += bytes;
        for (uint32_t l = move.evict_after + 1; l <= move.reload_from; l++)
            t.held[l] -= bytes;
        insert(plan, move);
    }
    plan->peak_bytes = 0;
    for (uint32_t l = 0; l < step->launches; l++)
        if (t.held[l] > plan->peak_bytes)
            plan->peak_bytes = t.held[l];
    return plan->peak_bytes > step->budget_bytes ? -ERANGE : 0;
}

/* Without a plan, the largest candidates leave first. */
static size_t choose_largest(const struct penstock_candidate *candidates, size_t n, uint64_t need_bytes, size_t *chosen)
{
    size_t count = 0;

    for (uint64_t got = 0; got < need_bytes && count < n; count++) {
        size_t largest = n;
        for (size_t i = 0; i < n; i++) {
            bool taken = false;
            for (size_t k = 0; k < count && !taken; k++)
                taken = chosen[k] == i;
            if (!taken && (largest == n || candidates[i].bytes > candidates[largest].bytes))
                largest = i;
        }
        chosen[count] = largest;
        got += candidates[largest].bytes;
    }
    return count;
}

__attribute__((visibility("default"))) const struct penstock_policy *penstock_policy(void);
const struct penstock_policy *penstock_policy(void)
{
    static const struct penstock_policy longest_gaps = {
        .version = PENSTOCK_POLICY_VERSION,
        .name = "longest gaps",
        .choose = choose_largest,
        .workspace_bytes = workspace_bytes,
        .plan = plan_longest_gaps,
    };

    return &longest_gaps;
}
