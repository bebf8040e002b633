/*
 * The choice of victims, compared with a plain restatement of its rule and with each subset, on all
 * small cases.
 */
#include <penstock/policy.h>
#include <stdlib.h>

#include "expect.h"

#define MANY 12

/*
 * Returns the candidate that the stated rule evicts first, among those not yet taken; n if none is
 * left.
 */
static size_t next_in_order(const struct penstock_candidate *c, size_t n, unsigned taken)
{
    size_t best = n;

    for (size_t i = 0; i < n; i++) {
        if ((taken >> i & 1) || c[i].bytes == 0)
            continue;
        if (best == n || c[i].last_access < c[best].last_access ||
            (c[i].last_access == c[best].last_access && c[i].bytes > c[best].bytes))
            best = i;
    }
    return best;
}

static uint64_t sum_of(const struct penstock_candidate *c, size_t n, unsigned set)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (set >> i & 1) ? c[i].bytes : 0;
    return sum;
}

/* Returns the shortest prefix of the order that covers the need, as a set. */
static unsigned prefix_set(const struct penstock_candidate *c, size_t n, uint64_t need)
{
    unsigned set = 0;

    while (sum_of(c, n, set) < need) {
        size_t next = next_in_order(c, n, set);
        if (next == n)
            break;
        set |= 1u << next;
    }
    return set;
}

/*
 * Finds the subset of the prefix that covers the need and keeps the recent candidates on the
 * device. Its most recently used member is the least recent of all; then the next member counts,
 * and so on. Each subset is tried.
 */
static unsigned best_subset(const struct penstock_candidate *c, size_t n, unsigned prefix, uint64_t need)
{
    size_t order[MANY], count = 0;
    unsigned best = prefix;

    for (unsigned taken = 0; taken != prefix; taken |= 1u << order[count - 1])
        order[count++] = next_in_order(c, n, taken | ~prefix);
    /*
     * Read as a number with the most recent candidate as the highest digit, the best set is the
     * smallest.
     */
    unsigned best_number = (1u << count) - 1;
    for (unsigned number = 0; number < 1u << count; number++) {
        unsigned set = 0;
        for (size_t i = 0; i < count; i++)
            set |= (number >> i & 1) ? 1u << order[i] : 0;
        if (sum_of(c, n, set) >= need && number < best_number) {
            best_number = number;
            best = set;
        }
    }
    return best;
}

static void check_case(const struct penstock_candidate *c, size_t n, uint64_t need)
{
    size_t chosen[MANY];
    size_t count = penstock_lru_choose(c, n, need, chosen);
    unsigned set = 0;
    unsigned prefix = prefix_set(c, n, need);
    unsigned wanted = sum_of(c, n, prefix) >= need ? best_subset(c, n, prefix, need) : prefix;

    for (size_t i = 0; i < count; i++) {
        if (!EXPECT(chosen[i] < n) || !EXPECT(!(set >> chosen[i] & 1)))
            return;
        /* The order of the rule holds too. */
        unsigned rest = wanted & ~set;
        EXPECT_U64(next_in_order(c, n, ~rest), chosen[i]);
        set |= 1u << chosen[i];
    }
    EXPECT_U64(wanted, set);
    for (size_t i = 0; i < n && sum_of(c, n, set) >= need; i++) {
        if (set >> i & 1)
            EXPECT(sum_of(c, n, set & ~(1u << i)) < need);
    }
}

/* Each case of up to four candidates, with sizes 0 to 3, three times of access and each need. */
static void test_all_small_cases(void)
{
    for (size_t n = 0; n <= 4; n++) {
        unsigned cases = 1;
        for (size_t i = 0; i < n; i++)
            cases *= 12;
        for (unsigned number = 0; number < cases; number++) {
            struct penstock_candidate c[4];
            unsigned rest = number;
            for (size_t i = 0; i < n; i++, rest /= 12) {
                c[i].bytes = rest % 4;
                c[i].last_access = rest / 4 % 3;
            }
            for (uint64_t need = 0; need <= 3 * n + 1; need++)
                check_case(c, n, need);
        }
    }
}

static void test_random_cases(void)
{
    srand(1);
    for (int round = 0; round < 2000; round++) {
        struct penstock_candidate c[MANY];
        size_t n = (size_t)(rand() % (MANY - 1)) + 1;
        for (size_t i = 0; i < n; i++) {
            c[i].bytes = (uint64_t)(rand() % 40);
            c[i].last_access = (uint64_t)(rand() % 6);
        }
        check_case(c, n, (uint64_t)(rand() % 200));
    }
}

static void test_small_early_ones_are_let_go(void)
{
    const struct penstock_candidate c[] = {{2, 1}, {3, 2}, {100, 3}, {50, 4}};
    size_t chosen[4];

    EXPECT_U64(1, penstock_lru_choose(c, 4, 100, chosen));
    EXPECT_U64(2, chosen[0]);
    /* The older of the two that could be dropped stays chosen, since one of them is needed. */
    EXPECT_U64(2, penstock_lru_choose(c, 4, 102, chosen));
    EXPECT_U64(0, chosen[0]);
    EXPECT_U64(2, chosen[1]);
}

static void test_huge_figures(void)
{
    const struct penstock_candidate c[] = {{UINT64_MAX, 5}, {UINT64_MAX, 3}, {1, UINT64_MAX}};
    size_t chosen[3];

    EXPECT_U64(1, penstock_lru_choose(c, 3, UINT64_MAX, chosen));
    EXPECT_U64(1, chosen[0]);
    EXPECT_U64(0, penstock_lru_choose(c, 3, 0, chosen));
    EXPECT_U64(0, penstock_lru_choose(NULL, 0, 7, NULL));
}

/* Many candidates: the order holds beyond the size of the bit sets above. */
static void test_many(void)
{
    enum { COUNT = 5000 };
    struct penstock_candidate *c = calloc(COUNT, sizeof *c);
    size_t *chosen = calloc(COUNT, sizeof *chosen);

    if (EXPECT(c && chosen)) {
        for (size_t i = 0; i < COUNT; i++) {
            c[i].bytes = 2;
            c[i].last_access = (i * 7919) % COUNT; /* each number once */
        }
        EXPECT_U64(COUNT / 2, penstock_lru_choose(c, COUNT, COUNT, chosen));
        for (size_t i = 0; i < COUNT / 2; i++)
            EXPECT_U64(i, c[chosen[i]].last_access);
    }
    free(c);
    free(chosen);
}

int main(void)
{
    test_all_small_cases();
    test_random_cases();
    test_small_early_ones_are_let_go();
    test_huge_figures();
    test_many();
    return expect_status();
}
