/*
 * The layer of a thread, by the markers of the API, of NVTX and of kernels. Each case runs in a
 * process of its own, because the source is chosen once.
 */
#include "plan/layer_markers.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda/driver.h"
#include "expect.h"
#include "kernels/layouts.h"
#include "plan/layer_names.h"

static struct ps_recorded_layer now(void)
{
    return ps_layer_markers_now(NULL);
}

static bool is(struct ps_recorded_layer layer, uint32_t number, enum penstock_direction direction, const char *name)
{
    if (layer.number == number && layer.direction == direction && !strcmp(layer.name ? layer.name : "", name))
        return true;
    fprintf(stderr, "got layer %u, direction %d, name %s\n", layer.number, (int)layer.direction,
            layer.name ? layer.name : "NULL");
    return false;
}

#define NOWHERE PENSTOCK_NEVER, PENSTOCK_DIRECTION_NONE, ""
#define FORWARD PENSTOCK_DIRECTION_FORWARD
#define BACKWARD PENSTOCK_DIRECTION_BACKWARD

static void choose(enum ps_layers_from from, const char *pattern)
{
    struct ps_layer_source source = {.from = from};

    snprintf(source.pattern, sizeof source.pattern, "%s", pattern);
    ps_layer_markers_open(&source);
}

static void test_nothing_marked(void)
{
    choose(PS_LAYERS_AUTO, "");
    EXPECT_U64(0, now().stretch);
    EXPECT(is(now(), NOWHERE));
    ps_layer_markers_end(); /* it ends nothing */
    EXPECT_U64(0, now().stretch);
    EXPECT_U64(1, ps_layer_markers_figures().unbalanced);
}

static void test_none(void)
{
    choose(PS_LAYERS_NONE, "");
    EXPECT_U64(1, now().stretch);
    ps_layer_markers_begin("block", 3, FORWARD);
    EXPECT_U64(1, now().stretch);
    EXPECT(is(now(), NOWHERE));
    ps_layer_markers_end();
    EXPECT_U64(0, ps_layer_markers_figures().markers);
}

static void test_api(void)
{
    char name[16] = "block";
    uint64_t last;

    /* Before the set-up has chosen a source. */
    ps_layer_markers_begin(name, 3, FORWARD);
    strcpy(name, "gone");
    EXPECT(is(now(), 3, FORWARD, "block"));
    EXPECT(now().stretch > 1);
    choose(PS_LAYERS_API, "");

    last = now().stretch;
    EXPECT_U64(last, now().stretch);
    ps_layer_markers_begin(NULL, PENSTOCK_NEVER, BACKWARD);
    EXPECT(is(now(), PENSTOCK_NEVER, BACKWARD, ""));
    EXPECT(now().stretch > last);
    last = now().stretch;
    ps_layer_markers_end();
    EXPECT(is(now(), 3, FORWARD, "block"));
    EXPECT(now().stretch > last);
    last = now().stretch;
    ps_layer_markers_end();
    EXPECT(is(now(), NOWHERE));
    EXPECT(now().stretch > last);
    last = now().stretch;
    ps_layer_markers_end();
    EXPECT_U64(last, now().stretch);
    EXPECT_U64(1, ps_layer_markers_figures().unbalanced);
    EXPECT_U64(2, ps_layer_markers_figures().markers);

    /* Deeper than the kept levels: this loses no layer and finds none. */
    ps_layer_markers_begin("outer", 1, FORWARD);
    for (int i = 0; i < 200; i++)
        ps_layer_markers_begin("inner", 2, FORWARD);
    EXPECT(is(now(), 2, FORWARD, "inner"));
    for (int i = 0; i < 200; i++)
        ps_layer_markers_end();
    EXPECT(is(now(), 1, FORWARD, "outer"));
    ps_layer_markers_end();
    EXPECT(is(now(), NOWHERE));
    EXPECT(ps_layer_markers_figures().too_deep > 100);

    EXPECT(!ps_layer_markers_take_step());
    ps_layer_markers_step();
    EXPECT(ps_layer_markers_take_step());
    EXPECT(!ps_layer_markers_take_step());
    /* Ranges are another source. */
    ps_layer_markers_range_push(NULL, "layer 1 forward");
    EXPECT(is(now(), NOWHERE));
}

struct other {
    void (*run)(struct other *other);
    struct ps_recorded_layer seen[4];
};

static void *run_other(void *arg)
{
    struct other *other = arg;

    other->run(other);
    return NULL;
}

static void on_another_thread(struct other *other)
{
    pthread_t thread;

    if (EXPECT_INT(0, pthread_create(&thread, NULL, run_other, other)))
        pthread_join(thread, NULL);
}

