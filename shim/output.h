/*
 * What Penstock writes, to whatever it was told to write to. Any thread; async-signal-safe.
 */
#ifndef PS_OUTPUT_H
#define PS_OUTPUT_H

#include <stddef.h>
#include <sys/types.h>

/* write(2), but for the signal of a pipe or socket whose reader is gone: that is EPIPE and nothing else, whatever the program does with SIGPIPE. */
ssize_t ps_output_write(int fd, const void *bytes, size_t count);

#endif
