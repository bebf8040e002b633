/*
 * Any bytes at all, given to the reader of recordings. What it accepts is planned, printed and read
 * again to the same step; and the second print is the first one.
 */
#include "tests/fuzz/fuzz.h"

#include <errno.h>

#include "policy/recording/text.h"

#define USES_MAX 3000 /* of steps that are planned */

struct gathered {
    char *text;
    size_t length;
};

static void gather(void *ctx, const char *text, size_t bytes)
{
    struct gathered *gathered = ctx;

    gathered->text = realloc(gathered->text, gathered->length + bytes + 1);
    fuzz_require(gathered->text);
    memcpy(gathered->text + gathered->length, text, bytes);
    gathered->length += bytes;
}

static void *parse(const char *text, size_t length, struct penstock_step *step)
{
    struct ps_recording_problem problem = {0, NULL};
    size_t bytes;
    int rc = ps_recording_bytes(text, length, &bytes, &problem);
    void *memory = rc == 0 ? fuzz_allocate(bytes) : NULL;

    if (rc == 0)
        rc = ps_recording_parse(text, length, memory, step, &problem);
    if (rc == 0)
        return memory;
    fuzz_require(rc == -EINVAL && problem.what);
    free(memory);
    return NULL;
}

/* Returns the name as a recording holds it: without control characters, and blanks around it. */
static char *kept_name(const char *name)
{
    char *copy = strdup(name ? name : ""), *from = copy;
    size_t length = strlen(copy);

    for (size_t i = 0; i < length; i++)
        if ((unsigned char)copy[i] < 0x20 || copy[i] == 0x7f || copy[i] == '#')
            copy[i] = ' ';
    while (length && copy[length - 1] == ' ')
        copy[--length] = '\0';
    from += strspn(from, " ");
    memmove(copy, from, strlen(from) + 1);
    return copy;
}

static bool layers_are_equal(const struct penstock_layer *a, const struct penstock_layer *b)
{
    char *x = kept_name(a->name), *y = kept_name(b->name);
    bool equal =
        a->first_launch == b->first_launch && a->number == b->number && a->direction == b->direction && !strcmp(x, y);

    free(x);
    free(y);
    return equal;
}

static bool spans_are_equal(const struct penstock_step *a, const struct penstock_step *b, uint32_t i)
{
    const struct penstock_step_span *x = &a->span[i], *y = &b->span[i];
    bool equal = x->bytes == y->bytes && x->born == y->born && x->freed == y->freed && x->class_ == y->class_ &&
                 x->fixed == y->fixed && x->guarded == y->guarded && x->uses == y->uses;

    for (uint32_t u = 0; equal && u < x->uses; u++)
        equal = a->use[x->first_use + u] == b->use[y->first_use + u];
    return equal;
}

static void check_equal(const struct penstock_step *a, const struct penstock_step *b)
{
    fuzz_require(a->moments == b->moments && a->launches == b->launches && a->spans == b->spans);
    fuzz_require(a->uses == b->uses && a->layers == b->layers);
    fuzz_require(a->budget_bytes == b->budget_bytes && a->slab_bytes == b->slab_bytes);
    fuzz_require(!memcmp(&a->links, &b->links, sizeof a->links));
    for (uint32_t l = 0; l < a->launches; l++)
        fuzz_require(a->launch[l].duration_ns == b->launch[l].duration_ns &&
                     a->launch[l].moment == b->launch[l].moment && a->launch[l].layer == b->launch[l].layer &&
                     a->launch[l].host_ns == b->launch[l].host_ns);
    for (uint32_t i = 0; i < a->spans; i++)
        fuzz_require(spans_are_equal(a, b, i));
    for (uint32_t y = 0; y < a->layers; y++)
        fuzz_require(layers_are_equal(&a->layer[y], &b->layer[y]));
}

/* A valid step: what include/penstock/policy.h promises to policies. */
static void check_step(const struct penstock_step *step)
{
    uint64_t uses = 0;

    for (uint32_t i = 0; i < step->spans; i++) {
        const struct penstock_step_span *span = &step->span[i];
        fuzz_require(span->bytes && span->first_use == uses);
        fuzz_require((span->born == PENSTOCK_NEVER) == (span->freed == PENSTOCK_NEVER));
        for (uint32_t u = 0; u < span->uses; u++) {
            uint32_t launch = step->use[span->first_use + u];
            fuzz_require(launch < step->launches && (!u || step->use[span->first_use + u - 1] < launch));
        }
        uses += span->uses;
    }
    fuzz_require(uses == step->uses && step->launches && step->launches <= step->moments);
    for (uint32_t l = 0; l < step->launches; l++) {
        fuzz_require(step->launch[l].layer < step->layers);
        fuzz_require(!l || step->launch[l - 1].moment < step->launch[l].moment);
    }
}

static void plan(const struct penstock_step *step)
{
    struct penstock_plan plan = {.move = fuzz_allocate(step->uses * sizeof *plan.move), .capacity = step->uses};
    void *workspace = fuzz_allocate(penstock_policy_plan.workspace_bytes(step));

    int rc = penstock_policy_plan.plan(step, NULL, workspace, &plan);
    fuzz_require(rc == 0 || rc == -ERANGE);
    free(workspace);
    free(plan.move);
}

static struct gathered print(const struct penstock_step *step)
{
    struct gathered printed = {NULL, 0};
    void *workspace = fuzz_allocate(ps_recording_print_bytes(step));

    ps_recording_print(step, workspace, gather, &printed);
    free(workspace);
    return printed;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct penstock_step step, again;
    void *memory = parse((const char *)data, bytes, &step);

    if (!memory)
        return 0;
    check_step(&step);
    if (step.uses <= USES_MAX)
        plan(&step);
    struct gathered printed = print(&step);
    void *memory_again = parse(printed.text, printed.length, &again);
    fuzz_require(memory_again);
    check_equal(&step, &again);
    struct gathered twice = print(&again);
    fuzz_require(memchr(printed.text, 'y', printed.length) ||
                 (twice.length == printed.length && !memcmp(twice.text, printed.text, twice.length)));
    free(memory_again);
    free(memory);
    free(printed.text);
    free(twice.text);
    return 0;
}
