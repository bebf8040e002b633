/*
 * A random program: what it has, how it chooses, and its operations on words and memory. Part of
 * random_orders.cu.
 */
#ifndef PENSTOCK_SAMPLES_RANDOM_PROGRAM_H
#define PENSTOCK_SAMPLES_RANDOM_PROGRAM_H

#include "random_nodes.h"

#define MOST_GRAPHS 5
#define GATE_OPERATIONS 12

static struct {
    unsigned long seed, operations, steps, kib;
    unsigned long last_seed, threads, devices;
    unsigned long reach; /* of masked tables, in launches; 0: no masked tables */
    bool branches, gates, ahead, tables, nodes, graphs_make;
} mode;

struct random_program {
    struct random_memory memory;
    std::vector<struct random_graph> graphs;
    struct random_streams lanes; /* of captures on the first device; none without `branches` */
    struct address_table table[TABLES];
    struct opener openers[MOST_AHEAD];
    struct pointer_tables pointers; /* with `tables` or `nodes` */
    std::vector<struct plan> plans;
    unsigned number; /* of the thread */
    size_t lasting;  /* the first `lasting` tensors outlive steps */
    size_t most;
    bool has_graphs, has_tables, is_capturing;
    /* Fixed for the program: a late number of the other opener would close the gate again. */
    bool host_opens;
    uint32_t gate_value;
    uint64_t gate_until; /* the operation at which the gate opens; 0: no gate is closed */
    cudaStream_t opener;
};

/* Tensors that threads give each other. Guarded by `given_lock`. */
static std::mutex given_lock;
static std::vector<tensor_ref> given;

static uint64_t below(struct random_program *program, uint64_t bound)
{
    return below(&program->memory.streams, bound);
}

static bool one_in(struct random_program *program, uint64_t n)
{
    return below(program, n) == 0;
}

static int home_of(const struct random_program *program, int stream)
{
    return program->memory.streams.all[static_cast<size_t>(stream)].device;
}

/* Returns a stream of the current device. */
static int any_stream_here(struct random_program *program)
{
    for (;;) {
        const int stream = any_stream(&program->memory.streams);

        if (home_of(program, stream) == device_here)
            return stream;
    }
}

static tensor_ref any_tensor_anywhere(struct random_program *program)
{
    return program->memory.tensors[below(program, program->memory.tensors.size())];
}

/* Returns a tensor of the current device. */
static tensor_ref any_tensor(struct random_program *program)
{
    for (;;) {
        const tensor_ref tensor = any_tensor_anywhere(program);

        if (tensor->home == device_here)
            return tensor;
    }
}

static size_t tensors_here(const struct random_program *program)
{
    size_t count = 0;

    for (const tensor_ref &tensor : program->memory.tensors)
        count += tensor->home == device_here;
    return count;
}

/* While a gate is closed, no call may wait for the device. In a capture none may wait either. */
static bool may_wait(const struct random_program *program)
{
    for (const struct opener &opener : program->openers)
        if (opener.until != 0)
            return false;
    return program->gate_until == 0 && !program->is_capturing;
}

/* Making pinned memory may wait for the device. */
static bool has_host_buffer(const struct random_program *program)
{
    return may_wait(program) || !program->memory.spare_buffers.empty();
}

/* ---- words ---- */
static void copy_from_host(struct random_program *program, int stream, struct tensor_words *tensor)
{
    struct random_memory *memory = &program->memory;
    uint32_t *const buffer = host_buffer(memory);

    memcpy(buffer, tensor->words.data(), bytes_of(tensor));
    CHECK(cudaMemcpyAsync(tensor->device, buffer, bytes_of(tensor), cudaMemcpyHostToDevice, handle_of(memory, stream)));
    was_written(tensor, worked(&memory->streams, stream));
    memory->looks.push_back({buffer, {}, moment_on(&memory->streams, stream), memory->issued});
}

static void fill_tensor(struct random_program *program, int stream, struct tensor_words *tensor)
{
    struct random_memory *memory = &program->memory;
    const size_t count = tensor->words.size();
    const uint32_t salt = static_cast<uint32_t>(program->memory.streams.random());
    const uint64_t way = below(program, 5);

    before_write(memory, stream, tensor);
    if (way == 0 && !is_on_host(tensor)) {
        memset(tensor->words.data(), static_cast<int>(salt & 255), bytes_of(tensor));
        CHECK(
            cudaMemsetAsync(tensor->device, static_cast<int>(salt & 255), bytes_of(tensor), handle_of(memory, stream)));
        was_written(tensor, worked(&memory->streams, stream));
        return;
    }
    fill_words_body(whole, tensor->words.data(), salt, 0, count);
    if (way == 1 && !is_on_host(tensor) && has_host_buffer(program)) {
        copy_from_host(program, stream, tensor);
        return;
    }
    if (way == 2 && may_wait(program) && !is_on_host(tensor)) /* from pageable memory */
        CHECK(cudaMemcpyAsync(tensor->device, tensor->words.data(), bytes_of(tensor), cudaMemcpyHostToDevice,
                              handle_of(memory, stream)));
    else
        LAUNCH(handle_of(memory, stream), count, fill_words, tensor->device, salt, 0, count);
    memory->launches++;
    was_written(tensor, worked(&memory->streams, stream));
}

