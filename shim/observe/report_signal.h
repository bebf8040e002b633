/*
 * PENSTOCK_SIGNAL: a signal upon which the report is written while the program runs. Only where the program leaves that signal at its default action: a
 * handler of its own, or that it is ignored, stays, and one line says so.
 *
 * A constructor takes it, in every process that is to write a report: the signal ends none, whether or not it ever calls CUDA, and a forked child goes on
 * as its parent does. Where there is nothing to report nothing comes of it.
 */
#ifndef PS_REPORT_SIGNAL_H
#define PS_REPORT_SIGNAL_H

#include <stdbool.h>

/* In the set-up, also when standing aside, before the signals that end the program are taken (report.h). */
void ps_report_signal_open(void);

/* Whether the signal is taken. Any thread. */
bool ps_report_signal_is_on(void);

/* Says so once if the program has taken the signal for itself since. One thread at a time; a system call, if the signal is taken. */
void ps_report_signal_check(void);

#endif
