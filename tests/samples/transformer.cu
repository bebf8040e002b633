/*
 * Trainer of a small causal transformer on the simulator and on GPUs. A layer is
 *
 *     x = x + attention(norm(x) QKV) PROJECTION
 *     x = x + silu(norm(x) MLP_IN) MLP_OUT
 *
 * Before the layers is a sum of token and position embeddings. After them are a last norm and a
 * product to the vocabulary. The loss is the mean cross-entropy of the next token. The attention
 * weights of all heads are kept for backward, as in a plain implementation. They take most of the
 * memory.
 */
#include "train.h"

#include "attention.h"

enum model_parameter { TOKENS, PLACES, FINAL_GAIN, LOGITS, MODEL_PARAMETERS };
enum layer_parameter { ATTENTION_GAIN, QKV, PROJECTION, MLP_GAIN, MLP_IN, MLP_OUT, LAYER_PARAMETERS };

/* The largest inner width of an MLP, in widths of the model. */
#define MAX_INNER_RATIO 3

struct layer_activations {
    struct tensor<float> in;
    struct tensor<float> attention_rms;
    struct tensor<float> attention_in;
    struct tensor<float> qkv;
    struct tensor<float> probs;
    struct tensor<float> context;
    struct tensor<float> middle; /* between attention and MLP */
    struct tensor<float> mlp_rms;
    struct tensor<float> mlp_in;
    struct tensor<float> inner;
    struct tensor<float> active;
};

struct activations {
    struct layer_activations *layer;
    struct tensor<int32_t> token;
    struct tensor<float> last;
    struct tensor<float> last_rms;
    struct tensor<float> last_normed;
    struct tensor<float> logits_gradient;
};

static size_t inner_width(const struct options *options, size_t layer)
{
    return options->width * (options->skew ? 1 + layer % MAX_INNER_RATIO : 2);
}

static size_t layer_parameter_index(size_t layer, enum layer_parameter which)
{
    return MODEL_PARAMETERS + layer * LAYER_PARAMETERS + which;
}

#include "transformer_reference.h"

static struct attention_shape attention_shape_of(const struct worker *worker)
{
    return {worker->samples, worker->options->seq, worker->options->heads, worker->options->width};
}

static void check_options(const struct options *options)
{
    if (options->width % options->heads == 0)
        return;
    fprintf(stderr, "--heads must divide --width\n");
    exit(2);
}

static void declare(const struct options *options, struct parameter_list *list)
{
    const size_t width = options->width;
    const float spread = 1.7f / sqrtf(static_cast<float>(width));

    parameter_add(list, options->vocab * width, 0.0f, 0.5f, "tokens", 0);
    parameter_add(list, options->seq * width, 0.0f, 0.5f, "places", 0);
    parameter_add(list, width, 1.0f, 0.1f, "final.gain", 0);
    parameter_add(list, width * options->vocab, 0.0f, spread, "logits", 0);
    for (unsigned layer = 0; layer < options->layers; layer++) {
        const size_t inner = inner_width(options, layer);

        parameter_add(list, width, 1.0f, 0.1f, "layer%u.attention.gain", layer);
        parameter_add(list, width * 3 * width, 0.0f, spread, "layer%u.qkv", layer);
        parameter_add(list, width * width, 0.0f, spread, "layer%u.projection", layer);
        parameter_add(list, width, 1.0f, 0.1f, "layer%u.mlp.gain", layer);
        parameter_add(list, width * inner, 0.0f, spread, "layer%u.mlp.in", layer);
        parameter_add(list, inner * width, 0.0f, 1.7f / sqrtf(static_cast<float>(inner)), "layer%u.mlp.out", layer);
    }
}

static size_t batch_bytes(const struct options *options)
{
    return options->batch * options->seq * sizeof(int32_t);
}

/*
 * Makes sequences in which each token follows from the one before or, now and then, from chance. So
 * a model can learn them, but never fully.
 */
