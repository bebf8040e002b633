/*
 * Learning: feeds the step detector and the recorder with the program's launches and allocations. A
 * policy makes a plan of each step that is found.
 *
 * Learning knows spans and launches, and hands plans to following.h. It does not touch residency.
 * The lock is the registry's: [locked], [unlocked].
 */
#ifndef PS_LEARNING_H
#define PS_LEARNING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/span.h"
#include "penstock/policy.h"
#include "policy/recording/recorder.h"

/*
 * Opens learning. Learns nothing if the policy never plans or memory for learning is missing.
 * Called once, in the set-up.
 */
void ps_learning_open(const struct penstock_policy *policy, const struct penstock_policy_options *options);

/* Returns whether anything is learnt. Any thread. */
bool ps_learning_is_on(void);

/*
 * Stands for the number of a launch that no step is made of. Such a launch named freed spans alone,
 * or it is one that may as well name no span (stale_pointers.h).
 */
#define PS_LAUNCH_NOT_LEARNT UINT64_MAX

/*
 * A launch that names these live spans is about to be queued, on the stream of index `stream`.
 * Returns its number, counted from when learning began. [locked]
 */
uint64_t ps_learning_launch(struct ps_span *const *spans, size_t count, uint64_t fingerprint, uint32_t stream,
                            struct ps_recorded_layer layer);

/*
 * A launch is about to be queued that no step is made of. Its spans count as named by the next
 * launch. [locked]
 */
void ps_learning_stale_launch(struct ps_span *const *spans, size_t count);

void ps_learning_allocated(struct ps_span *span);   /* [locked] */
void ps_learning_freed(const struct ps_span *span); /* its life has not ended yet [locked] */

/*
 * Returns the number of the span that an earlier launch named in that place (counted from 0); 0:
 * not known. [locked]
 */
uint64_t ps_learning_named(uint64_t launch, uint32_t place);

/* For the report. [locked] or at the end. */
void ps_learning_summary(struct ps_steps_summary *out);

/* The cost until the first plan, from the first launch or allocation that was learnt from. */
struct ps_learning_cost {
    uint64_t launches;
    uint64_t ns;           /* 0: there has been no plan */
    uint64_t host_wait_ns; /* the part in which the program's threads waited for pages */
};
struct ps_learning_cost ps_learning_cost(void); /* [locked] or at the end */

/*
 * Returns the least budget, in bytes, under which the step planned last would wait for nothing. 0:
 * the present budget, or not known. [locked] or at the end
 */
uint64_t ps_learning_enough_bytes(void);

#endif