static void look_begin_look(struct other *other)
{
    other->seen[0] = now();
    ps_layer_markers_begin("theirs", 9, BACKWARD);
    other->seen[1] = now();
    ps_layer_markers_end();
    other->seen[2] = now();
}

static void test_threads(void)
{
    struct other other = {.run = look_begin_look};

    choose(PS_LAYERS_AUTO, "");
    ps_layer_markers_begin("ours", 4, FORWARD);
    uint64_t ours = now().stretch;
    on_another_thread(&other);
    EXPECT(is(other.seen[0], NOWHERE));
    EXPECT_U64(1, other.seen[0].stretch); /* there are markers, and this thread has met none */
    EXPECT(is(other.seen[1], 9, BACKWARD, "theirs"));
    EXPECT(is(other.seen[2], NOWHERE));
    EXPECT(other.seen[2].stretch > other.seen[1].stretch && other.seen[1].stretch > ours);
    EXPECT(is(now(), 4, FORWARD, "ours"));
    EXPECT_U64(ours, now().stretch);
}

static void test_ranges(void)
{
    static const char domain;

    choose(PS_LAYERS_NVTX, "layer *");
    EXPECT_U64(0, now().stretch);
    EXPECT_INT(0, ps_layer_markers_range_push(NULL, "step 17"));
    EXPECT_U64(0, now().stretch); /* no match: nothing is marked */
    EXPECT_INT(1, ps_layer_markers_range_push(NULL, "layer 3 forward"));
    EXPECT(is(now(), 3, FORWARD, "layer 3 forward"));
    uint64_t last = now().stretch;
    EXPECT_INT(2, ps_layer_markers_range_push(NULL, "matmul 12"));
    EXPECT_INT(3, ps_layer_markers_range_push(NULL, NULL));
    EXPECT(is(now(), 3, FORWARD, "layer 3 forward"));
    EXPECT_U64(last, now().stretch);
    EXPECT_INT(3, ps_layer_markers_range_pop(NULL));
    EXPECT_INT(2, ps_layer_markers_range_pop(NULL));
    EXPECT_INT(1, ps_layer_markers_range_pop(NULL));
    EXPECT(is(now(), NOWHERE));
    EXPECT_INT(0, ps_layer_markers_range_pop(NULL));

    /* Two domains overlap without being nested. */
    EXPECT_INT(0, ps_layer_markers_range_push(NULL, "layer 1 bwd"));
    EXPECT_INT(0, ps_layer_markers_range_push(&domain, "layer 2 bwd"));
    EXPECT(is(now(), 2, BACKWARD, "layer 2 bwd"));
    EXPECT_INT(0, ps_layer_markers_range_pop(NULL));
    EXPECT(is(now(), 2, BACKWARD, "layer 2 bwd"));
    EXPECT_INT(0, ps_layer_markers_range_pop(&domain));
    EXPECT(is(now(), NOWHERE));

    /* The API is another source. */
    ps_layer_markers_begin("layer 8", 8, FORWARD);
    EXPECT(is(now(), NOWHERE));
    ps_layer_markers_end();
}

static void look(struct other *other)
{
    other->seen[0] = now();
}

static void look_at_started(struct other *other)
{
    ps_layer_markers_range_push(NULL, "layer 7 backward");
    other->seen[0] = now();
    ps_layer_markers_range_pop(NULL);
    other->seen[1] = now();
}

static void test_started_ranges(void)
{
    struct other other = {.run = look_at_started};

    choose(PS_LAYERS_NVTX, "layer *");
    uint64_t first = ps_layer_markers_range_start("layer 1 forward"), none = ps_layer_markers_range_start("epoch"),
             second = ps_layer_markers_range_start("layer 2 forward");
    EXPECT(first && none && second && first != second && none != first);
    EXPECT(is(now(), 2, FORWARD, "layer 2 forward"));
    /* This holds on each thread, except for ranges that a thread has pushed itself. */
    on_another_thread(&other);
    EXPECT(is(other.seen[0], 7, BACKWARD, "layer 7 backward"));
    EXPECT(is(other.seen[1], 2, FORWARD, "layer 2 forward"));
    EXPECT(other.seen[1].stretch > other.seen[0].stretch);
    /* Ranges end in any order. */
    ps_layer_markers_range_end(first);
    EXPECT(is(now(), 2, FORWARD, "layer 2 forward"));
    ps_layer_markers_range_end(none);
    ps_layer_markers_range_end(second);
    EXPECT(is(now(), NOWHERE));
    uint64_t last = now().stretch;
    ps_layer_markers_range_end(second);
    ps_layer_markers_range_end(123456);
    EXPECT_U64(last, now().stretch);
    other.run = look;
    on_another_thread(&other);
    EXPECT(is(other.seen[0], NOWHERE));
    EXPECT_U64(last, other.seen[0].stretch);
}

