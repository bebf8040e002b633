/*
 * Recorded steps of made-up trainers (trace.h), for windows that begin anywhere. They are compared
 * with a plain reading of the whole log. They are also compared with the bytes that the program
 * really held at each moment.
 */
#include "policy/recording/recorded_step.h"
#include "policy/recording/recorder.h"

#include <errno.h>
#include <stdlib.h>

#include "expect.h"
#include "trace.h"

enum { ALLOC, FREE, LAUNCH };

struct logged {
    int kind;
    uint64_t span; /* for LAUNCH: its number */
    uint64_t held; /* bytes held when it was over */
    uint64_t named[TRACE_NAMED_MAX];
    int n;
};

static struct {
    struct trace trace;
    struct ps_recorder *recorder;
    struct logged *log;
    uint64_t logged, capacity, held;
    struct ps_recorded_layer layer; /* the layer of the next launches */
    uint64_t fixed;                 /* a span that must not move */
} world;

static struct logged *log_event(int kind, uint64_t span)
{
    if (world.logged == world.capacity) {
        world.capacity = 2 * world.capacity + 1024;
        world.log = realloc(world.log, world.capacity * sizeof *world.log);
        if (!world.log)
            abort();
    }
    struct logged *logged = &world.log[world.logged++];
    *logged = (struct logged){.kind = kind, .span = span, .held = world.held};
    return logged;
}

static void on_allocated(void *context, uint64_t span, uint64_t bytes)
{
    (void)context;
    world.held += bytes;
    log_event(ALLOC, span);
    ps_recorder_allocated(world.recorder, span, bytes);
}

static void on_freed(void *context, uint64_t span)
{
    (void)context;
    world.held -= world.trace.span[span].bytes;
    log_event(FREE, span);
    ps_recorder_freed(world.recorder, span);
}

static void on_launched(void *context, struct ps_step_launch launch, const uint64_t *span, const uint64_t *bytes, int n)
{
    (void)context;
    struct logged *logged = log_event(LAUNCH, world.trace.launches - 1);
    ps_recorder_launch(world.recorder, launch, 0, world.layer);
    for (int i = 0; i < n; i++) {
        logged->named[logged->n++] = span[i];
        ps_recorder_access(world.recorder, span[i], bytes[i], span[i] == world.fixed);
        /* Some kernels name a tensor more than once. */
        if (i % 3 == 0)
            ps_recorder_access(world.recorder, span[i], bytes[i], span[i] == world.fixed);
    }
}

static void world_start(void)
{
    memset(&world, 0, sizeof world);
    world.recorder = calloc(1, ps_recorder_bytes());
    if (!world.recorder)
        abort();
    ps_recorder_init(world.recorder);
    world.trace.allocated = on_allocated;
    world.trace.freed = on_freed;
    world.trace.launched = on_launched;
}

static void world_end(void)
{
    free(world.recorder);
    free(world.log);
    trace_destroy(&world.trace);
}

/* ---- a plain reading of the log ---- */

/* Returns the log's index of a launch. The first launch's predecessor is the start of the log. */
static uint64_t find_launch(uint64_t launch)
{
    for (uint64_t i = 0; i < world.logged; i++) {
        if (world.log[i].kind == LAUNCH && world.log[i].span == launch)
            return i;
    }
    abort();
}

/* Returns the index of the span's allocation or free; UINT64_MAX if it has none. */
static uint64_t find_event(int kind, uint64_t span)
{
    for (uint64_t i = 0; i < world.logged; i++) {
        if (world.log[i].kind == kind && world.log[i].span == span)
            return i;
    }
    return UINT64_MAX;
}

