/*
 * PENSTOCK_SIGNAL: a signal upon which the report is written while the program runs. Only where the program leaves that signal at its default action: a
 * handler of its own, or that it is ignored, stays, and one line says so.
 */
#ifndef PS_REPORT_SIGNAL_H
#define PS_REPORT_SIGNAL_H

#include <stdbool.h>

/* In the set-up, before the signals that end the program are taken (report.h). */
void ps_report_signal_open(void);

/* Whether the signal is taken. Any thread. */
bool ps_report_signal_is_on(void);

/* Says so once if the program has taken the signal for itself since. One thread at a time; a system call, if the signal is taken. */
void ps_report_signal_check(void);

/* For a forked child, which nobody writes a report for: the signal does what it does by default. */
void ps_report_signal_forget(void);

#endif
