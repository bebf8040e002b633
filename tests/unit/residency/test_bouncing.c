/*
 * Bouncing spans: how soon and how often they bounce before they stay on their slots, for how long,
 * and which may.
 */
#include "expect.h"
#include "memory/blocks.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "residency/bouncing.h"

#define BUDGET ((uint64_t)1 << 30)

/*
 * The span leaves, and a launch names it `launches` launches later. Returns whether it stays on its
 * slot.
 */
static bool stays_after(struct ps_span *span, unsigned launches)
{
    ps_bouncing_leaves(span);
    ps_registry.launch_number += launches;
    return ps_bouncing_stays(span);
}

/* Returns the number of times that it leaves until it stays; 0 if it doesn't within 100 times. */
static unsigned times_until_it_stays(struct ps_span *span, unsigned launches)
{
    for (unsigned i = 1; i <= 100; i++)
        if (stays_after(span, launches))
            return i;
    return 0;
}

static unsigned launches_that_it_stays(struct ps_span *span)
{
    unsigned n = 0;

    while (ps_bouncing_stays(span)) {
        ps_registry.launch_number++;
        n++;
    }
    return n;
}

/*
 * Small spans are used at ever new places, by launches that together name more than half of the
 * budget.
 */
static void show_that_parts_are_used(void)
{
    struct ps_span all = {.bytes = BUDGET / 4 * 3}, *const named[] = {&all};

    ps_budget.reached = true;
    for (unsigned i = 0; i < 64; i++)
        ps_block_used_inside(0x1000 + i * 64, all.bytes, named, 1);
    EXPECT(ps_block_parts_are_used());
}

static void test_large(void)
{
    struct ps_span large = {.bytes = BUDGET / 4 + 1};

    EXPECT_INT(0, (long)times_until_it_stays(&large, 17));
    EXPECT_INT(3, (long)times_until_it_stays(&large, 16));
    EXPECT_INT(256, (long)launches_that_it_stays(&large));
    /* The trial failed: the span stays twice as long. */
    EXPECT_INT(1, (long)times_until_it_stays(&large, 16));
    EXPECT_INT(512, (long)launches_that_it_stays(&large));
    /* The trial succeeded: it counts from the start. */
    EXPECT(!stays_after(&large, 17));
    EXPECT_INT(3, (long)times_until_it_stays(&large, 1));
    EXPECT_INT(256, (long)launches_that_it_stays(&large));
}

static void test_smaller(void)
{
    struct ps_block block = {.bytes = BUDGET};
    struct ps_span smaller = {.bytes = BUDGET / 4}, small = {.bytes = BUDGET / 32}, piece = {.bytes = BUDGET / 16};

    EXPECT_INT(0, (long)times_until_it_stays(&smaller, 1));
    show_that_parts_are_used();
    EXPECT_INT(0, (long)times_until_it_stays(&smaller, 17));
    EXPECT_INT(3, (long)times_until_it_stays(&smaller, 16));
    EXPECT_INT(256, (long)launches_that_it_stays(&smaller));
    EXPECT_INT(0, (long)times_until_it_stays(&small, 1));
    atomic_store(&piece.block, &block);
    EXPECT_INT(0, (long)times_until_it_stays(&piece, 1));
}

int main(void)
{
    ps_budget.limit = BUDGET;
    ps_reservation.granularity = 4096;
    test_large();
    test_smaller();
    return expect_status();
}
