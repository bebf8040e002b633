/*
 * The name of a file among the live pages up to a NUL, the text of /proc/PID/stat up to another
 * one, and the contents of the file. A name that is accepted is printed to the same. An identity is
 * the one that a second reading finds. Only what a process that ended has left is removed.
 */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

enum { STAT_FD = 1000, FILE_FD };

static const char *stat_text; /* NULL: there is no such process */
static struct fuzz_input file;

static int open_virtual(const char *path)
{
    fuzz_require(!strncmp(path, "/proc/", 6));
    return stat_text ? STAT_FD : -1;
}

static ssize_t read_virtual(int fd, char *to, size_t bytes)
{
    fuzz_require(fd == STAT_FD);
    bytes = bytes < strlen(stat_text) ? bytes : strlen(stat_text);
    memcpy(to, stat_text, bytes);
    return (ssize_t)bytes;
}

static ssize_t read_file(int fd, void *to, size_t bytes)
{
    fuzz_require(fd == FILE_FD);
    bytes = bytes < file.left ? bytes : file.left;
    if (bytes)
        memcpy(to, file.at, bytes);
    return (ssize_t)bytes;
}

static int file_status(int fd, struct stat *out)
{
    fuzz_require(fd == FILE_FD);
    *out = (struct stat){.st_mode = S_IFREG | 0600, .st_size = (off_t)file.left};
    return 0;
}

#define open(path, flags) open_virtual(path)
#define read(fd, to, bytes) read_virtual(fd, to, bytes)
#define openat(directory, name, flags) ((void)(directory), (void)(name), (int)FILE_FD)
#define pread(fd, to, bytes, offset) read_file(fd, to, bytes)
#define fstat(fd, out) file_status(fd, out)
#define close(fd) (void)(fd)
/* The directories themselves are not part of this target; they have these functions' own forms. */
#include "shim/base/live_directory.c"
#undef open
#undef read
#undef openat
#undef pread
#undef fstat
#undef close

/* Reads the fields behind the last bracket, as proc(5) numbers them from 3 on. */
static bool read_identity(const char *text, struct ps_live_identity *out)
{
    const char *behind = strrchr(text, ')');
    int number = 3;

    if (!behind || !behind[1] || (behind[2] == 'Z' || behind[2] == 'X'))
        return false;
    for (const char *at = behind + 2; at && *at; number++) {
        if (number == 22)
            out->start_ticks = strtoull(at, NULL, 10);
        if (number == 28)
            out->stack = strtoull(at, NULL, 10);
        at = strchr(at, ' ');
        at = at ? at + 1 : NULL;
    }
    return true;
}

static void check_name(const char *name)
{
    char printed[PS_LIVE_NAME_BYTES];
    struct ps_live_identity identity;

    if (!parse_name(name, &identity))
        return;
    fuzz_require(identity.pid > 0 && identity.pid <= INT32_MAX);
    snprintf(printed, sizeof printed, "%" PRIu64 "-%" PRIu64, identity.pid, identity.pid_namespace);
    fuzz_require(!strcmp(printed, name));
}

static void check_identity(const char *text)
{
    struct ps_live_identity identity, wanted = {0};
    bool lives = *text && strlen(text) < 1000 && read_identity(text, &wanted);

    stat_text = text;
    int error = ps_live_identity_of(7, &identity);
    if (strlen(text) >= 1000)
        return;
    fuzz_require(error == (lives ? 0 : -ESRCH));
    if (!lives)
        return;
    fuzz_require(identity.pid == 7 && identity.pid_namespace);
    fuzz_require(identity.start_ticks == wanted.start_ticks && identity.stack == wanted.stack);
    fuzz_require(ps_live_identity_lives(&identity));
}

static void check_file(const char *name)
{
    struct ps_live_header header;
    int fd;

    enum ps_live_found found = ps_live_look_at(-1, name, &header, &fd);
    fuzz_require((fd == FILE_FD) == (found == PS_LIVE_FOUND_LIVES));
    if (found == PS_LIVE_FOUND_LIVES)
        fuzz_require(file.left == sizeof(struct ps_live_page) && header.version == PS_LIVE_VERSION);
    if (is_left_over_note(-1, name)) {
        fuzz_require(!strncmp(name, "told-", 5) && name[5] >= '1' && name[5] <= '9');
        const char *space = name + 5 + strspn(name + 5, "0123456789");
        fuzz_require(space[0] == '-' && space[1 + strspn(space + 1, "0123456789")] == '-');
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_input in = {data, bytes};
    char *name = fuzz_text(&in, '\0'), *text = fuzz_text(&in, '\0');

    file = in;
    check_name(name);
    check_identity(text);
    check_file(name);
    free(name);
    free(text);
    return 0;
}
