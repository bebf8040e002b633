/*
 * The planner, compared with brute force. On small steps, each set of gaps is tried with many ways
 * to reload, and played through. Only plans that keep the budget at any speed of transfers are
 * compared. In them the spans that are not evicted, by position, fit at each moment. A plan that
 * fits only because some copy is late does not count.
 */
#include <errno.h>

#include "expect.h"
#include "small_steps.h"

#define CASES 2600
#define GAPS_MAX 10

static _Alignas(max_align_t) char workspace[1 << 20];

static void *workspace_for(const struct penstock_step *step)
{
    EXPECT(penstock_policy_plan.workspace_bytes(step) <= sizeof workspace);
    EXPECT(penstock_predict_workspace_bytes(step) <= sizeof workspace);
    return workspace;
}

/* Finds the bytes held at each moment if each transfer is over as soon as it is allowed. */
static void held_by_position(const struct small_step *s, const struct penstock_plan *plan, int64_t *held)
{
    memcpy(held, s->demand, s->step.moments * sizeof *held);
    for (uint32_t i = 0; i < plan->moves; i++) {
        const struct penstock_move *move = &plan->move[i];
        const struct penstock_step_span *span = &s->span[move->span];
        uint32_t end = move->needed_by == PENSTOCK_NEVER ? span->freed : s->launch[move->reload_from].moment;
        uint32_t m = s->launch[move->evict_after].moment;
        do {
            m = (m + 1) % s->step.moments;
            held[m] -= m == end ? 0 : (int64_t)span->bytes;
        } while (m != end);
    }
}

static bool keeps_budget(const struct small_step *s, const struct penstock_plan *plan)
{
    int64_t held[SMALL_MOMENTS];

    held_by_position(s, plan, held);
    for (uint32_t m = 0; m < s->step.moments; m++) {
        if (held[m] > (int64_t)s->step.budget_bytes)
            return false;
    }
    return true;
}

static void sort_moves(struct penstock_plan *plan)
{
    for (uint32_t i = 1; i < plan->moves; i++) {
        for (uint32_t at = i; at > 0 && plan->move[at - 1].evict_after > plan->move[at].evict_after; at--) {
            struct penstock_move held = plan->move[at];
            plan->move[at] = plan->move[at - 1];
            plan->move[at - 1] = held;
        }
    }
}

struct best {
    bool any, moves_nothing;
    uint64_t ns;
};

static void judge(const struct small_step *s, struct penstock_plan *plan, struct best *best)
{
    const char *why = "none";

    if (!keeps_budget(s, plan))
        return;
    int rc = penstock_predict(&s->step, workspace, plan, &why);
    if (rc != 0) {
        EXPECT_TEXT("the slab can't hold all that is evicted at the same time", why);
        return;
    }
    EXPECT(plan->peak_bytes <= s->step.budget_bytes);
    if (!best->any || plan->predicted_ns < best->ns)
        *best = (struct best){true, plan->moves == 0, plan->predicted_ns};
}

static uint32_t later(const struct small_step *s, uint32_t launch, uint32_t by)
{
    return (launch + by) % s->step.launches;
}

/*
 * Returns the number of launches from which this move's reload may be allowed: 1 to this many after
 * evict_after.
 */
static uint32_t reload_choices(const struct small_step *s, const struct penstock_move *move)
{
    uint32_t length = ps_ring_distance(move->evict_after, move->needed_by, s->step.launches);

    return move->needed_by == PENSTOCK_NEVER ? 1 : length == 0 ? s->step.launches : length;
}

static void set_choice(const struct small_step *s, struct penstock_move *move, uint32_t choice)
{
    move->reload_from = move->needed_by == PENSTOCK_NEVER ? PENSTOCK_NEVER : later(s, move->evict_after, 1 + choice);
}

#define COMBINATIONS_MAX 600

/*
 * Tries all combinations if they are few. Else each reload is as early or as late as the others
 * leave room, in several orders.
 */
static void try_reloads(const struct small_step *s, struct penstock_plan *plan, struct best *best)
{
    uint64_t combinations = 1;

    for (uint32_t i = 0; i < plan->moves && combinations <= COMBINATIONS_MAX; i++)
        combinations *= reload_choices(s, &plan->move[i]);
    for (uint64_t c = 0; combinations <= COMBINATIONS_MAX && c < combinations; c++) {
        uint64_t rest = c;
        for (uint32_t i = 0; i < plan->moves; i++) {
            set_choice(s, &plan->move[i], (uint32_t)(rest % reload_choices(s, &plan->move[i])));
            rest /= reload_choices(s, &plan->move[i]);
        }
        judge(s, plan, best);
    }
    if (combinations <= COMBINATIONS_MAX)
        return;
    for (uint32_t first = 0; first < plan->moves; first++) {
        for (uint32_t i = 0; i < plan->moves; i++)
            set_choice(s, &plan->move[i], reload_choices(s, &plan->move[i]) - 1);
        judge(s, plan, best);
        for (uint32_t n = 0; n < plan->moves; n++) {
            struct penstock_move *move = &plan->move[(first + n) % plan->moves];
            for (uint32_t choice = 0; choice < reload_choices(s, move); choice++) {
                set_choice(s, move, choice);
                if (keeps_budget(s, plan))
                    break;
            }
            judge(s, plan, best);
        }
    }
}