/* Returns the span that was allocated one round earlier at the same place as this one. */
static uint64_t find_counterpart(uint64_t span, uint32_t length)
{
    uint64_t at = find_event(ALLOC, span), ordinal = 0;

    while (world.log[at - 1].kind != LAUNCH)
        ordinal += world.log[--at].kind == ALLOC;
    at = find_launch(world.log[at - 1].span - length) + 1;
    while (world.log[at].kind != ALLOC || ordinal-- != 0)
        at++;
    return world.log[at].span;
}

/*
 * Appends the span's uses among the log's events [begin, end), as launches of the step. Returns the
 * new number of uses.
 */
static uint32_t list_uses(uint64_t span, uint64_t begin, uint64_t end, uint64_t first, uint32_t *use, uint32_t uses)
{
    for (uint64_t i = begin; i < end; i++) {
        bool named = false;
        for (int j = 0; j < world.log[i].n; j++)
            named |= world.log[i].named[j] == span;
        if (named)
            use[uses++] = (uint32_t)(world.log[i].span - first);
    }
    return uses;
}

/*
 * Fills in the expected span for the window [begin, end) of the log. Returns false if it should not
 * be there.
 */
static bool expected_span(uint64_t span, uint64_t begin, uint64_t end, uint64_t first, uint32_t length,
                          struct penstock_step_span *out, uint32_t *use)
{
    uint64_t born = find_event(ALLOC, span), freed = find_event(FREE, span);
    bool born_inside = born >= begin && born < end, freed_inside = freed >= begin && freed < end;

    if (born >= end || freed < begin || (freed_inside && !born_inside))
        return false;
    *out = (struct penstock_step_span){
        .bytes = world.trace.span[span].bytes, .born = PENSTOCK_NEVER, .freed = PENSTOCK_NEVER};
    if (born_inside) {
        out->born = (uint32_t)(born - begin);
        out->freed = (uint32_t)(freed - begin);
        if (!freed_inside) {
            uint64_t other = find_counterpart(span, length);
            out->freed = (uint32_t)(find_event(FREE, other) - begin);
            out->uses = list_uses(other, begin, end, first, use, 0);
        }
    }
    out->uses = list_uses(span, begin, end, first, use, out->uses);
    return true;
}

static bool is_alive(const struct penstock_step_span *span, uint32_t moment)
{
    if (span->born == PENSTOCK_NEVER)
        return true;
    if (span->born < span->freed)
        return span->born <= moment && moment < span->freed;
    return moment >= span->born || moment < span->freed;
}

/* Checks the promises of the interface for a step. */
static void check_invariants(const struct penstock_step *step)
{
    uint32_t use = 0;

    EXPECT(step->launches >= 1 && step->layers >= 1);
    EXPECT_U64(0, step->layer[0].first_launch);
    for (uint32_t i = 1; i < step->layers; i++)
        EXPECT(step->layer[i - 1].first_launch < step->layer[i].first_launch &&
               step->layer[i].first_launch < step->launches);
    for (uint32_t i = 0; i < step->launches; i++) {
        const struct penstock_launch *launch = &step->launch[i];
        EXPECT(launch->moment < step->moments && (i == 0 || step->launch[i - 1].moment < launch->moment));
        EXPECT(launch->layer < step->layers && step->layer[launch->layer].first_launch <= i);
        EXPECT(launch->layer + 1 == step->layers || i < step->layer[launch->layer + 1].first_launch);
    }
    for (uint32_t i = 0; i < step->spans; i++) {
        const struct penstock_step_span *span = &step->span[i];
        EXPECT((span->born == PENSTOCK_NEVER) == (span->freed == PENSTOCK_NEVER) && span->bytes > 0);
        EXPECT(span->born == PENSTOCK_NEVER ||
               (span->born < step->moments && span->freed < step->moments && span->born != span->freed));
        EXPECT_U64(use, span->first_use);
        use += span->uses;
        for (uint32_t j = 0; j < span->uses; j++) {
            uint32_t launch = step->use[span->first_use + j];
            EXPECT(launch < step->launches && (j == 0 || step->use[span->first_use + j - 1] < launch));
            EXPECT(is_alive(span, step->launch[launch].moment));
        }
    }
    EXPECT_U64(step->uses, use);
}

