/*
 * What `penstock verify` asks of a run: watch each kernel and graph launch by itself, so that one that faults is known by name, and tell what the
 * spans were that it could not reach.
 *
 * The runs are made and compared by scripts/penstock-verify. It writes a task, which PENSTOCK_VERIFY names; what was seen goes beside it, into
 * TASK.seen, one JSON object after another. Nothing here ends the program or changes what it computes: when all is seen that was asked for, one says so, and
 * the command that began the run ends it.
 *
 * A launch is known by its kernel's name and how many launches of that name came before; a span by its size and how many of that size were
 * born before (ps_span.nth). Both are the same in each run of a program that does the same in each, whatever moves meanwhile.
 *
 * Threads: any. While the task is carried out one launch runs at a time: a lock is held from before it is queued until the device is through with it.
 * The registry lock: [locked], [unlocked].
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
 * Reads the task, if there is one and no other process of the job has taken it, and sets the guard that it asks for. Without one, or when it can't be
 * read, which is said, all is as without PENSTOCK_VERIFY. It fills the table of observers. Once, in the set-up.
 */
void ps_verify_open(struct ps_settings *settings, const struct ps_ranks *ranks);

/* Penstock stands aside: the run shows nothing. */
void ps_verify_aside(const char *why);

/* The program has come to its end by itself. */
void ps_verify_ended(void);

#endif
