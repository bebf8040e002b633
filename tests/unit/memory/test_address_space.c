/*
 * The address space, compared with a model of one mark for each unit. A taken range was free and is
 * not taken twice; the first fit is taken. Returned ranges join their neighbours. A range that was
 * not taken is refused without a change.
 */
#include <errno.h>
#include <stdlib.h>

#include "expect.h"
#include "memory/address_space.h"

#define UNIT 4096u
#define UNITS 512u
#define START (UINT64_C(1) << 40)

static uint64_t at(unsigned unit)
{
    return START + (uint64_t)unit * UNIT;
}

/*
 * Checks that the list is sorted, and that its ranges lie inside, are not empty and don't touch.
 * Returns the free bytes.
 */
static uint64_t expect_in_order(const struct ps_address_space *space)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < space->count; i++) {
        const struct ps_address_range *r = &space->free[i];
        EXPECT(r->bytes > 0 && r->start >= START && r->start + r->bytes <= at(UNITS));
        if (i)
            EXPECT(space->free[i - 1].start + space->free[i - 1].bytes < r->start);
        sum += r->bytes;
    }
    return sum;
}

static void test_takes_all_and_no_more(void)
{
    struct ps_address_space space;

    EXPECT_INT(0, ps_address_space_init(&space, START, (uint64_t)UNITS * UNIT));
    EXPECT_U64(0, ps_address_space_take(&space, (uint64_t)(UNITS + 1) * UNIT));
    for (unsigned i = 0; i < UNITS; i++)
        EXPECT_U64(at(i), ps_address_space_take(&space, UNIT));
    EXPECT_U64(0, ps_address_space_take(&space, UNIT));
    EXPECT_U64(0, space.count);
    /* The pieces are returned from both ends to the middle, and become one again. */
    for (unsigned i = 0; i < UNITS / 2; i++) {
        EXPECT_INT(0, ps_address_space_give(&space, at(i), UNIT));
        EXPECT_INT(0, ps_address_space_give(&space, at(UNITS - 1 - i), UNIT));
    }
    EXPECT_U64(1, space.count);
    EXPECT_U64(START, ps_address_space_take(&space, (uint64_t)UNITS * UNIT));
    ps_address_space_destroy(&space);
    EXPECT(!space.free && !space.count);
}

static void test_first_fit(void)
{
    struct ps_address_space space;

    ps_address_space_init(&space, START, (uint64_t)UNITS * UNIT);
    ps_address_space_take(&space, 20 * UNIT);
    ps_address_space_give(&space, at(2), 3 * UNIT);
    ps_address_space_give(&space, at(10), 5 * UNIT);
    EXPECT_U64(at(10), ps_address_space_take(&space, 4 * UNIT)); /* the first hole is too small */
    EXPECT_U64(at(2), ps_address_space_take(&space, 3 * UNIT));
    EXPECT_U64(at(14), ps_address_space_take(&space, UNIT));
    EXPECT_U64(at(20), ps_address_space_take(&space, UNIT));
    ps_address_space_destroy(&space);
}

static void test_refuses_what_is_free(void)
{
    struct ps_address_space space;

    ps_address_space_init(&space, START, (uint64_t)UNITS * UNIT);
    ps_address_space_take(&space, 10 * UNIT);
    EXPECT_INT(0, ps_address_space_give(&space, at(4), 2 * UNIT));
    EXPECT_INT(-EINVAL, ps_address_space_give(&space, at(4), 2 * UNIT)); /* twice */
    EXPECT_INT(-EINVAL, ps_address_space_give(&space, at(3), 2 * UNIT)); /* its end is free */
    EXPECT_INT(-EINVAL, ps_address_space_give(&space, at(5), 2 * UNIT)); /* its start is free */
    EXPECT_INT(-EINVAL, ps_address_space_give(&space, at(3), 4 * UNIT)); /* its middle is free */
    EXPECT_INT(-EINVAL, ps_address_space_give(&space, at(9), 2 * UNIT)); /* runs into what was never taken */
    EXPECT_INT(-EINVAL, ps_address_space_give(&space, at(3), 0));
    EXPECT_U64((uint64_t)(UNITS - 8) * UNIT, expect_in_order(&space));
    ps_address_space_destroy(&space);
}

