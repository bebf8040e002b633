/*
 * What Penstock writes, to whatever it was told to write to: a file is written under a name of its own and renamed into place, so that no reader sees half
 * of it; what is no plain file (a device, a pipe, a descriptor of the process's own as /dev/stderr is) is written in place.
 *
 * Any thread; async-signal-safe but for ps_output_put_text.
 */
#ifndef PS_OUTPUT_H
#define PS_OUTPUT_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/settings.h"

/*
 * Between these two a failing write raises no signal in this thread: neither SIGPIPE (EPIPE, the reader is gone) nor SIGXFSZ (EFBIG, the file would exceed
 * RLIMIT_FSIZE). `error`: the write's, 0 for none. Signals that the program had pending before stay. errno is left as it was.
 */
struct ps_output_signals {
    sigset_t before, theirs;
};
void ps_output_hold_signals(struct ps_output_signals *held);
void ps_output_release_signals(const struct ps_output_signals *held, int error);

/* write(2) between these two. */
ssize_t ps_output_write(int fd, const void *bytes, size_t count);

/* All of it: 0 or -errno. -EAGAIN: it is not to block, and has taken nothing for a second. */
int ps_output_write_whole(int fd, const char *text, size_t bytes);

/*
 * What is written for `path`, behind its symbolic links; one that somebody else has put into a directory where anybody may is not followed, but replaced. True:
 * it is there, no plain file and no directory, and so is written in place.
 */
bool ps_output_target(const char *path, char target[PS_SETTINGS_PATH_BYTES]);

/*
 * Opens a file to be written in place, made if it isn't there, without cutting it off. `flags`: further ones of open(2). Returns the descriptor, for the caller
 * to close, or -errno; -ELOOP: a link of somebody else's is there, as above.
 */
int ps_output_open(const char *path, int flags);

/* What is being written. */
struct ps_output {
    int fd;
    char target[PS_SETTINGS_PATH_BYTES];
    char temporary[PS_SETTINGS_PATH_BYTES + 40]; /* "": in place */
};

/* Opens it, without waiting for anybody who would read a pipe. `mark`: tells files under way of this process for the same path apart. 0 or -errno. */
int ps_output_begin(struct ps_output *output, const char *path, const char *mark);

/* It takes its place, unless there was an error (0 or -errno): then nothing of it stays. That error, or one met here, or 0. */
int ps_output_end(struct ps_output *output, int error);

/* The same in one go, of what `put` prints, which returns 0 or -errno. 0 or -errno. */
int ps_output_put_text(const char *path, int (*put)(FILE *file, const void *what), const void *what);

#endif
