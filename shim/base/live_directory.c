#include "base/live_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

/* Values of linux/magic.h, which some machines lack. */
#define TMPFS 0x01021994
#define RAMFS 0x858458f6

/*
 * Finds the directory's path and its parent's. Returns false if the environment names none, or the
 * path is too long.
 */
static bool paths(unsigned which, char parent[PS_LIVE_PATH_BYTES], char path[PS_LIVE_PATH_BYTES])
{
    const char *runtime = which == 0 ? getenv("XDG_RUNTIME_DIR") : "/dev/shm";

    if (!runtime || *runtime != '/' || snprintf(parent, PS_LIVE_PATH_BYTES, "%s", runtime) >= PS_LIVE_PATH_BYTES - 32)
        return false;
    if (which == 0)
        snprintf(path, PS_LIVE_PATH_BYTES, "%.4000s/penstock", runtime);
    else
        snprintf(path, PS_LIVE_PATH_BYTES, "%.4000s/penstock-%u", runtime, (unsigned)geteuid());
    return true;
}

static bool is_memory(int fd)
{
    struct statfs system;

    return !fstatfs(fd, &system) && ((unsigned long)system.f_type == TMPFS || (unsigned long)system.f_type == RAMFS);
}

int ps_live_directory_open(unsigned which, bool make, char path[PS_LIVE_PATH_BYTES])
{
    char parent[PS_LIVE_PATH_BYTES];
    struct stat status;
    int error = 0;

    if (!paths(which, parent, path))
        return -ENOENT;
    /* After su or sudo the variable may name another user's directory. */
    if (which == 0 && (stat(parent, &status) || status.st_uid != geteuid()))
        return -ENOENT;
    if (make && mkdir(path, 0700) && errno != EEXIST)
        return -errno;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ELOOP || errno == ENOTDIR || errno == EACCES ? -EPERM : -errno;
    if (fstat(fd, &status))
        error = -errno;
    else if (status.st_uid != geteuid() || (status.st_mode & 077))
        error = -EPERM;
    else if (make && !is_memory(fd))
        error = -ENOTSUP;
    if (!error)
        return fd;
    close(fd);
    return error;
}

int ps_live_directory_open_any(char path[PS_LIVE_PATH_BYTES])
{
    int directory = -ENOENT;

    for (unsigned i = 0; directory < 0 && i < PS_LIVE_DIRECTORIES; i++)
        directory = ps_live_directory_open(i, true, path);
    return directory;
}

/*
 * Returns field `number` (from 3 on) of a line of /proc/PID/stat. `after_name` points behind the
 * name in brackets, which may hold any character.
 */
static uint64_t field_of(const char *after_name, int number)
{
    for (int i = 3; after_name && i < number; i++)
        after_name = strchr(after_name + 1, ' ');
    return after_name ? strtoull(after_name + 1, NULL, 10) : 0;
}

int ps_live_identity_of(pid_t pid, struct ps_live_identity *out)
{
    char path[64], text[1024];
    struct stat status;
    ssize_t n = -1;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        n = read(fd, text, sizeof text - 1);
        close(fd);
    }
    if (n <= 0)
        return -ESRCH;
    text[n] = 0;
    const char *after_name = strrchr(text, ')');
    if (!after_name || !after_name[1] || after_name[2] == 'Z' || after_name[2] == 'X')
        return -ESRCH;
    *out = (struct ps_live_identity){.pid = (uint64_t)pid};
    out->pid_namespace = stat("/proc/self/ns/pid", &status) ? 0 : (uint64_t)status.st_ino;
    out->start_ticks = field_of(after_name + 1, 22);
    out->stack = field_of(after_name + 1, 28);
    return 0;
}

void ps_live_name(char name[PS_LIVE_NAME_BYTES], const struct ps_live_identity *of)
{
    snprintf(name, PS_LIVE_NAME_BYTES, "%llu-%llu", (unsigned long long)of->pid, (unsigned long long)of->pid_namespace);
}

/* Reads process and namespace from a file's name. Returns false if it is no name of a live page. */
static bool parse_name(const char *name, struct ps_live_identity *out)
{
    char same[PS_LIVE_NAME_BYTES], *end;

    *out = (struct ps_live_identity){.pid = strtoull(name, &end, 10)};
    if (*end != '-' || !out->pid || out->pid > INT32_MAX)
        return false;
    out->pid_namespace = strtoull(end + 1, &end, 10);
    ps_live_name(same, out);
    return !strcmp(same, name);
}