/* Records a window and compares it with the log. The caller frees the memory. */
static void *check_window(uint64_t first, uint32_t length, struct penstock_step *step, const uint64_t **numbers)
{
    uint64_t begin = find_launch(first - 1) + 1, end = find_launch(first + length - 1) + 1, expected = 0;
    size_t bytes = 0;

    EXPECT_INT(0, ps_recorded_step_bytes(world.recorder, first, length, &bytes));
    char *memory = malloc(bytes + 16);
    uint32_t *use = malloc((length + 1) * 2 * sizeof *use);
    if (!memory || !use)
        abort();
    memset(memory, 0x5a, bytes + 16);
    struct ps_recorded_details spans;
    EXPECT_INT(0, ps_recorded_step_make(world.recorder, first, length, memory, step, &spans));
    *numbers = spans.number;
    for (int i = 0; i < 16; i++)
        EXPECT_INT(0x5a, memory[bytes + (size_t)i]);
    check_invariants(step);
    EXPECT_U64(end - begin, step->moments);
    for (uint64_t span = 1; span <= world.trace.spans; span++) {
        struct penstock_step_span wanted = {0};
        uint32_t at = 0;
        while (at < step->spans && (*numbers)[at] != span)
            at++;
        if (!EXPECT(expected_span(span, begin, end, first, length, &wanted, use) == (at < step->spans)) ||
            at == step->spans)
            continue;
        expected++;
        const struct penstock_step_span *got = &step->span[at];
        EXPECT(got->fixed == (span == world.fixed));
        EXPECT_U64(wanted.bytes, got->bytes);
        EXPECT_U64(wanted.born, got->born);
        EXPECT_U64(wanted.freed, got->freed);
        if (EXPECT_U64(wanted.uses, got->uses))
            EXPECT(memcmp(use, step->use + got->first_use, wanted.uses * sizeof *use) == 0);
    }
    EXPECT_U64(expected, step->spans);
    for (uint32_t moment = 0; moment < step->moments; moment++) {
        uint64_t held = 0;
        for (uint32_t i = 0; i < step->spans; i++)
            held += is_alive(&step->span[i], moment) ? step->span[i].bytes : 0;
        EXPECT_U64(world.log[begin + moment].held, held);
    }
    free(use);
    return memory;
}

/*
 * The classes of the trainer's spans, by number; spans left at 0 may have any class. Filled while a
 * round runs.
 */
static enum penstock_class true_class[100000];

static void note_parameters(const struct trainer *trainer)
{
    for (int i = 0; i < 2 * trainer->layers + 2; i++) {
        true_class[trainer->parameter[i].weight] = PENSTOCK_CLASS_PARAMETER;
        true_class[trainer->parameter[i].state[0]] = PENSTOCK_CLASS_OPTIMIZER_STATE;
        true_class[trainer->parameter[i].state[1]] = PENSTOCK_CLASS_OPTIMIZER_STATE;
    }
}

static void note_activations(const struct trainer *trainer)
{
    /* Some activations of the last layers live hardly longer than a workspace. */
    for (int i = 0; i < trainer->layers - 2; i++) {
        for (int j = 0; j < 4; j++)
            true_class[trainer->batch[0].saved[i][j]] = PENSTOCK_CLASS_ACTIVATION;
    }
}

static void note_gradients(const struct trainer *trainer)
{
    /*
     * The update uses the first layers' gradients a few launches later: they may pass for
     * workspaces.
     */
    for (int i = 4; i < 2 * trainer->layers; i++)
        true_class[trainer->parameter[i].gradient] = PENSTOCK_CLASS_GRADIENT;
}

/* A step, and the real launches of its layers: forward[i] and backward[i] begin there. */
static struct {
    uint64_t forward[TRAINER_LAYERS_MAX], backward[TRAINER_LAYERS_MAX];
} where;

