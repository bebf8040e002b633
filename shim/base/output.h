/*
 * The output of Penstock, to any path that a setting names. A file is written under a name of its
 * own and renamed into place. So no reader sees half of it. A target that is no plain file is
 * written in place. It may be a device, a pipe, or a descriptor of this process, such as
 * /dev/stderr.
 *
 * Threads: any. All functions but ps_output_put_text are async-signal-safe.
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
 * Between these two functions a failing write raises no signal in this thread. The signals are
 * SIGPIPE (EPIPE: the reader is gone) and SIGXFSZ (EFBIG: the file would exceed RLIMIT_FSIZE).
 * `error` is the write's error, 0 for none. Signals that the program had pending before stay. errno
 * is left as it was.
 */
struct ps_output_signals {
    sigset_t before, theirs;
};
void ps_output_hold_signals(struct ps_output_signals *held);
void ps_output_release_signals(const struct ps_output_signals *held, int error);

/* Calls write(2) between these two functions. Sets errno as write(2) does. */
ssize_t ps_output_write(int fd, const void *bytes, size_t count);

/*
 * Writes all of the text. Returns 0 or -errno. -EAGAIN: `fd` does not block, and has taken no byte
 * for a second.
 */
int ps_output_write_whole(int fd, const char *text, size_t bytes);

/*
 * Finds the target of `path`, behind its symbolic links. A link that another user has put into a
 * directory that everybody may write to is not followed, but replaced. Returns true if the target
 * exists and is neither a plain file nor a directory. It is then written in place.
 */
bool ps_output_target(const char *path, char target[PS_SETTINGS_PATH_BYTES]);

/*
 * Opens a file to be written in place, without truncating it, and makes it if it isn't there.
 * `flags` are further flags of open(2). Returns the descriptor, for the caller to close, or -errno.
 * -ELOOP: a link of another user is there, as above.
 */
int ps_output_open(const char *path, int flags);

/* A file that is being written. */
struct ps_output {
    int fd;
    char target[PS_SETTINGS_PATH_BYTES];
    char temporary[PS_SETTINGS_PATH_BYTES + 40]; /* "": written in place */
};

/*
 * Opens the output, without waiting for the reader of a pipe. `mark` tells this process's
 * unfinished files for the same path apart. Returns 0 or -errno.
 */
int ps_output_begin(struct ps_output *output, const char *path, const char *mark);

/*
 * Closes the output. A temporary file is renamed into place, or removed after an error: `error` (0
 * or -errno), or one met here. Returns that error, or 0.
 */
int ps_output_end(struct ps_output *output, int error);

/*
 * Writes the text that `put` prints, in one call. `put` returns 0 or -errno. Returns 0 or -errno.
 */
int ps_output_put_text(const char *path, int (*put)(FILE *file, const void *what), const void *what);

#endif
