/*
 * Shows the process to people while it runs: its live page (live_page.h), PENSTOCK_METRICS,
 * PENSTOCK_PROMETHEUS, and a report on demand.
 *
 * A thread of its own looks ten times a second, since a process with enough memory has no other. It
 * takes figures with each device's lock, for less than a microsecond, and never queues for the
 * lock. It writes them without the lock. It makes no driver call. For the page its only system call
 * is to sleep.
 */
#ifndef PS_LIVE_H
#define PS_LIVE_H

#include "base/ranks.h"

/*
 * Makes the page, and starts the thread if it has work. Called in the set-up, when devices are
 * managed or `aside` says why none is. A file that can't be made is logged and left out; a page
 * that can't be made is logged as info only.
 */
void ps_live_open(const struct ps_ranks *ranks, const char *aside);

/*
 * Called in the set-up of each device, with the thread at it. Keeps its steps from the first on, if
 * they are to be written.
 */
void ps_live_open_device(void);

/* Asks for the report now; the thread writes it. Async-signal-safe. */
void ps_live_want_report(void);

/*
 * Writes the last lines and figures, waiting half a second at most, and removes the page. Called at
 * the end, after the report. Async-signal-safe.
 */
void ps_live_finish(void);

/* For a forked child: the page and all written files are the parent's. */
void ps_live_disown(void);

#endif
