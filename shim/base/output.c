#include "base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define FULL_PIPE_MS 1000
#define LINKS_MAX 40 /* the kernel's own limit */
#define NAMES_MAX 100

/* Returns the signal that the kernel sends with an error of a write; 0: none. */
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

/* ---- targets ---- */

/* Returns the number of the process's own descriptor that the path names, or -1. */
static int own_descriptor(const char *path)
{
    static const char *const directories[] = {"/proc/self/fd/", "/dev/fd/"};

    for (size_t i = 0; i < sizeof directories / sizeof *directories; i++) {
        size_t length = strlen(directories[i]);
        const char *digits = path + length;
        if (strncmp(path, directories[i], length) == 0 && *digits && strlen(digits) < 10 &&
            strspn(digits, "0123456789") == strlen(digits))
            return atoi(digits);
    }
    return -1;
}

/* Follows one symbolic link. Returns false if `target` is no link, or the result is too long. */
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

/*
 * Returns whether another user has put this link into a directory that every user can write to.
 * That user chooses its target. Under fs.protected_symlinks the kernel follows no such link, but it
 * does not see links that are read here.
 */
static bool is_others_link(const char *path)
{
    char directory[PS_SETTINGS_PATH_BYTES] = ".";
    const char *slash = strrchr(path, '/');
    struct stat link, parent;

    if (lstat(path, &link) || !S_ISLNK(link.st_mode) || link.st_uid == geteuid())
        return false;
    if (slash)
        snprintf(directory, sizeof directory, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    return stat(directory, &parent) || ((parent.st_mode & S_IWOTH) && link.st_uid != parent.st_uid);
}

/* Follows the path's links as long as they can be trusted. Returns false at a link that can't. */
static bool follow_all(const char *path, char target[PS_SETTINGS_PATH_BYTES])
{
    bool trusted = true;

    snprintf(target, PS_SETTINGS_PATH_BYTES, "%s", path);
    for (int links = 0; own_descriptor(target) < 0 && links < LINKS_MAX; links++) {
        trusted = !is_others_link(target);
        if (!trusted || !follow(target))
            break;
    }
    return trusted;
}

bool ps_output_target(const char *path, char target[PS_SETTINGS_PATH_BYTES])
{
    struct stat status;

    if (!follow_all(path, target))
        return false;
    if (own_descriptor(target) >= 0)
        return true;
    if (stat(path, &status) || S_ISREG(status.st_mode) || S_ISDIR(status.st_mode))
        return false;
    /* Links of /proc may lead where no path leads. */
    snprintf(target, PS_SETTINGS_PATH_BYTES, "%s", path);
    return true;
}

/*
 * Returns whether the opened file is the one that the path names, without an untrusted link on the
 * way.
 */
static bool is_what_is_named(const char *path, int fd)
{
    char target[PS_SETTINGS_PATH_BYTES];
    struct stat named, opened;

    if (!follow_all(path, target) || lstat(path, &named))
        return false;
    if (S_ISLNK(named.st_mode))
        return true; /* ours, or the directory owner's: no other user can have put it there */
    return !fstat(fd, &opened) && named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

int ps_output_open(const char *path, int flags)
{
    char target[PS_SETTINGS_PATH_BYTES];

    if (!follow_all(path, target))
        return -ELOOP;
    int fd = open(path, flags | O_WRONLY | O_CREAT | O_NOCTTY | O_CLOEXEC, 0666);
    if (fd < 0)
        return -errno;
    if (is_what_is_named(path, fd))
        return fd;
    close(fd);
    return -ELOOP;
}

/*
 * Makes a new file under a name that other users can't have guessed. They may write to the
 * directory, and the process's number is no secret. Returns -1 with errno set if it fails.
 */
static int make_temporary(struct ps_output *output, const char *mark)
{
    int fd = -1;

    for (unsigned tries = 0; fd < 0 && tries < NAMES_MAX; tries++) {
        uint32_t random = 0;
        if (getrandom(&random, sizeof random, GRND_NONBLOCK) != (ssize_t)sizeof random)
            random = (uint32_t)ps_now_ns() + tries;
        snprintf(output->temporary, sizeof output->temporary, "%s.%d%s.%08x.tmp", output->target, (int)getpid(), mark,
                 random);
        fd = open(output->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    if (fd < 0)
        output->temporary[0] = '\0'; /* if a file of this name exists, it is not ours */
    return fd;
}

int ps_output_begin(struct ps_output *output, const char *path, const char *mark)
{
    output->temporary[0] = '\0';
    if (!ps_output_target(path, output->target)) {
        output->fd = make_temporary(output, mark);
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
