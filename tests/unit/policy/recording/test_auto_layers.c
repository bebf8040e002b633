/* Layers found in the launches of made-up steps, compared with the real ones. */
#include "policy/recording/auto_layers.h"

#include <stdlib.h>

#include "expect.h"

#define LAUNCHES_MAX 200000
#define LAYERS_MAX 4096

static uint64_t step[LAUNCHES_MAX];
static uint32_t launches;
static struct penstock_layer truth[LAYERS_MAX];
static uint32_t truths;
static struct penstock_layer layer[LAYERS_MAX];
static uint32_t layers;
static uint64_t random_state = 1;

static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint64_t draw(uint64_t below)
{
    return mix(random_state++) % below;
}

static void start(void)
{
    launches = truths = 0;
}

static void emit(uint64_t kernel)
{
    step[launches++] = mix(kernel);
}

/* Emits `n` launches of a block; its first kernel's number identifies it. */
static void emit_block(uint64_t base, int n)
{
    for (int i = 0; i < n; i++)
        emit(base + (uint64_t)i);
}

static void at_layer(uint32_t number, enum penstock_direction direction)
{
    truth[truths++] = (struct penstock_layer){.first_launch = launches, .number = number, .direction = direction};
}

static void no_layer(void)
{
    at_layer(PENSTOCK_NEVER, PENSTOCK_DIRECTION_NONE);
}

static void forward(uint32_t number, uint64_t base, int n)
{
    at_layer(number, PENSTOCK_DIRECTION_FORWARD);
    emit_block(base, n);
}

static void backward(uint32_t number, uint64_t base, int n)
{
    at_layer(number, PENSTOCK_DIRECTION_BACKWARD);
    emit_block(base, n);
}

/* Finds the layers and checks that they cover the step in order. */
static void find(uint32_t capacity)
{
    size_t bytes = ps_auto_layers_workspace_bytes(launches);
    char *workspace = malloc(bytes + 16);

    if (!workspace)
        abort();
    memset(workspace, 0x5a, bytes + 16);
    layers = ps_auto_layers_find(step, launches, workspace, layer, capacity);
    for (int i = 0; i < 16; i++)
        EXPECT_INT(0x5a, workspace[bytes + (size_t)i]);
    free(workspace);
    EXPECT(layers >= 1 && layers <= capacity);
    EXPECT_U64(0, layer[0].first_launch);
    for (uint32_t i = 1; i < layers; i++)
        EXPECT(layer[i - 1].first_launch < layer[i].first_launch && layer[i].first_launch < launches);
    for (uint32_t i = 0; i < layers; i++)
        EXPECT((layer[i].number == PENSTOCK_NEVER) == (layer[i].direction == PENSTOCK_DIRECTION_NONE));
}

/* Returns the number of the step's launches that are in their right layer and direction. */
static uint32_t count_right(void)
{
    uint32_t right = 0;

    for (uint32_t i = 0, a = 0, b = 0; i < launches; i++) {
        while (a + 1 < truths && truth[a + 1].first_launch <= i)
            a++;
        while (b + 1 < layers && layer[b + 1].first_launch <= i)
            b++;
        right += truth[a].number == layer[b].number && truth[a].direction == layer[b].direction;
    }
    return right;
}

static void expect_right(uint32_t of_hundred, const char *what)
{
    uint32_t right = count_right();

    if (!EXPECT(right * UINT64_C(100) >= launches * (uint64_t)of_hundred))
        fprintf(stderr, "  %s: %u of %u launches in their layer\n", what, (unsigned)right, (unsigned)launches);
}

static void emit_update(int kind, int layers_of_model)
{
    no_layer();
    for (int i = 0; i < layers_of_model; i++) {
        if (kind == 0)
            emit(900); /* one kernel a layer, always the same */
        else if (kind == 1)
            emit_block(900, 12);
        else if (kind == 2)
            emit_block(900, 40);
    }
    emit(990);
}

