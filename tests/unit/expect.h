/*
 * Expectations for the unit tests of pure modules, and their exit status. A failed expectation
 * reports its place and lets the test go on. A test program runs its cases from main and returns
 * expect_status().
 */
#ifndef PENSTOCK_TESTS_UNIT_EXPECT_H
#define PENSTOCK_TESTS_UNIT_EXPECT_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Counted atomically, because a case may start threads that expect too. */
static _Atomic unsigned expect_checked, expect_failed;

#define EXPECT(condition) expect_that((condition), __FILE__, __LINE__, #condition)
#define EXPECT_U64(expected, actual) expect_u64((expected), (actual), __FILE__, __LINE__, #actual)
#define EXPECT_INT(expected, actual) expect_int((expected), (actual), __FILE__, __LINE__, #actual)
#define EXPECT_TEXT(expected, actual) expect_text((expected), (actual), __FILE__, __LINE__, #actual)

static inline bool expect_that(bool holds, const char *file, int line, const char *what)
{
    expect_checked++;
    if (!holds) {
        expect_failed++;
        fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
    }
    return holds;
}

static inline bool expect_u64(uint64_t expected, uint64_t actual, const char *file, int line, const char *what)
{
    expect_checked++;
    if (expected != actual) {
        expect_failed++;
        fprintf(stderr, "%s:%d: %s: expected %" PRIu64 ", got %" PRIu64 "\n", file, line, what, expected, actual);
    }
    return expected == actual;
}

static inline bool expect_int(long expected, long actual, const char *file, int line, const char *what)
{
    expect_checked++;
    if (expected != actual) {
        expect_failed++;
        fprintf(stderr, "%s:%d: %s: expected %ld, got %ld\n", file, line, what, expected, actual);
    }
    return expected == actual;
}

static inline bool expect_text(const char *expected, const char *actual, const char *file, int line, const char *what)
{
    bool same = actual && strcmp(expected, actual) == 0;

    expect_checked++;
    if (!same) {
        expect_failed++;
        fprintf(stderr, "%s:%d: %s:\n  expected \"%s\"\n  got      \"%s\"\n", file, line, what, expected,
                actual ? actual : "(null)");
    }
    return same;
}

/* Returns 0 if something was checked and every check held. */
static inline int expect_status(void)
{
    if (expect_checked == 0)
        fprintf(stderr, "nothing was checked\n");
    return expect_failed == 0 && expect_checked > 0 ? 0 : 1;
}

#endif
