/*
 * The policy in force, by PENSTOCK_POLICY: a policy of this tree, or one from outside, opened once.
 *
 * Threads: ps_policies_open is called in the set-up, the other functions from any thread
 * afterwards. Nothing here takes a lock.
 */
#ifndef PS_POLICIES_H
#define PS_POLICIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/settings.h"
#include "penstock/policy.h"

/*
 * Puts the policy of the settings in force. If a policy from outside can't be used, one warning
 * says so, and the default is in force. `settings` are kept by reference.
 */
void ps_policies_open(const struct ps_settings *settings);

/* Returns the policy in force, never NULL. */
const struct penstock_policy *ps_policies_current(void);

/* Returns the user's options for the policy. */
const struct penstock_policy_options *ps_policies_options(void);

/*
 * Lets the policy choose the spans to evict, as penstock_choose_fn says. The policy breaks its
 * contract if an index is out of range or the spans cover too few bytes. Then one warning says so,
 * and the least recently used spans are chosen instead.
 */
size_t ps_policies_choose(const struct penstock_candidate *candidates, size_t n, uint64_t need_bytes, size_t *chosen);

/* Says whether PENSTOCK_RULES need the allocation order of the spans of one size (`nth`). */
bool ps_policies_want_nth(void);

/* Says whether PENSTOCK_RULES leave an allocation of `bytes` to CUDA. Any thread. */
bool ps_policies_leave_to_cuda(size_t bytes);

/*
 * Says whether PENSTOCK_RULES ask for an allocation of `bytes` to be managed in pieces. Any thread.
 */
bool ps_policies_want_pieces(size_t bytes);

/* Says whether PENSTOCK_RULES let a span with these facts be moved. */
bool ps_policies_may_move(const struct ps_span_facts *facts);

#endif
