/*
 * Trainer of a residual multi-layer perceptron on the simulator and on GPUs: many rows, narrow
 * layers, so that activations outweigh parameters and arithmetic. A layer is
 *
 *     a' = a + dropout(relu(norm(a) W1 + b1)^2 W2 + b2)
 *
 * and the loss is the mean square distance of the last a from a fixed function of the input.
 */
#include "train.h"

enum layer_parameter { GAIN, WEIGHT1, BIAS1, WEIGHT2, BIAS2, LAYER_PARAMETERS };

struct layer_activations {
    struct tensor<float> in;
    struct tensor<float> inverse_rms;
    struct tensor<float> normed;
    struct tensor<float> inner;
    struct tensor<float> active;
    struct tensor<uint8_t> kept;
};

struct activations {
    struct layer_activations *layer;
    struct tensor<float> out_gradient;
};

KERNEL(square_loss,
       (float *__restrict__ loss, float *__restrict__ grad, const float *__restrict__ out,
        const float *__restrict__ target, size_t rows, size_t width, float grad_scale),
       (loss, grad, out, target, rows, width, grad_scale))
{
    FOR_EACH_ITEM (row, rows) {
        float sum = 0.0f;

        for (size_t j = 0; j < width; j++) {
            const float distance = out[row * width + j] - target[row * width + j];

            sum += distance * distance;
            if (grad != nullptr)
                grad[row * width + j] = grad_scale * distance;
        }
        loss[row] = sum;
    }
}

static size_t inner_width(const struct options *options, size_t layer)
{
    return options->skew ? options->width * (1 + layer % 3) : options->width;
}

static size_t parameter_index(size_t layer, enum layer_parameter which)
{
    return layer * LAYER_PARAMETERS + which;
}

static uint64_t dropout_key(const struct options *options, uint64_t step, size_t layer)
{
    return mix_bits(mix_bits(options->seed ^ 0x64726f70) + step * 4096 + layer);
}

static void check_options(const struct options *) {}

static void declare(const struct options *options, struct parameter_list *list)
{
    const size_t width = options->width;

    for (unsigned layer = 0; layer < options->layers; layer++) {
        const size_t inner = inner_width(options, layer);

        parameter_add(list, width, 1.0f, 0.1f, "layer%u.gain", layer);
        parameter_add(list, width * inner, 0.0f, 1.7f / sqrtf(static_cast<float>(width)), "layer%u.weight1", layer);
        parameter_add(list, inner, 0.0f, 0.1f, "layer%u.bias1", layer);
        parameter_add(list, inner * width, 0.0f, 0.5f / sqrtf(static_cast<float>(inner)), "layer%u.weight2", layer);
        parameter_add(list, width, 0.0f, 0.1f, "layer%u.bias2", layer);
    }
}

static size_t batch_bytes(const struct options *options)
{
    return options->batch * options->width * sizeof(float);
}

static void fill_batch(const struct options *options, void *input, void *target)
{
    const size_t width = options->width;
    float *x = static_cast<float *>(input);
    float *y = static_cast<float *>(target);

    for (size_t i = 0; i < options->batch * width; i++)
        x[i] = uniform_at(options->seed ^ 0x696e707574, i);
    for (size_t row = 0; row < options->batch; row++)
        for (size_t j = 0; j < width; j++)
            y[row * width + j] = 0.5f * x[row * width + j] + fabsf(x[row * width + (j + 1) % width]) - 0.25f;
}

static struct activations *new_activations(const struct options *options)
{
    struct activations *made = static_cast<struct activations *>(calloc(1, sizeof(*made)));

    REQUIRE(made != nullptr, "no host memory");
    made->layer = static_cast<struct layer_activations *>(calloc(options->layers, sizeof(*made->layer)));
    REQUIRE(made->layer != nullptr, "no host memory");
    return made;
}

static void free_activations(struct activations *activations)
{
    free(activations->layer);
    free(activations);
}

/* Takes ownership of `in`, the layer's input. Returns the layer's output. */
static struct tensor<float> layer_forward(struct worker *worker, size_t layer, struct tensor<float> in) {
    struct layer_activations *kept = &worker->activations->layer[layer];
    const struct options *options = worker->options;
    const size_t rows = worker->samples;
    struct tensor<float> out = tensor_new(worker, in.count);

