/*
 * Gives any bytes to the reader of recordings. This is a libFuzzer target (see `fuzz` beside this
 * file). Recordings that the reader accepts are planned, printed and read again.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "policy/recording/text.h"

#define TARGET_USES_MAX 3000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct gathered {
    char *text;
    size_t length;
};

static void gather(void *ctx, const char *text, size_t bytes)
{
    struct gathered *gathered = ctx;

    gathered->text = realloc(gathered->text, gathered->length + bytes + 1);
    memcpy(gathered->text + gathered->length, text, bytes);
    gathered->length += bytes;
}

static void *parse(const char *text, size_t length, struct penstock_step *step)
{
    struct ps_recording_problem problem = {0, NULL};
    size_t bytes;
    int rc = ps_recording_bytes(text, length, &bytes, &problem);
    void *memory = rc == 0 ? malloc(bytes + 1) : NULL;

    if (rc == 0)
        rc = ps_recording_parse(text, length, memory, step, &problem);
    if (rc == 0)
        return memory;
    if (rc != -EINVAL || !problem.what)
        abort();
    free(memory);
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct penstock_step step, again;
    struct gathered printed = {NULL, 0};
    void *memory = parse((const char *)data, bytes, &step);

    if (!memory)
        return 0;
    if (step.uses <= TARGET_USES_MAX) {
        struct penstock_plan plan = {.move = malloc((step.uses + 1) * sizeof *plan.move), .capacity = step.uses};
        void *workspace = malloc(penstock_policy_plan.workspace_bytes(&step));
        int rc = penstock_policy_plan.plan(&step, NULL, workspace, &plan);
        if (rc != 0 && rc != -ERANGE)
            abort();
        free(workspace);
        free(plan.move);
    }
    void *workspace = malloc(ps_recording_print_bytes(&step));
    ps_recording_print(&step, workspace, gather, &printed);
    void *memory_again = parse(printed.text, printed.length, &again);
    if (!memory_again || again.moments != step.moments || again.uses != step.uses || again.spans != step.spans)
        abort();
    free(memory_again);
    free(printed.text);
    free(workspace);
    free(memory);
    return 0;
}
