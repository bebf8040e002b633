/*
 * Writing: no signal of a broken pipe or of a full file reaches the program. None of the program's
 * own signals is taken away.
 */
#include "base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "expect.h"

static volatile sig_atomic_t signals;

static void count(int number)
{
    (void)number;
    signals++;
}

static bool is_pending(int number)
{
    sigset_t pending;

    sigpending(&pending);
    return sigismember(&pending, number);
}

static void test_broken_pipe(void)
{
    int ends[2];
    sigset_t pipe_alone, before, after;

    EXPECT(pipe(ends) == 0);
    close(ends[0]);
    sigemptyset(&pipe_alone);
    sigaddset(&pipe_alone, SIGPIPE);
    signal(SIGPIPE, count);
    sigprocmask(SIG_SETMASK, NULL, &before);

    EXPECT_INT(-1, ps_output_write(ends[1], "x", 1));
    EXPECT_INT(EPIPE, errno);
    EXPECT_INT(0, signals);
    EXPECT(!is_pending(SIGPIPE));
    sigprocmask(SIG_SETMASK, NULL, &after);
    EXPECT_INT(sigismember(&before, SIGPIPE), sigismember(&after, SIGPIPE));

    /*
     * A signal blocked by the program: none is pending afterwards, and one that was pending stays.
     */
    sigprocmask(SIG_BLOCK, &pipe_alone, NULL);
    EXPECT_INT(-1, ps_output_write(ends[1], "x", 1));
    EXPECT(!is_pending(SIGPIPE));
    raise(SIGPIPE);
    EXPECT_INT(-1, ps_output_write(ends[1], "x", 1));
    EXPECT(is_pending(SIGPIPE));
    sigprocmask(SIG_SETMASK, &before, NULL);
    EXPECT_INT(1, signals);

    signal(SIGPIPE, SIG_IGN);
    EXPECT_INT(-1, ps_output_write(ends[1], "x", 1));
    EXPECT_INT(EPIPE, errno);
    signal(SIGPIPE, SIG_DFL);
    close(ends[1]);
}

static void test_file_at_its_limit(void)
{
    char path[] = "/tmp/penstock-test-output-XXXXXX";
    const struct rlimit limit = {.rlim_cur = 4, .rlim_max = RLIM_INFINITY};
    struct ps_output_signals held;
    sigset_t alone, before, after;
    int fd = mkstemp(path);

    EXPECT(fd >= 0 && unlink(path) == 0);
    EXPECT_INT(0, setrlimit(RLIMIT_FSIZE, &limit));
    signal(SIGXFSZ, count);
    signals = 0;
    sigprocmask(SIG_SETMASK, NULL, &before);
    EXPECT_INT(-EFBIG, ps_output_write_whole(fd, "12345", 5)); /* four bytes had room */
    ps_output_hold_signals(&held);
    EXPECT_INT(EFBIG, posix_fallocate(fd, 0, 16));
    ps_output_release_signals(&held, EFBIG);
    EXPECT_INT(0, signals);
    EXPECT(!is_pending(SIGXFSZ));
    sigprocmask(SIG_SETMASK, NULL, &after);
    EXPECT_INT(sigismember(&before, SIGXFSZ), sigismember(&after, SIGXFSZ));

    /* A pending signal of the program's own stays. */
    sigemptyset(&alone);
    sigaddset(&alone, SIGXFSZ);
    sigprocmask(SIG_BLOCK, &alone, NULL);
    raise(SIGXFSZ);
    EXPECT_INT(-1, ps_output_write(fd, "x", 1));
    EXPECT(is_pending(SIGXFSZ));
    sigprocmask(SIG_SETMASK, &before, NULL);
    EXPECT_INT(1, signals);
    signal(SIGXFSZ, SIG_DFL);
    close(fd);
}

int main(void)
{
    test_broken_pipe();
    test_file_at_its_limit();
    return expect_status();
}
