/*
 * The task of a run of `penstock verify`. The tests check which lines are read or refused, and the
 * spans that they mean.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "expect.h"
#include "verify/task.h"

static struct ps_verify_task task;

static int read_task(const char *text)
{
    char path[] = "/tmp/penstock-task.XXXXXX";
    int fd = mkstemp(path);

    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        abort();
    close(fd);
    int r = ps_verify_task_read(path, &task);
    unlink(path);
    return r;
}

static bool wants(uint64_t bytes, uint64_t nth, uint64_t born, bool excluded)
{
    struct ps_span span = {.bytes = bytes, .plan.nth = nth, .plan.born = born, .holds.excluded = excluded};

    return ps_verify_task_wants(&task, &span);
}

static void test_lines(void)
{
    EXPECT_INT(0, read_task("guard host\nsteps 3\nlaunches 500\nbare 4 7 void f<int, float>(g)\n"));
    EXPECT_INT(PS_GUARD_HOST, (int)task.guard);
    EXPECT_U64(3, task.steps);
    EXPECT_U64(500, task.launches);
    EXPECT_U64(4, task.first);
    EXPECT_U64(7, task.last);
    EXPECT(task.bare && !task.strips && !strcmp(task.kernel, "void f<int, float>(g)"));
    EXPECT_INT(0, read_task("watch 0 1 f"));
    EXPECT(!task.bare && task.guard == PS_GUARD_UNMAP && task.steps == UINT64_MAX && task.launches == UINT64_MAX);
    EXPECT_INT(0, read_task("strip 1 3\n"));
    EXPECT(task.strips && task.first == 1 && task.last == 3 && !task.kernel);
    EXPECT_INT(-ENOENT, ps_verify_task_read("/nonexistent/task", &task));
}

static void test_what_is_refused(void)
{
    static const char *const wrong[] = {"",          "guard",       "guard soft",
                                        "steps",     "steps 3 4",   "bare 1 2",
                                        "bare 1 2 ", "bare 1 f g",  "watch 0 1 a\nbare 0 1 b",
                                        "only 5",    "spare 1 2 3", "spare-each 1 2 0",
                                        "strip 1",   "heed now",    "exit"};
    char text[64];

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(text, sizeof text, "%s\n", wrong[i]);
        if (!EXPECT_INT(-EINVAL, read_task(text)))
            fprintf(stderr, "  \"%s\"\n", wrong[i]);
    }
}

static void test_which_spans(void)
{
    EXPECT_INT(0, read_task("strip 0 9\n"));
    EXPECT(wants(4096, 0, 0, false) && wants(4096, 0, 0, true));
    EXPECT_INT(0, read_task("strip 0 9\nheed\n"));
    EXPECT(wants(4096, 0, 0, false) && !wants(4096, 0, 0, true));

    EXPECT_INT(0, read_task("bare 0 0 f\nonly 4096 3\nonly 8192 0\n"));
    EXPECT(wants(4096, 3, 77, false) && wants(8192, 0, 0, true));
    EXPECT(!wants(4096, 0, 0, false) && !wants(8192, 3, 0, false));

    /* One span outlives the step, and one is born at the 5th of each 27 launches. */
    EXPECT_INT(0, read_task("bare 0 0 f\nspare 4096 3\nspare-each 8192 59 27\n"));
    EXPECT(!wants(4096, 3, 0, false) && wants(4096, 4, 0, false));
    EXPECT(!wants(8192, 0, 5, false) && !wants(8192, 9, 86, false) && wants(8192, 0, 6, false) &&
           wants(4096, 0, 5, false));
}

int main(void)
{
    test_lines();
    test_what_is_refused();
    test_which_spans();
    return expect_status();
}
