/* The command line of the helpers of `penstock plan`, and the recording that it names. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plain_text.h"
#include "base/settings.h"
#include "plan_input.h"
#include "policy/planner/gaps.h"
#include "policy/recording/text.h"
#include "residency/guard.h"

void plan_refuse(const char *format, ...)
{
    char line[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    ps_plain_text(line);
    fprintf(stderr, "penstock: %s\n", line);
    exit(2);
}

void *plan_allocate(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);

    if (!memory)
        plan_refuse("out of memory");
    return memory;
}

/* Returns the whole file, which the caller frees; `-` is standard input. */
static char *read_file(const char *path, size_t *length)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    size_t room = 1 << 16;
    char *text = plan_allocate(room);

    if (!file)
        plan_refuse("%s: can't read: %s; expected a file that PENSTOCK_RECORDING named", path, strerror(errno));
    *length = 0;
    for (size_t got; (got = fread(text + *length, 1, room - *length, file)) > 0;) {
        *length += got;
        if (*length == room) {
            text = realloc(text, room *= 2);
            if (!text)
                plan_refuse("out of memory");
        }
    }
    if (ferror(file))
        plan_refuse("%s: can't read: %s; expected a file that PENSTOCK_RECORDING named", path, strerror(errno));
    if (file != stdin)
        fclose(file);
    return text;
}

static void refuse_setting(const char *variable, const char *value, const char *explanation, void *ctx)
{
    (void)variable;
    plan_refuse("--%s %s: %s", (const char *)ctx, value, explanation);
}

/*
 * Returns the bytes of an amount, read as PENSTOCK_BUDGET or PENSTOCK_HOST_BUDGET. A share is one
 * of `whole`, the peak.
 */
static uint64_t amount_of(const char *option, const char *value, uint64_t whole)
{
    static struct ps_settings settings;
    bool slab = strcmp(option, "slab") == 0;
    char variable[256];
    char *environment[] = {variable, NULL};

    if ((size_t)snprintf(variable, sizeof variable, "%s=%s", slab ? "PENSTOCK_HOST_BUDGET" : "PENSTOCK_BUDGET",
                         value) >= sizeof variable)
        plan_refuse("--%s: the value is too long", option);
    ps_settings_read(&settings, environment, refuse_setting, (void *)(uintptr_t)option);
    return ps_amount_bytes(slab ? settings.host_budget : settings.budget, whole);
}

static uint32_t count_of(const char *option, const char *value)
{
    char *end;
    unsigned long count = strtoul(value, &end, 10);

    if (*value < '0' || *value > '9' || *end || count > 100000)
        plan_refuse("--%s %s: expected a number of layers; see penstock plan --help", option, value);
    return (uint32_t)count;
}

static void parse(struct plan_input *input, char *text, size_t length)
{
    struct ps_recording_problem problem;
    size_t bytes;

    int rc = ps_recording_bytes(text, length, &bytes, &problem);
    if (rc == 0)
        rc = ps_recording_parse(text, length, plan_allocate(bytes), &input->step, &problem);
    if (rc != 0 && problem.line > 0)
        plan_refuse("%s:%u: %s", input->path, problem.line, problem.what);
    if (rc != 0)
        plan_refuse("%s: %s", input->path, problem.what);
    free(text);
    input->demand = plan_allocate(input->step.moments * sizeof *input->demand);
    ps_demand(&input->step, input->demand);
    for (uint32_t m = 0; m < input->step.moments; m++)
        input->peak = (uint64_t)input->demand[m] > input->peak ? (uint64_t)input->demand[m] : input->peak;
}

/*
 * Sets which spans are mapped to their slots once they are evicted, as PENSTOCK_GUARD does. `auto`
 * leaves the recorded choice.
 */
static void set_guard(struct plan_input *input, const char *value)
{
    static struct ps_settings settings;
    char variable[256];
    char *environment[] = {variable, NULL};

    if ((size_t)snprintf(variable, sizeof variable, "PENSTOCK_GUARD=%s", value) >= sizeof variable)
        plan_refuse("--guard: the value is too long");
    ps_settings_read(&settings, environment, refuse_setting, (void *)(uintptr_t) "guard");
    for (uint32_t i = 0; settings.guard != PS_GUARD_AUTO && i < input->step.spans; i++) /* in our memory */
        ((struct penstock_step_span *)input->step.span)[i].guarded = settings.guard == PS_GUARD_HOST;
}

void plan_input_read(struct plan_input *input, int argc, char **argv)
{
    static const char *const valued[] = {"budget",       "slab",      "policy", "prefetch-layers",
                                         "defer-layers", "keep-last", "guard",  "name"};
    enum { BUDGET, SLAB, POLICY, PREFETCH, DEFER, KEEP, GUARD, NAME, VALUED };
    const char *value[VALUED] = {NULL};
    size_t length;

    static struct ps_settings settings;
    ps_settings_default(&settings);
    *input = (struct plan_input){.policy = "plan",
                                 .options = {.prefetch_layers = settings.prefetch_layers,
                                             .defer_layers = settings.defer_layers,
                                             .keep_last = settings.keep_last}};
    for (int i = 1; i < argc; i++) {
        size_t option = VALUED;
        if (strcmp(argv[i], "--moves") == 0) {
            input->show_moves = true;
        } else if (strncmp(argv[i], "--", 2) == 0) {
            size_t name = strcspn(argv[i] + 2, "=");
            for (option = 0; option < VALUED; option++) {
                if (strlen(valued[option]) == name && strncmp(valued[option], argv[i] + 2, name) == 0)
                    break;
            }
            if (option == VALUED)
                plan_refuse("%s: no such option; see penstock plan --help", argv[i]);
            if (argv[i][2 + name] == '=')
                value[option] = argv[i] + 3 + name;
            else if (i + 1 < argc)
                value[option] = argv[++i];
            else
                plan_refuse("%s: a value is missing; see penstock plan --help", argv[i]);
        } else if (!input->path) {
            input->path = argv[i];
        } else {
            plan_refuse("%s: one recording at a time; see penstock plan --help", argv[i]);
        }
    }
    if (!input->path)
        plan_refuse("plan: no recording given; usage: penstock plan RECORDING --budget BYTES");
    char *text = read_file(input->path, &length);
    input->path = value[NAME] ? value[NAME] : input->path;
    parse(input, text, length);
    if (value[BUDGET])
        input->step.budget_bytes = amount_of("budget", value[BUDGET], input->peak);
    if (value[SLAB])
        input->step.slab_bytes = amount_of("slab", value[SLAB], input->peak);
    if (value[POLICY])
        input->policy = value[POLICY];
    if (value[PREFETCH])
        input->options.prefetch_layers = count_of("prefetch-layers", value[PREFETCH]);
    if (value[DEFER])
        input->options.defer_layers = count_of("defer-layers", value[DEFER]);
    if (value[KEEP])
        input->options.keep_last = count_of("keep-last", value[KEEP]);
    set_guard(input, value[GUARD] ? value[GUARD] : "auto");
}
