/*
 * The transformer's loss, computed token by token in double precision, for --gradcheck. Part of
 * transformer.cu.
 */
#ifndef PENSTOCK_SAMPLES_TRANSFORMER_REFERENCE_H
#define PENSTOCK_SAMPLES_TRANSFORMER_REFERENCE_H

static void reference_norm(double *out, const double *x, const double *gain, size_t width)
{
    double squares = 0.0;

    for (size_t j = 0; j < width; j++)
        squares += x[j] * x[j];
    for (size_t j = 0; j < width; j++)
        out[j] = x[j] / sqrt(squares / static_cast<double>(width) + 1e-5) * gain[j];
}

static void reference_product(double *out, const double *x, const double *weight, size_t inner, size_t columns)
{
    for (size_t i = 0; i < columns; i++) {
        out[i] = 0.0;
        for (size_t k = 0; k < inner; k++)
            out[i] += x[k] * weight[k * columns + i];
    }
}

/*
 * context[width] of the token at `position`. qkv[seq, 3 * width] holds q, k and v of all tokens of
 * the sequence.
 */
static void reference_attention(double *context, const double *qkv, size_t position, size_t heads, size_t width)
{
    const size_t columns = width / heads;

    for (size_t head = 0; head < heads; head++) {
        const size_t shift = head * columns;
        double sum = 0.0;

        for (size_t c = 0; c < columns; c++)
            context[shift + c] = 0.0;
        for (size_t j = 0; j <= position; j++) {
            double score = 0.0;

            for (size_t c = 0; c < columns; c++)
                score += qkv[position * 3 * width + shift + c] * qkv[j * 3 * width + width + shift + c];

            const double weight = exp(score / sqrt(static_cast<double>(columns)));

            sum += weight;
            for (size_t c = 0; c < columns; c++)
                context[shift + c] += weight * qkv[j * 3 * width + 2 * width + shift + c];
        }
        for (size_t c = 0; c < columns; c++)
            context[shift + c] /= sum;
    }
}

/*
 * Takes x[seq, width] through one layer, in place. qkv[seq, 3 * width] and row[2 * width + widest
 * inner] are scratch.
 */
static void reference_layer(const struct options *options, size_t layer, const double *const *parameters, double *x,
                            double *qkv, double *row)
{
    const double *const *p = parameters + layer_parameter_index(layer, ATTENTION_GAIN);
    const size_t width = options->width;
    const size_t inner = inner_width(options, layer);
    double *branch = row + width;
    double *active = row + 2 * width;

    for (size_t t = 0; t < options->seq; t++) {
        reference_norm(row, x + t * width, p[ATTENTION_GAIN], width);
        reference_product(qkv + t * 3 * width, row, p[QKV], width, 3 * width);
    }
    for (size_t t = 0; t < options->seq; t++) {
        reference_attention(row, qkv, t, options->heads, width);
        reference_product(branch, row, p[PROJECTION], width, width);
        for (size_t j = 0; j < width; j++)
            x[t * width + j] += branch[j];
        reference_norm(row, x + t * width, p[MLP_GAIN], width);
        reference_product(active, row, p[MLP_IN], width, inner);
        for (size_t i = 0; i < inner; i++)
            active[i] = active[i] / (1.0 + exp(-active[i]));
        reference_product(branch, active, p[MLP_OUT], inner, width);
        for (size_t j = 0; j < width; j++)
            x[t * width + j] += branch[j];
    }
}

static double reference_loss(const struct options *options, const double *const *parameters, const void *input,
                             const void *target)
{
    const size_t width = options->width;
    const size_t seq = options->seq;
    const size_t scratch = seq * 4 * width + 2 * width + MAX_INNER_RATIO * width + width + options->vocab;
    double *x = static_cast<double *>(malloc(scratch * sizeof(double)));
    double *qkv = x + seq * width;
    double *normed = qkv + seq * 3 * width;
    double *row = normed + width;
    double *logits = row + 2 * width + MAX_INNER_RATIO * width;
    double loss = 0.0;

    REQUIRE(x != nullptr, "no host memory");
    for (size_t s = 0; s < options->batch; s++) {
        const int32_t *token = static_cast<const int32_t *>(input) + s * seq;
        const int32_t *wanted = static_cast<const int32_t *>(target) + s * seq;

        for (size_t i = 0; i < seq * width; i++)
            x[i] =
                parameters[TOKENS][static_cast<size_t>(token[i / width]) * width + i % width] + parameters[PLACES][i];
        for (size_t layer = 0; layer < options->layers; layer++)
            reference_layer(options, layer, parameters, x, qkv, row);
        for (size_t t = 0; t < seq; t++) {
            double sum = 0.0;

            reference_norm(normed, x + t * width, parameters[FINAL_GAIN], width);
            reference_product(logits, normed, parameters[LOGITS], width, options->vocab);
            for (size_t j = 0; j < options->vocab; j++)
                sum += exp(logits[j]);
            loss += log(sum) - logits[wanted[t]];
        }
    }
    free(x);
    return loss / (static_cast<double>(options->batch) * static_cast<double>(seq));
}

#endif
