/*
 * Counts training steps from the sequence of kernel launches, for the closing line. The input is
 * one fingerprint for each launch; the same kernel and shape have the same fingerprint. The output
 * is the number of rounds of the outermost repeating loop.
 *
 * Pure: fixed memory, a bounded number of operations for each launch, no clock, no allocation.
 * Threads: the caller serialises calls on one counter.
 */
#ifndef PS_STEP_COUNTER_H
#define PS_STEP_COUNTER_H

#include <stddef.h>
#include <stdint.h>

#define PS_STEP_SLOTS 2048 /* distinct fingerprints followed at a time; a power of two */

/*
 * The known facts about one fingerprint. A "round" is the stretch from one launch with it to the
 * next.
 */
struct ps_step_slot {
    uint64_t fingerprint;
    uint64_t count;        /* launches seen with it; 0: the slot is free */
    uint64_t last;         /* number of the latest of these launches */
    uint64_t last_sum;     /* running sum of all fingerprints at that launch */
    uint64_t round_length; /* launches in the latest round; 0: none yet */
    uint64_t round_sum;    /* content of the latest round: sum of its fingerprints, mixed */
    /* Length of the rounds that came twice running; the longest, unless by accident; 0: none. */
    uint64_t alike_length;
    uint64_t alike_cover; /* launches inside rounds of that length that came twice running */
};

struct ps_step_counter {
    uint64_t launches;
    uint64_t sum; /* of the mixed fingerprints of all launches, modulo 2^64 */
    /*
     * Launches of kernels that came once, as far as the counter knows, and that it forgot or never
     * noted.
     */
    uint64_t passed;
    struct ps_step_slot slots[PS_STEP_SLOTS];
};

/* Prepares a counter. */
void ps_step_init(struct ps_step_counter *counter);

/* Takes in the next launch. */
void ps_step_observe(struct ps_step_counter *counter, uint64_t fingerprint);

/*
 * Returns the number of steps so far; 0 if no loop has been recognised. An unfinished step counts
 * once most of its kernels have run. Takes a few milliseconds at worst: call it at the end of the
 * program.
 */
uint64_t ps_step_count(const struct ps_step_counter *counter);

#endif
