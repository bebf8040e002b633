/*
 * Ranks that train one step together plan it from the same figures. A launch that holds a collective takes as long as the last rank keeps the others waiting; and each
 * rank stands still for transfers where its own plan has them: where the plans differ, all stand still for each. (Two ranks that each stood still for 265 to 310 ms of
 * a step lost 320 to 330 together, two H100; tests/results/README.md, 2026-11-24.)
 *
 * So each launch counts what it took where it took least, the host's time likewise, and the link what it carries where it carries least. The planner makes the same of the
 * same; where the ranks' steps are not alike, each plans by its own figures.
 */
#ifndef PS_AGREEMENT_H
#define PS_AGREEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include <penstock/policy.h>

/*
 * Waits for the other ranks of this machine as peers.h has it, and changes the step's durations and links, in the caller's memory. `first`: the number of its first launch.
 * `meanwhile`: as there. Returns how many other ranks the figures are of. [unlocked; the device's planning thread]
 */
uint32_t ps_agreement_reach(struct penstock_step *step, uint64_t first, bool (*meanwhile)(void));

#endif
