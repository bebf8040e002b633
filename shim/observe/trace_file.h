/*
 * The trace's file: events of the Chrome trace format, one a line, in its array form, `[`, events with a comma behind each, `]`. Of the two forms this
 * is the one that needs no end: Perfetto and chrome://tracing both read an array that was cut off behind an event. The other, an object with the array in
 * it, is not JSON until it is closed. What kills the process, or fills the disk, cuts at a page of the file (the kernel looks for fatal signals between
 * pages), so no event lies across two.
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
    uint64_t bytes; /* of the file, those gathered included */
    size_t used;
    char gathered[16 * PS_TRACE_PAGE];
};

/*
 * Makes it anew, or opens a pipe that somebody reads. It is locked for as long as it is open: -EWOULDBLOCK: another process writes a trace
 * there. `flags`: further ones of open(2). 0 or another -errno.
 */
int ps_trace_file_open(struct ps_trace_file *file, const char *path, int flags);

/* Adds an event, without comma or line break. */
void ps_trace_file_add(struct ps_trace_file *file, const char *event, size_t bytes);

/* Hands over what is gathered. May block where the file does. Returns `error`. */
int ps_trace_file_flush(struct ps_trace_file *file);

/* Adds the last event and ends the file. Returns `error`. */
int ps_trace_file_close(struct ps_trace_file *file, const char *event, size_t bytes);

#endif
