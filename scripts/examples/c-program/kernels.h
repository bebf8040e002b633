/* The kernels of trainer.cu. Each thread takes every n-th item, so any grid works. */
#ifndef KERNELS_H
#define KERNELS_H

#include <math.h>
#include <stddef.h>

#define FOR_EACH_ITEM(i, count)                                                                                        \
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < (count); i += gridDim.x * (size_t)blockDim.x)

/* out = in + weight tanh(in), with one weight for each column */
extern "C" __global__ void layer_forward(float *out, const float *in, const float *weight, size_t rows, size_t width)
{
    FOR_EACH_ITEM(i, rows * width)
    {
        out[i] = in[i] + weight[i % width] * tanhf(in[i]);
    }
}

/* The gradient of each weight is the sum over the rows, in order: the same bits in each run. */
extern "C" __global__ void weight_gradient(float *gradient, const float *in, const float *out_gradient, size_t rows,
                                           size_t width)
{
    FOR_EACH_ITEM(column, width)
    {
        float sum = 0.0f;
        for (size_t row = 0; row < rows; row++)
            sum += out_gradient[row * width + column] * tanhf(in[row * width + column]);
        gradient[column] = sum;
    }
}

/* Turns the gradient of `out` into that of `in`, in place. */
extern "C" __global__ void layer_backward(float *gradient, const float *in, const float *weight, size_t rows,
                                          size_t width)
{
    FOR_EACH_ITEM(i, rows * width)
    {
        float t = tanhf(in[i]);
        gradient[i] *= 1.0f + weight[i % width] * (1.0f - t * t);
    }
}

/*
 * The loss is the mean square distance from a target that is the same in all columns: row / rows.
 * Each row gets one sum.
 */
extern "C" __global__ void square_loss(float *loss, float *gradient, const float *out, size_t rows, size_t width)
{
    FOR_EACH_ITEM(row, rows)
    {
        float target = (float)row / (float)rows, sum = 0.0f;
        for (size_t i = row * width; i < (row + 1) * width; i++) {
            sum += (out[i] - target) * (out[i] - target);
            gradient[i] = 2.0f * (out[i] - target) / (float)(rows * width);
        }
        loss[row] = sum / (float)(rows * width);
    }
}

extern "C" __global__ void update(float *weight, const float *gradient, float rate, size_t width)
{
    FOR_EACH_ITEM(i, width)
    {
        weight[i] -= rate * gradient[i];
    }
}

#endif
