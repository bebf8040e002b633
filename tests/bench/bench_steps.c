/*
 * The cost of learning for the launching thread: the step detector and the recorder, for each
 * launch of made-up steps. Also the time to make a recorded step, which happens once for each
 * pattern.
 *
 * usage: bench_steps BATCHES    prints a line of JSON for each figure: name, median_ns, low_ns
 */
#include <string.h>

#include "bench.h"
#include "policy/recording/auto_layers.h"
#include "policy/recording/recorded_step.h"
#include "policy/recording/recorder.h"
#include "policy/steps/detector.h"

#define LAUNCHES 2000 /* launches of a step; a batch is a step */
#define SPANS 400
#define NAMED 4 /* spans that a launch names */

static struct ps_steps *steps;
static struct ps_recorder *recorder;
static uint64_t different;
static uint64_t sink;

static void *zeroed(size_t bytes)
{
    void *memory = calloc(1, bytes);

    if (!memory) {
        perror("calloc");
        exit(1);
    }
    return memory;
}

static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static void say(const char *name, struct bench_figure figure)
{
    printf("{\"name\": \"%s\", \"median_ns\": %.1f, \"low_ns\": %.1f}\n", name, figure.median_ns, figure.low_ns);
}

/* The same step repeated: followed after the second. */
static void observe_same(void *context, int i)
{
    (void)context;
    sink += ps_steps_observe(steps, (struct ps_step_launch){mix((uint64_t)i), LAUNCHES}).position;
}

/* Never the same kernel: the search for a pattern finds nothing to try. */
static void observe_different(void *context, int i)
{
    (void)context, (void)i;
    sink += ps_steps_observe(steps, (struct ps_step_launch){mix(++different), LAUNCHES}).position;
}

/* Few kernels in no order: the search always has something to try, and it never holds. */
static void observe_noise(void *context, int i)
{
    (void)context, (void)i;
    sink += ps_steps_observe(steps, (struct ps_step_launch){mix(++different) % 3, LAUNCHES}).position;
}

static void bench_detector(const char *name, int batches, void (*operation)(void *, int))
{
    steps = zeroed(ps_steps_bytes());
    ps_steps_init(steps);
    for (int i = 0; i < 4 * LAUNCHES; i++)
        operation(NULL, i % LAUNCHES);
    say(name, bench_measure(batches, LAUNCHES, operation, NULL, NULL));
    free(steps);
}

static void record(void *context, int i)
{
    const struct ps_recorded_layer layer = {.number = PENSTOCK_NEVER};

    (void)context;
    ps_recorder_launch(recorder, (struct ps_step_launch){mix((uint64_t)i), LAUNCHES}, 0, layer);
    for (uint64_t j = 0; j < NAMED; j++)
        ps_recorder_access(recorder, 1 + mix((uint64_t)i * NAMED + j) % SPANS, 4096, false);
}

static void make_step(void *context, int i)
{
    struct penstock_step step;
    struct ps_recorded_details recorded;

    (void)i;
    if (ps_recorded_step_make(recorder, ps_recorder_launches(recorder) - LAUNCHES, LAUNCHES, context, &step,
                              &recorded) != 0)
        exit(1);
    sink += step.uses;
}

static void bench_recorder(int batches)
{
    size_t bytes;

    recorder = zeroed(ps_recorder_bytes());
    ps_recorder_init(recorder);
    for (uint64_t span = 1; span <= SPANS; span++)
        ps_recorder_allocated(recorder, span, 4096);
    say("record a launch with 4 spans", bench_measure(batches, LAUNCHES, record, NULL, NULL));
    if (ps_recorded_step_bytes(recorder, ps_recorder_launches(recorder) - LAUNCHES, LAUNCHES, &bytes) != 0)
        exit(1);
    void *memory = zeroed(bytes);
    say("make a step of 2,000 launches", bench_measure(batches / 10 + 1, 1, make_step, NULL, memory));
    free(memory);
    free(recorder);
}

/* Layers of 20 launches forward and 40 back. */
static void bench_layers(int batches, uint32_t launches)
{
    uint64_t *fingerprint = zeroed(launches * sizeof *fingerprint);
    struct penstock_layer *layer = zeroed(launches * sizeof *layer);
    void *workspace = zeroed(ps_auto_layers_workspace_bytes(launches));
    char name[64];
    double taken[BENCH_BATCHES_MAX] = {0};

    for (uint32_t i = 0; i < launches; i++)
        fingerprint[i] = mix(i < launches / 3 ? i % 20 : 100 + i % 40);
    for (int b = 0; b < batches; b++) {
        uint64_t begin = bench_now_ns();
        sink += ps_auto_layers_find(fingerprint, launches, workspace, layer, launches);
        taken[b] = (double)(bench_now_ns() - begin);
    }
    qsort(taken, (size_t)batches, sizeof *taken, bench_compare);
    snprintf(name, sizeof name, "layers of %u launches", (unsigned)launches);
    say(name, (struct bench_figure){taken[batches / 2], taken[0]});
    free(fingerprint);
    free(layer);
    free(workspace);
}

int main(int argc, char **argv)
{
    int batches = bench_number(argc > 1 ? argv[1] : "200");

    if (batches > BENCH_BATCHES_MAX)
        batches = BENCH_BATCHES_MAX;
    bench_detector("observe a launch, followed", batches, observe_same);
    bench_detector("observe a launch, never the same", batches, observe_different);
    bench_detector("observe a launch, noise of three kernels", batches, observe_noise);
    bench_recorder(batches);
    for (uint32_t launches = 1000; launches <= 100000; launches *= 10)
        bench_layers(batches / 10 + 1, launches);
    return sink == 1;
}