    kept->in = in;
    kept->normed = norm(worker, &kept->in, rows, parameter_index(layer, GAIN), &kept->inverse_rms);
    kept->inner =
        linear_forward(worker, &kept->normed, rows, parameter_index(layer, WEIGHT1), parameter_index(layer, BIAS1));
    kept->active = tensor_new(worker, kept->inner.count);
    LAUNCH(worker->main, kept->inner.count, relu2_forward, kept->active.data, kept->inner.data, kept->inner.count);

    struct tensor<float> branch =
        linear_forward(worker, &kept->active, rows, parameter_index(layer, WEIGHT2), parameter_index(layer, BIAS2));

    kept->kept = tensor_new_on<uint8_t>(worker, worker->main, in.count);
    LAUNCH(worker->main, in.count, dropout_forward, out.data, kept->kept.data, in.data, branch.data,
           dropout_key(options, worker->step, layer), worker->first * options->width, in.count);
    tensor_free(worker, &branch);
    return out;
}

static void
layer_drop(struct worker *worker, size_t layer)
{
    struct layer_activations *kept = &worker->activations->layer[layer];

    tensor_free(worker, &kept->in);
    tensor_free(worker, &kept->inverse_rms);
    tensor_free(worker, &kept->normed);
    tensor_free(worker, &kept->inner);
    tensor_free(worker, &kept->active);
    tensor_free(worker, &kept->kept);
}

static void forward(struct worker *worker)
{
    const struct options *options = worker->options;
    const size_t rows = worker->samples;
    const double scale = 1.0 / (static_cast<double>(worker->batch) * static_cast<double>(options->width));
    struct tensor<float> x = upload_share<float>(worker, worker->host_input, options->width);

    for (size_t layer = 0; layer < options->layers; layer++) {
        range_begin(worker, "layer %zu forward", layer);
        x = layer_forward(worker, layer, x);
        if (!worker->training)
            layer_drop(worker, layer);
        range_end(worker);
    }
    range_begin(worker, "loss");

    struct tensor<float> target = upload_share<float>(worker, worker->host_target, options->width);
    struct tensor<float> loss = tensor_new(worker, rows);
    struct tensor<float> gradient = {
    };

    if (worker->training)
        gradient = tensor_new(worker, x.count);
    LAUNCH(worker->main, rows, square_loss, loss.data, gradient.data, x.data, target.data, rows, options->width,
           static_cast<float>(2.0 * scale));
    report_loss(worker, &loss, scale);
    worker->activations->out_gradient = gradient;
    tensor_free(worker, &target);
    tensor_free(worker, &loss);
    tensor_free(worker, &x);
    range_end(worker);
}

/*
 * Takes ownership of the gradient of the layer's output. Returns the gradient of its input. Frees
 * the tensors that forward kept.
 */
static struct tensor<float> layer_backward(struct worker *worker, size_t layer, struct tensor<float> grad_out) {
    struct layer_activations *kept = &worker->activations->layer[layer];
    const size_t rows = worker->samples;
    struct tensor<float> grad_branch = tensor_new(worker, grad_out.count);

    LAUNCH(worker->main, grad_out.count, dropout_backward, grad_branch.data, grad_out.data, kept->kept.data,
           grad_out.count);
    tensor_free(worker, &kept->kept);
    linear_weight_gradient(worker, &kept->active, &grad_branch, rows, parameter_index(layer, WEIGHT2),
                           parameter_index(layer, BIAS2));

    struct tensor<float> grad_active = linear_backward(worker, &grad_branch, rows, parameter_index(layer, WEIGHT2));
    struct tensor<float> grad_inner = tensor_new(worker, grad_active.count);

    LAUNCH(worker->main, grad_active.count, relu2_backward, grad_inner.data, grad_active.data, kept->inner.data,
           grad_active.count);
    tensor_free(worker, &grad_active);
    tensor_free(worker, &kept->inner);
    linear_weight_gradient(worker, &kept->normed, &grad_inner, rows, parameter_index(layer, WEIGHT1),
                           parameter_index(layer, BIAS1));