static void noted_step(struct trainer *trainer)
{
    uint64_t first = world.trace.launches;

    for (int i = 0; i < trainer->layers; i++) {
        where.forward[i] = first + 2 + 5 * (uint64_t)i;
        where.backward[i] = first + 2 + 5 * (uint64_t)trainer->layers + 5 + 6 * (uint64_t)(trainer->layers - 1 - i);
    }
    trainer_forward(trainer, 0, 50, 1);
    note_activations(trainer);
    trainer_backward(trainer, 0);
    note_gradients(trainer);
    trainer_update(trainer);
    trainer_zero(trainer);
    note_parameters(trainer);
}

/* The middle launch of every layer is in that layer. */
static void check_layers(const struct trainer *trainer, const struct penstock_step *step, uint64_t first)
{
    for (int i = 0; i < trainer->layers; i++) {
        uint32_t f = (uint32_t)((where.forward[i] + 2 - first % step->launches) % step->launches);
        uint32_t b = (uint32_t)((where.backward[i] + 2 - first % step->launches) % step->launches);
        const struct penstock_layer *forward = &step->layer[step->launch[f].layer],
                                    *backward = &step->layer[step->launch[b].layer];
        EXPECT_U64((uint64_t)i, forward->number);
        EXPECT_INT(PENSTOCK_DIRECTION_FORWARD, forward->direction);
        EXPECT_U64((uint64_t)i, backward->number);
        EXPECT_INT(PENSTOCK_DIRECTION_BACKWARD, backward->direction);
    }
}

static void check_classes(const struct penstock_step *step, const uint64_t *numbers)
{
    unsigned seen[PENSTOCK_CLASSES] = {0};

    for (uint32_t i = 0; i < step->spans; i++) {
        enum penstock_class wanted = true_class[numbers[i]];
        if (wanted != PENSTOCK_CLASS_UNKNOWN && !EXPECT_INT((long)wanted, (long)step->span[i].class_))
            fprintf(stderr, "  span of %u bytes, %u uses\n", (unsigned)step->span[i].bytes,
                    (unsigned)step->span[i].uses);
        seen[wanted]++;
    }
    for (int i = PENSTOCK_CLASS_ACTIVATION; i <= PENSTOCK_CLASS_OPTIMIZER_STATE; i++)
        EXPECT(seen[i] > 5);
}

static void test_steady_step_from_any_launch(void)
{
    struct trainer trainer;
    struct penstock_step step;
    const uint64_t *numbers;
    uint64_t before = 0;

    world_start();
    /* This span is never used, but it holds memory. */
    trace_alloc(&world.trace, 12345);
    trainer_init(&trainer, &world.trace, 5);
    world.fixed = trainer.parameter[3].weight;
    for (int i = 0; i < 6; i++) {
        before = world.trace.launches;
        noted_step(&trainer);
    }
    uint32_t length = (uint32_t)(world.trace.launches - before);
    for (uint32_t turn = 0; turn <= 2 * length; turn++) {
        uint64_t first = world.trace.launches - length - turn;
        void *memory = check_window(first, length, &step, &numbers);
        check_layers(&trainer, &step, first);
        check_classes(&step, numbers);
        free(memory);
    }
    world_end();
}

/*
 * Micro-batches in flight at the same time, and a window that begins anywhere: spans of all lives.
 */
static void test_interleaved_micro_batches(void)
{
    struct trainer trainer;
    struct penstock_step step;
    const uint64_t *numbers;
    uint64_t before = 0;

    world_start();
    trainer_init(&trainer, &world.trace, 3);
    for (int i = 0; i < 5; i++) {
        before = world.trace.launches;
        for (int part = 0; part < 5; part++) {
            if (part < 4)
                trainer_forward(&trainer, part % 2, 50, 1);
            if (part > 0)
                trainer_backward(&trainer, (part - 1) % 2);
        }
        trainer_update(&trainer);
        trainer_zero(&trainer);
    }
    uint32_t length = (uint32_t)(world.trace.launches - before);
    for (uint32_t turn = 0; turn <= length; turn += 3)
        free(check_window(world.trace.launches - length - turn, length, &step, &numbers));
    world_end();
}

