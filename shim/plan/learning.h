/*
 * Learning: feeds the step detector and the recorder with what the program does, and has a policy make a plan of each step that is found.
 *
 * It knows spans and launches, and hands plans to following.h; what a plan does to residency is not its business. The lock is the registry's:
 * [locked], [unlocked].
 */
#ifndef PS_LEARNING_H
#define PS_LEARNING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/span.h"
#include "penstock/policy.h"
#include "policy/recording/recorder.h"

/* A policy that never plans, or no memory for what is learnt: nothing is learnt. Once, in the set-up. */
void ps_learning_open(const struct penstock_policy *policy, const struct penstock_policy_options *options);

/* Whether anything is learnt. Any thread. */
bool ps_learning_is_on(void);

/* In place of the number of a launch that no step is made of: it named freed spans alone, or it is one that may as well name none (stale_pointers.h). */
#define PS_LAUNCH_NOT_LEARNT UINT64_MAX

/* A launch is about to be queued, on the stream of that index, that names these live spans. Returns its number, counted from when learning began. [locked] */
uint64_t ps_learning_launch(struct ps_span *const *spans, size_t count, uint64_t fingerprint, uint32_t stream,
                            struct ps_recorded_layer layer);

/* One that no step is made of: what it names counts as named by the launch that comes next. [locked] */
void ps_learning_unsteady_launch(struct ps_span *const *spans, size_t count);

void ps_learning_allocated(struct ps_span *span);   /* [locked] */
void ps_learning_freed(const struct ps_span *span); /* its life has not ended yet [locked] */

/* The number of the span that an earlier launch named in that place (counted from 0); 0: not known. [locked] */
uint64_t ps_learning_named(uint64_t launch, uint32_t place);

/* For the report. [locked] or at the end. */
void ps_learning_summary(struct ps_steps_summary *out);

/* What it took until a plan was there: from the first launch or allocation that was learnt from until the first plan. */
struct ps_learning_cost {
    uint64_t launches;
    uint64_t ns;           /* 0: there has been no plan */
    uint64_t host_wait_ns; /* of these, the program's threads waited for pages */
};
struct ps_learning_cost ps_learning_cost(void); /* [locked] or at the end */

/* The least budget, in bytes, under which the step that was planned last would wait for nothing; 0: this one, or not known. [locked] or at the end */
uint64_t ps_learning_enough_bytes(void);

#endif