/* Sub-blocks inside a layer: a matrix product three times over. */
static void emit_transformer(int n, int update)
{
    start();
    no_layer();
    emit_block(10, 3);
    for (int i = 0; i < n; i++) {
        forward((uint32_t)i, 100, 3);
        emit(150), emit(150), emit(150);
        emit_block(160, 9);
    }
    no_layer();
    emit_block(20, 6);
    for (int i = n; i-- > 0;) {
        backward((uint32_t)i, 300, 5);
        for (int j = 0; j < 3; j++)
            emit(350), emit(351);
        emit_block(360, 17);
    }
    no_layer();
    emit_block(30, 3);
    emit_update(update, n);
}

static void test_transformers(void)
{
    for (int n = 2; n <= 96; n++) {
        for (int update = 0; update <= 2; update++) {
            emit_transformer(n, update);
            find(LAYERS_MAX);
            expect_right(97, "transformer");
        }
    }
}

/*
 * The first layer lacks the last gradient. The last layer has another matrix product, and cuBLAS
 * chose another kernel for one in the middle.
 */
static void test_layers_that_differ_a_little(void)
{
    for (int n = 6; n <= 48; n += 3) {
        emit_transformer(n, 1);
        for (uint32_t i = 0; i < truths; i++) {
            uint32_t at = truth[i].first_launch;
            if (truth[i].number == (uint32_t)n / 2)
                step[at + 7] = mix(7777);
            if (truth[i].number == (uint32_t)n - 1)
                step[at + 9] = mix(7778);
            if (truth[i].number == 0 && truth[i].direction == PENSTOCK_DIRECTION_BACKWARD)
                step[at + 20] = mix(7779);
        }
        find(LAYERS_MAX);
        expect_right(95, "transformer with odd layers");
    }
}

/*
 * One or two layers have one launch more (a split matrix product's sum), in forward, backward or
 * both.
 */
static void test_layers_with_a_launch_more(void)
{
    for (int n = 8; n <= 48; n += 5) {
        for (int where = 1; where <= 3; where++) {
            emit_transformer(n, 1);
            for (uint32_t i = 0; i < truths; i++) {
                bool odd = truth[i].number == (uint32_t)n / 2 || (n > 20 && truth[i].number == 5);
                if (!odd || !((unsigned)where >> (truth[i].direction - PENSTOCK_DIRECTION_FORWARD) & 1))
                    continue;
                uint32_t at = truth[i].first_launch + 4 + (uint32_t)where;
                memmove(step + at + 1, step + at, (launches - at) * sizeof *step);
                step[at] = mix(7777);
                launches++;
                for (uint32_t j = i + 1; j < truths; j++)
                    truth[j].first_launch++;
            }
            find(LAYERS_MAX);
            expect_right(95, "transformer with a launch more");
        }
    }
}

/* Stages of 3, 4, 6 and 3 blocks; the first block of each has a shortcut of its own. */
static void test_convolutional_stages(void)
{
    const int blocks[4] = {3, 4, 6, 3};
    uint32_t number = 0;

    start();
    no_layer();
    emit_block(10, 4);
    for (uint64_t s = 0; s < 4; s++) {
        for (int b = 0; b < blocks[s]; b++) {
            forward(number++, 1000 * s + 100, 10);
            if (b == 0)
                emit_block(1000 * s + 150, 3);
        }
    }
    no_layer();
    emit_block(20, 5);
    for (uint64_t s = 4; s-- > 0;) {
        for (int b = blocks[s]; b-- > 0;) {
            backward(--number, 1000 * s + 300, 22);
            if (b == 0)
                emit_block(1000 * s + 350, 5);
        }
    }
    no_layer();
    emit_block(30, 4);
    emit_update(0, 16);
    find(LAYERS_MAX);
    expect_right(90, "convolutional network");
}

