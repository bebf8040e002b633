/* The host's clock, and durations by it. */
#ifndef PS_CLOCK_H
#define PS_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Returns CLOCK_MONOTONIC in ns. Any thread. */
static inline uint64_t ps_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/*
 * Sleeps for `ns` if less than `limit_ns` have passed since `since_ns`; false: they have passed.
 * For loops that poll for a limited time. Don't count sleeps instead: on a busy machine each takes
 * many times as long. Any thread, signal handlers included.
 */
static inline bool ps_sleep_within(uint64_t since_ns, uint64_t limit_ns, long ns)
{
    const struct timespec a_moment = {.tv_nsec = ns};

    if (ps_now_ns() - since_ns >= limit_ns)
        return false;
    nanosleep(&a_moment, NULL);
    return true;
}

/* Compares two uint64_t durations for qsort, which then puts the shortest first. */
static inline int ps_by_ns(const void *one, const void *other)
{
    const uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

    return (a > b) - (a < b);
}

#endif
