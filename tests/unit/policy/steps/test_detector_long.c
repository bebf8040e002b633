/* Long steps: accepted early, forgotten if that was wrong, and the longest of all. */
#include "policy/steps/detector.h"

#include "expect.h"
#include "watch_steps.h"

/*
 * A long step is accepted after a quarter of its second round. The first round makes the
 * optimizer's state, the second one doesn't, which shows the mistake. The accepted pattern is
 * forgotten. The step without the state is known as soon as the launches continue as before.
 */
static void test_long_loop(void)
{
    for (int variation = 0; variation < 4; variation++) {
        struct watch *watch = watch_start();
        struct trainer trainer;
        uint64_t after[5];
        /*
         * The state of all parameters is made before the first update, or each one's before its own
         * update.
         */
        bool all_at_once = variation & 1;
        trainer_init(&trainer, &watch->trace, variation & 2 ? 124 : 81);
        for (int i = 0; i < 5; i++) {
            trainer_forward(&trainer, 0, 50, 1);
            trainer_backward(&trainer, 0);
            for (int j = 0; all_at_once && j < 2 * trainer.layers + 2; j++)
                trainer_make_state(&trainer, j);
            trainer_update(&trainer);
            trainer_zero(&trainer);
            after[i] = watch->trace.launches;
        }
        uint64_t length = after[4] - after[3], quarter = watch->found_length[0] / 4;
        EXPECT(length >= EARLY_FROM);
        EXPECT_U64(2, watch->events[PS_STEPS_FOUND]);
        EXPECT(watch->found_at[0] > after[0] && watch->found_at[0] <= after[0] + quarter + 8);
        EXPECT_U64(1, watch->events[PS_STEPS_LOST]);
        EXPECT(watch->lost_at > watch->found_at[0] && watch->lost_at <= after[1]);
        EXPECT(watch->found_at[1] > watch->lost_at && watch->found_at[1] <= after[1] + (all_at_once ? 0 : 16));
        EXPECT_U64(length, watch->found_length[1]);
        EXPECT(watch->state.following);
        struct ps_steps_summary summary = watch_end(watch);
        EXPECT_U64(1, summary.patterns);
        EXPECT_U64(all_at_once ? 3 : 2, summary.steps);
    }
}

/*
 * A pattern that was accepted early and breaks off is forgotten. It is not recognised when it comes
 * again; a new one is found.
 */
static void test_believed_too_early(void)
{
    struct watch *watch = watch_start();
    struct trainer trainer;
    uint64_t after[8];

    trainer_init(&trainer, &watch->trace, 90);
    for (int i = 0; i < 8; i++) {
        trainer_forward(&trainer, 0, 50, 1);
        if (i < 4) /* a step that continues differently each time */
            for (uint64_t j = 0; j < 300; j++)
                trace_launch(&watch->trace, K_OTHER + 1000 * (uint64_t)i + j, 1, trainer.parameter[0].weight);
        trainer_backward(&trainer, 0);
        trainer_update(&trainer);
        trainer_zero(&trainer);
        after[i] = watch->trace.launches;
    }
    EXPECT(watch->events[PS_STEPS_LOST] >= 1);
    EXPECT(watch->state.following);
    EXPECT_U64(after[7] - after[6], watch->state.length);
    struct ps_steps_summary summary = watch_end(watch);
    EXPECT_U64(1, summary.patterns);
}

static void test_longest_step(void)
{
    for (uint64_t more = 0; more <= 1; more++) {
        struct watch *watch = watch_start();
        uint64_t span = trace_alloc(&watch->trace, 10);
        for (int i = 0; i < 5; i++) {
            watch_step_of(watch, span, PS_PATTERN_LAUNCHES_MAX + more);
            EXPECT_U64(more == 0 && i >= 1, watch->events[PS_STEPS_FOUND]);
        }
        watch_end(watch);
    }
}

int main(void)
{
    test_long_loop();
    test_believed_too_early();
    test_longest_step();
    return expect_status();
}
