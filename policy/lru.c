#include <penstock/policy.h>

#include <stdbool.h>

/*
 * Returns whether candidate a goes before candidate b. No two are equal, so the order never depends
 * on the sorting method.
 */
static bool goes_before(const struct penstock_candidate *candidates, size_t a, size_t b)
{
    if (candidates[a].last_access != candidates[b].last_access)
        return candidates[a].last_access < candidates[b].last_access;
    if (candidates[a].bytes != candidates[b].bytes)
        return candidates[a].bytes > candidates[b].bytes;
    return a < b;
}

static void swap(size_t *a, size_t *b)
{
    size_t held = *a;

    *a = *b;
    *b = held;
}

/*
 * Restores a heap in which only the entry at `at` may be too high. The candidate at the top goes
 * first.
 */
static void sift_down(const struct penstock_candidate *candidates, size_t *heap, size_t count, size_t at)
{
    for (;;) {
        size_t first = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < count; child++) {
            if (goes_before(candidates, heap[child], heap[first]))
                first = child;
        }
        if (first == at)
            return;
        swap(&heap[at], &heap[first]);
        at = first;
    }
}

/*
 * The heap lies inside `chosen`. Each allocation that needs room takes k of n candidates. The heap
 * makes that cost n + k log n, where sorting would cost n log n. Taken candidates gather at the
 * end, in reverse. They are moved to the front when the need is covered.
 */
size_t penstock_lru_choose(const struct penstock_candidate *candidates, size_t n, uint64_t need_bytes, size_t *chosen)
{
    size_t left = 0;

    for (size_t i = 0; i < n; i++) {
        if (candidates[i].bytes > 0)
            chosen[left++] = i;
    }
    for (size_t i = left / 2; i-- > 0;)
        sift_down(candidates, chosen, left, i);

    size_t heap_end = left;
    uint64_t missing = need_bytes;
    uint64_t excess = 0;
    while (missing > 0 && left > 0) {
        uint64_t bytes = candidates[chosen[0]].bytes;
        excess = bytes > missing ? bytes - missing : 0;
        missing = bytes < missing ? missing - bytes : 0;
        left--;
        swap(&chosen[0], &chosen[left]);
        sift_down(candidates, chosen, left, 0);
    }

    /*
     * A large candidate taken late can make smaller ones taken before it superfluous. They are
     * checked from the most recently used one, which the program probably needs again soonest. One
     * pass is enough: the excess only shrinks, so a candidate that could not be spared once can't
     * be spared later.
     */
    size_t count = 0;
    for (size_t i = left; i < heap_end; i++) {
        uint64_t bytes = candidates[chosen[i]].bytes;
        if (missing == 0 && bytes <= excess)
            excess -= bytes;
        else
            chosen[count++] = chosen[i];
    }
    for (size_t i = 0; i < count / 2; i++)
        swap(&chosen[i], &chosen[count - 1 - i]);
    return count;
}

const struct penstock_policy penstock_policy_lru = {
    .version = PENSTOCK_POLICY_VERSION,
    .name = "lru",
    .choose = penstock_lru_choose,
};
