/*
 * Operations on a worker's streams, made of the kernels in layers.h. Each allocates the tensor that
 * it returns, and frees its temporaries. Weight gradients go to the side stream and are added to
 * the worker's gradient buffers. All other work goes to the main stream.
 */
#ifndef PENSTOCK_SAMPLES_OPS_H
#define PENSTOCK_SAMPLES_OPS_H

#include "layers.h"
#include "worker.h"

/*
 * The least number of rows that one item of a two-stage sum adds, and the most bytes of the first
 * stage's sums.
 */
#define CHUNK_ROWS 128
#define CHUNK_BYTES (4u << 20)
#define MIN_CHUNKS 16

struct chunking {
    size_t chunks;
    size_t rows; /* in each chunk; the last may have fewer */
};

/*
 * Returns how to cut `rows` for sums of `width` floats each. It depends on the sizes alone, so that
 * it is the same in every run.
 */
static inline struct chunking chunks_of(size_t rows, size_t width)
{
    const size_t most =
        CHUNK_BYTES / sizeof(float) / width > MIN_CHUNKS ? CHUNK_BYTES / sizeof(float) / width : MIN_CHUNKS;
    size_t each = (rows + most - 1) / most;

    each = each < CHUNK_ROWS ? CHUNK_ROWS : each;
    return {(rows + each - 1) / each, each};
}

static inline const float *weight_of(const struct worker *worker, size_t parameter)
{
    return worker->parameters->entry[parameter].value;
}

/* In place of a parameter: a product without a bias. */
#define NO_BIAS SIZE_MAX

static inline struct tensor<float> linear_forward(const struct worker *worker, const struct tensor<float> *in,
                                                  size_t rows, size_t weight, size_t bias) {
    const size_t inner = in->count / rows;
    const size_t columns = worker->parameters->entry[weight].count / inner;
    struct tensor<float> out = tensor_new(worker, rows *columns);

    LAUNCH(worker->main, rows *tiles_of(columns), matmul, out.data, in->data, weight_of(worker, weight),
           bias == NO_BIAS ? nullptr : weight_of(worker, bias), rows, inner, columns);
    return out;
}

/* The gradient of the product's input. */
static inline struct tensor<float>
linear_backward(const struct worker *worker, const struct tensor<float> *grad_out, size_t rows, size_t weight) {
    const size_t columns = grad_out->count / rows;
    const size_t inner = worker->parameters->entry[weight].count / columns;
    struct tensor<float> turned = tensor_new(worker, inner *columns);
    struct tensor<float> grad_in = tensor_new(worker, rows *inner);

    LAUNCH(worker->main, inner *columns, transpose, turned.data, weight_of(worker, weight), inner, columns);
    LAUNCH(worker->main, rows *tiles_of(inner), matmul, grad_in.data, grad_out->data, turned.data, nullptr, rows,
           columns, inner);
    tensor_free(worker, &turned);
    return grad_in;
}

/* Adds to the gradients of weight and bias. The side stream then uses `in` and `grad_out`. */
static inline void
linear_weight_gradient(const struct worker *worker, const struct tensor<float> *in,
                       const struct tensor<float> *grad_out, size_t rows, size_t weight, size_t bias)
{
    const size_t inner = in->count / rows;
    const size_t columns = grad_out->count / rows;
    const struct chunking cut = chunks_of(rows, inner * columns);
    struct tensor<float> partial = tensor_new_on<float>(worker, worker->side, cut.chunks * inner * columns);

    side_follows_main(worker);
    LAUNCH(worker->side, cut.chunks * inner * tiles_of(columns), weight_gradient_chunks, partial.data, in->data,
           grad_out->data, rows, inner, columns, cut.chunks, cut.rows);
    LAUNCH(worker->side, inner * columns, add_chunks, worker->gradient[weight], partial.data, inner * columns,
           cut.chunks);
    if (bias != NO_BIAS) {
        LAUNCH(worker->side, cut.chunks * columns, bias_gradient_chunks, partial.data, grad_out->data, rows, columns,
               cut.chunks, cut.rows);
        LAUNCH(worker->side, columns, add_chunks, worker->gradient[bias], partial.data, columns, cut.chunks);
    }
    tensor_free_on(worker, worker->side, &partial);
}

