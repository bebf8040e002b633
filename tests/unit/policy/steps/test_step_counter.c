/*
 * Steps counted in made-up streams of launches. Kernels are small numbers. A function emits the
 * launches of each step's shape.
 */
#include "policy/steps/step_counter.h"

#include "expect.h"

static struct ps_step_counter counter;

static void emit(uint64_t kernel)
{
    ps_step_observe(&counter, kernel);
}

/* Emits one layer: three kernels that each layer has. */
static void emit_layer(uint64_t base)
{
    emit(base);
    emit(base + 1);
    emit(base + 2);
}

enum {
    EMBED = 100,
    HEAD = 101,
    LOSS = 102,
    UPDATE = 103,
    ZERO = 104,
    FORWARD = 200,
    BACKWARD = 300,
    TUNE = 400,
    FILL = 500,
    EVALUATE = 600
};

/* Backward takes twice the kernels of forward. */
static void emit_forward_backward(int layers)
{
    emit(EMBED);
    for (int i = 0; i < layers; i++)
        emit_layer(FORWARD);
    emit(HEAD);
    emit(LOSS);
    for (int i = 0; i < layers; i++) {
        emit_layer(BACKWARD);
        emit_layer(BACKWARD + 3);
    }
}

static void emit_update(int tensors)
{
    for (int i = 0; i < tensors; i++)
        emit(UPDATE);
    emit(ZERO);
}

static void emit_step(int layers)
{
    emit_forward_backward(layers);
    emit_update(2 * layers);
}

static void test_plain_loop_of_repeated_layers(void)
{
    for (int layers = 1; layers <= 40; layers += 13) {
        for (int steps = 3; steps <= 30; steps += 9) {
            ps_step_init(&counter);
            for (int i = 0; i < steps; i++)
                emit_step(layers);
            EXPECT_U64((uint64_t)steps, ps_step_count(&counter));
        }
    }
}

static void test_count_while_running(void)
{
    ps_step_init(&counter);
    EXPECT_U64(0, ps_step_count(&counter));
    emit_step(8);
    emit_step(8);
    emit_step(8);
    EXPECT_U64(3, ps_step_count(&counter));
    for (uint64_t i = 4; i < 100; i++) {
        emit_step(8);
        EXPECT_U64(i, ps_step_count(&counter));
    }
    /* A step broken off early does not count. */
    emit(EMBED);
    emit_layer(FORWARD);
    EXPECT_U64(99, ps_step_count(&counter));
}

/*
 * First the set-up, then two steps that try out kernels and make the optimizer's state, then steps
 * that are alike.
 */
static void test_first_steps_differ(void)
{
    ps_step_init(&counter);
    for (int i = 0; i < 60; i++)
        emit(FILL);
    for (int step = 0; step < 12; step++) {
        if (step < 2) {
            for (int i = 0; i < 20 - 5 * step; i++)
                emit(TUNE + (uint64_t)i % 4);
        }
        emit_forward_backward(6);
        if (step == 0) {
            for (int i = 0; i < 12; i++)
                emit(FILL);
        }
        emit_update(12);
    }
    EXPECT_U64(12, ps_step_count(&counter));
}

static void test_accumulated_gradients_count_the_outer_loop(void)
{
    for (int parts = 2; parts <= 8; parts += 2) {
        ps_step_init(&counter);
        for (int step = 0; step < 10; step++) {
            for (int part = 0; part < parts; part++)
                emit_forward_backward(4);
            emit_update(8);
        }
        EXPECT_U64(10, ps_step_count(&counter));
    }
}

static void test_evaluation_in_between(void)
{
    ps_step_init(&counter);
    for (int step = 0; step < 20; step++) {
        emit_step(5);
        if (step == 6 || step == 15) {
            for (int i = 0; i < 30; i++)
                emit(EVALUATE + (uint64_t)i % 3);
        }
    }
    EXPECT_U64(20, ps_step_count(&counter));
}

/* Two threads fill two streams: the order inside a step varies, its content does not. */
static void test_order_inside_a_step_does_not_matter(void)
{
    ps_step_init(&counter);
    for (uint64_t step = 0; step < 15; step++) {
        emit(EMBED);
        for (uint64_t i = 0; i < 12; i++)
            emit(700 + (i * 5 + step) % 12);
        emit(ZERO);
    }
    EXPECT_U64(15, ps_step_count(&counter));
}

