/*
 * The directories of live pages: which are trusted, which pages are left over, and which processes
 * are unknown.
 */
#include "base/live_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"

static char runtime[] = "/dev/shm/penstock-unit.XXXXXX", path[PS_LIVE_PATH_BYTES], mine[64], moved[64];

static int open_it(bool make)
{
    int fd = ps_live_directory_open(0, make, path);

    if (fd >= 0)
        close(fd);
    return fd < 0 ? fd : 0;
}

static void test_what_is_trusted(void)
{
    EXPECT_INT(-ENOENT, open_it(false));
    EXPECT_INT(0, open_it(true));
    EXPECT_TEXT(mine, path);
    struct stat status;
    EXPECT(!stat(mine, &status) && (status.st_mode & 07777) == 0700);
    EXPECT_INT(0, open_it(true)); /* it is there already */

    chmod(mine, 0755);
    EXPECT_INT(-EPERM, open_it(true));
    EXPECT_INT(-EPERM, open_it(false));
    chmod(mine, 0700);
    EXPECT(!rename(mine, moved));
    EXPECT(!symlink(moved, mine));
    EXPECT_INT(-EPERM, open_it(true)); /* a link, though to a directory that would do */
    unlink(mine);
    EXPECT(!rename(moved, mine));
    if (geteuid() == 0) {
        EXPECT(!chown(mine, 12345, 12345));
        EXPECT_INT(-EPERM, open_it(true));
        EXPECT(!chown(mine, 0, 0));
        EXPECT(!chown(runtime, 12345, 12345)); /* su has kept the variable */
        EXPECT_INT(-ENOENT, open_it(true));
        EXPECT(!chown(runtime, 0, 0));
    }
    setenv("XDG_RUNTIME_DIR", "relative", 1);
    EXPECT_INT(-ENOENT, open_it(true));
    setenv("XDG_RUNTIME_DIR", runtime, 1);
    EXPECT_INT(0, open_it(true));
}

static void test_identities(void)
{
    struct ps_live_identity us, again;
    char name[PS_LIVE_NAME_BYTES];

    EXPECT_INT(0, ps_live_identity_of(getpid(), &us));
    EXPECT_INT(0, ps_live_identity_of(getpid(), &again));
    EXPECT(us.start_ticks && us.start_ticks == again.start_ticks && us.stack == again.stack);
    EXPECT_U64((uint64_t)getpid(), us.pid);
    ps_live_name(name, &us);
    EXPECT(strtoull(name, NULL, 10) == us.pid && strchr(name, '-'));
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    siginfo_t info;
    EXPECT(!waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT)); /* it has ended and has not been waited for */
    EXPECT_INT(-ESRCH, ps_live_identity_of(child, &again));
    waitpid(child, NULL, 0);
    EXPECT_INT(-ESRCH, ps_live_identity_of(child, &again));
}

static int directory;