static void fill_batch(const struct options *options, void *input, void *target)
{
    int32_t *token = static_cast<int32_t *>(input);
    int32_t *wanted = static_cast<int32_t *>(target);

    for (size_t s = 0; s < options->batch; s++) {
        uint64_t word = mix_bits(options->seed ^ (s * 2 + 1)) % options->vocab;

        for (size_t t = 0; t < options->seq; t++) {
            const uint64_t chance = mix_bits(options->seed ^ mix_bits(s * options->seq + t));

            token[s * options->seq + t] = static_cast<int32_t>(word);
            word = chance % 8 == 0 ? chance / 8 % options->vocab : (word * 5 + 3) % options->vocab;
            wanted[s * options->seq + t] = static_cast<int32_t>(word);
        }
    }
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

static size_t tokens_of(const struct worker *worker)
{
    return worker->samples * worker->options->seq;
}

/* Takes ownership of `in`. Returns the MLP's input. */
static struct tensor<float> attention_forward(struct worker *worker, size_t layer, struct tensor<float> in) {
    struct layer_activations *kept = &worker->activations->layer[layer];
    const struct attention_shape shape = attention_shape_of(worker);
    const size_t tokens = tokens_of(worker);
    const size_t rows = attention_rows(&shape);

    kept->in = in;
    kept->attention_in =
        norm(worker, &kept->in, tokens, layer_parameter_index(layer, ATTENTION_GAIN), &kept->attention_rms);
    kept->qkv = linear_forward(worker, &kept->attention_in, tokens, layer_parameter_index(layer, QKV), NO_BIAS);
    kept->probs = tensor_new(worker, rows *shape.seq);
    LAUNCH(worker->main, rows, attention_probs, kept->probs.data, kept->qkv.data, shape);
    kept->context = tensor_new(worker, tokens *shape.width);
    LAUNCH(worker->main, rows, attention_context, kept->context.data, kept->probs.data, kept->qkv.data, shape);

    struct tensor<float> branch =
        linear_forward(worker, &kept->context, tokens, layer_parameter_index(layer, PROJECTION), NO_BIAS);
    struct tensor<float> out = sum_of(worker, &in, &branch);

    tensor_free(worker, &branch);
    return out;
}

static struct tensor<float>
mlp_forward(struct worker *worker, size_t layer, struct tensor<float> in) {
    struct layer_activations *kept = &worker->activations->layer[layer];
    const size_t tokens = tokens_of(worker);

    kept->middle = in;
    kept->mlp_in = norm(worker, &kept->middle, tokens, layer_parameter_index(layer, MLP_GAIN), &kept->mlp_rms);
    kept->inner = linear_forward(worker, &kept->mlp_in, tokens, layer_parameter_index(layer, MLP_IN), NO_BIAS);
    kept->active = tensor_new(worker, kept->inner.count);
    LAUNCH(worker->main, kept->inner.count, silu_forward, kept->active.data, kept->inner.data, kept->inner.count);

    struct tensor<float> branch =
        linear_forward(worker, &kept->active, tokens, layer_parameter_index(layer, MLP_OUT), NO_BIAS);
    struct tensor<float> out = sum_of(worker, &in, &branch);

    tensor_free(worker, &branch);
    return out;
}

static void
layer_drop(struct worker *worker, size_t layer)
{
    struct layer_activations *kept = &worker->activations->layer[layer];

    tensor_free(worker, &kept->in);
    tensor_free(worker, &kept->attention_rms);
    tensor_free(worker, &kept->attention_in);
    tensor_free(worker, &kept->qkv);
    tensor_free(worker, &kept->probs);
    tensor_free(worker, &kept->context);
    tensor_free(worker, &kept->middle);
    tensor_free(worker, &kept->mlp_rms);
    tensor_free(worker, &kept->mlp_in);
    tensor_free(worker, &kept->inner);
    tensor_free(worker, &kept->active);
}

/* Computes the loss from the last layer's output. Takes ownership of kept->last. */
static void head_forward(struct worker *worker)
{
    struct activations *kept = worker->activations;
    const size_t tokens = tokens_of(worker);
    const double scale = 1.0 / (static_cast<double>(worker->batch) * static_cast<double>(worker->options->seq));

    kept->last_normed = norm(worker, &kept->last, tokens, FINAL_GAIN, &kept->last_rms);

    struct tensor<float> logits = linear_forward(worker, &kept->last_normed, tokens, LOGITS, NO_BIAS);
    struct tensor<int32_t> target = upload_share<int32_t>(worker, worker->host_target, worker->options->seq);
    struct tensor<float> loss = tensor_new(worker, tokens);

    kept->logits_gradient = {};
    if (worker->training)
        kept->logits_gradient = tensor_new(worker, logits.count);
    LAUNCH(worker->main, tokens, cross_entropy, loss.data, kept->logits_gradient.data, logits.data, target.data, tokens,
           worker->options->vocab, static_cast<float>(scale));
    report_loss(worker, &loss, scale);
    tensor_free(worker, &loss);
    tensor_free(worker, &target);
    tensor_free(worker, &logits);
}

static void forward(struct worker *worker)
{
    const struct options *options = worker->options;
    struct activations *kept = worker->activations;
    const size_t tokens = tokens_of(worker);
    struct tensor<float> x = tensor_new(worker, tokens * options->width);

    range_begin(worker, "embedding forward");
    kept->token = upload_share<int32_t>(worker, worker->host_input, options->seq);
    LAUNCH(worker->main, x.count, embed, x.data, kept->token.data, weight_of(worker, TOKENS), weight_of(worker, PLACES),
           tokens, options->seq, options->width);
    range_end(worker);
    for (size_t layer = 0; layer < options->layers; layer++) {
        range_begin(worker, "layer %zu forward", layer);
        x = attention_forward(worker, layer, x);
        x = mlp_forward(worker, layer, x);
        if (!worker->training)
            layer_drop(worker, layer);
        range_end(worker);
    }
    range_begin(worker, "loss");
    kept->last = x;
    head_forward(worker);
    if (!worker->training) {
        tensor_free(worker, &kept->last);
        tensor_free(worker, &kept->last_rms);
        tensor_free(worker, &kept->last_normed);
        tensor_free(worker, &kept->token);
    }
    range_end(worker);
}

static struct tensor<float> head_backward(struct worker *worker) {
    struct activations *kept = worker->activations;
    const size_t tokens = tokens_of(worker);

    linear_weight_gradient(worker, &kept->last_normed, &kept->logits_gradient, tokens, LOGITS, NO_BIAS);

    struct tensor<float> grad_normed = linear_backward(worker, &kept->logits_gradient, tokens, LOGITS);
    struct tensor<float> grad =
        norm_gradient(worker, nullptr, &grad_normed, &kept->last, &kept->last_rms, tokens, FINAL_GAIN);

    tensor_free_shared(worker, &grad_normed);
    tensor_free_shared(worker, &kept->logits_gradient);
    tensor_free_shared(worker, &kept->last_normed);
    tensor_free_shared(worker, &kept->last);
    tensor_free_shared(worker, &kept->last_rms);
    free_shared_tensors(worker);
    return grad;
}

/* Takes ownership of the gradient of the MLP's output. Returns the gradient of its input. */
static struct tensor<float>
mlp_backward(struct worker *worker, size_t layer, struct tensor<float> grad_out) {
    struct layer_activations *kept = &worker->activations->layer[layer];
    const size_t tokens = tokens_of(worker);

    linear_weight_gradient(worker, &kept->active, &grad_out, tokens, layer_parameter_index(layer, MLP_OUT), NO_BIAS);

    struct tensor<float> grad_active =
        linear_backward(worker, &grad_out, tokens, layer_parameter_index(layer, MLP_OUT));
    struct tensor<float> grad_inner = tensor_new(worker, grad_active.count);

    LAUNCH(worker->main, grad_active.count, silu_backward, grad_inner.data, grad_active.data, kept->inner.data,
           grad_active.count);
    tensor_free(worker, &grad_active);
    tensor_free(worker, &kept->inner);
    linear_weight_gradient(worker, &kept->mlp_in, &grad_inner, tokens, layer_parameter_index(layer, MLP_IN), NO_BIAS);

    struct tensor<float> grad_normed =
        linear_backward(worker, &grad_inner, tokens, layer_parameter_index(layer, MLP_IN));
    struct tensor<float> grad_in = norm_gradient(worker, &grad_out, &grad_normed, &kept->middle, &kept->mlp_rms, tokens,
                                                 layer_parameter_index(layer, MLP_GAIN));

    tensor_free_shared(worker, &grad_out);
    tensor_free_shared(worker, &grad_inner);
    tensor_free_shared(worker, &grad_normed);
    tensor_free_shared(worker, &kept->active);
    tensor_free_shared(worker, &kept->mlp_in);
    tensor_free_shared(worker, &kept->middle);
    tensor_free_shared(worker, &kept->mlp_rms);
    free_shared_tensors(worker);
    return grad_in;
}

static struct tensor<float>
attention_backward(struct worker *worker, size_t layer, struct tensor<float> grad_out) {
    struct layer_activations *kept = &worker->activations->layer[layer];
    const struct attention_shape shape = attention_shape_of(worker);
    const size_t tokens = tokens_of(worker);
    const size_t rows = attention_rows(&shape);

    linear_weight_gradient(worker, &kept->context, &grad_out, tokens, layer_parameter_index(layer, PROJECTION),
                           NO_BIAS);

    struct tensor<float> grad_context =
        linear_backward(worker, &grad_out, tokens, layer_parameter_index(layer, PROJECTION));
    struct tensor<float> grad_scores = tensor_new(worker, kept->probs.count);
    struct tensor<float> grad_qkv = tensor_new(worker, kept->qkv.count);

    LAUNCH(worker->main, rows, attention_scores_gradient, grad_scores.data, grad_context.data, kept->probs.data,
           kept->qkv.data, shape);
    LAUNCH(worker->main, rows, attention_qkv_gradient, grad_qkv.data, grad_scores.data, grad_context.data,
           kept->probs.data, kept->qkv.data, shape);
    tensor_free(worker, &grad_scores);
    tensor_free(worker, &grad_context);
    tensor_free(worker, &kept->probs);
    tensor_free(worker, &kept->qkv);
    linear_weight_gradient(worker, &kept->attention_in, &grad_qkv, tokens, layer_parameter_index(layer, QKV), NO_BIAS);

    struct tensor<float> grad_normed = linear_backward(worker, &grad_qkv, tokens, layer_parameter_index(layer, QKV));
    struct tensor<float> grad_in = norm_gradient(worker, &grad_out, &grad_normed, &kept->in, &kept->attention_rms,
                                                 tokens, layer_parameter_index(layer, ATTENTION_GAIN));

    tensor_free_shared(worker, &grad_out);
    tensor_free_shared(worker, &grad_qkv);
    tensor_free_shared(worker, &grad_normed);
    tensor_free_shared(worker, &kept->context);
    tensor_free_shared(worker, &kept->attention_in);
    tensor_free_shared(worker, &kept->in);
    tensor_free_shared(worker, &kept->attention_rms);
    free_shared_tensors(worker);
    return grad_in;
}

static void
embedding_backward(struct worker *worker, struct tensor<float> grad)
{
    struct activations *kept = worker->activations;
    const struct options *options = worker->options;
    const size_t tokens = tokens_of(worker);
    const struct chunking cut = chunks_of(tokens, options->vocab * options->width);
    struct tensor<float> partial =
        tensor_new_on<float>(worker, worker->side, cut.chunks * options->vocab * options->width);

    side_follows_main(worker);
    LAUNCH(worker->side, cut.chunks * options->vocab, embed_gradient_chunks, partial.data, grad.data, kept->token.data,
           tokens, options->vocab, options->width, cut.chunks, cut.rows);
    LAUNCH(worker->side, options->vocab * options->width, add_chunks, worker->gradient[TOKENS], partial.data,
           options->vocab * options->width, cut.chunks);
    LAUNCH(worker->side, options->seq * options->width, places_gradient, worker->gradient[PLACES], grad.data,
           worker->samples, options->seq, options->width);
    tensor_free_on(worker, worker->side, &partial);
    tensor_free_shared(worker, &grad);
    tensor_free_shared(worker, &kept->token);
    free_shared_tensors(worker);
}

static void backward(struct worker *worker)
{
    range_begin(worker, "loss backward");

    struct tensor<float> grad = head_backward(worker);

    range_end(worker);
    for (size_t layer = worker->options->layers; layer-- > 0;) {
        range_begin(worker, "layer %zu backward", layer);
        grad = mlp_backward(worker, layer, grad);
        grad = attention_backward(worker, layer, grad);
        range_end(worker);
    }
    range_begin(worker, "embedding backward");
    embedding_backward(worker, grad);
    range_end(worker);
}

static struct options default_options(void)
{
    struct options options = {};

    options.layers = 6;
    options.width = 32;
    options.heads = 2;
    options.seq = 128;
    options.batch = 128;
    options.vocab = 32;
    options.steps = 6;
    options.streams = 1;
    options.threads = 1;
    options.halves = 1;
    options.nvtx = 1;
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
