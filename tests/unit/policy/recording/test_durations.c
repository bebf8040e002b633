/*
 * Durations from several rounds, in which the device runs at different clocks and some launches are
 * held up.
 */
#include <stdlib.h>
#include <string.h>

#include "expect.h"
#include "policy/recording/durations.h"

#define LAUNCHES 200u
#define US 1000u

static struct penstock_launch launches[LAUNCHES];
static bool timed[LAUNCHES];
static uint64_t shortest[LAUNCHES];

static uint64_t usual(uint32_t launch)
{
    return (10 + launch % 7 * 40) * US;
}

/*
 * A round at a pace, in percent of the usual durations; every ninth launch is held up by
 * `held_up_ns`.
 */
static void measure(unsigned percent, uint64_t held_up_ns, uint32_t from)
{
    for (uint32_t i = 0; i < LAUNCHES; i++) {
        launches[i].duration_ns = usual(i) * percent / 100 + (i % 9 == from ? held_up_ns : 0);
        timed[i] = true;
    }
}

static void settle(void)
{
    void *workspace = malloc(ps_durations_workspace_bytes(LAUNCHES));

    ps_durations_settle(launches, timed, shortest, LAUNCHES, workspace);
    free(workspace);
}

static uint64_t sum(void)
{
    uint64_t ns = 0;

    for (uint32_t i = 0; i < LAUNCHES; i++)
        ns += launches[i].duration_ns;
    return ns;
}

static uint64_t usual_sum(void)
{
    measure(100, 0, 0);
    return sum();
}

static void test_the_first_round_is_taken_as_measured(void)
{
    memset(shortest, 0, sizeof shortest);
    measure(100, 3000 * US, 4);
    settle();
    EXPECT_U64(usual(4) + 3000 * US, launches[4].duration_ns);
    EXPECT_U64(usual(5), launches[5].duration_ns);
    EXPECT_U64(usual(5), shortest[5]);
}

static void test_what_was_held_up_once_counts_as_when_it_was_not(void)
{
    memset(shortest, 0, sizeof shortest);
    measure(100, 3000 * US, 4);
    settle();
    measure(100, 2000 * US, 7);
    settle();
    uint64_t settled = sum();
    EXPECT_U64(usual_sum(), settled);
}

static void test_a_slower_clock_counts_and_what_is_held_up_beside_it_does_not(void)
{
    memset(shortest, 0, sizeof shortest);
    measure(100, 3000 * US, 4);
    settle();
    measure(110, 2000 * US, 7); /* the launches held up before show their own time now */
    settle();
    uint64_t settled = sum();
    EXPECT(settled > usual_sum() * 1095 / 1000);
    EXPECT(settled < usual_sum() * 1105 / 1000);
    EXPECT_U64(usual(5), shortest[5]);
}

static void test_a_faster_clock_counts_too(void)
{
    memset(shortest, 0, sizeof shortest);
    measure(110, 0, 4);
    settle();
    measure(100, 2000 * US, 7);
    settle();
    /*
     * The held-up launches keep their earlier durations: longer than they would be now, and far
     * shorter than measured.
     */
    EXPECT_U64(usual(5), launches[5].duration_ns);
    EXPECT_U64(usual(7) * 110 / 100, launches[7].duration_ns);
}

/* Guesses instead of measuring: every third launch, from `from` on, gets `ns`. */
static void guess(uint32_t from, uint64_t ns)
{
    for (uint32_t i = from; i < LAUNCHES; i += 3) {
        launches[i].duration_ns = ns;
        timed[i] = false;
    }
}

static void test_a_guess_serves_until_there_is_a_measurement(void)
{
    memset(shortest, 0, sizeof shortest);
    measure(100, 0, 0);
    guess(0, 1 * US);
    settle();
    EXPECT_U64(1 * US, launches[3].duration_ns);
    EXPECT_U64(0, shortest[3]);
    EXPECT_U64(usual(4), shortest[4]);
    measure(100, 0, 0); /* far longer than was guessed */
    settle();
    EXPECT_U64(usual(3), launches[3].duration_ns);
    uint64_t settled = sum();
    EXPECT_U64(usual_sum(), settled);
}

static void test_what_was_measured_once_need_not_be_guessed(void)
{
    memset(shortest, 0, sizeof shortest);
    measure(100, 0, 0);
    settle();
    measure(120, 0, 0);
    guess(1, 5000 * US);
    guess(2, 1 * US);
    settle();
    for (uint32_t i = 0; i < LAUNCHES; i++) /* at this round's pace, which the timed launches show */
        EXPECT(launches[i].duration_ns >= usual(i) * 119 / 100 && launches[i].duration_ns <= usual(i) * 121 / 100);
    EXPECT_U64(usual(1), shortest[1]);
}

int main(void)
{
    test_the_first_round_is_taken_as_measured();
    test_what_was_held_up_once_counts_as_when_it_was_not();
    test_a_slower_clock_counts_and_what_is_held_up_beside_it_does_not();
    test_a_faster_clock_counts_too();
    test_a_guess_serves_until_there_is_a_measurement();
    test_what_was_measured_once_need_not_be_guessed();
    return expect_status();
}
