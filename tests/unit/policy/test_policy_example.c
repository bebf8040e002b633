/*
 * The example of an external policy (tests/samples/policy_example.c): it is valid, and does what it
 * says.
 */
#include "tests/samples/policy_example.c"

#include "expect.h"

#define LAUNCHES 20

static void test_plan(void)
{
    static struct penstock_launch launch[LAUNCHES];
    static const uint32_t use[] = {0, 15, 1, 19, 2, 5, 3, 4};
    struct penstock_layer layer = {.number = PENSTOCK_NEVER};
    struct penstock_step_span span[] = {
        {.bytes = 100, .born = PENSTOCK_NEVER, .freed = PENSTOCK_NEVER, .first_use = 0, .uses = 2}, /* a gap of 15 */
        {.bytes = 100, .born = PENSTOCK_NEVER, .freed = PENSTOCK_NEVER, .first_use = 2, .uses = 2}, /* of 18 */
        {.bytes = 100, .born = PENSTOCK_NEVER, .freed = PENSTOCK_NEVER, .first_use = 4, .uses = 2}, /* of 3 */
        {.bytes = 100, .born = PENSTOCK_NEVER, .freed = PENSTOCK_NEVER, .first_use = 6, .uses = 2}, /* none */
    };
    struct penstock_step step = {.moments = LAUNCHES,
                                 .launches = LAUNCHES,
                                 .spans = 4,
                                 .layers = 1,
                                 .uses = 8,
                                 .launch = launch,
                                 .span = span,
                                 .use = use,
                                 .layer = &layer,
                                 .links = {.h2d_bytes_per_s_both = 50000000, .reload_overhead_ns = 500},
                                 .slab_bytes = 1000};
    struct penstock_move moves[8];
    struct penstock_plan plan = {.move = moves, .capacity = 8};
    const struct penstock_policy *policy = penstock_policy();
    uint64_t workspace[2 * LAUNCHES + 1];

    for (uint32_t i = 0; i < LAUNCHES; i++)
        launch[i] = (struct penstock_launch){.duration_ns = 1000, .moment = i};
    EXPECT_U64(PENSTOCK_POLICY_VERSION, policy->version);
    EXPECT_U64(sizeof workspace, policy->workspace_bytes(&step));

    step.budget_bytes = 400;
    EXPECT_INT(0, policy->plan(&step, NULL, workspace, &plan));
    EXPECT_U64(0, plan.moves);
    EXPECT_U64(LAUNCHES * 1000, plan.plain_ns);
    /*
     * Launch 0 holds all four, whatever is evicted. From launch 1 on, room must be made. The
     * longest gap comes first, in time for its end.
     */
    step.budget_bytes = 300;
    EXPECT_INT(-ERANGE, policy->plan(&step, NULL, workspace, &plan));
    EXPECT_U64(400, plan.peak_bytes);
    EXPECT(plan.moves >= 1);
    for (uint32_t i = 0; i < plan.moves; i++) {
        EXPECT(moves[i].span != 3);
        if (moves[i].span != 1)
            continue;
        EXPECT_U64(1, moves[i].evict_after);
        EXPECT_U64(19, moves[i].needed_by);
        EXPECT_U64(16, moves[i].reload_from); /* 2 us of copying, and half a us before it */
    }
    EXPECT(moves[0].evict_after <= moves[plan.moves - 1].evict_after);
    span[1].fixed = true;
    policy->plan(&step, NULL, workspace, &plan);
    for (uint32_t i = 0; i < plan.moves; i++)
        EXPECT(moves[i].span != 1);
    step.slab_bytes = 99;
    policy->plan(&step, NULL, workspace, &plan);
    EXPECT_U64(0, plan.moves);
}

static void test_choice(void)
{
    static const struct penstock_candidate candidates[] = {{.bytes = 5}, {.bytes = 9}, {.bytes = 1}, {.bytes = 7}};
    size_t chosen[4];

    EXPECT_U64(1, penstock_policy()->choose(candidates, 4, 9, chosen));
    EXPECT_U64(1, chosen[0]);
    EXPECT_U64(3, penstock_policy()->choose(candidates, 4, 17, chosen));
    EXPECT(chosen[0] == 1 && chosen[1] == 3 && chosen[2] == 0);
    EXPECT_U64(4, penstock_policy()->choose(candidates, 4, 1000, chosen));
    EXPECT_U64(0, penstock_policy()->choose(candidates, 4, 0, chosen));
}

int main(void)
{
    test_plan();
    test_choice();
    return expect_status();
}
