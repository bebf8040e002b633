/*
 * Which policy is in force, by PENSTOCK_POLICY: one of the tree's own, or one from outside, opened once.
 *
 * Threads: ps_policies_open at the set-up; the rest from any thread afterwards. Nothing here takes a lock.
 */
#ifndef PS_POLICIES_H
#define PS_POLICIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/settings.h"
#include "penstock/policy.h"

/* A policy from outside that can't be used is said once, and the default is in force. `settings` are kept by reference. */
void ps_policies_open(const struct ps_settings *settings);

/* The policy in force, never NULL, and what the user asked of it. */
const struct penstock_policy *ps_policies_current(void);
const struct penstock_policy_options *ps_policies_options(void);

/*
 * The policy's choice of what to evict, as penstock_choose_fn says. One that does not keep to that (an index that is none, too little covered)
 * is said once, and the least recently used go instead.
 */
size_t ps_policies_choose(const struct penstock_candidate *candidates, size_t n, uint64_t need_bytes, size_t *chosen);

/* Whether PENSTOCK_RULES ask which of the spans of its size a span is. */
bool ps_policies_want_nth(void);

/* Whether PENSTOCK_RULES leave an allocation of so many bytes to CUDA. Any thread. */
bool ps_policies_leave_to_cuda(size_t bytes);

/* Whether PENSTOCK_RULES ask for an allocation of so many bytes to be managed in pieces. Any thread. */
bool ps_policies_want_pieces(size_t bytes);

/* Whether PENSTOCK_RULES let a span with these facts be moved. */
bool ps_policies_may_move(const struct ps_span_facts *facts);

#endif