/* The set-up is a loop too, with longer rounds than the steps. */
static void test_a_loop_long_over_does_not_count(void)
{
    ps_step_init(&counter);
    for (int round = 0; round < 2; round++) {
        emit_step(2);
        for (int i = 0; i < 200; i++)
            emit(FILL);
    }
    for (int step = 0; step < 60; step++)
        emit_step(2);
    EXPECT_U64(62, ps_step_count(&counter));
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void test_no_repetition(void)
{
    uint64_t state = 88172645463325252u;

    ps_step_init(&counter);
    for (uint64_t i = 0; i < 5000; i++)
        emit(i);
    EXPECT_U64(0, ps_step_count(&counter));

    /* Known kernels in no order at all. */
    for (uint64_t kernels = 20; kernels <= 3000; kernels *= 5) {
        ps_step_init(&counter);
        for (int i = 0; i < 50000; i++)
            emit(next_random(&state) % kernels);
        EXPECT_U64(0, ps_step_count(&counter));
    }
}

/* Among two steps none comes twice in a row, yet they are told from their layers. */
static void test_few_steps(void)
{
    for (int layers = 1; layers <= 40; layers += 13) {
        for (uint64_t steps = 1; steps <= 4; steps++) {
            ps_step_init(&counter);
            for (uint64_t i = 0; i < steps; i++)
                emit_step(layers);
            /* One step is no loop: its layers must not be taken for steps. */
            EXPECT_U64(steps > 1 ? steps : 0, ps_step_count(&counter));
        }
    }
}

/* As above, with a set-up and a first step that makes the optimizer's state. */
static void test_few_steps_that_differ(void)
{
    for (uint64_t steps = 2; steps <= 4; steps++) {
        ps_step_init(&counter);
        for (int i = 0; i < 20; i++)
            emit(FILL);
        for (uint64_t step = 0; step < steps; step++) {
            emit_forward_backward(6);
            for (int i = 0; step == 0 && i < 12; i++)
                emit(FILL);
            emit_update(12);
        }
        EXPECT_U64(steps, ps_step_count(&counter));
    }
}

/* There are more kernels than slots; the kernels with a slot still tell the steps. */
static void test_more_kernels_than_slots(void)
{
    ps_step_init(&counter);
    for (uint64_t step = 0; step < 9; step++) {
        for (uint64_t kernel = 0; kernel < PS_STEP_SLOTS * 2; kernel++)
            emit(kernel * 4096);
    }
    EXPECT_U64(9, ps_step_count(&counter));
}

/* Thousands of kernels that run once must not keep out those that come again. */
static void test_many_kernels_run_once_before(void)
{
    ps_step_init(&counter);
    for (uint64_t i = 0; i < 20000; i++)
        emit(1000000 + i);
    for (uint64_t step = 0; step < 10; step++) {
        for (uint64_t kernel = 0; kernel < 300; kernel++)
            emit(kernel);
    }
    EXPECT_U64(10, ps_step_count(&counter));
}

/* Rounds of one length whose content never repeats, such as a graph network's batches. */
static void test_equal_lengths_are_not_enough(void)
{
    ps_step_init(&counter);
    for (uint64_t i = 0; i < 100; i++) {
        emit(1);
        emit(1000 + i);
        emit(2000 + i);
    }
    EXPECT_U64(0, ps_step_count(&counter));
}

/*
 * Of the kernels that run once a step, two also ran in the set-up. Two come only with the fourth
 * step. The other three decide. Several numberings put each kind first in the table at times.
 */
static void test_most_kernels_decide(void)
{
    for (uint64_t numbering = 0; numbering < 50; numbering++) {
        uint64_t base = numbering * 1000;
        ps_step_init(&counter);
        for (uint64_t i = 0; i < 30; i++) {
            emit(base + 500 + i);
            emit(base + i % 2);
        }
        for (int step = 0; step < 24; step++) {
            for (uint64_t kernel = 0; kernel < 5; kernel++)
                emit(base + kernel);
            if (step >= 3) {
                emit(base + 5);
                emit(base + 6);
            }
        }
        EXPECT_U64(24, ps_step_count(&counter));
    }
}

static void test_one_kernel_over_and_over(void)
{
    ps_step_init(&counter);
    for (int i = 0; i < 1000; i++)
        emit(7);
    EXPECT_U64(1000, ps_step_count(&counter));
}

int main(void)
{
    test_plain_loop_of_repeated_layers();
    test_count_while_running();
    test_first_steps_differ();
    test_accumulated_gradients_count_the_outer_loop();
    test_evaluation_in_between();
    test_order_inside_a_step_does_not_matter();
    test_a_loop_long_over_does_not_count();
    test_no_repetition();
    test_few_steps();
    test_few_steps_that_differ();
    test_more_kernels_than_slots();
    test_many_kernels_run_once_before();
    test_equal_lengths_are_not_enough();
    test_most_kernels_decide();
    test_one_kernel_over_and_over();
    return expect_status();
}
