/*
 * The part of `penstock verify` inside a run. It watches each kernel and graph launch by itself, so
 * that a launch that faults is known by name. It reports the spans that the launch could not reach.
 *
 * scripts/command/penstock-verify makes the runs and compares them. It writes a task, which
 * PENSTOCK_VERIFY names. The findings go beside it, into TASK.seen, one JSON object after another.
 * Nothing here ends the program or changes its results. When everything asked for was seen, one
 * object says so, and the command that began the run ends it.
 *
 * A launch is known by its kernel's name and the number of earlier launches of that name. A span is
 * known by its size and the number of earlier births of that size (ps_span.nth). Both are the same
 * in each run of a program that does the same in each, whatever moves meanwhile.
 *
 * Threads: any. While the task is carried out one launch runs at a time: a lock is held from before
 * it is queued until the device has finished it. The registry lock: [locked], [unlocked].
 */
#ifndef PS_VERIFY_H
#define PS_VERIFY_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/ranks.h"
#include "base/settings.h"
#include "memory/span.h"
#include "policy/recording/recorder.h"
#include "policy/span_rules.h"

/*
 * Reads the task, and sets the guard that it asks for. Another process of the job may have taken
 * the task. If so, or without a task, the run is as without PENSTOCK_VERIFY. A task that can't be
 * read has the same effect, and is logged. Fills its part of the table of observers. Once, in the
 * set-up.
 */
void ps_verify_open(struct ps_settings *settings, const struct ps_ranks *ranks);

/* The program has ended by itself. */
void ps_verify_ended(void);

#endif
