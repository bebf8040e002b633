/*
 * Penstock's words at the program's end: one closing line on stderr, the JSON report that
 * PENSTOCK_REPORT asks for, and the end of PENSTOCK_TRACE's file.
 *
 * They are written once, at exit() or at a signal that would end the program, whichever comes
 * first. The program left that signal at its default action (SIGTERM, SIGINT, SIGHUP, SIGQUIT,
 * SIGABRT). A forked child writes nothing, nor does a process that never made a CUDA call. Until
 * the end the JSON report is available on demand (report_signal.h); the one at the end takes its
 * place.
 */
#ifndef PS_REPORT_H
#define PS_REPORT_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Remembers where the program started: a relative PENSTOCK_REPORT is meant from there, and so are
 * the other files. The constructor calls it. One getcwd, if one is set.
 */
void ps_report_remember_directory(void);

/* Sets the process's place in its job, for the report. */
struct ps_ranks;
void ps_report_set_ranks(const struct ps_ranks *ranks);

/*
 * Makes a relative path absolute, from the directory where the program started. Leaves a path that
 * would not fit into `size`.
 */
void ps_report_make_absolute(char *path, size_t size);

/*
 * From now on there is something to report. `aside` says why Penstock stands aside, a constant
 * string; NULL: it manages.
 */
void ps_report_open(const char *aside);

/* Returns the command line, with blanks between its arguments. Constant after ps_report_open. */
const char *ps_report_command(void);

/*
 * Writes the JSON report as if the program ended now. False: the lock was not available, try again.
 * Not in a signal handler. [unlocked]
 */
bool ps_report_write_now(void);

/* Lets this process write nothing (a forked child). */
void ps_report_forget(void);

/*
 * Writes the report, the trace's end and the closing line now if that has not been done.
 * Async-signal-safe but for the log's vsnprintf.
 */
void ps_report_finish(void);

#endif