/* Markers win over layers found in the launches. */
static void test_markers(void)
{
    struct trainer trainer;
    struct penstock_step step;
    const uint64_t *numbers;
    uint64_t before = 0;
    const struct ps_recorded_layer markers[4] = {{1, 0, PENSTOCK_DIRECTION_FORWARD, "one", false},
                                                 {2, PENSTOCK_NEVER, PENSTOCK_DIRECTION_NONE, NULL, false},
                                                 {3, 0, PENSTOCK_DIRECTION_BACKWARD, "one", false},
                                                 {0, 7, PENSTOCK_DIRECTION_FORWARD, "outside", false}};
    uint64_t at[4];

    world_start();
    trainer_init(&trainer, &world.trace, 3);
    for (uint64_t i = 0; i < 4; i++) {
        before = world.trace.launches;
        for (int j = 0; j < 4; j++) {
            at[j] = world.trace.launches;
            world.layer = markers[j];
            world.layer.stretch += j < 3 ? 4 * i : 0;
            if (j == 0)
                trainer_forward(&trainer, 0, 50, 1);
            else if (j == 2)
                trainer_backward(&trainer, 0);
            else if (j == 3)
                trainer_update(&trainer);
            else
                trace_launch(&world.trace, K_CHECK, 1, trainer.parameter[0].weight);
        }
        trainer_zero(&trainer);
    }
    uint32_t length = (uint32_t)(world.trace.launches - before);
    void *memory = check_window(before, length, &step, &numbers);
    EXPECT_U64(4, step.layers);
    for (uint32_t j = 0; j < 4 && step.layers == 4; j++) {
        EXPECT_U64(at[j] - before, step.layer[j].first_launch);
        EXPECT_U64(j < 3 ? markers[j].number : PENSTOCK_NEVER, step.layer[j].number);
        EXPECT_INT(j < 3 ? (long)markers[j].direction : PENSTOCK_DIRECTION_NONE, (long)step.layer[j].direction);
        EXPECT(step.layer[j].name == (j < 3 ? markers[j].name : NULL));
    }
    free(memory);
    world_end();
}

/*
 * A window of no steady step. A span that is born and stays counts as existing all the time, and
 * never moves. A span freed for good is left out.
 */
static void test_lone_halves(void)
{
    struct penstock_step step;
    struct ps_recorded_details spans;
    size_t bytes;

    world_start();
    uint64_t old = trace_alloc(&world.trace, 5000), stays = 0, both;
    for (uint64_t i = 0; i < 4; i++) {
        trace_launch(&world.trace, 1, 1, old);
        if (i == 3) {
            stays = trace_alloc(&world.trace, 7000);
            trace_free(&world.trace, &old);
        }
        both = trace_alloc(&world.trace, 100);
        trace_launch(&world.trace, 2, 2, both, stays);
        trace_free(&world.trace, &both);
    }
    EXPECT_INT(0, ps_recorded_step_bytes(world.recorder, 6, 2, &bytes));
    void *memory = malloc(bytes);
    if (!memory)
        abort();
    EXPECT_INT(0, ps_recorded_step_make(world.recorder, 6, 2, memory, &step, &spans));
    check_invariants(&step);
    if (EXPECT_U64(2, step.spans)) {
        EXPECT_U64(7000, step.span[0].bytes);
        EXPECT(step.span[0].fixed && step.span[0].born == PENSTOCK_NEVER);
        EXPECT_U64(1, step.span[0].uses);
        EXPECT_U64(100, step.span[1].bytes);
        EXPECT(!step.span[1].fixed);
    }
    free(memory);
    world_end();
}

