/* The slots that make a row: only their sums matter here. */
#include <time.h>

#include "expect.h"
#include "memory/slab_rows.h"

#define MIB ((size_t)1 << 20)
#define COUNT(array) (unsigned)(sizeof(array) / sizeof((array)[0]))

/* Returns the chosen sizes in MiB, as "2x32 1x16", and their sum in *sum. */
static const char *chosen(const struct ps_slab_row_size *sizes, unsigned count, size_t *sum, unsigned *slots)
{
    static char text[256];
    size_t length = 0;

    *sum = *slots = 0;
    text[0] = 0;
    for (unsigned i = 0; i < count; i++) {
        EXPECT(sizes[i].taken <= sizes[i].there);
        *sum += sizes[i].taken * sizes[i].bytes;
        *slots += sizes[i].taken;
        if (sizes[i].taken)
            length += (size_t)snprintf(text + length, sizeof text - length, "%s%ux%zu", length ? " " : "",
                                       sizes[i].taken, sizes[i].bytes / MIB);
    }
    return text;
}

static void expect_row(const char *expected, size_t mib, struct ps_slab_row_size *sizes, unsigned count)
{
    size_t sum;
    unsigned slots;
    bool found = ps_slab_row_choose(sizes, count, mib * MIB);
    const char *text = chosen(sizes, count, &sum, &slots);

    EXPECT(found == (*expected != 0));
    EXPECT_TEXT(expected, text);
    EXPECT_U64(found ? mib * MIB : 0, sum);
    EXPECT(slots <= PS_SLAB_ROW_SLOTS_MAX);
}

static void test_equal_slots_of_the_largest_size_that_will_do(void)
{
    struct ps_slab_row_size sizes[] = {
        {96 * MIB, 20, 0}, {86 * MIB, 20, 0}, {64 * MIB, 3, 0}, {32 * MIB, 30, 0}, {2 * MIB, 1000, 0}};

    expect_row("8x86", 688, sizes, COUNT(sizes));
    expect_row("8x96", 768, sizes, COUNT(sizes));
    expect_row("8x32", 256, sizes, COUNT(sizes)); /* one short of four of 64 */
    expect_row("3x64", 192, (struct ps_slab_row_size[]){{64 * MIB, 3, 0}, {32 * MIB, 30, 0}}, 2);
    expect_row("1x32", 32, sizes, COUNT(sizes));
}

static void test_several_sizes_where_one_will_not_do(void)
{
    struct ps_slab_row_size sizes[] = {{96 * MIB, 1, 0}, {86 * MIB, 2, 0}, {32 * MIB, 2, 0}, {10 * MIB, 3, 0}};

    expect_row("1x96 1x86", 182, sizes, COUNT(sizes));
    /* The largest first fails here: 96 + 10 + 10 falls short by 2, and 86 + 32 does it. */
    expect_row("1x86 1x32", 118, sizes, COUNT(sizes));
    expect_row("1x96 1x86 2x32", 246, sizes, COUNT(sizes));
}

static void test_none_where_nothing_adds_up(void)
{
    struct ps_slab_row_size sizes[] = {{96 * MIB, 4, 0}, {32 * MIB, 4, 0}, {2 * MIB, PS_SLAB_ROW_SLOTS_MAX, 0}};

    expect_row("", 1, sizes, COUNT(sizes));
    expect_row("", 33, sizes, COUNT(sizes));
    expect_row("", 1024, sizes, COUNT(sizes)); /* more than there is */
    expect_row("", 0, sizes, COUNT(sizes));
    expect_row("", 96, NULL, 0);
    expect_row("4x96 4x32 16x2", 544, sizes, COUNT(sizes)); /* as many slots as a row may have */
    expect_row("", 546, sizes, COUNT(sizes));               /* one more */
    expect_row("", 50, (struct ps_slab_row_size[]){{2 * MIB, 100, 0}}, 1);
}

/* An impossible sum of many sizes: the search gives up soon. */
static void test_the_search_is_bounded(void)
{
    struct ps_slab_row_size sizes[64];
    struct timespec begun, over;

    for (unsigned i = 0; i < COUNT(sizes); i++)
        sizes[i] = (struct ps_slab_row_size){2 * MIB * (300 - i), 9, 0};
    clock_gettime(CLOCK_MONOTONIC, &begun);
    expect_row("", 4001, sizes, COUNT(sizes));
    clock_gettime(CLOCK_MONOTONIC, &over);
    /* It takes about 10 us; without a bound it would take days. */
    EXPECT((over.tv_sec - begun.tv_sec) * 1000 + (over.tv_nsec - begun.tv_nsec) / 1000000 < 1000);
}

int main(void)
{
    test_equal_slots_of_the_largest_size_that_will_do();
    test_several_sizes_where_one_will_not_do();
    test_none_where_nothing_adds_up();
    test_the_search_is_bounded();
    return expect_status();
}
