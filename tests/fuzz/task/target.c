/*
 * The file of a run of `penstock verify`. A task that is accepted is printed and read again to the
 * same; and it wants the spans that its lines name.
 */
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <inttypes.h>

static struct fuzz_input input;

/* The reader's fopen opens the input. */
static FILE *open_input(const char *path)
{
    fuzz_require(!*path);
    return fmemopen((void *)(uintptr_t)input.at, input.left, "r");
}
#define fopen(path, mode) open_input(path)
#include "shim/verify/task.c"
#undef fopen

static int read_task(const char *text, size_t bytes, struct ps_verify_task *out)
{
    input = (struct fuzz_input){(const uint8_t *)text, bytes};
    return ps_verify_task_read("", out);
}

static void release(struct ps_verify_task *task)
{
    free(task->kernel);
    free(task->span);
}

static char *print(const struct ps_verify_task *task)
{
    char *text = NULL;
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);

    fuzz_require(to);
    fprintf(to, "guard %s\nsteps %" PRIu64 "\nlaunches %" PRIu64 "\n", task->guard == PS_GUARD_HOST ? "host" : "unmap",
            task->steps, task->launches);
    if (task->heeds)
        fputs("heed\n", to);
    if (task->kernel)
        fprintf(to, "%s %" PRIu64 " %" PRIu64 " %s\n", task->bare ? "bare" : "watch", task->first, task->last,
                task->kernel);
    if (task->strips)
        fprintf(to, "strip %" PRIu64 " %" PRIu64 "\n", task->first, task->last);
    for (size_t i = 0; i < task->spans; i++) {
        const struct ps_verify_span *s = &task->span[i];
        if (s->period)
            fprintf(to, "spare-each %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", s->bytes, s->born, s->period);
        else
            fprintf(to, "%s %" PRIu64 " %" PRIu64 "\n", task->only ? "only" : "spare", s->bytes, s->nth);
    }
    fclose(to);
    return text;
}

static bool are_equal(const struct ps_verify_task *a, const struct ps_verify_task *b)
{
    bool equal = a->guard == b->guard && a->steps == b->steps && a->launches == b->launches && a->first == b->first &&
                 a->last == b->last && a->bare == b->bare && a->strips == b->strips && a->heeds == b->heeds &&
                 a->spans == b->spans && !a->kernel == !b->kernel && (!a->kernel || !strcmp(a->kernel, b->kernel));

    for (size_t i = 0; equal && i < a->spans; i++)
        equal = !memcmp(&a->span[i], &b->span[i], sizeof a->span[i]);
    return equal;
}

static void check_wants(const struct ps_verify_task *task)
{
    struct ps_span span = {0};

    fuzz_require(ps_verify_task_wants(task, &span) == !task->only || task->spans);
    for (size_t i = 0; i < task->spans; i++) {
        span.bytes = task->span[i].bytes;
        span.plan.nth = task->span[i].period ? ~task->span[i].nth : task->span[i].nth;
        span.plan.born = task->span[i].born;
        fuzz_require(ps_verify_task_wants(task, &span) == task->only);
        span.holds.excluded = true;
        fuzz_require(!ps_verify_task_wants(task, &span) || !task->heeds);
        span.holds.excluded = false;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ps_verify_task task, again;

    int error = read_task((const char *)data, bytes, &task);
    if (error) {
        fuzz_require(error == -EINVAL);
    } else {
        fuzz_require(task.guard == PS_GUARD_HOST || task.guard == PS_GUARD_UNMAP);
        char *text = print(&task);
        fuzz_require(read_task(text, strlen(text), &again) == 0);
        fuzz_require(are_equal(&task, &again));
        release(&again);
        free(text);
        if (!task.heeds)
            check_wants(&task);
    }
    release(&task);
    return 0;
}
