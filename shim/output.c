#include "output.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

ssize_t ps_output_write(int fd, const void *bytes, size_t count)
{
    static const struct timespec at_once;
    sigset_t pipe_alone, before, pending;

    sigemptyset(&pipe_alone);
    sigaddset(&pipe_alone, SIGPIPE);
    sigpending(&pending);
    const bool theirs = sigismember(&pending, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_alone, &before);
    ssize_t written = write(fd, bytes, count);
    int error = errno;
    if (written < 0 && error == EPIPE && !theirs)
        while (sigtimedwait(&pipe_alone, NULL, &at_once) < 0 && errno == EINTR) {
        }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return written;
}