/* Launches that are no longer kept, or never existed, give an error. */
static void test_what_is_not_kept(void)
{
    size_t bytes;
    uint64_t span;

    world_start();
    span = trace_alloc(&world.trace, 100);
    EXPECT_INT(-ENODATA, ps_recorded_step_bytes(world.recorder, 0, 1, &bytes));
    for (uint64_t i = 0; i < 100; i++)
        trace_launch(&world.trace, 1, 1, span);
    EXPECT_U64(100, ps_recorder_launches(world.recorder));
    EXPECT_INT(0, ps_recorded_step_bytes(world.recorder, 50, 50, &bytes));
    EXPECT_INT(-ENODATA, ps_recorded_step_bytes(world.recorder, 51, 50, &bytes));
    EXPECT_INT(-ENODATA, ps_recorded_step_bytes(world.recorder, 50, 0, &bytes));
    /*
     * Each of these launches, with its accesses, is eight events of the ring; each of those before
     * was three.
     */
    for (uint64_t i = 0; i < PS_RECORDER_MOMENTS / 8 - 20; i++)
        trace_launch(&world.trace, 1, 5, span, span, span, span, span);
    EXPECT_INT(0, ps_recorded_step_bytes(world.recorder, 80, 50, &bytes));
    EXPECT_INT(-ENODATA, ps_recorded_step_bytes(world.recorder, 40, 50, &bytes));
    world_end();
}

/* The spans that a launch named, by place, as long as it is kept. */
static void test_named(void)
{
    uint64_t a, b;

    world_start();
    a = trace_alloc(&world.trace, 100);
    b = trace_alloc(&world.trace, 200);
    trace_launch(&world.trace, 1, 2, b, a); /* the first span is named twice, see on_launched */
    trace_launch(&world.trace, 2, 1, a);
    EXPECT_U64(b, ps_recorder_named(world.recorder, 0, 0));
    EXPECT_U64(b, ps_recorder_named(world.recorder, 0, 1));
    EXPECT_U64(a, ps_recorder_named(world.recorder, 0, 2));
    EXPECT_U64(0, ps_recorder_named(world.recorder, 0, 3)); /* not the spans of the next launch */
    EXPECT_U64(a, ps_recorder_named(world.recorder, 1, 1));
    EXPECT_U64(0, ps_recorder_named(world.recorder, 1, 2));
    EXPECT_U64(0, ps_recorder_named(world.recorder, 2, 0));
    trace_free(&world.trace, &b);
    EXPECT_U64(0, ps_recorder_named(world.recorder, 1, 2)); /* nor a span freed behind it */
    for (uint64_t i = 0; i < PS_RECORDER_MOMENTS / 2; i++)
        trace_launch(&world.trace, 1, 1, a);
    EXPECT_U64(0, ps_recorder_named(world.recorder, 0, 0));
    EXPECT_U64(a, ps_recorder_named(world.recorder, ps_recorder_launches(world.recorder) - 1, 0));
    world_end();
}

/*
 * The recorder reports more spans than its table holds. Those in use are in the step all the same.
 */
static void test_too_many_spans(void)
{
    struct penstock_step step;
    struct ps_recorded_details spans;
    size_t bytes;
    uint64_t last = 0;

    world_start();
    for (int i = 0; i < 65536; i++)
        last = trace_alloc(&world.trace, 100);
    EXPECT_U64(0, ps_recorder_unknown_spans(world.recorder));
    last = trace_alloc(&world.trace, 100);
    EXPECT_U64(1, ps_recorder_unknown_spans(world.recorder));
    for (int i = 0; i < 10; i++)
        trace_launch(&world.trace, 1, 1, last);
    EXPECT_INT(0, ps_recorded_step_bytes(world.recorder, 5, 5, &bytes));
    void *memory = malloc(bytes);
    if (!memory)
        abort();
    EXPECT_INT(0, ps_recorded_step_make(world.recorder, 5, 5, memory, &step, &spans));
    check_invariants(&step);
    EXPECT_U64(65537, step.spans);
    EXPECT_U64(5, step.uses);
    free(memory);
    world_end();
}

