/*
 * Causal attention of several heads, and the token kernels of the transformer.
 *
 * `qkv` is [tokens, 3 * width]: queries, keys and values side by side, each cut into `heads` pieces
 * of width / heads columns. `probs` is [sequences, heads, seq, seq], zero right of the diagonal. An
 * item is one row of one head: (sequence, head, position).
 */
#ifndef PENSTOCK_SAMPLES_ATTENTION_H
#define PENSTOCK_SAMPLES_ATTENTION_H

#include "layers.h"

struct attention_shape {
    size_t sequences;
    size_t seq;
    size_t heads;
    size_t width;
};

/*
 * The place of an item: its position in the sequence, and the first token and column of its head.
 */
struct attention_row {
    size_t position;
    size_t first_token;
    size_t first_column;
    size_t columns;
};

static __host__ __device__ inline size_t attention_rows(const struct attention_shape *shape)
{
    return shape->sequences * shape->heads * shape->seq;
}

static __host__ __device__ inline struct attention_row attention_row_of(const struct attention_shape *shape,
                                                                        size_t item)
{
    const size_t columns = shape->width / shape->heads;

    return {item % shape->seq, item / (shape->seq * shape->heads) * shape->seq,
            item / shape->seq % shape->heads * columns, columns};
}

static __host__ __device__ inline float dot_product(const float *a, const float *b, size_t count)
{
    float sum = 0.0f;

    for (size_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

static __host__ __device__ inline float attention_scale(const struct attention_row *row)
{
    return 1.0f / sqrtf(static_cast<float>(row->columns));
}

/* probs = softmax(q k^T * scale) up to the diagonal */
KERNEL(attention_probs, (float *__restrict__ probs, const float *__restrict__ qkv, struct attention_shape shape),
       (probs, qkv, shape))
{
    const size_t pitch = 3 * shape.width;

    FOR_EACH_ITEM (item, attention_rows(&shape)) {
        const struct attention_row row = attention_row_of(&shape, item);
        const float *query = qkv + (row.first_token + row.position) * pitch + row.first_column;
        const float *key = qkv + row.first_token * pitch + shape.width + row.first_column;
        const float scale = attention_scale(&row);
        float *out = probs + item * shape.seq;
        float most = -INFINITY;
        float sum = 0.0f;

        for (size_t j = 0; j <= row.position; j++) {
            out[j] = dot_product(query, key + j * pitch, row.columns) * scale;
            most = out[j] > most ? out[j] : most;
        }
        for (size_t j = 0; j <= row.position; j++) {
            out[j] = expf(out[j] - most);
            sum += out[j];
        }
        for (size_t j = 0; j <= row.position; j++)
            out[j] /= sum;
        for (size_t j = row.position + 1; j < shape.seq; j++)
            out[j] = 0.0f;
    }
}

/* context = probs v, [tokens, width] */
KERNEL(attention_context,
       (float *__restrict__ context, const float *__restrict__ probs, const float *__restrict__ qkv,
        struct attention_shape shape),
       (context, probs, qkv, shape))
{
    const size_t pitch = 3 * shape.width;

    FOR_EACH_ITEM (item, attention_rows(&shape)) {
        const struct attention_row row = attention_row_of(&shape, item);
        const float *value = qkv + row.first_token * pitch + 2 * shape.width + row.first_column;
        const float *weight = probs + item * shape.seq;
        float *out = context + (row.first_token + row.position) * shape.width + row.first_column;

        for (size_t c = 0; c < row.columns; c++)
            out[c] = 0.0f;
        for (size_t j = 0; j <= row.position; j++)
            for (size_t c = 0; c < row.columns; c++)
                out[c] += weight[j] * value[j * pitch + c];
    }
}

/*
 * The gradient of the scores before the softmax, already multiplied by the product's scale.
 * grad_scores has the shape of probs.
 */
KERNEL(attention_scores_gradient,
       (float *__restrict__ grad_scores, const float *__restrict__ grad_context, const float *__restrict__ probs,
        const float *__restrict__ qkv, struct attention_shape shape),
       (grad_scores, grad_context, probs, qkv, shape))
{
    const size_t pitch = 3 * shape.width;

    FOR_EACH_ITEM (item, attention_rows(&shape)) {
        const struct attention_row row = attention_row_of(&shape, item);
        const float *value = qkv + row.first_token * pitch + 2 * shape.width + row.first_column;
        const float *grad = grad_context + (row.first_token + row.position) * shape.width + row.first_column;
        const float *weight = probs + item * shape.seq;
        const float scale = attention_scale(&row);
        float *out = grad_scores + item * shape.seq;
        float mean = 0.0f;

        for (size_t j = 0; j <= row.position; j++) {
            out[j] = dot_product(grad, value + j * pitch, row.columns);
            mean += out[j] * weight[j];
        }
        for (size_t j = 0; j <= row.position; j++)
            out[j] = weight[j] * (out[j] - mean) * scale;
        for (size_t j = row.position + 1; j < shape.seq; j++)
            out[j] = 0.0f;
    }
}

/*
 * grad_qkv: the row's query sums over the keys that it saw; its key and value sum over the queries
 * that saw them.
 */
KERNEL(attention_qkv_gradient,
       (float *__restrict__ grad_qkv, const float *__restrict__ grad_scores, const float *__restrict__ grad_context,
        const float *__restrict__ probs, const float *__restrict__ qkv, struct attention_shape shape),
       (grad_qkv, grad_scores, grad_context, probs, qkv, shape))
{
    const size_t pitch = 3 * shape.width;

    FOR_EACH_ITEM (item, attention_rows(&shape)) {
        const struct attention_row row = attention_row_of(&shape, item);
        const float *query = qkv + row.first_token * pitch + row.first_column;
        const float *key = query + shape.width;
        const float *grad = grad_context + row.first_token * shape.width + row.first_column;
        float *grad_query = grad_qkv + (row.first_token + row.position) * pitch + row.first_column;
        float *grad_key = grad_query + shape.width;
        float *grad_value = grad_key + shape.width;
        const float *score = grad_scores + item * shape.seq;

        for (size_t c = 0; c < row.columns; c++)
            grad_query[c] = grad_key[c] = grad_value[c] = 0.0f;
        for (size_t j = 0; j <= row.position; j++)
            for (size_t c = 0; c < row.columns; c++)
                grad_query[c] += score[j] * key[j * pitch + c];
        for (size_t later = row.position; later < shape.seq; later++) {
            const size_t pair = (item - row.position + later) * shape.seq + row.position;

            for (size_t c = 0; c < row.columns; c++) {
                grad_key[c] += grad_scores[pair] * query[later * pitch + c];
                grad_value[c] += probs[pair] * grad[later * shape.width + c];
            }
        }
    }
}

/* out[token] = the token's row of `table` + its position's row of `places` */
KERNEL(embed,
       (float *__restrict__ out, const int32_t *__restrict__ token, const float *__restrict__ table,
        const float *__restrict__ places, size_t tokens, size_t seq, size_t width),
       (out, token, table, places, tokens, seq, width))
{
    FOR_EACH_ITEM (i, tokens * width) {
        const size_t row = i / width;
        const size_t column = i % width;

        out[i] = table[static_cast<size_t>(token[row]) * width + column] + places[row % seq * width + column];
    }
}

/*
 * Per chunk of rows and word of the vocabulary: partial[chunk, vocab, width] = the sum of grad over
 * the rows that hold this word.
 */
KERNEL(embed_gradient_chunks,
       (float *__restrict__ partial, const float *__restrict__ grad, const int32_t *__restrict__ token, size_t rows,
        size_t vocab, size_t width, size_t chunks, size_t chunk_rows),
       (partial, grad, token, rows, vocab, width, chunks, chunk_rows))
{
    FOR_EACH_ITEM (item, chunks * vocab) {
        const size_t word = item % vocab;
        const size_t first = item / vocab * chunk_rows;
        const size_t end = first + chunk_rows < rows ? first + chunk_rows : rows;
        float *sum = partial + item * width;

        for (size_t c = 0; c < width; c++)
            sum[c] = 0.0f;
        for (size_t row = first; row < end; row++) {
            if (static_cast<size_t>(token[row]) != word)
                continue;
            for (size_t c = 0; c < width; c++)
                sum[c] += grad[row * width + c];
        }
    }
}

/* places_gradient[seq, width] += the sum of grad over the sequences */
KERNEL(places_gradient,
       (float *__restrict__ out, const float *__restrict__ grad, size_t sequences, size_t seq, size_t width),
       (out, grad, sequences, seq, width))
{
    FOR_EACH_ITEM (i, seq * width) {
        float sum = 0.0f;

        for (size_t s = 0; s < sequences; s++)
            sum += grad[s * seq * width + i];
        out[i] += sum;
    }
}

/*
 * loss[row] = -log softmax(logits)[target]; grad (unless it is null) = grad_scale * (softmax -
 * one-hot)
 */
KERNEL(cross_entropy,
       (float *__restrict__ loss, float *__restrict__ grad, const float *__restrict__ logits,
        const int32_t *__restrict__ target, size_t rows, size_t vocab, float grad_scale),
       (loss, grad, logits, target, rows, vocab, grad_scale))
{
    FOR_EACH_ITEM (row, rows) {
        const float *x = logits + row * vocab;
        const size_t wanted = static_cast<size_t>(target[row]);
        float most = x[0];
        float sum = 0.0f;

        for (size_t j = 1; j < vocab; j++)
            most = x[j] > most ? x[j] : most;
        for (size_t j = 0; j < vocab; j++)
            sum += expf(x[j] - most);
        loss[row] = logf(sum) + most - x[wanted];
        if (grad == nullptr)
            continue;
        for (size_t j = 0; j < vocab; j++)
            grad[row * vocab + j] = grad_scale * (expf(x[j] - most) / sum - (j == wanted ? 1.0f : 0.0f));
    }
}

#endif