/* Ranges apart have a free unit before and behind them, and can be taken as long as that holds. */
static void test_ranges_apart(void)
{
    struct ps_address_space space;
    uint64_t start[UNITS];
    unsigned count = 0;

    ps_address_space_init(&space, START, (uint64_t)UNITS * UNIT);
    while ((start[count] = ps_address_space_take_apart(&space, 3 * UNIT, UNIT)))
        count++;
    EXPECT_U64((UNITS - 1) / 4, count);
    for (unsigned i = 0; i < count; i++)
        EXPECT_U64(at(1 + 4 * i), start[i]);
    EXPECT_U64((uint64_t)(UNITS - 3 * count) * UNIT, expect_in_order(&space));
    EXPECT_INT(0, ps_address_space_give(&space, start[5], 3 * UNIT));
    EXPECT_U64(0, ps_address_space_take_apart(&space, 4 * UNIT, UNIT));
    EXPECT_U64(start[5], ps_address_space_take_apart(&space, 3 * UNIT, UNIT));
    for (unsigned i = 0; i < count; i++)
        EXPECT_INT(0, ps_address_space_give(&space, start[i], 3 * UNIT));
    EXPECT_U64((uint64_t)UNITS * UNIT, expect_in_order(&space));
    EXPECT_U64(1, space.count);
    ps_address_space_destroy(&space);
}

/* Takes and returns ranges at random, beside a mark for each unit. */
static void test_against_model(unsigned seed)
{
    static bool taken[UNITS];
    static unsigned length_at[UNITS]; /* length of the range that starts there */
    struct ps_address_space space;
    unsigned used = 0;

    srand(seed);
    memset(taken, 0, sizeof taken);
    memset(length_at, 0, sizeof length_at);
    ps_address_space_init(&space, START, (uint64_t)UNITS * UNIT);
    for (int turn = 0; turn < 4000; turn++) {
        unsigned units = 1 + (unsigned)rand() % (rand() % 8 ? 6 : 60);
        unsigned start = (unsigned)rand() % UNITS;
        if (rand() % 2) {
            uint64_t address = ps_address_space_take(&space, (uint64_t)units * UNIT);
            unsigned first_fit = 0, run = 0;
            for (unsigned i = 0; i < UNITS && run < units; i++) {
                run = taken[i] ? 0 : run + 1;
                if (run == units)
                    first_fit = i + 1 - units;
            }
            if (run < units) {
                EXPECT_U64(0, address);
                continue;
            }
            EXPECT_U64(at(first_fit), address);
            for (unsigned i = 0; i < units; i++)
                taken[first_fit + i] = true;
            length_at[first_fit] = units;
            used += units;
        } else if (length_at[start]) {
            EXPECT_INT(0, ps_address_space_give(&space, at(start), (uint64_t)length_at[start] * UNIT));
            for (unsigned i = 0; i < length_at[start]; i++)
                taken[start + i] = false;
            used -= length_at[start];
            length_at[start] = 0;
        } else if (!taken[start]) {
            EXPECT_INT(-EINVAL, ps_address_space_give(&space, at(start), UNIT));
        }
        EXPECT_U64((uint64_t)(UNITS - used) * UNIT, expect_in_order(&space));
    }
    ps_address_space_destroy(&space);
}

int main(void)
{
    test_takes_all_and_no_more();
    test_first_fit();
    test_refuses_what_is_free();
    test_ranges_apart();
    for (unsigned seed = 1; seed <= 10; seed++)
        test_against_model(seed);
    return expect_status();
}