static void add_to_tensor(struct random_program *program, int stream)
{
    struct random_memory *memory = &program->memory;
    const tensor_ref tensor = any_tensor(program);
    const uint32_t by = static_cast<uint32_t>(below(program, 1000));
    const size_t count = tensor->words.size(), first = one_in(program, 2) ? below(program, count) : 0;

    before_write(memory, stream, tensor.get());
    LAUNCH(handle_of(memory, stream), count - first, add_to_words, tensor->device + first, by, count - first);
    memory->launches++;
    add_to_words_body(whole, tensor->words.data() + first, by, count - first);
    was_written(tensor.get(), worked(&memory->streams, stream));
}

/*
 * Mixes or copies one tensor into another. From another device it copies, except where kernels
 * reach its memory.
 */
static void mix_tensors(struct random_program *program, int stream)
{
    struct random_memory *memory = &program->memory;
    const tensor_ref to = any_tensor(program), from = any_tensor_anywhere(program);
    const bool is_away = from->home != to->home, is_reached = peers_reachable && from->kind == FOR_ALL;

    if (to == from)
        return;
    struct graph_node node = {one_in(program, 4) ? NODE_COPY : NODE_MIX, to, from, 0};
    node.by = static_cast<uint32_t>(count_of(&node));
    if (is_away && !is_reached)
        node.kind = NODE_COPY;
    if (node.kind == NODE_COPY &&
        (is_for_kernels_alone(&node) || (is_away && (is_on_host(to.get()) || is_on_host(from.get())))))
        return;
    before_write(memory, stream, to.get());
    before_read(memory, stream, from.get());
    if (is_away && node.kind == NODE_COPY)
        CHECK(cudaMemcpyPeerAsync(to->device, to->home, from->device, from->home, count_of(&node) * sizeof(uint32_t),
                                  handle_of(memory, stream)));
    else
        capture_node(handle_of(memory, stream), &node);
    memory->launches++;
    do_on_host(&node);
    const struct work work = worked(&memory->streams, stream);
    was_written(to.get(), work);
    was_read(from.get(), work);
}

/* Copies every other row of 64 words. */
static void copy_rows(struct random_program *program, int stream)
{
    struct random_memory *memory = &program->memory;
    const tensor_ref to = any_tensor(program), from = any_tensor(program);
    const size_t row = 64, rows = std::min(to->words.size(), from->words.size()) / (2 * row);

    if (to == from || rows == 0 || is_on_host(to.get()) || is_on_host(from.get()))
        return;
    before_write(memory, stream, to.get());
    before_read(memory, stream, from.get());
    CHECK(cudaMemcpy2DAsync(to->device, 2 * row * sizeof(uint32_t), from->device + row, 2 * row * sizeof(uint32_t),
                            row * sizeof(uint32_t), rows, cudaMemcpyDeviceToDevice, handle_of(memory, stream)));
    memory->launches++;
    for (size_t i = 0; i < rows; i++)
        memcpy(to->words.data() + i * 2 * row, from->words.data() + row + i * 2 * row, row * sizeof(uint32_t));
    const struct work work = worked(&memory->streams, stream);
    was_written(to.get(), work);
    was_read(from.get(), work);
}

/* ---- memory ---- */
static void free_tensor(struct random_program *program, int stream, size_t at)
{
    struct random_memory *memory = &program->memory;
    const tensor_ref tensor = memory->tensors[at];
    const bool may_go_in_order = is_in_stream_order(tensor->kind) || tensor->kind == FOR_ALL;

    if (!may_go_in_order || (may_wait(program) && one_in(program, is_in_stream_order(tensor->kind) ? 8 : 2)))
        free_for_all(memory, tensor.get());
    else
        free_in_order(memory, stream, tensor.get());
    forget_tensor(memory, at);
}

static void free_some(struct random_program *program, int stream)
{
    const size_t count = program->memory.tensors.size();
    const size_t at = below(program, count);

    const struct tensor_words *const tensor = program->memory.tensors[at].get();

    /* Only memory in stream order is freed without a wait for the device. */
    if (at >= program->lasting && tensor->held == 0 && tensor->home == device_here &&
        (is_in_stream_order(tensor->kind) || may_wait(program)))
        free_tensor(program, stream, at);
}

static void take_some(struct random_program *program, int stream)
{
    if (program->memory.tensors.size() >= program->most)
        return;
    const tensor_ref tensor = new_tensor(&program->memory, stream, may_wait(program));
    if (may_wait(program) && one_in(program, 15)) /* never used */
        free_tensor(program, stream, program->memory.tensors.size() - 1);
    else
        fill_tensor(program, one_in(program, 3) ? any_stream_here(program) : stream, tensor.get());
}

static void give_away(struct random_program *program)
{
    const size_t at = below(program, program->memory.tensors.size());
    const tensor_ref tensor = program->memory.tensors[at];
    const std::lock_guard<std::mutex> guard(given_lock);

    if (at < program->lasting || tensor->held > 0 || given.size() > 4)
        return;
    for_others(&program->memory, &tensor->writes);
    for_others(&program->memory, &tensor->reads);
    given.push_back(tensor);
    forget_tensor(&program->memory, at);
}

static void take_given(struct random_program *program)
{
    const std::lock_guard<std::mutex> guard(given_lock);

    if (given.empty())
        return;
    program->memory.tensors.push_back(given.back());
    given.pop_back();
}

#endif