static void test_encoder_and_decoder(void)
{
    for (uint32_t n = 3; n <= 24; n += 3) {
        for (uint32_t m = 3; m <= 24; m += 7) {
            start();
            no_layer();
            emit_block(10, 3);
            for (uint32_t i = 0; i < n; i++)
                forward(i, 100, 12);
            no_layer();
            emit_block(20, 3);
            for (uint32_t i = 0; i < m; i++)
                forward(n + i, 200, 18);
            no_layer();
            emit_block(30, 6);
            for (uint32_t i = m; i-- > 0;)
                backward(n + i, 300, 35);
            no_layer();
            emit_block(40, 5);
            for (uint32_t i = n; i-- > 0;)
                backward(i, 400, 23);
            no_layer();
            emit_block(50, 3);
            emit_update(0, (int)(n + m));
            find(LAYERS_MAX);
            expect_right(97, "encoder-decoder");
        }
    }
}

static void test_perceptrons(void)
{
    for (uint32_t n = 3; n <= 64; n++) {
        start();
        no_layer();
        emit(10);
        for (uint32_t i = 0; i < n; i++)
            forward(i, 100, 2);
        no_layer();
        emit_block(20, 3);
        for (uint32_t i = n; i-- > 0;)
            backward(i, 300, 4);
        no_layer();
        emit(30);
        emit_update(0, (int)n);
        find(LAYERS_MAX);
        expect_right(85, "perceptron");
    }
}

/* Each micro-batch has all the layers; the later ones add up gradients. */
static void test_accumulated_gradients(void)
{
    for (int parts = 2; parts <= 8; parts++) {
        start();
        for (int part = 0; part < parts; part++) {
            no_layer();
            emit_block(10, 3);
            for (uint32_t i = 0; i < 12; i++)
                forward(i, 100, 14);
            no_layer();
            emit_block(20, 6);
            for (uint32_t i = 12; i-- > 0;) {
                backward(i, 300, 25);
                if (part > 0)
                    emit_block(400, 6);
            }
        }
        no_layer();
        emit_update(1, 12);
        find(LAYERS_MAX);
        expect_right(95, "accumulated gradients");
    }
}

static void test_forward_alone(void)
{
    start();
    no_layer();
    emit_block(10, 3);
    for (uint32_t i = 0; i < 32; i++)
        forward(i, 100, 14);
    no_layer();
    emit_block(20, 6);
    find(LAYERS_MAX);
    expect_right(97, "inference");
}

static void expect_nothing(void)
{
    find(LAYERS_MAX);
    EXPECT_U64(1, layers);
    EXPECT_U64(PENSTOCK_NEVER, layer[0].number);
    EXPECT_INT(PENSTOCK_DIRECTION_NONE, layer[0].direction);
}

static void test_nothing_repeats(void)
{
    for (uint32_t n = 1; n <= 5000; n = 3 * n + 1) {
        start();
        emit_block(1000, (int)n);
        expect_nothing();
        start();
        for (uint32_t i = 0; i < n; i++)
            emit(draw(40));
        if (n > 30)
            expect_nothing();
    }
}

/* Random programs: the step is covered in order (find checks it), with any amount of room. */
static void test_random_programs(void)
{
    for (int round = 0; round < 3000; round++) {
        start();
        uint32_t size = 1 + (uint32_t)draw(600);
        while (launches < size) {
            uint64_t base = draw(50), times = 1 + draw(20);
            int n = 1 + (int)draw(12);
            while (times-- > 0)
                emit_block(base, n);
        }
        find(1 + (uint32_t)draw(round % 2 ? 10 : LAYERS_MAX - 1));
    }
}

int main(void)
{
    test_transformers();
    test_layers_that_differ_a_little();
    test_layers_with_a_launch_more();
    test_convolutional_stages();
    test_encoder_and_decoder();
    test_perceptrons();
    test_accumulated_gradients();
    test_forward_alone();
    test_nothing_repeats();
    test_random_programs();
    return expect_status();
}
