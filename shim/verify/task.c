#include "verify/task.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add_span(struct ps_verify_task *task, struct ps_verify_span span, bool only)
{
    struct ps_verify_span *more = realloc(task->span, (task->spans + 1) * sizeof *more);

    if (!more)
        return -ENOMEM;
    task->span = more;
    task->span[task->spans++] = span;
    task->only = only;
    return 0;
}

/* Reads a line whose rest is the kernel's name. Names of templates are long. */
static int take_kernel(struct ps_verify_task *task, const char *line, bool bare)
{
    int at = 0;

    if (sscanf(line, "%*s %" SCNu64 " %" SCNu64 " %n", &task->first, &task->last, &at) != 2 || !at || !line[at] ||
        task->kernel)
        return -EINVAL;
    task->kernel = strdup(line + at);
    task->bare = bare;
    return task->kernel ? 0 : -ENOMEM;
}

static int take_line(struct ps_verify_task *task, const char *line)
{
    uint64_t a, b, c;
    char end;

    if (!strcmp(line, "guard unmap") || !strcmp(line, "guard host")) {
        task->guard = !strcmp(line, "guard host") ? PS_GUARD_HOST : PS_GUARD_UNMAP;
        return 0;
    }
    if (sscanf(line, "steps %" SCNu64 "%c", &a, &end) == 1) {
        task->steps = a;
        return 0;
    }
    if (sscanf(line, "launches %" SCNu64 "%c", &a, &end) == 1) {
        task->launches = a;
        return 0;
    }
    if (sscanf(line, "only %" SCNu64 " %" SCNu64 "%c", &a, &b, &end) == 2)
        return add_span(task, (struct ps_verify_span){.bytes = a, .nth = b}, true);
    if (sscanf(line, "spare %" SCNu64 " %" SCNu64 "%c", &a, &b, &end) == 2)
        return add_span(task, (struct ps_verify_span){.bytes = a, .nth = b}, false);
    if (sscanf(line, "spare-each %" SCNu64 " %" SCNu64 " %" SCNu64 "%c", &a, &b, &c, &end) == 3 && c)
        return add_span(task, (struct ps_verify_span){.bytes = a, .born = b, .period = c}, false);
    if (sscanf(line, "strip %" SCNu64 " %" SCNu64 "%c", &task->first, &task->last, &end) == 2) {
        task->strips = true;
        return 0;
    }
    if (!strcmp(line, "heed")) {
        task->heeds = true;
        return 0;
    }
    if (!strncmp(line, "watch ", 6) || !strncmp(line, "bare ", 5))
        return take_kernel(task, line, *line == 'b');
    return -EINVAL;
}

int ps_verify_task_read(const char *path, struct ps_verify_task *out)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t room = 0;
    int r = file ? 0 : -errno;

    *out = (struct ps_verify_task){.guard = PS_GUARD_UNMAP, .steps = UINT64_MAX, .launches = UINT64_MAX};
    while (!r && getline(&line, &room, file) > 0) {
        line[strcspn(line, "\n")] = '\0';
        r = take_line(out, line);
    }
    free(line);
    if (file)
        fclose(file);
    return r;
}

static bool is_meant(const struct ps_verify_span *meant, const struct ps_span *span)
{
    if (meant->bytes != span->bytes)
        return false;
    if (!meant->period)
        return meant->nth == span->plan.nth;
    return span->plan.born % meant->period == meant->born % meant->period;
}

bool ps_verify_task_wants(const struct ps_verify_task *task, const struct ps_span *span)
{
    bool listed = false;

    if (task->heeds && span->holds.excluded)
        return false;
    for (size_t i = 0; !listed && i < task->spans; i++)
        listed = is_meant(&task->span[i], span);
    return listed == task->only;
}
