/*
 * The trace's file: events of the Chrome trace format in its array form, `[`, events with a comma
 * behind each, `]`. There is one event a line. This form needs no end: Perfetto and
 * chrome://tracing both read an array that was cut off behind an event. The other form, an object
 * with the array in it, is not JSON until it is closed. A kill or a full disk cuts at a page of the
 * file: the kernel looks for fatal signals between pages. So no event lies across two pages.
 *
 * Threads: one at a time.
 */
#ifndef PS_TRACE_FILE_H
#define PS_TRACE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PS_TRACE_PAGE 4096u
#define PS_TRACE_EVENT_MAX 2048u /* bytes of an event */

struct ps_trace_file {
    int fd;
    int error;      /* 0, or why nothing is written any more */
    uint64_t bytes; /* of the file, gathered bytes included */
    size_t used;
    char gathered[16 * PS_TRACE_PAGE];
};

/*
 * Creates or empties the file, or opens a pipe that has a reader. A regular file is locked for as
 * long as it is open. -EWOULDBLOCK: another process writes a trace there. `flags` are further flags
 * of open(2). Returns 0 or another -errno.
 */
int ps_trace_file_open(struct ps_trace_file *file, const char *path, int flags);

/* Adds an event, without comma or line break. */
void ps_trace_file_add(struct ps_trace_file *file, const char *event, size_t bytes);

/* Writes the gathered bytes. May block where the file does. Returns `error`. */
int ps_trace_file_flush(struct ps_trace_file *file);

/* Adds the last event and ends the file. Returns `error`. */
int ps_trace_file_close(struct ps_trace_file *file, const char *event, size_t bytes);

#endif
