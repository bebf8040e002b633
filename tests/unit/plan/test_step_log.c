/*
 * The log of steps while a program runs. The tests check the step of a wait that is reported late,
 * when steps are taken, and which steps give way.
 */
#include "plan/step_log.h"

#include "expect.h"

#define LENGTH 100u /* launches of a step */

static struct ps_live_step step[1024];
static uint64_t lost;

/* The step that begins behind launch `launch` ends. */
static uint64_t one_step(uint64_t launch)
{
    ps_step_log_ended(launch + LENGTH);
    return launch + LENGTH;
}

static void test_waits_are_those_of_their_step(void)
{
    uint64_t at = 1000;

    ps_step_log_begin(at);
    ps_step_log_waited(at, 1);      /* before the first step */
    ps_step_log_waited(at + 1, 10); /* in it */
    at = one_step(at);
    ps_step_log_waited(at, 20);         /* reported late */
    ps_step_log_waited(at + 1, 100);    /* of the next one */
    ps_step_log_waited(at - LENGTH, 1); /* long ago */
    at = one_step(at);
    ps_step_log_waited(at - LENGTH, 30); /* of the first one, later still */
    EXPECT_U64(2, ps_step_log_count());
    EXPECT_U64(0, ps_step_log_exposed_ns()); /* not known yet */
    ps_step_log_told(at - LENGTH + 1);
    EXPECT_U64(60, ps_step_log_exposed_ns());
    ps_step_log_told(at + 1);
    EXPECT_U64(100, ps_step_log_exposed_ns());
}

static void test_steps_are_taken_when_their_waits_are_told(void)
{
    uint64_t at = 1000 + 2 * LENGTH;

    EXPECT_U64(0, ps_step_log_take(step, 8, true, &lost)); /* no reader wanted them */
    EXPECT_INT(0, ps_step_log_keep());
    ps_step_log_waited(at + 5, 7);
    at = one_step(at);
    at = one_step(at);
    ps_step_log_told(at - LENGTH);
    EXPECT_U64(0, ps_step_log_take(step, 8, false, &lost));
    ps_step_log_told(at - LENGTH + 1);
    ps_step_log_waited(at - LENGTH, 3);
    EXPECT_U64(1, ps_step_log_take(step, 8, false, &lost));
    EXPECT_U64(10, step[0].device.exposed_ns);
    EXPECT_U64(3, step[0].device.step);
    EXPECT(!step[0].planned);
    EXPECT_U64(1, ps_step_log_take(step, 8, true, &lost)); /* at the end whatever there is */
    EXPECT_U64(4, step[0].device.step);
    EXPECT_U64(0, ps_step_log_take(step, 8, true, &lost));
    EXPECT_U64(0, lost);
}

static void test_the_oldest_give_way_and_are_counted(void)
{
    uint64_t at = 1000 + 4 * LENGTH, n = 0, before = ps_step_log_count();

    for (int i = 0; i < 600; i++)
        at = one_step(at);
    /* More than half of the room is used: the steps are written although none is asked for. */
    EXPECT_U64(600, ps_step_log_left());
    n = ps_step_log_take(step, 1024, false, &lost);
    EXPECT_U64(88, lost);
    EXPECT_U64(600 - 88 - n, ps_step_log_left());
    EXPECT(n > 200 && n < 512);
    EXPECT_U64(before + 89, step[0].device.step);
    for (uint64_t i = 1; i < n; i++)
        EXPECT(step[i].device.step == step[i - 1].device.step + 1 && step[i].t_ns >= step[i - 1].t_ns);
    n += ps_step_log_take(step, 1024, true, &lost);
    EXPECT_U64(600, n + lost);
    EXPECT_U64(0, ps_step_log_left());
}

static void test_recent_times(void)
{
    uint64_t ns[PS_LIVE_RECENT];

    ps_step_log_recent(ns);
    EXPECT_U64(ps_step_log_last_ns(), ns[0]);
}

int main(void)
{
    uint64_t ns[PS_LIVE_RECENT];

    EXPECT_U64(0, ps_step_log_count());
    EXPECT_U64(0, ps_step_log_last_ns());
    ps_step_log_recent(ns);
    EXPECT_U64(0, ns[0]);
    test_waits_are_those_of_their_step();
    test_steps_are_taken_when_their_waits_are_told();
    test_the_oldest_give_way_and_are_counted();
    test_recent_times();
    return expect_status();
}
