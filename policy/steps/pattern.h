/*
 * A pattern, as the detector (detector.c) keeps it: its launches, and an index of its grams. A gram
 * is a series of PS_GRAM launches. Grams are looked up by hash, and compared launch by
 * launch.
 *
 * Pure. Threads: the caller serialises calls.
 */
#ifndef PS_PATTERN_H
#define PS_PATTERN_H

#include "policy/base/hash.h"
#include "policy/steps/detector.h"

#define PS_GRAM 8                              /* launches of a gram: enough to recognise a place */
#define PS_RING (2 * PS_PATTERN_LAUNCHES_MAX)  /* launches kept: two rounds of the longest step */
#define PS_INDEX (2 * PS_PATTERN_LAUNCHES_MAX) /* entries of a pattern's index */
#define PS_AMBIGUOUS UINT32_C(0x80000000)      /* in an index: the first of several places */
#define PS_NOWHERE UINT32_MAX

#define PS_PRIME ((UINT64_C(1) << 61) - 1)
#define PS_BASE UINT64_C(0x15f3b7c92a6e41d5)

struct ps_step_pattern {
    uint32_t length; /* 0: the slot is free */
    bool is_whole;   /* it has come round whole; if not, it goes when it breaks off */
    uint32_t strikes;
    uint32_t superseded_by; /* slot of the pattern that contains it; PS_NOWHERE: none */
    uint64_t superseder;    /* that pattern's serial */
    uint64_t serial;
    uint64_t rounds;
    uint64_t last_seen; /* launches observed when it was last followed */
    uint64_t last_wrap; /* launches observed when its last round was complete; 0: never */
    uint64_t sum;       /* of the mixed fingerprints: the same for every rotation */
    uint32_t index_mask;
    uint32_t index[PS_INDEX]; /* position after the gram + 1, maybe with PS_AMBIGUOUS; 0: free */
    uint64_t fingerprint[PS_PATTERN_LAUNCHES_MAX];
};

/* Returns x modulo PS_PRIME. */
static inline uint64_t ps_pattern_reduce(uint64_t x)
{
    x = (x & PS_PRIME) + (x >> 61);
    return x >= PS_PRIME ? x - PS_PRIME : x;
}

/* Returns a * b modulo PS_PRIME. */
static inline uint64_t ps_pattern_multiply(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;

    return ps_pattern_reduce((uint64_t)(product & PS_PRIME) + (uint64_t)(product >> 61));
}

/* Returns the hash of a series with one more launch behind it. */
static inline uint64_t ps_pattern_append(uint64_t hash, uint64_t fingerprint)
{
    return ps_pattern_reduce(ps_pattern_multiply(hash, PS_BASE) + ps_pattern_reduce(fingerprint) + 1);
}

/*
 * Returns the hash of the launches that turned the hash `before` into `after`. `power` is
 * PS_BASE to the number of these launches.
 */
static inline uint64_t ps_pattern_difference(uint64_t after, uint64_t before, uint64_t power)
{
    return ps_pattern_reduce(after + PS_PRIME - ps_pattern_multiply(before, power));
}

/* Rebuilds the index from `length` and `fingerprint`. */
void ps_step_pattern_index(struct ps_step_pattern *pattern);

/*
 * Returns the place in the pattern behind a gram; with PS_AMBIGUOUS it is the first of
 * several. Returns PS_NOWHERE if the pattern doesn't have the gram. The gram ends with
 * launch `launch` of the history, a ring of PS_RING launches, and has the hash `gram`.
 */
uint32_t ps_step_pattern_find(const struct ps_step_pattern *pattern, uint64_t gram, const uint64_t *history,
                              uint64_t launch);

/* Returns whether `longer` has all of `shorter`, except the place where the rounds of it meet. */
bool ps_step_pattern_contains(const struct ps_step_pattern *longer, const struct ps_step_pattern *shorter);

#endif