/*
 * Returns whether the process that now has this number made the page, and is still the same
 * program.
 */
static bool is_of(const struct ps_live_identity *page, const struct ps_live_identity *now)
{
    bool other_program = page->stack && now->stack && page->stack != now->stack;

    return page->pid == now->pid && page->start_ticks == now->start_ticks && !other_program;
}

bool ps_live_identity_lives(const struct ps_live_identity *of)
{
    struct ps_live_identity now;

    return of->pid <= INT32_MAX && !ps_live_identity_of((pid_t)of->pid, &now) && is_of(of, &now);
}

enum ps_live_found ps_live_look_at(int directory, const char *name, struct ps_live_header *header, int *fd)
{
    struct ps_live_identity named, now, own;
    struct stat status;

    *fd = -1;
    memset(header, 0, sizeof *header);
    if (!parse_name(name, &named) || ps_live_identity_of(getpid(), &own))
        return PS_LIVE_FOUND_NO_PAGE;
    if (named.pid_namespace != own.pid_namespace)
        return PS_LIVE_FOUND_ELSEWHERE;
    if (ps_live_identity_of((pid_t)named.pid, &now))
        return PS_LIVE_FOUND_LEFT_OVER;
    int opened = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (opened < 0)
        return PS_LIVE_FOUND_NO_PAGE;
    bool whole = pread(opened, header, sizeof *header, 0) == (ssize_t)sizeof *header && !fstat(opened, &status) &&
                 S_ISREG(status.st_mode) && !memcmp(header->magic, PS_LIVE_MAGIC, sizeof header->magic);
    enum ps_live_found found = PS_LIVE_FOUND_NO_PAGE;
    if (whole && header->version != PS_LIVE_VERSION)
        found = PS_LIVE_FOUND_OTHER_VERSION;
    else if (whole && !is_of(&header->identity, &now))
        found = PS_LIVE_FOUND_LEFT_OVER;
    else if (whole && header->bytes == sizeof(struct ps_live_page) &&
             status.st_size == (off_t)sizeof(struct ps_live_page))
        found = PS_LIVE_FOUND_LIVES;
    if (found == PS_LIVE_FOUND_LIVES)
        *fd = opened;
    else
        close(opened);
    return found;
}

/*
 * Returns whether the file is a note of a process that has ended. The file's name shows it. If
 * another process has the number by now, the start of the file shows it.
 */
static bool is_left_over_note(int directory, const char *name)
{
    struct ps_live_identity named = {0}, now, own;
    struct ps_live_note note;
    char whose[PS_LIVE_NAME_BYTES], *end;

    if (strncmp(name, PS_LIVE_NOTE, sizeof PS_LIVE_NOTE - 1) != 0 || ps_live_identity_of(getpid(), &own))
        return false;
    const char *of = name + sizeof PS_LIVE_NOTE - 1;
    named.pid = strtoull(of, &end, 10);
    if (*end != '-' || !named.pid || named.pid > INT32_MAX)
        return false;
    /* The numbers stand there as ps_live_name() writes them, without a sign or zeros in front. */
    named.pid_namespace = own.pid_namespace;
    ps_live_name(whose, &named);
    if (strncmp(of, whose, strlen(whose)) != 0 || of[strlen(whose)] != '-')
        return false;
    if (ps_live_identity_of((pid_t)named.pid, &now))
        return true;
    int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool whole = pread(fd, &note, sizeof note, 0) == (ssize_t)sizeof note &&
                 !memcmp(note.magic, PS_LIVE_NOTE_MAGIC, sizeof note.magic);
    close(fd);
    return whole && !is_of(&note.identity, &now);
}

void ps_live_each(int directory, ps_live_page_fn page, void *ctx)
{
    struct ps_live_header header;
    const struct dirent *entry;
    int fd, own = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = own < 0 ? NULL : fdopendir(own);

    if (!listing) {
        if (own >= 0)
            close(own);
        return;
    }
    while ((entry = readdir(listing))) {
        enum ps_live_found found = ps_live_look_at(directory, entry->d_name, &header, &fd);
        if (found == PS_LIVE_FOUND_LEFT_OVER ||
            (found == PS_LIVE_FOUND_NO_PAGE && is_left_over_note(directory, entry->d_name)))
            unlinkat(directory, entry->d_name, 0);
        else if (found != PS_LIVE_FOUND_NO_PAGE && page)
            page(found, entry->d_name, fd, &header, ctx);
        if (fd >= 0)
            close(fd);
    }
    closedir(listing);
}