/* Many threads at once, each of which finds its own place; also for the sanitizers. */
static void *wander(void *arg)
{
    uint32_t me = (uint32_t)(uintptr_t)arg;
    char name[32];

    for (uint32_t i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "layer %u forward", me * 100 + i % 50);
        ps_layer_markers_range_push(NULL, name);
        struct ps_recorded_layer layer = now();
        if (layer.number != me * 100 + i % 50 || strcmp(layer.name, name) != 0)
            return arg;
        uint64_t id = ps_layer_markers_range_start("layer 7777 backward");
        ps_layer_markers_range_pop(NULL);
        layer = now(); /* a started range of another thread, or none by now: not before our own */
        if (layer.number != 7777)
            return arg;
        ps_layer_markers_range_end(id);
    }
    return NULL;
}

static void test_many_threads(void)
{
    pthread_t threads[4];
    void *lost;

    choose(PS_LAYERS_NVTX, "layer *");
    for (uintptr_t i = 0; i < 4; i++)
        EXPECT_INT(0, pthread_create(&threads[i], NULL, wander, (void *)(i + 1)));
    for (int i = 0; i < 60; i++) { /* children born meanwhile can go on */
        int status = 1;
        pid_t child = fork();
        if (child == 0) {
            alarm(5);
            ps_layer_markers_range_push(NULL, "layer 5 forward");
            ps_layer_markers_range_start("layer 6 forward");
            ps_layer_markers_range_push(NULL, "layer 123456 forward");
            _exit(now().number == 123456 ? 0 : 1);
        }
        EXPECT(child > 0 && waitpid(child, &status, 0) == child);
        EXPECT_INT(0, status);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], &lost);
        EXPECT(lost == NULL);
    }
    EXPECT(is(now(), NOWHERE));
    EXPECT_U64(4 * 5000 * 2, ps_layer_markers_figures().markers);
}

/*
 * Names without a direction: forward the first time in a step, backward the second. Unnumbered
 * names are numbered by the order of appearance.
 */
static void test_turns(void)
{
    static const char *const order[] = {"encoder", "decoder", "decoder", "encoder"};

    choose(PS_LAYERS_NVTX, "*coder");
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < 4; i++) {
            ps_layer_markers_range_push(NULL, order[i]);
            EXPECT(is(now(), PS_LAYERS_UNNUMBERED + (order[i][0] == 'd'), i < 2 ? FORWARD : BACKWARD, order[i]));
            ps_layer_markers_range_pop(NULL);
        }
        /* An evaluation, which has no backward, would swap the directions without the mark. */
        ps_layer_markers_range_push(NULL, "encoder");
        ps_layer_markers_range_pop(NULL);
        ps_layer_markers_step();
    }
}

static void test_endless_names(void)
{
    char name[32];

    choose(PS_LAYERS_NVTX, "*");
    for (unsigned i = 0; i < PS_LAYER_NAMES_MAX + 10; i++) {
        snprintf(name, sizeof name, "iteration %u fwd", i);
        ps_layer_markers_range_push(NULL, name);
        if (i < PS_LAYER_NAMES_MAX)
            EXPECT(is(now(), i, FORWARD, name));
        else
            EXPECT(is(now(), NOWHERE));
        ps_layer_markers_range_pop(NULL);
    }
    EXPECT_U64(10, ps_layer_markers_figures().too_deep);
    ps_layer_markers_range_push(NULL, "iteration 5 fwd");
    EXPECT(is(now(), 5, FORWARD, "iteration 5 fwd"));
}

static void test_names(void)
{
    static const struct {
        const char *name;
        uint32_t number;
        enum penstock_direction direction;
    } cases[] = {
        {"layer 3 forward", 3, FORWARD},
        {"layer 12 backward", 12, BACKWARD},
        {"forward: block.7", 7, FORWARD},
        {"h.11.mlp fwd", 11, FORWARD},
        {"BWD 4", 4, BACKWARD},
        {"bwd_4", 4, BACKWARD},
        {"block2_bwd", 2, BACKWARD},
        {"AddmmBackward0", PENSTOCK_NEVER, BACKWARD},
        {"layers.5.AddmmBackward0", 5, BACKWARD},
        {"loss", PENSTOCK_NEVER, PENSTOCK_DIRECTION_NONE},
        {"", PENSTOCK_NEVER, PENSTOCK_DIRECTION_NONE},
        {"straightforward 9", 9, PENSTOCK_DIRECTION_NONE},
        {"forwarder 9", 9, PENSTOCK_DIRECTION_NONE},
        {"layer 99999999999999999999", PENSTOCK_NEVER, PENSTOCK_DIRECTION_NONE},
        {"stage 1 layer 2", 2, PENSTOCK_DIRECTION_NONE},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ps_recorded_layer read = {.name = cases[i].name};
        ps_layer_names_read(cases[i].name, &read.number, &read.direction);
        if (!EXPECT(is(read, cases[i].number, cases[i].direction, cases[i].name)))
            fprintf(stderr, "  of \"%s\"\n", cases[i].name);
    }
}

