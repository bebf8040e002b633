/*
 * The detector, with optimizers that update many tensors by one kernel, repeatedly with the same
 * grid. One is torch's fused Adam, with some 160 launches in a step of 1,516.
 *
 * Such launches differ only in the time since the last use of their spans. That is not reliable
 * either: structures passed by value sometimes hold stale pointers.
 */
#include "policy/steps/detector.h"

#include <stdlib.h>

#include "expect.h"
#include "trace.h"

#define LAYERS 60
#define FORWARD 8 /* launches of a layer */
#define BACKWARD 14
#define BYTES 1000

#define K_FUSED 1000

struct model {
    struct trace trace;
    struct ps_steps *steps;
    uint64_t kernel; /* the kernel of the current launch; the fingerprint depends on nothing else */
    uint64_t weight[LAYERS], gradient[LAYERS], state[LAYERS][2], saved[LAYERS];
    int pieces[LAYERS]; /* launches in a row that update a layer's tensors */
    uint64_t stale_one_in;
    uint64_t found, shorter, lost;
    struct ps_steps_state latest;
};

static void observe(void *context, struct ps_step_launch launch, const uint64_t *span, const uint64_t *bytes, int n)
{
    struct model *model = context;

    (void)span, (void)bytes, (void)n;
    launch.fingerprint = trace_mix(model->kernel);
    model->latest = ps_steps_observe(model->steps, launch);
    model->found += model->latest.event == PS_STEPS_FOUND;
    model->lost += model->latest.event == PS_STEPS_LOST;
    model->shorter += model->latest.event == PS_STEPS_FOUND && model->latest.length < LAYERS * (FORWARD + BACKWARD);
}

static void launch(struct model *model, uint64_t kernel, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
    model->kernel = kernel;
    trace_launch(&model->trace, kernel, 5, a, b, c, d, e);
}

static struct model *start(int least, int longest, uint64_t stale_one_in)
{
    struct model *model = calloc(1, sizeof *model);

    if (!model || !(model->steps = calloc(1, ps_steps_bytes())))
        abort();
    ps_steps_init(model->steps);
    model->stale_one_in = stale_one_in;
    model->trace.context = model;
    model->trace.launched = observe;
    for (int i = 0; i < LAYERS; i++) {
        model->weight[i] = trace_alloc(&model->trace, BYTES);
        model->state[i][0] = trace_alloc(&model->trace, BYTES);
        model->state[i][1] = trace_alloc(&model->trace, BYTES);
        model->pieces[i] =
            least + (int)trace_random(&model->trace, (uint64_t)(7 - least)) * (int)trace_random(&model->trace, 2);
    }
    model->pieces[LAYERS / 2] = longest;
    return model;
}

static void update(struct model *model)
{
    for (int i = 0; i < LAYERS; i++)
        for (int piece = 0; piece < model->pieces[i]; piece++) {
            uint64_t stale = trace_random(&model->trace, model->stale_one_in) == 0
                                 ? model->state[trace_random(&model->trace, LAYERS)][0]
                                 : 0;
            launch(model, K_FUSED, model->weight[i], model->gradient[i], model->state[i][0], model->state[i][1], stale);
        }
}

static void step(struct model *model)
{
    for (int i = 0; i < LAYERS; i++) {
        model->saved[i] = trace_alloc(&model->trace, BYTES);
        for (uint64_t k = 0; k < FORWARD; k++)
            launch(model, k, model->weight[i], model->saved[i], i > 0 ? model->saved[i - 1] : 0, 0, 0);
    }
    for (int i = LAYERS; i-- > 0;) {
        model->gradient[i] = trace_alloc(&model->trace, BYTES);
        for (uint64_t k = FORWARD; k < FORWARD + BACKWARD; k++)
            launch(model, k, model->weight[i], model->saved[i], model->gradient[i], 0, 0);
        trace_free(&model->trace, &model->saved[i]);
    }
    update(model);
    for (int i = 0; i < LAYERS; i++)
        trace_free(&model->trace, &model->gradient[i]);
}

static void end(struct model *model)
{
    free(model->steps);
    trace_destroy(&model->trace);
    free(model);
}

/*
 * A few launches for each set of tensors. Where the optimizer goes on to the next set, the last few
 * launches alone look like a loop of one launch.
 */
static void test_pieces_are_no_step(void)
{
    for (uint64_t seed = 0; seed < 8; seed++) {
        struct model *model = start(1, 6, 20);
        uint64_t before = 0;
        model->trace.random = seed << 32;
        for (int i = 0; i < 12; i++) {
            before = model->trace.launches;
            step(model);
            EXPECT_U64(0, model->shorter);
            if (i == 3)
                EXPECT_U64(model->trace.launches - before, model->latest.length);
        }
        EXPECT_U64(1, model->found);
        EXPECT_U64(0, model->lost);
        EXPECT(model->latest.following);
        end(model);
    }
}

/*
 * One tensor takes enough launches to be a real loop of one launch. The step around it is still
 * found and kept. Each set takes two launches or more. A set that is idle for a whole step would
 * prove the step by itself.
 */
static void test_a_loop_inside_hides_no_step(void)
{
    for (int longest = 100; longest <= 400; longest *= 2) {
        struct model *model = start(2, longest, 100);
        uint64_t length = 0, lost = 0;
        for (int i = 0; i < 12; i++) {
            uint64_t before = model->trace.launches;
            step(model);
            length = model->trace.launches - before;
            if (i < 4)
                lost = model->lost;
        }
        EXPECT(model->shorter > 0); /* else this tests nothing */
        EXPECT(model->latest.following);
        EXPECT_U64(length, model->latest.length);
        EXPECT_U64(lost, model->lost);
        end(model);
    }
}

int main(void)
{
    test_pieces_are_no_step();
    test_a_loop_inside_hides_no_step();
    return expect_status();
}
