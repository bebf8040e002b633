/*
 * Ranks that train one step together plan it from the same figures. A launch that holds a
 * collective lasts until the last rank joins it. Each rank waits for transfers where its own plan
 * has them: where the plans differ, all ranks wait for each. (Two ranks that each waited for 265 to
 * 310 ms of a step lost 320 to 330 together, two H100;
 * tests/results/README.md#mappings-beside-copies.)
 *
 * The gain in time is less than the difference between runs (FSDP2 on two H100: 642 ms a step
 * without, 639 to 672 with it). But the prediction is then of the step that all ranks train. So is
 * the budget that the closing line names. Two ranks had predicted 579 and 603 ms of a step that
 * took 670. With it they predict 619 to 628 of 613 to 672 (2026-11-25 there).
 *
 * So each launch counts with its shortest time on any rank. The host's time counts likewise, and
 * each link with its lowest rate on any rank. The planner makes the same plan of the same figures.
 * Ranks plan by their own figures if their steps differ, or their numbers of earlier launches.
 */
#ifndef PS_RANK_TIMINGS_H
#define PS_RANK_TIMINGS_H

#include <stdbool.h>
#include <stdint.h>

#include <penstock/policy.h>

/*
 * Waits for the other ranks of this machine, as in rank_exchange.h. Changes the step's durations
 * and links, in the caller's memory, if the others train such a step. `first` is the number of the
 * step's first launch; `is_over` is as there. [unlocked; the device's planning thread]
 */
void ps_rank_timings_reach(struct penstock_step *step, uint64_t first, bool (*is_over)(void));

#endif
