/* What is written: no signal of a broken pipe's, and none of the program's own taken away. */
#include "output.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "expect.h"

static volatile sig_atomic_t signals;

static void count(int number)
{
    (void)number;
    signals++;
}

static bool is_pending(void)
{
    sigset_t pending;

    sigpending(&pending);
    return sigismember(&pending, SIGPIPE);
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
    EXPECT(!is_pending());
    sigprocmask(SIG_SETMASK, NULL, &after);
    EXPECT_INT(sigismember(&before, SIGPIPE), sigismember(&after, SIGPIPE));

    /* Blocked by the program: none is pending behind it, and one that was stays. */
    sigprocmask(SIG_BLOCK, &pipe_alone, NULL);
    EXPECT_INT(-1, ps_output_write(ends[1], "x", 1));
    EXPECT(!is_pending());
    raise(SIGPIPE);
    EXPECT_INT(-1, ps_output_write(ends[1], "x", 1));
    EXPECT(is_pending());
    sigprocmask(SIG_SETMASK, &before, NULL);
    EXPECT_INT(1, signals);

    signal(SIGPIPE, SIG_IGN);
    EXPECT_INT(-1, ps_output_write(ends[1], "x", 1));
    EXPECT_INT(EPIPE, errno);
    signal(SIGPIPE, SIG_DFL);
    close(ends[1]);
}

int main(void)
{
    test_broken_pipe();
    return expect_status();
}