static struct best brute_force(const struct small_step *s, uint32_t *gaps)
{
    struct penstock_move all[SMALL_USES], move[SMALL_USES];
    struct penstock_plan plan = {.move = move, .capacity = SMALL_USES};
    struct best best = {0};
    uint32_t count = 0;

    for (uint32_t i = 0; i < s->step.spans; i++) {
        for (uint32_t u = 0; u < s->span[i].uses && !s->span[i].fixed; u++) {
            struct ps_gap gap = ps_gap_after(&s->step, i, s->span[i].first_use + u);
            if (gap.cover.count > 0)
                all[count++] = (struct penstock_move){i, gap.opened_by, PENSTOCK_NEVER, gap.needed_by, 0};
        }
    }
    *gaps = count;
    for (uint32_t set = 0; set < 1u << count; set++) {
        plan.moves = 0;
        for (uint32_t i = 0; i < count; i++) {
            if (set >> i & 1)
                move[plan.moves++] = all[i];
        }
        /* Reloads as late as possible: if that doesn't keep the budget, no plan does. */
        sort_moves(&plan);
        for (uint32_t i = 0; i < plan.moves; i++)
            set_choice(s, &move[i], reload_choices(s, &move[i]) - 1);
        if (keeps_budget(s, &plan)) {
            judge(s, &plan, &best);
            try_reloads(s, &plan, &best);
        }
    }
    return best;
}

static void test_against_brute_force(uint64_t from, uint64_t cases)
{
    unsigned planned = 0, moved = 0, impossible = 0, stalled = 0;
    double worst = 1;

    for (uint64_t seed = from; seed < from + cases; seed++) {
        static struct small_step s;
        struct penstock_move move[SMALL_USES];
        struct penstock_plan plan = {.move = move, .capacity = SMALL_USES};
        uint32_t gaps;

        small_step_make(&s, seed, GAPS_MAX);
        int rc = penstock_policy_plan.plan(&s.step, NULL, workspace_for(&s.step), &plan);
        struct best best = brute_force(&s, &gaps);
        unsigned failed_before = expect_failed;
        if (!best.any) {
            impossible++;
            EXPECT_INT(-ERANGE, rc);
        } else if (EXPECT_INT(0, rc)) {
            planned++;
            moved += !best.moves_nothing;
            stalled += best.ns > plan.plain_ns;
            EXPECT(keeps_budget(&s, &plan));
            EXPECT(plan.peak_bytes <= s.step.budget_bytes);
            EXPECT(plan.predicted_ns <= best.ns + best.ns / 50);
            if (best.moves_nothing)
                EXPECT_U64(0, plan.moves);
            if (best.ns > 0 && (double)plan.predicted_ns / (double)best.ns > worst)
                worst = (double)plan.predicted_ns / (double)best.ns;
            /* The same input gives the same plan. */
            struct penstock_move again_move[SMALL_USES];
            struct penstock_plan again = {.move = again_move, .capacity = SMALL_USES};
            memset(workspace, (int)(seed & 0xff), sizeof workspace);
            penstock_policy_plan.plan(&s.step, NULL, workspace, &again);
            EXPECT_U64(plan.moves, again.moves);
            EXPECT(memcmp(move, again_move, plan.moves * sizeof *move) == 0);
        }
        if (expect_failed > failed_before)
            fprintf(stderr, "  ... seed %" PRIu64 ": %u gaps, planned %" PRIu64 " ns, best %" PRIu64 " ns\n", seed,
                    gaps, plan.predicted_ns, best.ns);
    }
    printf("%u planned (%u must move, %u can't but wait), %u impossible; at worst %.4f of the best\n", planned, moved,
           stalled, impossible, worst);
    EXPECT(cases < CASES ||
           (planned * 2 > cases && moved * 4 > cases && stalled * 8 > cases && impossible * 50 > cases));
}

/* test_plan [SEED [CASES]] continues after the fixed cases. */
int main(int argc, char **argv)
{
    uint64_t from = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;

    test_against_brute_force(from, argc > 2 ? strtoull(argv[2], NULL, 0) : CASES);
    return expect_status();
}