/* Churn in the table of live spans: the step has the live spans, and no others. */
static void test_many_spans_come_and_go(void)
{
    static uint64_t live[50000];
    struct penstock_step step;
    struct ps_recorded_details spans;
    size_t bytes;

    world_start();
    for (int i = 0; i < 200000; i++) {
        uint64_t *span = &live[trace_random(&world.trace, 50000)];
        if (*span != 0)
            trace_free(&world.trace, span);
        else
            *span = trace_alloc(&world.trace, 100 + (uint64_t)i);
    }
    uint64_t used = trace_alloc(&world.trace, 10), held = 0, alive = 1;
    for (int i = 0; i < 10; i++)
        trace_launch(&world.trace, 1, 1, used);
    for (int i = 0; i < 50000; i++)
        alive += live[i] != 0;
    EXPECT_INT(0, ps_recorded_step_bytes(world.recorder, 5, 5, &bytes));
    void *memory = malloc(bytes);
    if (!memory)
        abort();
    EXPECT_INT(0, ps_recorded_step_make(world.recorder, 5, 5, memory, &step, &spans));
    check_invariants(&step);
    EXPECT_U64(alive, step.spans);
    for (uint32_t i = 0; i < step.spans; i++) {
        EXPECT(world.trace.span[spans.number[i]].live);
        held += step.span[i].bytes;
    }
    EXPECT_U64(world.held, held);
    free(memory);
    world_end();
}

/* No loop at all, and windows anywhere: the promises of the interface still hold. */
static void test_any_program_any_window(void)
{
    uint64_t live[40] = {0};
    struct penstock_step step;
    struct ps_recorded_details spans;
    size_t bytes;

    world_start();
    for (int i = 0; i < 20000; i++) {
        uint64_t *span = &live[trace_random(&world.trace, 40)];
        uint64_t what = trace_random(&world.trace, 5);
        if (what == 0 && *span != 0)
            trace_free(&world.trace, span);
        else if (what == 1 && *span == 0)
            *span = trace_alloc(&world.trace, 100 * (1 + trace_random(&world.trace, 3)));
        else
            trace_launch(&world.trace, what, 3, *span, live[what], live[7]);
        if (i % 10 != 9 || world.trace.launches < 2)
            continue;
        uint64_t first = trace_random(&world.trace, world.trace.launches);
        uint32_t length = 1 + (uint32_t)trace_random(&world.trace, world.trace.launches - first);
        first = i % 20 == 9 && first > 200 ? world.trace.launches - 200 : first;
        length = length > 200 ? 200 : length;
        if (first + length > world.trace.launches)
            length = (uint32_t)(world.trace.launches - first);
        EXPECT_INT(0, ps_recorded_step_bytes(world.recorder, first, length, &bytes));
        char *memory = malloc(bytes + 16);
        if (!memory)
            abort();
        memset(memory, 0x5a, bytes + 16);
        EXPECT_INT(0, ps_recorded_step_make(world.recorder, first, length, memory, &step, &spans));
        for (int j = 0; j < 16; j++)
            EXPECT_INT(0x5a, memory[bytes + (size_t)j]);
        check_invariants(&step);
        free(memory);
    }
    world_end();
}

int main(void)
{
    test_steady_step_from_any_launch();
    test_interleaved_micro_batches();
    test_markers();
    test_lone_halves();
    test_what_is_not_kept();
    test_named();
    test_too_many_spans();
    test_many_spans_come_and_go();
    test_any_program_any_window();
    return expect_status();
}
