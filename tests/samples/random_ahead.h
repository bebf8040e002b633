/*
 * Work that is queued before the work which it waits for. Part of random_orders.cu.
 *
 * A stream is held at a gate, and then reads a tensor that has not been written yet. Some
 * operations later another stream, the opener, writes the tensor and opens the gate. Meanwhile the
 * opener allocates, uses and frees memory. It must not come after the held stream, nor after any
 * stream that has come to wait for that one. So it has waited for the tensor's former uses before
 * the gate is closed, and from then on uses memory of its own alone. Gates depend only on gates
 * that were closed earlier.
 */
#ifndef PENSTOCK_SAMPLES_RANDOM_AHEAD_H
#define PENSTOCK_SAMPLES_RANDOM_AHEAD_H

#include "random_graphs.h"

#define MOST_AHEAD 2
#define GATES_OF_THREAD 4 /* the first is for gates without a tensor */

struct opener {
    int stream; /* reserved for this */
    unsigned gate;
    uint32_t value;              /* the number that opens it */
    uint64_t until;              /* the operation at which it opens; 0: it is open */
    tensor_ref written;          /* the tensor that the held stream reads */
    uint32_t salt;               /* its words */
    std::vector<tensor_ref> own; /* what the opener has allocated meanwhile */
    bool by_host;                /* the host waits for the opener and opens the gate */
};

static inline void prepare_opener(struct random_memory *memory, struct opener *opener, unsigned gate)
{
    opener->stream = add_stream(&memory->streams, NON_BLOCKING);
    opener->gate = gate;
    memory->streams.all[static_cast<size_t>(opener->stream)].reserved = true;
}

/*
 * Holds the stream until `read` has been written, and has it mix that into `to`. The words are
 * known already.
 */
static inline void close_ahead(struct random_memory *memory, struct opener *opener, int stream, const tensor_ref &to,
                               const tensor_ref &read)
{
    const struct graph_node node = {NODE_MIX, to, read, static_cast<uint32_t>(below(&memory->streams, 1000))};

    before_write(memory, opener->stream, read.get());
    opener->written = read;
    opener->salt = static_cast<uint32_t>(memory->streams.random());
    opener->value++;
    fill_words_body(whole, read->words.data(), opener->salt, 0, read->words.size());
    before_write(memory, stream, to.get());
    hold(handle_of(memory, stream), opener->gate, opener->value);
    capture_node(handle_of(memory, stream), &node);
    memory->launches++;
    do_on_host(&node);
    const struct work work = worked(&memory->streams, stream);
    was_written(to.get(), work);
    read->writes.clear();
    read->reads.assign(1, work);
}

/* Allocates memory on the opener's stream, as large as `bytes`, and fills it. */
static inline tensor_ref take_ahead(struct random_memory *memory, struct opener *opener, size_t bytes, uint32_t salt)
{
    static const enum memory_kind kinds[] = {STREAM_ORDERED, STREAM_ORDERED, FOR_ALL, FROM_POOL};
    const enum memory_kind kind = kinds[below(&memory->streams, all_kinds ? 4 : 3)];
    const tensor_ref tensor = new_tensor_of(memory, opener->stream, kind, bytes);
    const size_t count = tensor->words.size();

    LAUNCH(handle_of(memory, opener->stream), count, fill_words, tensor->device, salt, 0, count);
    memory->launches++;
    fill_words_body(whole, tensor->words.data(), salt, 0, count);
    was_written(tensor.get(), worked(&memory->streams, opener->stream));
    return tensor;
}

/* The opener allocates memory, or frees some of its own. */
static inline void work_ahead(struct random_memory *memory, struct opener *opener)
{
    const uint32_t salt = static_cast<uint32_t>(memory->streams.random());

    if (opener->own.empty() || one_in(&memory->streams, 2)) {
        opener->own.push_back(take_ahead(memory, opener, any_bytes(&memory->streams), salt));
        return;
    }
    const tensor_ref last = opener->own.back();
    if (!is_in_stream_order(last->kind)) /* to free it could wait for the device */
        return;
    opener->own.pop_back();
    free_in_order(memory, opener->stream, last.get());
}

static void open_as_host_function(void *gate_and_value)
{
    const uint64_t both = reinterpret_cast<uint64_t>(gate_and_value);

    open_from_host(static_cast<unsigned>(both >> 32), static_cast<uint32_t>(both));
}

/* Writes the tensor, by way of new memory, and opens the gate. */
static inline void open_ahead(struct random_memory *memory, struct opener *opener)
{
    const tensor_ref tensor = opener->written;
    const cudaStream_t stream = handle_of(memory, opener->stream);
    const tensor_ref source = take_ahead(memory, opener, bytes_of(tensor.get()), opener->salt);

    LAUNCH(stream, tensor->words.size(), copy_words, tensor->device, source->device, tensor->words.size());
    memory->launches++;
    const struct work work = worked(&memory->streams, opener->stream);
    tensor->writes.assign(1, work);
    was_read(source.get(), work);
    if (opener->by_host) {
        CHECK(cudaStreamSynchronize(stream));
        open_from_host(opener->gate, opener->value);
    } else if (one_in(&memory->streams, 2)) {
        open_on(stream, opener->gate, opener->value);
    } else {
        CHECK(cudaLaunchHostFunc(stream, open_as_host_function,
                                 reinterpret_cast<void *>(static_cast<uint64_t>(opener->gate) << 32 | opener->value)));
    }
    opener->own.push_back(source);
    opener->own.push_back(tensor);
    memory->tensors.insert(memory->tensors.end(), opener->own.begin(), opener->own.end());
    opener->own.clear();
    opener->written = nullptr;
    opener->until = 0;
}

#endif
