/* Correction of reload points, with rounds of made-up waits. */
#include <stdlib.h>
#include <string.h>

#include "expect.h"
#include "policy/correction.h"

#define LAUNCHES 100u
#define MS 1000000u

static struct penstock_launch launches[LAUNCHES];
static struct penstock_move moves[3];
static uint64_t waited[LAUNCHES];

/*
 * A hundred launches of a millisecond. Launch 80 needs the reloads of moves 0 and 1, launch 95 that
 * of move 2. Move 1's span left just before.
 */
static struct ps_correction *begin(void)
{
    struct penstock_step step = {.launches = LAUNCHES, .launch = launches};

    for (uint32_t l = 0; l < LAUNCHES; l++)
        launches[l].duration_ns = MS;
    moves[0] =
        (struct penstock_move){.evict_after = 10, .reload_from = 70, .needed_by = 80, .predicted_wait_ns = 2 * MS};
    moves[1] = (struct penstock_move){.evict_after = 60, .reload_from = 68, .needed_by = 80};
    moves[2] = (struct penstock_move){.evict_after = 20, .reload_from = 90, .needed_by = 95};
    memset(waited, 0, sizeof waited);
    return ps_correction_init(malloc(ps_correction_bytes(LAUNCHES, 3)), &step, moves, 3, 4);
}

static void test_waits_as_predicted_change_nothing(void)
{
    struct ps_correction *c = begin();

    waited[80] = 2 * MS + MS / 2;
    waited[40] = 50 * MS; /* needs no reload: it waits for pages, or the program itself waits */
    for (int round = 0; round < 10; round++)
        EXPECT(!ps_correction_round(c, waited));
    EXPECT_U64(70, moves[0].reload_from);
    EXPECT_U64(2 * MS, ps_correction_predicted(c, 80));
    EXPECT_U64(2, ps_correction_reloads(c, 80));
    EXPECT_U64(0, ps_correction_reloads(c, 40));
    free(c);
}

static void test_what_is_late_begins_earlier_and_stays_when_it_helps(void)
{
    struct ps_correction *c = begin();

    waited[80] = 7 * MS;
    waited[95] = 3 * MS;
    EXPECT(!ps_correction_round(c, waited)); /* one round is not enough */
    EXPECT(ps_correction_round(c, waited));  /* the worst first: 5 ms longer than predicted */
    EXPECT_U64(65, moves[0].reload_from);
    EXPECT_U64(66, moves[1].reload_from); /* as far as its eviction and the grace allow */
    EXPECT_U64(90, moves[2].reload_from);
    EXPECT_U64(5, ps_correction_shift(c, 80));
    EXPECT(!ps_correction_round(c, waited)); /* part of this round ran with the old points */
    waited[80] = 2 * MS;
    EXPECT(ps_correction_round(c, waited)); /* it helped: now the other launch, which was late before too */
    EXPECT_U64(65, moves[0].reload_from);
    EXPECT_U64(87, moves[2].reload_from);
    free(c);
}

static void test_what_does_not_help_is_taken_back_for_good(void)
{
    struct ps_correction *c = begin();

    waited[80] = 7 * MS;
    EXPECT(!ps_correction_round(c, waited));
    EXPECT(ps_correction_round(c, waited));
    EXPECT(!ps_correction_round(c, waited));
    EXPECT(!ps_correction_round(c, waited)); /* this round may be the odd one */
    EXPECT(ps_correction_round(c, waited));
    EXPECT_U64(70, moves[0].reload_from);
    EXPECT_U64(68, moves[1].reload_from);
    EXPECT_U64(0, ps_correction_shift(c, 80));
    for (int round = 0; round < 10; round++)
        EXPECT(!ps_correction_round(c, waited));
    EXPECT_U64(70, moves[0].reload_from);
    free(c);
}

static void test_round_the_end_of_the_step(void)
{
    struct ps_correction *c = begin();

    moves[2] = (struct penstock_move){.evict_after = 90, .reload_from = 1, .needed_by = 95};
    waited[95] = 4 * MS;
    EXPECT(!ps_correction_round(c, waited));
    EXPECT(ps_correction_round(c, waited));
    EXPECT_U64(97, moves[2].reload_from);
    waited[95] = 0;
    EXPECT(!ps_correction_round(c, waited));
    EXPECT(!ps_correction_round(c, waited));
    EXPECT_U64(97, moves[2].reload_from);
    free(c);
}

/* One round in twenty is held up by something else, whatever it waited before. */
static void test_a_round_that_was_held_up_moves_nothing(void)
{
    struct ps_correction *c = begin();

    for (int round = 1; round <= 400; round++) {
        waited[95] = round % 20 ? 0 : 50 * MS;
        EXPECT(!ps_correction_round(c, round % 20 ? NULL : waited)); /* no launch waited */
    }
    EXPECT_U64(90, moves[2].reload_from);
    waited[80] = 0;
    for (int round = 1; round <= 400; round++) {
        waited[95] = round % 20 ? MS / 2 : 50 * MS;
        EXPECT(!ps_correction_round(c, waited));
    }
    EXPECT_U64(90, moves[2].reload_from);
    free(c);
}

/*
 * The shift is the smaller of the two excesses. Other changes in one of the rounds count as no
 * success.
 */
static void test_two_rounds_that_differ(void)
{
    struct ps_correction *c = begin();

    waited[95] = 50 * MS;
    EXPECT(!ps_correction_round(c, waited));
    waited[95] = 4 * MS;
    EXPECT(ps_correction_round(c, waited));
    EXPECT_U64(86, moves[2].reload_from);
    EXPECT(!ps_correction_round(c, waited));
    EXPECT(!ps_correction_round(c, waited));
    EXPECT(ps_correction_round(c, waited)); /* still 4 ms: the gain is only against the 50 */
    EXPECT_U64(90, moves[2].reload_from);
    free(c);
}

/* A trial that leaves no wait has helped. So has one of which one round was held up. */
static void test_no_waits_are_a_success(void)
{
    struct ps_correction *c = begin();

    waited[95] = 4 * MS;
    EXPECT(!ps_correction_round(c, waited));
    EXPECT(ps_correction_round(c, waited));
    EXPECT(!ps_correction_round(c, waited));
    waited[95] = 50 * MS;
    EXPECT(!ps_correction_round(c, waited));
    for (int round = 0; round < 10; round++)
        EXPECT(!ps_correction_round(c, NULL));
    EXPECT_U64(86, moves[2].reload_from);
    waited[95] = 3 * MS;
    EXPECT(!ps_correction_round(c, waited));
    EXPECT(ps_correction_round(c, waited)); /* the launch may be shifted further */
    EXPECT_U64(83, moves[2].reload_from);
    free(c);
}

int main(void)
{
    test_waits_as_predicted_change_nothing();
    test_what_is_late_begins_earlier_and_stays_when_it_helps();
    test_what_does_not_help_is_taken_back_for_good();
    test_round_the_end_of_the_step();
    test_a_round_that_was_held_up_moves_nothing();
    test_two_rounds_that_differ();
    test_no_waits_are_a_success();
    return expect_status();
}