/* Makes a page as that process would make it, under its name. */
static void put(const struct ps_live_identity *named, const struct ps_live_identity *inside, uint32_t version)
{
    static struct ps_live_page page;
    char name[PS_LIVE_NAME_BYTES];

    ps_live_name(name, named);
    memcpy(page.header.magic, PS_LIVE_MAGIC, 8);
    page.header.version = version;
    page.header.bytes = sizeof page;
    page.header.identity = *inside;
    int fd = openat(directory, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    EXPECT(write(fd, &page, sizeof page) == (ssize_t)sizeof page);
    close(fd);
}

static unsigned found_as[PS_LIVE_FOUND_NO_PAGE + 1];

static void note(enum ps_live_found found, const char *name, int fd, const struct ps_live_header *header, void *ctx)
{
    (void)name, (void)ctx;
    found_as[found]++;
    EXPECT((fd >= 0) == (found == PS_LIVE_FOUND_LIVES));
    EXPECT(found != PS_LIVE_FOUND_OTHER_VERSION || header->version == 99);
}

/* Checks the verdict on the file that put() made, and whether the file still exists afterwards. */
static bool is_found(enum ps_live_found expected, const struct ps_live_identity *named)
{
    char name[PS_LIVE_NAME_BYTES];

    memset(found_as, 0, sizeof found_as);
    ps_live_each(directory, note, NULL);
    ps_live_name(name, named);
    if (expected == PS_LIVE_FOUND_LEFT_OVER || expected == PS_LIVE_FOUND_NO_PAGE)
        EXPECT_U64(0, found_as[0] + found_as[1] + found_as[2] + found_as[3]);
    else
        EXPECT_U64(1, found_as[expected]);
    return !unlinkat(directory, name, 0);
}

static void test_what_is_left_over(void)
{
    struct ps_live_identity us, other;

    directory = ps_live_directory_open(0, true, path);
    EXPECT_INT(0, ps_live_identity_of(getpid(), &us));
    put(&us, &us, PS_LIVE_VERSION);
    EXPECT(is_found(PS_LIVE_FOUND_LIVES, &us));
    put(&us, &us, 99);
    EXPECT(is_found(PS_LIVE_FOUND_OTHER_VERSION, &us));
    other = us;
    other.start_ticks++; /* the number belonged to another process before */
    put(&us, &other, PS_LIVE_VERSION);
    EXPECT(!is_found(PS_LIVE_FOUND_LEFT_OVER, &us));
    other = us;
    other.stack += 4096; /* an exec */
    put(&us, &other, PS_LIVE_VERSION);
    EXPECT(!is_found(PS_LIVE_FOUND_LEFT_OVER, &us));
    other.stack = 0; /* it could not be told */
    put(&us, &other, PS_LIVE_VERSION);
    EXPECT(is_found(PS_LIVE_FOUND_LIVES, &us));
    other = us;
    other.pid = 99999999; /* a number that no process has */
    put(&other, &other, PS_LIVE_VERSION);
    EXPECT(!is_found(PS_LIVE_FOUND_LEFT_OVER, &other));
    other.pid_namespace++;
    put(&other, &other, PS_LIVE_VERSION);
    EXPECT(is_found(PS_LIVE_FOUND_ELSEWHERE, &other));
}

static void test_what_is_no_page(void)
{
    static const char *const names[] = {"1", "1-", "-1", "x", "1-2-3", "01-2", "penstock"};
    struct ps_live_identity us;
    char name[PS_LIVE_NAME_BYTES];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        close(openat(directory, names[i], O_WRONLY | O_CREAT, 0600));
    memset(found_as, 0, sizeof found_as);
    ps_live_each(directory, note, NULL);
    EXPECT_U64(0, found_as[0] + found_as[1] + found_as[2] + found_as[3]);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        EXPECT_INT(0, unlinkat(directory, names[i], 0)); /* none was mistaken for a left-over page */

    EXPECT_INT(0, ps_live_identity_of(getpid(), &us));
    ps_live_name(name, &us);
    close(openat(directory, name, O_WRONLY | O_CREAT, 0600)); /* being made */
    EXPECT(is_found(PS_LIVE_FOUND_NO_PAGE, &us));
    put(&us, &us, PS_LIVE_VERSION);
    int fd = openat(directory, name, O_WRONLY);
    EXPECT(!ftruncate(fd, 8192)); /* would fault where it is mapped */
    close(fd);
    EXPECT(is_found(PS_LIVE_FOUND_NO_PAGE, &us));
    EXPECT(!symlinkat("/etc/passwd", directory, name));
    EXPECT(is_found(PS_LIVE_FOUND_NO_PAGE, &us));
}

int main(void)
{
    if (!mkdtemp(runtime)) {
        puts("no /dev/shm to make a directory in");
        return 77;
    }
    snprintf(mine, sizeof mine, "%s/penstock", runtime);
    snprintf(moved, sizeof moved, "%s/other", runtime);
    setenv("XDG_RUNTIME_DIR", runtime, 1);
    test_what_is_trusted();
    test_identities();
    test_what_is_left_over();
    test_what_is_no_page();
    rmdir(mine);
    rmdir(runtime);
    return expect_status();
}
