/*
 * Counts training steps from the stream of kernel launches, for the closing line. One fingerprint per launch goes in (same kernel, same
 * shape: same fingerprint); the number of rounds of the outermost repeating loop comes out.
 *
 * Pure: fixed memory, a bounded number of operations per launch, no clock, no allocation. Threads: the caller serialises calls on one
 * counter.
 */
#ifndef PS_COUNTER_H
#define PS_COUNTER_H

#include <stddef.h>
#include <stdint.h>

#define PS_STEP_SLOTS 2048 /* distinct fingerprints followed at a time; a power of two */

/* What is known of one fingerprint. A "round" is the stretch from one launch with it to the next. */
struct ps_step_slot {
    uint64_t fingerprint;
    uint64_t count;        /* launches seen with it; 0: the slot is free */
    uint64_t last;         /* number of the latest of these launches */
    uint64_t last_sum;     /* running sum of all fingerprints at that launch */
    uint64_t round_length; /* launches in the latest round; 0: none yet */
    uint64_t round_sum;    /* content of the latest round: sum of its fingerprints, mixed */
    uint64_t alike_length; /* length of the rounds that came twice running, the longest such unless it was an accident; 0: none */
    uint64_t alike_cover;  /* launches inside rounds of that length that came twice running */
};

struct ps_step_counter {
    uint64_t launches;
    uint64_t sum;    /* of the mixed fingerprints of all launches, modulo 2^64 */
    uint64_t passed; /* launches of kernels that came once, as far as is known, and were forgotten or never noted */
    struct ps_step_slot slots[PS_STEP_SLOTS];
};

void ps_step_init(struct ps_step_counter *counter);

/* Takes in the next launch. */
void ps_step_observe(struct ps_step_counter *counter, uint64_t fingerprint);

/*
 * How many steps there have been so far, one that is not over counting as soon as most of its kernels have run; 0 when no loop has been
 * recognised. Takes a few milliseconds at worst: for the end of the program.
 */
uint64_t ps_step_count(const struct ps_step_counter *counter);

#endif