/* ---- kernels ---- */

static unsigned asked;
static const char *const kernel_names[] = {"gemm", "norm_fwd", "norm_bwd", "norm"};

/* A driver in which the handle is the number in the name, times sixteen, plus one thousand. */
static CUresult name_of_kernel(const char **name, CUkernel kernel)
{
    asked++;
    *name = kernel_names[((uintptr_t)kernel - 1000) / 16];
    return CUDA_SUCCESS;
}

static CUfunction kernel(unsigned name)
{
    return (CUfunction)(uintptr_t)(1000 + 16 * name);
}

static void test_kernels(void)
{
    /* gemm, norm_fwd, norm_bwd: three layers forward and back, twice. */
    static const struct {
        unsigned name;
        uint32_t number;
    } order[] = {{1, 0}, {0, 0}, {1, 1}, {0, 1}, {1, 2}, {0, 2}, {0, 2},
                 {2, 2}, {0, 2}, {2, 1}, {0, 1}, {2, 0}, {0, 0}};

    ps_cu.cuKernelGetName = name_of_kernel;
    choose(PS_LAYERS_KERNEL, "norm*");
    EXPECT_U64(0, ps_layer_markers_now(kernel(0)).stretch);
    for (int step = 0; step < 2; step++) {
        uint64_t last = 0;
        enum penstock_direction direction = PENSTOCK_DIRECTION_NONE;
        const char *name = "";
        for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
            struct ps_recorded_layer layer = ps_layer_markers_now(kernel(order[i].name));
            if (order[i].name) {
                EXPECT(layer.stretch > last);
                direction = order[i].name == 1 ? FORWARD : BACKWARD;
                name = kernel_names[order[i].name];
            } else {
                EXPECT_U64(last, layer.stretch);
            }
            EXPECT(is(layer, order[i].number, direction, name));
            last = layer.stretch;
        }
    }
    EXPECT_U64(3, asked);
    /* Backward beyond the first layer, and a name without a direction: no layer of the model. */
    EXPECT(is(ps_layer_markers_now(kernel(2)), PENSTOCK_NEVER, BACKWARD, "norm_bwd"));
    EXPECT(is(ps_layer_markers_now(kernel(2)), PENSTOCK_NEVER, BACKWARD, "norm_bwd"));
    EXPECT(is(ps_layer_markers_now(kernel(3)), PENSTOCK_NEVER, PENSTOCK_DIRECTION_NONE, "norm"));
    EXPECT(is(ps_layer_markers_now(kernel(1)), 0, FORWARD, "norm_fwd"));
    /* A copy names no kernel. */
    EXPECT(is(ps_layer_markers_now(NULL), 0, FORWARD, "norm_fwd"));
    /* Forward alone continues to count until the program says that a step is over. */
    EXPECT(is(ps_layer_markers_now(kernel(1)), 1, FORWARD, "norm_fwd"));
    ps_layer_markers_step();
    EXPECT(is(ps_layer_markers_now(kernel(0)), 1, FORWARD, "norm_fwd"));
    EXPECT(is(ps_layer_markers_now(kernel(1)), 0, FORWARD, "norm_fwd"));
    EXPECT(is(ps_layer_markers_now(kernel(1)), 1, FORWARD, "norm_fwd"));
    asked = 0;
    ps_layouts_module_gone();
    ps_layer_markers_now(kernel(1));
    ps_layer_markers_now(kernel(1));
    EXPECT_U64(1, asked);
}

/* No kernel's name is asked for unless the setting requires it. */
static void test_no_kernels(void)
{
    ps_cu.cuKernelGetName = name_of_kernel;
    choose(PS_LAYERS_AUTO, "");
    ps_layer_markers_begin("block", 1, FORWARD);
    EXPECT(is(ps_layer_markers_now(kernel(1)), 1, FORWARD, "block"));
    EXPECT_U64(0, asked);
}

int main(void)
{
    static void (*const cases[])(void) = {test_nothing_marked, test_none,           test_api,        test_threads,
                                          test_ranges,         test_started_ranges, test_turns,      test_endless_names,
                                          test_names,          test_kernels,        test_no_kernels, test_many_threads};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int status = 1;
        pid_t child = fork();
        if (child == 0) {
            cases[i]();
            _exit(expect_status());
        }
        EXPECT(child > 0 && waitpid(child, &status, 0) == child);
        EXPECT_INT(0, status);
    }
    return expect_status();
}