    struct tensor<float> grad_normed = linear_backward(worker, &grad_inner, rows, parameter_index(layer, WEIGHT1));
    struct tensor<float> grad_in = norm_gradient(worker, &grad_out, &grad_normed, &kept->in, &kept->inverse_rms, rows,
                                                 parameter_index(layer, GAIN));

    tensor_free(worker, &grad_out);
    tensor_free_shared(worker, &grad_branch);
    tensor_free_shared(worker, &grad_inner);
    tensor_free_shared(worker, &grad_normed);
    tensor_free_shared(worker, &kept->active);
    tensor_free_shared(worker, &kept->normed);
    tensor_free_shared(worker, &kept->in);
    tensor_free_shared(worker, &kept->inverse_rms);
    free_shared_tensors(worker);
    return grad_in;
}

static void
backward(struct worker *worker)
{
    struct tensor<float> gradient = worker->activations->out_gradient;

    for (size_t layer = worker->options->layers; layer-- > 0;) {
        range_begin(worker, "layer %zu backward", layer);
        gradient = layer_backward(worker, layer, gradient);
        range_end(worker);
    }
    tensor_free(worker, &gradient);
}

/*
 * Takes one row through the model. `row` holds the input and then the output. `scratch` has room
 * for two rows of the widest layer.
 */
static void reference_row(const struct options *options, const double *const *parameters, size_t index, double *row,
                          double *scratch)
{
    const size_t width = options->width;

    for (size_t layer = 0; layer < options->layers; layer++) {
        const size_t inner = inner_width(options, layer);
        const double *const *p = parameters + parameter_index(layer, GAIN);
        double *active = scratch;
        double squares = 0.0;

        for (size_t j = 0; j < width; j++)
            squares += row[j] * row[j];

        const double rms = sqrt(squares / static_cast<double>(width) + 1e-5);

        for (size_t i = 0; i < inner; i++) {
            double sum = p[BIAS1][i];

            for (size_t j = 0; j < width; j++)
                sum += row[j] / rms * p[GAIN][j] * p[WEIGHT1][j * inner + i];
            active[i] = sum > 0.0 ? sum * sum : 0.0;
        }
        for (size_t j = 0; j < width; j++) {
            double sum = p[BIAS2][j];

            for (size_t i = 0; i < inner; i++)
                sum += active[i] * p[WEIGHT2][i * width + j];
            if (dropout_keeps(dropout_key(options, 0, layer), index * width + j))
                row[j] += sum * 8.0 / 7.0;
        }
    }
}

static double reference_loss(const struct options *options, const double *const *parameters, const void *input,
                             const void *target)
{
    const size_t width = options->width;
    const float *x = static_cast<const float *>(input);
    const float *y = static_cast<const float *>(target);
    double *row = static_cast<double *>(malloc(width * 4 * sizeof(double)));
    double sum = 0.0;

    REQUIRE(row != nullptr, "no host memory");
    for (size_t i = 0; i < options->batch; i++) {
        for (size_t j = 0; j < width; j++)
            row[j] = static_cast<double>(x[i * width + j]);
        reference_row(options, parameters, i, row, row + width);
        for (size_t j = 0; j < width; j++)
            sum += (row[j] - static_cast<double>(y[i * width + j])) * (row[j] - static_cast<double>(y[i * width + j]));
    }
    free(row);
    return sum / (static_cast<double>(options->batch) * static_cast<double>(width));
}

static struct options default_options(void)
{
    struct options options = {};

    options.layers = 8;
    options.width = 16;
    options.batch = 131072;
    options.steps = 8;
    options.streams = 1;
    options.threads = 1;
    options.halves = 1;
    options.nvtx = 1;
    options.heads = 1;
    options.seq = 1;
    options.vocab = 2;
    return options;
}

int main(int argc, char **argv)
{
    const struct model model = {
        default_options(), check_options,    declare, batch_bytes, batch_bytes,    fill_batch,
        new_activations,   free_activations, forward, backward,    reference_loss,
    };

    return train_main(&model, argc, argv);
}
