#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FULL_PIPE_MS 1000
#define LINKS_MAX 40 /* as the kernel has it */

/* The signal that the kernel sends with an error of a write; 0: none. */
static int signal_of(int error)
{
    return error == EPIPE ? SIGPIPE : error == EFBIG ? SIGXFSZ : 0;
}

void ps_output_hold_signals(struct ps_output_signals *held)
{
    sigset_t ours;

    sigemptyset(&ours);
    sigaddset(&ours, SIGPIPE);
    sigaddset(&ours, SIGXFSZ);
    sigpending(&held->theirs);
    pthread_sigmask(SIG_BLOCK, &ours, &held->before);
}

void ps_output_release_signals(const struct ps_output_signals *held, int error)
{
    static const struct timespec at_once;
    const int number = signal_of(error), saved = errno;
    sigset_t alone;

    sigemptyset(&alone);
    if (number && !sigismember(&held->theirs, number)) {
        sigaddset(&alone, number);
        while (sigtimedwait(&alone, NULL, &at_once) < 0 && errno == EINTR) {
        }
    }
    pthread_sigmask(SIG_SETMASK, &held->before, NULL);
    errno = saved;
}

ssize_t ps_output_write(int fd, const void *bytes, size_t count)
{
    struct ps_output_signals held;

    ps_output_hold_signals(&held);
    ssize_t written = write(fd, bytes, count);
    ps_output_release_signals(&held, written < 0 ? errno : 0);
    return written;
}

int ps_output_write_whole(int fd, const char *text, size_t bytes)
{
    struct pollfd room = {.fd = fd, .events = POLLOUT};

    while (bytes > 0) {
        ssize_t written = ps_output_write(fd, text, bytes);
        if (written < 0 && (errno == EINTR || (errno == EAGAIN && poll(&room, 1, FULL_PIPE_MS) > 0)))
            continue;
        if (written <= 0)
            return written ? -errno : -EIO;
        text += written;
        bytes -= (size_t)written;
    }
    return 0;
}

/* ---- where to ---- */

/* The number of the process's own descriptor that the path names, or -1. */
static int own_descriptor(const char *path)
{
    static const char *const directories[] = {"/proc/self/fd/", "/dev/fd/"};

    for (size_t i = 0; i < sizeof directories / sizeof *directories; i++) {
        size_t length = strlen(directories[i]);
        const char *digits = path + length;
        if (strncmp(path, directories[i], length) == 0 && *digits && strlen(digits) < 10 && strspn(digits, "0123456789") == strlen(digits))
            return atoi(digits);
    }
    return -1;
}

/* One symbolic link; false: it is none, or too long. */
static bool follow(char target[PS_SETTINGS_PATH_BYTES])
{
    char link[PS_SETTINGS_PATH_BYTES];
    const char *slash = strrchr(target, '/');
    ssize_t length = readlink(target, link, sizeof link);

    if (length <= 0)
        return false;
    size_t before = *link != '/' && slash ? (size_t)(slash + 1 - target) : 0;
    if (before + (size_t)length >= sizeof link)
        return false;
    memcpy(target + before, link, (size_t)length);
    target[before + (size_t)length] = '\0';
    return true;
}

bool ps_output_target(const char *path, char target[PS_SETTINGS_PATH_BYTES])
{
    struct stat status;

    snprintf(target, PS_SETTINGS_PATH_BYTES, "%s", path);
    for (int links = 0; own_descriptor(target) < 0 && links < LINKS_MAX && follow(target); links++) {
    }
    if (own_descriptor(target) >= 0)
        return true;
    if (stat(path, &status) || S_ISREG(status.st_mode) || S_ISDIR(status.st_mode))
        return false;
    snprintf(target, PS_SETTINGS_PATH_BYTES, "%s", path); /* links of /proc lead where no path does */
    return true;
}

int ps_output_begin(struct ps_output *output, const char *path, const char *mark)
{
    output->temporary[0] = '\0';
    if (!ps_output_target(path, output->target)) {
        snprintf(output->temporary, sizeof output->temporary, "%s.%d%s.tmp", output->target, (int)getpid(), mark);
        output->fd = open(output->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    } else if (own_descriptor(output->target) >= 0) {
        output->fd = fcntl(own_descriptor(output->target), F_DUPFD_CLOEXEC, 0);
    } else {
        output->fd = open(output->target, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    }
    return output->fd < 0 ? -errno : 0;
}

int ps_output_end(struct ps_output *output, int error)
{
    if (output->fd < 0)
        return error;
    if (close(output->fd) && !error)
        error = -errno;
    if (*output->temporary && !error && rename(output->temporary, output->target))
        error = -errno;
    if (*output->temporary && error)
        unlink(output->temporary);
    return error;
}

int ps_output_put_text(const char *path, int (*put)(FILE *file, const void *what), const void *what)
{
    struct ps_output output = {.fd = -1};
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);

    if (!file)
        return -ENOMEM;
    int error = put(file, what);
    if ((ferror(file) | fclose(file)) && !error)
        error = -ENOMEM;
    if (!error)
        error = ps_output_begin(&output, path, "");
    if (!error)
        error = ps_output_write_whole(output.fd, text, bytes);
    free(text);
    return ps_output_end(&output, error);
}
