/*
 * What Penstock says when the program ends: one closing line on stderr, the JSON report that PENSTOCK_REPORT asks for, and the end of PENSTOCK_TRACE's file.
 *
 * Written once, by whichever comes first: exit(), or a signal that the program left at its default action and that would end it
 * (SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGABRT). Nothing is written by a forked child, or when no CUDA call was ever made. Until then the JSON report
 * can be had on demand (report_signal.h); the one at the end takes its place.
 */
#ifndef PS_REPORT_H
#define PS_REPORT_H

#include <stdbool.h>
#include <stddef.h>

/* Called by the constructor: a relative PENSTOCK_REPORT is meant from where the program started, and so are the other files. One getcwd, if one is set. */
void ps_report_remember_directory(void);

/* Which process of a job this is, for the report. */
struct ps_ranks;
void ps_report_set_ranks(const struct ps_ranks *ranks);

/* Makes a relative path absolute, from the directory where the program started; leaves it when it would not fit into `size`. */
void ps_report_make_absolute(char *path, size_t size);

/* From now on there is something to report. `aside`: why Penstock stands aside, a constant string, or NULL when it manages. */
void ps_report_open(const char *aside);

/* The command line, with blanks between its arguments. Constant after ps_report_open. */
const char *ps_report_command(void);

/* Writes the JSON report as it would be if the program ended now. False: the lock was not to be had, try again. Not in a signal handler. [unlocked] */
bool ps_report_write_now(void);

/* Nothing is to be written by this process (a forked child). */
void ps_report_forget(void);

/* Writes both now if that has not been done. Async-signal-safe but for the log's vsnprintf. */
void ps_report_finish(void);

#endif
