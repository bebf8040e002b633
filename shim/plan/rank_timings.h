/*
 * Ranks that train one step together plan it from the same figures. A launch that holds a collective takes as long as the last rank keeps the others waiting; and each
 * rank stands still for transfers where its own plan has them: where the plans differ, all stand still for each. (Two ranks that each stood still for 265 to 310 ms of
 * a step lost 320 to 330 together, two H100; tests/results/README.md#mappings-beside-copies.)
 *
 * What it gains in time is less than what runs differ by (FSDP2 on two H100: 642 ms a step without between 639 and 672 with it); but what is predicted, and the budget that the
 * closing line names, are of the step that all train: two ranks had said 579 and 603 ms of one that took 670, and say 619 to 628 of 613 to 672 (2026-11-25 there).
 *
 * So each launch counts what it took where it took least, the host's time likewise, and the link what it carries where it carries least. The planner makes the same of the
 * same. Where the ranks' steps are not alike, or they had not as many launches before them, each plans by its own figures.
 */
#ifndef PS_RANK_TIMINGS_H
#define PS_RANK_TIMINGS_H

#include <stdbool.h>
#include <stdint.h>

#include <penstock/policy.h>

/*
 * Waits for the other ranks of this machine as rank_exchange.h has it, and changes the step's durations and links, in the caller's memory, if they train such a step. `first`: the
 * number of its first launch. `is_over`: as there. [unlocked; the device's planning thread]
 */
void ps_rank_timings_reach(struct penstock_step *step, uint64_t first, bool (*is_over)(void));

#endif
