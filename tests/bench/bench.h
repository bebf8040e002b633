/*
 * Shared by the benchmark programs: batches timed on the host's monotonic clock, and one line of
 * JSON for each figure. One thread. A batch takes about a millisecond, so that reading the clock
 * doesn't show.
 */
#ifndef PENSTOCK_TESTS_BENCH_H
#define PENSTOCK_TESTS_BENCH_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BENCH_BATCHES_MAX 1000

struct bench_figure {
    double median_ns; /* time of one operation, median of the batches */
    double low_ns;    /* time of one operation in the fastest batch, when nothing else wants the processor */
};

static inline uint64_t bench_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline int bench_compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

/*
 * Runs batches of `operations` calls of `operation(context, i)`. The first batch warms up and is
 * not counted. `between` (or NULL) runs untimed.
 */
static inline struct bench_figure bench_measure(int batches, int operations, void (*operation)(void *context, int i),
                                                void (*between)(void *context), void *context)
{
    static double taken[BENCH_BATCHES_MAX];

    if (batches > BENCH_BATCHES_MAX)
        batches = BENCH_BATCHES_MAX;
    for (int b = -1; b < batches; b++) {
        uint64_t begin = bench_now_ns();
        for (int i = 0; i < operations; i++)
            operation(context, i);
        if (b >= 0)
            taken[b] = (double)(bench_now_ns() - begin) / operations;
        if (between)
            between(context);
    }
    qsort(taken, (size_t)batches, sizeof *taken, bench_compare);
    struct bench_figure figure = {taken[batches / 2], taken[0]};
    return figure;
}

/* Returns the argument as a number of at least 1. Ends the program if the text is not one. */
static inline int bench_number(const char *text)
{
    int number = atoi(text);

    if (number < 1) {
        fprintf(stderr, "%s: a number from 1 is expected\n", text);
        exit(2);
    }
    return number;
}

#endif
