/*
 * The durations of a step's launches, from the rounds that were timed
 * (policy/recording/durations.h). They are kept from one plan of the step to its next.
 *
 * Threads: the planning thread alone, without a lock.
 */
#ifndef PS_SETTLED_TIMES_H
#define PS_SETTLED_TIMES_H

#include <stdbool.h>
#include <stdint.h>

#include <penstock/policy.h>

/* The shortest durations of a step's launches so far; all 0: none yet. */
struct ps_settled_times {
    uint64_t *ns;
    uint32_t length;
    uint64_t found; /* the step that they are of */
};

/*
 * Changes the step's durations, in the caller's memory, to those to plan with. Durations kept under
 * another `found` are of another step and forgotten.
 */
void ps_settled_times_take(struct ps_settled_times *shortest, uint64_t found, const struct penstock_step *step,
                           const bool *timed);

#endif
