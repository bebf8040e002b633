/*
 * The kernels that both trainers use: matrix products, RMS norm, activations, dropout, sums, Adam.
 * Matrices are row-major.
 *
 * Sums over the rows of a batch have two stages in a fixed order: within chunks of rows, then over
 * the chunks. That keeps a GPU busy without atomics, whose order (and rounding) would change from
 * run to run.
 */
#ifndef PENSTOCK_SAMPLES_LAYERS_H
#define PENSTOCK_SAMPLES_LAYERS_H

#include <math.h>

#include "kernel.h"

/*
 * Columns that one item of a product computes. A host compiler can use whole vectors, and a GPU's
 * registers suffice.
 */
#define TILE 16

#define NORM_EPSILON 1e-5f

static __host__ __device__ inline size_t tiles_of(size_t columns)
{
    return (columns + TILE - 1) / TILE;
}

/* A well-mixed 64-bit number from another (the finaliser of splitmix64). */
static __host__ __device__ inline uint64_t mix_bits(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* A number in [-1, 1) from a key and an index. */
static __host__ __device__ inline float uniform_at(uint64_t key, uint64_t index)
{
    return static_cast<float>(mix_bits(key ^ mix_bits(index)) >> 40) * (1.0f / 8388608.0f) - 1.0f;
}

/*
 * out[rows, columns] = in[rows, inner] * weight[inner, columns] (+ bias[columns], unless it is
 * null)
 */
KERNEL(matmul,
       (float *__restrict__ out, const float *__restrict__ in, const float *__restrict__ weight,
        const float *__restrict__ bias, size_t rows, size_t inner, size_t columns),
       (out, in, weight, bias, rows, inner, columns))
{
    const size_t tiles = tiles_of(columns);

    FOR_EACH_ITEM (item, rows * tiles) {
        const size_t row = item / tiles;
        const size_t column = item % tiles * TILE;
        const size_t width = columns - column < TILE ? columns - column : TILE;
        const float *x = in + row * inner;
        float sum[TILE] = {};

        if (width == TILE) {
            for (size_t k = 0; k < inner; k++) {
                const float *w = weight + k * columns + column;

                for (size_t j = 0; j < TILE; j++)
                    sum[j] += x[k] * w[j];
            }
        } else {
            for (size_t k = 0; k < inner; k++)
                for (size_t j = 0; j < width; j++)
                    sum[j] += x[k] * weight[k * columns + column + j];
        }
        for (size_t j = 0; j < width; j++)
            out[row * columns + column + j] = sum[j] + (bias != nullptr ? bias[column + j] : 0.0f);
    }
}

/* out[columns, rows] = in[rows, columns] transposed; for small matrices (weights). */
KERNEL(transpose, (float *__restrict__ out, const float *__restrict__ in, size_t rows, size_t columns),
       (out, in, rows, columns))
{
    FOR_EACH_ITEM (i, rows * columns)
        out[i % columns * rows + i / columns] = in[i];
}

/*
 * Per chunk of `chunk_rows` rows: partial[chunk, inner, columns] = in[rows of the chunk, inner]^T *
 * grad[rows of the chunk, columns]
 */
KERNEL(weight_gradient_chunks,
       (float *__restrict__ partial, const float *__restrict__ in, const float *__restrict__ grad, size_t rows,
        size_t inner, size_t columns, size_t chunks, size_t chunk_rows),
       (partial, in, grad, rows, inner, columns, chunks, chunk_rows))
{
    const size_t tiles = tiles_of(columns);

    FOR_EACH_ITEM (item, chunks * inner * tiles) {
        const size_t chunk = item / (inner * tiles);
        const size_t k = item / tiles % inner;
        const size_t column = item % tiles * TILE;
        const size_t width = columns - column < TILE ? columns - column : TILE;
        const size_t first = chunk * chunk_rows;
        const size_t end = first + chunk_rows < rows ? first + chunk_rows : rows;
        float sum[TILE] = {};

        if (width == TILE) {
            for (size_t row = first; row < end; row++) {
                const float x = in[row * inner + k];
                const float *g = grad + row * columns + column;

                for (size_t j = 0; j < TILE; j++)
                    sum[j] += x * g[j];
            }
        } else {
            for (size_t row = first; row < end; row++)
                for (size_t j = 0; j < width; j++)
                    sum[j] += in[row * inner + k] * grad[row * columns + column + j];
        }
        for (size_t j = 0; j < width; j++)
            partial[(chunk * inner + k) * columns + column + j] = sum[j];
    }
}

/* Per chunk of rows: partial[chunk, columns] = the column sums of grad, for a bias. */
KERNEL(bias_gradient_chunks,
       (float *__restrict__ partial, const float *__restrict__ grad, size_t rows, size_t columns, size_t chunks,
        size_t chunk_rows),
       (partial, grad, rows, columns, chunks, chunk_rows))
{
    FOR_EACH_ITEM (item, chunks * columns) {
        const size_t chunk = item / columns;
        const size_t column = item % columns;
        const size_t first = chunk * chunk_rows;
        const size_t end = first + chunk_rows < rows ? first + chunk_rows : rows;
        float sum = 0.0f;

        for (size_t row = first; row < end; row++)
            sum += grad[row * columns + column];
        partial[item] = sum;
    }
}

/* out[i] += the sum over chunks of partial[chunk, i] */
KERNEL(add_chunks, (float *__restrict__ out, const float *__restrict__ partial, size_t count, size_t chunks),
       (out, partial, count, chunks))
{
    FOR_EACH_ITEM (i, count) {
        float sum = 0.0f;

        for (size_t chunk = 0; chunk < chunks; chunk++)
            sum += partial[chunk * count + i];
        out[i] += sum;
    }
}

/* out = in / rms(in) * gain, row by row; inverse_rms[rows] is kept for backward. */
KERNEL(norm_forward,
       (float *__restrict__ out, float *__restrict__ inverse_rms, const float *__restrict__ in,
        const float *__restrict__ gain, size_t rows, size_t width),
       (out, inverse_rms, in, gain, rows, width))
{
    FOR_EACH_ITEM (row, rows) {
        const float *x = in + row * width;
        float squares = 0.0f;

        for (size_t j = 0; j < width; j++)
            squares += x[j] * x[j];

        const float scale = 1.0f / sqrtf(squares / static_cast<float>(width) + NORM_EPSILON);

        inverse_rms[row] = scale;
        for (size_t j = 0; j < width; j++)
            out[row * width + j] = x[j] * scale * gain[j];
    }
}

/*
 * grad_in = skip + the gradient through the norm of grad_out. `skip` is the gradient that went past
 * the norm along the residual.
 */
KERNEL(norm_backward,
       (float *__restrict__ grad_in, const float *__restrict__ skip, const float *__restrict__ grad_out,
        const float *__restrict__ in, const float *__restrict__ inverse_rms, const float *__restrict__ gain,
        size_t rows, size_t width),
       (grad_in, skip, grad_out, in, inverse_rms, gain, rows, width))
{
    FOR_EACH_ITEM (row, rows) {
        const float *x = in + row * width;
        const float *g = grad_out + row * width;
        const float scale = inverse_rms[row];
        float dot = 0.0f;

        for (size_t j = 0; j < width; j++)
            dot += g[j] * gain[j] * x[j];
        dot *= scale * scale / static_cast<float>(width);
        for (size_t j = 0; j < width; j++)
            grad_in[row * width + j] =
                (skip != nullptr ? skip[row * width + j] : 0.0f) + scale * (g[j] * gain[j] - x[j] * dot);
    }
}

/*
 * Per chunk of rows: partial[chunk, width] = the sums of grad_out * in * inverse_rms, for the
 * norm's gain.
 */
KERNEL(gain_gradient_chunks,
       (float *__restrict__ partial, const float *__restrict__ grad_out, const float *__restrict__ in,
        const float *__restrict__ inverse_rms, size_t rows, size_t width, size_t chunks, size_t chunk_rows),
       (partial, grad_out, in, inverse_rms, rows, width, chunks, chunk_rows))
{
    FOR_EACH_ITEM (item, chunks * width) {
        const size_t chunk = item / width;
        const size_t column = item % width;
        const size_t first = chunk * chunk_rows;
        const size_t end = first + chunk_rows < rows ? first + chunk_rows : rows;
        float sum = 0.0f;

        for (size_t row = first; row < end; row++)
            sum += grad_out[row * width + column] * in[row * width + column] * inverse_rms[row];
        partial[item] = sum;
    }
}

/*
 * The square of the positive part: smooth enough for a numerical gradient check, and cheap on a
 * processor.
 */
KERNEL(relu2_forward, (float *__restrict__ out, const float *__restrict__ in, size_t count), (out, in, count))
{
    FOR_EACH_ITEM (i, count) {
        const float positive = in[i] > 0.0f ? in[i] : 0.0f;

        out[i] = positive * positive;
    }
}

KERNEL(relu2_backward,
       (float *__restrict__ grad_in, const float *__restrict__ grad_out, const float *__restrict__ in, size_t count),
       (grad_in, grad_out, in, count))
{
    FOR_EACH_ITEM (i, count)
        grad_in[i] = 2.0f * (in[i] > 0.0f ? in[i] : 0.0f) * grad_out[i];
}

/* x * sigmoid(x) */
KERNEL(silu_forward, (float *__restrict__ out, const float *__restrict__ in, size_t count), (out, in, count))
{
    FOR_EACH_ITEM (i, count)
        out[i] = in[i] / (1.0f + expf(-in[i]));
}

KERNEL(silu_backward,
       (float *__restrict__ grad_in, const float *__restrict__ grad_out, const float *__restrict__ in, size_t count),
       (grad_in, grad_out, in, count))
{
    FOR_EACH_ITEM (i, count) {
        const float sigmoid = 1.0f / (1.0f + expf(-in[i]));

        grad_in[i] = grad_out[i] * sigmoid * (1.0f + in[i] * (1.0f - sigmoid));
    }
}

/*
 * Returns whether dropout keeps an element; it keeps seven of eight. `index` is the element's
 * number in the whole batch, so that halves agree with the whole.
 */
static __host__ __device__ inline bool dropout_keeps(uint64_t key, size_t index)
{
    return (mix_bits(key ^ index) & 7) != 0;
}

#define DROPOUT_SCALE (8.0f / 7.0f)

/* out = skip + dropout(in); kept[] records which elements were kept. */
KERNEL(dropout_forward,
       (float *__restrict__ out, uint8_t *__restrict__ kept, const float *__restrict__ skip,
        const float *__restrict__ in, uint64_t key, size_t first, size_t count),
       (out, kept, skip, in, key, first, count))
{
    FOR_EACH_ITEM (i, count) {
        kept[i] = dropout_keeps(key, first + i);
        out[i] = skip[i] + (kept[i] ? in[i] * DROPOUT_SCALE : 0.0f);
    }
}

KERNEL(dropout_backward,
       (float *__restrict__ grad_in, const float *__restrict__ grad_out, const uint8_t *__restrict__ kept,
        size_t count),
       (grad_in, grad_out, kept, count))
{
    FOR_EACH_ITEM (i, count)
        grad_in[i] = kept[i] ? grad_out[i] * DROPOUT_SCALE : 0.0f;
}

KERNEL(add, (float *__restrict__ out, const float *__restrict__ a, const float *__restrict__ b, size_t count),
       (out, a, b, count))
{
    FOR_EACH_ITEM (i, count)
        out[i] = a[i] + b[i];
}

/* out[i] += in[i] */
KERNEL(accumulate, (float *__restrict__ out, const float *__restrict__ in, size_t count), (out, in, count))
{
    FOR_EACH_ITEM (i, count)
        out[i] += in[i];
}

/* Per chunk of rows: partial[chunk] = the sum of the rows' losses. */
KERNEL(loss_chunks,
       (double *__restrict__ partial, const float *__restrict__ loss, size_t rows, size_t chunks, size_t chunk_rows),
       (partial, loss, rows, chunks, chunk_rows))
{
    FOR_EACH_ITEM (chunk, chunks) {
        const size_t first = chunk * chunk_rows;
        const size_t end = first + chunk_rows < rows ? first + chunk_rows : rows;
        double sum = 0.0;

        for (size_t row = first; row < end; row++)
            sum += static_cast<double>(loss[row]);
        partial[chunk] = sum;
    }
}

/* total[0] = scale * the sum of partial[chunks] */
KERNEL(loss_total, (double *__restrict__ total, const double *__restrict__ partial, size_t chunks, double scale),
       (total, partial, chunks, scale))
{
    FOR_EACH_ITEM (i, 1) {
        double sum = 0.0;

        for (size_t chunk = 0; chunk < chunks; chunk++)
            sum += partial[chunk];
        total[i] = scale * sum;
    }
}

/* One Adam update. correction1 and correction2 are 1 / (1 - beta^t), computed on the host. */
KERNEL(adam,
       (float *__restrict__ value, float *__restrict__ moment1, float *__restrict__ moment2,
        const float *__restrict__ grad, float rate, float correction1, float correction2, size_t count),
       (value, moment1, moment2, grad, rate, correction1, correction2, count))
{
    FOR_EACH_ITEM (i, count) {
        moment1[i] = 0.9f * moment1[i] + 0.1f * grad[i];
        moment2[i] = 0.99f * moment2[i] + 0.01f * grad[i] * grad[i];
        value[i] -= rate * moment1[i] * correction1 / (sqrtf(moment2[i] * correction2) + 1e-8f);
    }
}

#endif
