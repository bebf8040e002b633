#include "policy/recording/durations.h"

#include <stdlib.h>

/* A launch's duration compared with the shortest of its kind. */
struct pace {
    double ratio;
    /*
     * In ns. Long launches tell more about the clock than short ones, which consist mostly of the
     * time between them.
     */
    uint64_t weight;
};

size_t ps_durations_workspace_bytes(uint32_t launches)
{
    return (launches + 1u) * sizeof(struct pace);
}

static int by_ratio(const void *a, const void *b)
{
    double one = ((const struct pace *)a)->ratio, other = ((const struct pace *)b)->ratio;

    return (one > other) - (one < other);
}

/*
 * Returns the median of the ratios, weighted by duration and at least 1. Delays of some launches
 * don't move it.
 */
static double pace_of(const struct penstock_launch *launch, const bool *timed, const uint64_t *shortest,
                      uint32_t launches, struct pace *pace)
{
    uint64_t all = 0, so_far = 0;
    uint32_t n = 0;

    for (uint32_t i = 0; i < launches; i++) {
        if (!timed[i] || !shortest[i] || !launch[i].duration_ns)
            continue;
        /*
         * The weight is the shorter of the two durations. So a delay, in this round or an earlier
         * one, doesn't raise it.
         */
        uint64_t weight = launch[i].duration_ns < shortest[i] ? launch[i].duration_ns : shortest[i];
        pace[n++] = (struct pace){(double)launch[i].duration_ns / (double)shortest[i], weight};
        all += weight;
    }
    qsort(pace, n, sizeof *pace, by_ratio);
    for (uint32_t i = 0; i < n; i++) {
        so_far += pace[i].weight;
        if (so_far >= all - so_far)
            return pace[i].ratio > 1 ? pace[i].ratio : 1;
    }
    return 1;
}

void ps_durations_settle(struct penstock_launch *launch, const bool *timed, uint64_t *shortest, uint32_t launches,
                         void *workspace)
{
    double pace = pace_of(launch, timed, shortest, launches, workspace);

    for (uint32_t i = 0; i < launches; i++) {
        uint64_t measured = launch[i].duration_ns, stretched = (uint64_t)((double)shortest[i] * pace);
        if (shortest[i] && (stretched < measured || !timed[i]))
            launch[i].duration_ns = stretched;
        if (timed[i] && (!shortest[i] || measured < shortest[i]))
            shortest[i] = measured;
    }
}