static inline struct tensor<float> norm(const struct worker *worker, const struct tensor<float> *in, size_t rows,
                                        size_t gain, struct tensor<float> *inverse_rms) {
    struct tensor<float> out = tensor_new(worker, in->count);

    *inverse_rms = tensor_new(worker, rows);
    LAUNCH(worker->main, rows, norm_forward, out.data, inverse_rms->data, in->data, weight_of(worker, gain), rows,
           in->count / rows);
    return out;
}

/*
 * Returns the gradient of the norm's input, plus `skip`, the gradient that went past the norm (may
 * be null). Adds to the gradient of the norm's gain. The side stream then uses grad_out, in and
 * inverse_rms.
 */
static inline struct tensor<float>
norm_gradient(const struct worker *worker, const struct tensor<float> *skip, const struct tensor<float> *grad_out,
              const struct tensor<float> *in, const struct tensor<float> *inverse_rms, size_t rows, size_t gain) {
    const size_t width = in->count / rows;
    const struct chunking cut = chunks_of(rows, width);
    struct tensor<float> partial = tensor_new_on<float>(worker, worker->side, cut.chunks *width);
    struct tensor<float> grad_in = tensor_new(worker, in->count);

    side_follows_main(worker);
    LAUNCH(worker->side, cut.chunks *width, gain_gradient_chunks, partial.data, grad_out->data, in->data,
           inverse_rms->data, rows, width, cut.chunks, cut.rows);
    LAUNCH(worker->side, width, add_chunks, worker->gradient[gain], partial.data, width, cut.chunks);
    tensor_free_on(worker, worker->side, &partial);
    LAUNCH(worker->main, rows, norm_backward, grad_in.data, skip != nullptr ? skip->data : nullptr, grad_out->data,
           in->data, inverse_rms->data, weight_of(worker, gain), rows, width);
    return grad_in;
}

static inline struct tensor<float>
sum_of(const struct worker *worker, const struct tensor<float> *a, const struct tensor<float> *b) {
    struct tensor<float> out = tensor_new(worker, a->count);

    LAUNCH(worker->main, a->count, add, out.data, a->data, b->data, a->count);
    return out;
}

/* Queues a copy of scale * the sum of the rows' losses to worker->host_loss. */
static inline void
report_loss(const struct worker *worker, const struct tensor<float> *row_loss, double scale)
{
    const struct chunking cut = chunks_of(row_loss->count, 1);
    struct tensor<double> partial = tensor_new_on<double>(worker, worker->main, cut.chunks + 1);
    double *total = partial.data + cut.chunks;

    LAUNCH(worker->main, cut.chunks, loss_chunks, partial.data, row_loss->data, row_loss->count, cut.chunks, cut.rows);
    LAUNCH(worker->main, 1, loss_total, total, partial.data, cut.chunks, scale);
    CHECK(cudaMemcpyAsync(worker->host_loss, total, sizeof(*total), cudaMemcpyDeviceToHost, worker->main));
    tensor_free(worker, &partial);
}

/*
 * Returns a new tensor with this worker's share of a host array that has `each` elements a sample.
 */
template <typename Element>
static inline struct tensor<Element> upload_share(const struct worker *worker, const void *host, size_t each) {
    struct tensor<Element> out = tensor_new_on<Element>(worker, worker->main, worker->samples *each);

    CHECK(cudaMemcpyAsync(out.data, static_cast<const Element *>(host) + worker->first * each,
                          out.count * sizeof(Element), cudaMemcpyHostToDevice, worker->main));
    return out;
}

#endif
