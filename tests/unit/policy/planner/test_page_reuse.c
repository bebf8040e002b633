/*
 * The allocations that find a freed span of their size. They are checked by hand, and compared with
 * lists that are searched from end to end.
 */
#include <stdlib.h>

#include "expect.h"
#include "policy/planner/least_budget.h"
#include "policy/planner/page_reuse.h"

#define SPANS 40u

static struct penstock_step_span spans[SPANS];
static _Alignas(max_align_t) char memory[1 << 16];
static uint64_t mappings;

/* Begins with spans of these sizes. They hold at most `budget` bytes at a time, with the margin. */
static struct ps_page_reuse *begin(const uint64_t *bytes, uint32_t count, uint64_t budget)
{
    static struct penstock_step step;

    step = (struct penstock_step){.spans = count, .span = spans, .budget_bytes = ps_budget_for_plan(budget)};
    for (uint32_t i = 0; i < count; i++)
        spans[i] = (struct penstock_step_span){.bytes = bytes[i]};
    EXPECT(ps_page_reuse_bytes(&step) <= sizeof memory);
    mappings = 0;
    return ps_page_reuse_init(&step, memory);
}

static void taken(struct ps_page_reuse *r, uint32_t span, bool back, int64_t held)
{
    mappings += ps_page_reuse_taken(r, span, back, held);
}

static void test_a_freed_span_serves_its_size(void)
{
    static const uint64_t bytes[] = {100, 100, 50};
    struct ps_page_reuse *r = begin(bytes, 3, 200);

    taken(r, 0, false, 100);
    EXPECT_U64(1, mappings);
    ps_page_reuse_freed(r, 0);
    taken(r, 1, false, 100); /* the pages of span 0 */
    EXPECT_U64(1, mappings);
    ps_page_reuse_freed(r, 1);
    taken(r, 2, false, 50); /* only its own size serves it, and there is room for both */
    EXPECT_U64(2, mappings);
    mappings = 0;
    taken(r, 0, false, 150);
    EXPECT_U64(0, mappings);
    taken(r, 0, true, 150); /* a reload has addresses of its own */
    EXPECT_U64(1, mappings);
}

static void test_who_gives_way(void)
{
    static const uint64_t bytes[] = {10, 40, 60, 70};
    struct ps_page_reuse *r = begin(bytes, 4, 200);

    for (uint32_t i = 0; i < 3; i++)
        ps_page_reuse_freed(r, i); /* 110 are kept */
    taken(r, 3, false, 70);
    taken(r, 3, false, 120); /* 30 lack: the oldest one that is enough has 40 */
    mappings = 0;
    taken(r, 0, false, 130);
    taken(r, 2, false, 140);
    EXPECT_U64(0, mappings);
    taken(r, 1, false, 140);
    EXPECT_U64(1, mappings);
    /* None is enough alone: the largest goes, and then one that is enough for the rest. */
    for (uint32_t i = 0; i < 3; i++)
        ps_page_reuse_freed(r, i);
    taken(r, 3, false, 160); /* of 110, 70 lack: 60, and 10 */
    mappings = 0;
    taken(r, 1, false, 160);
    EXPECT_U64(0, mappings);
    taken(r, 0, false, 160);
    taken(r, 2, false, 160);
    EXPECT_U64(2, mappings);
}

static void test_a_reload_takes_over_from_its_own_size(void)
{
    static const uint64_t bytes[] = {60, 50};
    struct ps_page_reuse *r = begin(bytes, 2, 120);

    ps_page_reuse_freed(r, 0);
    ps_page_reuse_freed(r, 1);
    taken(r, 1, true, 60); /* 50 lack, for which the one of 60 is older */
    mappings = 0;
    taken(r, 0, false, 60);
    EXPECT_U64(0, mappings);
}

static void test_without_a_limit_each_size_is_made_once(void)
{
    static const uint64_t bytes[] = {1, 2, 3};
    struct ps_page_reuse *r = begin(bytes, 3, UINT64_MAX);

    for (unsigned round = 0; round < 3; round++) {
        mappings = 0;
        for (uint32_t i = 0; i < 3; i++) {
            taken(r, i, false, 1 << 20);
            ps_page_reuse_freed(r, i);
        }
        EXPECT_U64(round ? 0 : 3, mappings);
    }
}

/* ---- the same with lists ---- */

struct list {
    uint64_t bytes[4 * SPANS]; /* the oldest first */
    unsigned count;
    int64_t kept, budget;
    uint64_t mappings;
};

static void take_away(struct list *l, unsigned at)
{
    l->kept -= (int64_t)l->bytes[at];
    for (l->count--; at < l->count; at++)
        l->bytes[at] = l->bytes[at + 1];
}

static void list_taken(struct list *l, uint64_t bytes, bool back, int64_t held)
{
    for (unsigned i = l->count; !back && i-- > 0;)
        if (l->bytes[i] == bytes) {
            take_away(l, i);
            return;
        }
    l->mappings++;
    while (held + l->kept > l->budget && l->count) {
        uint64_t lack = (uint64_t)(held + l->kept - l->budget);
        unsigned goes = l->count, largest = 0;
        for (unsigned i = l->count; i-- > 0;) {
            if (l->bytes[i] >= lack)
                goes = i;
            if (l->bytes[i] >= l->bytes[largest])
                largest = i;
        }
        for (unsigned i = l->count; i-- > 0;)
            if (l->bytes[i] == bytes)
                goes = i;
        take_away(l, goes < l->count ? goes : largest);
    }
}

static void test_against_lists(void)
{
    for (unsigned seed = 1; seed <= 200; seed++) {
        uint64_t bytes[SPANS], sum = 0;
        bool live[SPANS] = {false};
        srand(seed);
        unsigned count = 1 + (unsigned)rand() % SPANS, sizes = 1 + (unsigned)rand() % count;
        for (unsigned i = 0; i < count; i++)
            sum += bytes[i] = 1000 + 97 * ((unsigned)rand() % sizes);
        struct ps_page_reuse *r = begin(bytes, count, sum * (30 + (unsigned)rand() % 70) / 100);
        struct list l = {.budget = (int64_t)ps_budget_with_margin(ps_budget_for_plan(sum * 2))};
        r = begin(bytes, count, sum * 2 / 3);
        l.budget = (int64_t)ps_budget_with_margin(ps_budget_for_plan(sum * 2 / 3));
        int64_t held = 0;
        for (unsigned i = 0; i < 600; i++) {
            uint32_t span = (uint32_t)rand() % count;
            bool back = rand() % 8 == 0 && !live[span];
            if (live[span]) {
                held -= (int64_t)bytes[span];
                ps_page_reuse_freed(r, span);
                l.bytes[l.count++] = bytes[span];
                l.kept += (int64_t)bytes[span];
            } else {
                held += (int64_t)bytes[span];
                taken(r, span, back, held);
                list_taken(&l, bytes[span], back, held);
            }
            live[span] = !live[span];
            if (!EXPECT_U64(l.mappings, mappings)) {
                fprintf(stderr, "seed %u, operation %u\n", seed, i);
                return;
            }
        }
    }
}

int main(void)
{
    test_a_freed_span_serves_its_size();
    test_who_gives_way();
    test_a_reload_takes_over_from_its_own_size();
    test_without_a_limit_each_size_is_made_once();
    test_against_lists();
    return expect_status();
}
