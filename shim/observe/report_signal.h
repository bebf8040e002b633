/*
 * PENSTOCK_SIGNAL: a signal upon which the report is written while the program runs. It is taken
 * only if the program leaves it at its default action. A program's own handler, or its choice to
 * ignore the signal, stays, and one line says so.
 *
 * A constructor takes the signal in every process that should write a report. So it ends no
 * process, whether or not that ever calls CUDA. A forked child does as its parent does. Without
 * anything to report the signal has no effect.
 */
#ifndef PS_REPORT_SIGNAL_H
#define PS_REPORT_SIGNAL_H

#include <stdbool.h>

/*
 * Called in the set-up, also when standing aside, before the signals that end the program are taken
 * (report.h).
 */
void ps_report_signal_open(void);

/* Returns whether the signal is taken. Any thread. */
bool ps_report_signal_is_on(void);

/*
 * Logs once if the program has since taken the signal for itself. One thread at a time; makes a
 * system call if the signal is taken.
 */
void ps_report_signal_check(void);

#endif
