/*
 * A small training loop in CUDA C that tells Penstock its layers and the end of each step. Penstock
 * does not need these calls. They do nothing unless Penstock is preloaded, and nothing is linked.
 * From the tree's top:
 *
 *     nvcc -O2 -Iinclude -o trainer scripts/examples/c-program/trainer.cu
 *     penstock run --budget 60% -- ./trainer
 *
 * If Penstock is installed, $(pkg-config --cflags penstock) replaces -Iinclude.
 *     ./trainer [LAYERS [ROWS [WIDTH [STEPS]]]]
 * prints the loss of each step. Most of the memory holds the tensors that forward leaves for
 * backward: ROWS x WIDTH floats a layer.
 */
#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime.h>
#include <penstock/penstock.h>

#include "kernels.h"

static void check(cudaError_t result, const char *what)
{
    if (result == cudaSuccess)
        return;
    fprintf(stderr, "trainer: %s: %s\n", what, cudaGetErrorString(result));
    exit(1);
}

#define CHECK(call) check(call, #call)
#define LAUNCH(kernel, ...) (kernel<<<256, 128>>>(__VA_ARGS__), check(cudaGetLastError(), #kernel))

static float *new_floats(size_t count)
{
    void *floats;

    CHECK(cudaMalloc(&floats, count * sizeof(float)));
    return (float *)floats;
}

static size_t argument(int argc, char **argv, int index, size_t standard)
{
    return argc > index ? strtoul(argv[index], NULL, 10) : standard;
}

int main(int argc, char **argv)
{
    size_t layers = argument(argc, argv, 1, 24), rows = argument(argc, argv, 2, 65536),
           width = argument(argc, argv, 3, 1024);
    size_t steps = argument(argc, argv, 4, 10), count = rows * width;
    float **in = (float **)calloc(layers + 1, sizeof *in), *first = (float *)malloc(count * sizeof(float));
    float *losses = (float *)malloc(rows * sizeof(float)), *weight = new_floats(layers * width),
          *gradient = new_floats(width);

    if (!layers || !count || !in || !first || !losses) {
        fprintf(stderr, "trainer: expected numbers from 1 on: LAYERS ROWS WIDTH STEPS\n");
        return 2;
    }
    for (size_t i = 0; i < count; i++)
        first[i] = (float)(i * 2654435761u % 1000) / 1000.0f;
    CHECK(cudaMemset(weight, 0, layers * width * sizeof(float)));

    for (size_t step = 0; step < steps; step++) {
        in[0] = new_floats(count);
        CHECK(cudaMemcpy(in[0], first, count * sizeof(float), cudaMemcpyHostToDevice));
        for (size_t layer = 0; layer < layers; layer++) {
            penstock_layer_begin("layer", (int)layer, PENSTOCK_DIRECTION_FORWARD);
            in[layer + 1] = new_floats(count);
            LAUNCH(layer_forward, in[layer + 1], in[layer], weight + layer * width, rows, width);
            penstock_layer_end();
        }

        float *device_losses = new_floats(rows), *out_gradient = new_floats(count), loss = 0.0f;
        LAUNCH(square_loss, device_losses, out_gradient, in[layers], rows, width);
        CHECK(cudaFree(in[layers]));
        for (size_t layer = layers; layer-- > 0;) {
            penstock_layer_begin("layer", (int)layer, PENSTOCK_DIRECTION_BACKWARD);
            LAUNCH(weight_gradient, gradient, in[layer], out_gradient, rows, width);
            LAUNCH(layer_backward, out_gradient, in[layer], weight + layer * width, rows, width);
            LAUNCH(update, weight + layer * width, gradient, 20.0f, width);
            CHECK(cudaFree(in[layer]));
            penstock_layer_end();
        }
        CHECK(cudaMemcpy(losses, device_losses, rows * sizeof(float), cudaMemcpyDeviceToHost));
        for (size_t row = 0; row < rows; row++)
            loss += losses[row];
        printf("step %zu loss %.6f\n", step, loss);
        CHECK(cudaFree(device_losses));
        CHECK(cudaFree(out_gradient));
        penstock_step();
    }
    CHECK(cudaFree(weight));
    CHECK(cudaFree(gradient));
    free(in);
    free(first);
    free(losses);
    return 0;
}
