/*
 * What is told of the process while it runs: its live page (live_page.h), PENSTOCK_METRICS, PENSTOCK_PROMETHEUS, and a report on demand.
 *
 * A thread of its own looks ten times a second, since a process with memory enough has no other: it takes figures with each device's lock (for
 * less than a microsecond, and never in a queue for it), and writes them without. It makes no driver call, and no system call for the page but to sleep.
 */
#ifndef PS_LIVE_H
#define PS_LIVE_H

#include "base/ranks.h"

/*
 * In the set-up, when devices are managed or `aside` says why none is: makes the page, and starts the thread if there is something for it to do. What
 * can't be had is said (a page that can't be is no more than an info) and left out.
 */
void ps_live_open(const struct ps_ranks *ranks, const char *aside);

/* In the set-up of each device, at which the thread is: its steps are kept from the first on, if they are to be written. */
void ps_live_open_device(void);

/* The report is wanted now; the thread writes it. Async-signal-safe. */
void ps_live_want_report(void);

/* At the end, after the report: last lines and figures are written, for which it waits half a second at most, and the page goes. Async-signal-safe. */
void ps_live_finish(void);

/* The page, and all that is written, is the parent's: for a forked child. */
void ps_live_disown(void);

#endif
