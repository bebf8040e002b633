/*
 * Memory of a random program: tensors whose words the host knows, and copies to the host that are
 * compared later. Part of random_orders.cu.
 *
 * When a kernel changes words on the device, its body changes the host's words at the same time. So
 * every word has one right value in every order that the device may take.
 */
#ifndef PENSTOCK_SAMPLES_RANDOM_TENSORS_H
#define PENSTOCK_SAMPLES_RANDOM_TENSORS_H

#include "random_streams.h"

#define MOST_UNITS 4

static size_t unit_bytes = 4096;

struct tensor_words {
    uint32_t *device;
    std::vector<uint32_t> words; /* as they will be when all issued work is complete */
    bool in_stream_order;        /* cudaMallocAsync allocated it */
    unsigned held;               /* the number of references by graphs and tables */
    std::vector<struct work> writes, reads;
};

typedef std::shared_ptr<struct tensor_words> tensor_ref;

/* A copy to the host that is compared later, or a copy from the host whose source must stay. */
struct look {
    uint32_t *host;
    std::vector<uint32_t> expected; /* empty: no comparison */
    moment_ref over;
    uint64_t issued;
};

struct random_memory {
    struct random_streams streams;
    std::vector<tensor_ref> tensors;
    std::vector<struct look> looks;
    std::vector<uint32_t *> spare_buffers;
    uint64_t issued;   /* the number of operations so far */
    uint64_t launches; /* at least the number that Penstock counts */
};

/* ---- the order of accesses ---- */
static inline void order_after(struct random_memory *memory, int stream, std::vector<struct work> *works)
{
    for (struct work &work : *works)
        come_after(&memory->streams, stream, &work);
}

static inline void before_read(struct random_memory *memory, int stream, struct tensor_words *tensor)
{
    learn_from_legacy_rules(&memory->streams, stream);
    order_after(memory, stream, &tensor->writes);
}

static inline void before_write(struct random_memory *memory, int stream, struct tensor_words *tensor)
{
    before_read(memory, stream, tensor);
    order_after(memory, stream, &tensor->reads);
}

static inline void was_read(struct tensor_words *tensor, const struct work &work)
{
    tensor->reads.push_back(work);
}

static inline void was_written(struct tensor_words *tensor, const struct work &work)
{
    tensor->reads.clear();
    tensor->writes.assign(1, work);
}

static inline cudaStream_t handle_of(const struct random_memory *memory, int stream)
{
    return memory->streams.all[static_cast<size_t>(stream)].handle;
}

static inline void wait_for(struct random_memory *memory, std::vector<struct work> *works)
{
    for (struct work &work : *works) {
        if (work.after == nullptr)
            work.after = moment_on(&memory->streams, work.stream);
        CHECK(cudaEventSynchronize(work.after->event));
    }
}

/* ---- memory ---- */
static inline size_t bytes_of(const struct tensor_words *tensor)
{
    return tensor->words.size() * sizeof(uint32_t);
}

static inline tensor_ref new_tensor(struct random_memory *memory, int stream)
{
    tensor_ref tensor = std::make_shared<struct tensor_words>();
    void *device = nullptr;

    tensor->words.resize((1 + below(&memory->streams, MOST_UNITS)) * unit_bytes / sizeof(uint32_t));
    tensor->in_stream_order = !one_in(&memory->streams, 3);
    if (tensor->in_stream_order) {
        CHECK(cudaMallocAsync(&device, bytes_of(tensor.get()), handle_of(memory, stream)));
        was_written(tensor.get(), worked(&memory->streams, stream));
    } else {
        CHECK(cudaMalloc(&device, bytes_of(tensor.get())));
    }
    tensor->device = static_cast<uint32_t *>(device);
    memory->tensors.push_back(tensor);
    return tensor;
}

/*
 * Frees by cudaFree. For memory of cudaMallocAsync, cudaFree does not wait for its uses, so the
 * program waits.
 */
static inline void free_for_all(struct random_memory *memory, struct tensor_words *tensor)
{
    if (tensor->in_stream_order) {
        wait_for(memory, &tensor->writes);
        wait_for(memory, &tensor->reads);
    }
    CHECK(cudaFree(tensor->device));
}

/*
 * Allocating or freeing memory on the legacy stream does not order the work of blocking streams
 * before and after. CUDA documents no such order.
 */
static inline void free_in_order(struct random_memory *memory, int stream, struct tensor_words *tensor)
{
    struct random_stream *const on = &memory->streams.all[static_cast<size_t>(stream)];
    const order_clock before = on->clock;

    before_write(memory, stream, tensor);
    CHECK(cudaFreeAsync(tensor->device, handle_of(memory, stream)));
    if (on->kind == LEGACY)
        on->clock = before;
    worked(&memory->streams, stream);
}

static inline void forget_tensor(struct random_memory *memory, size_t at)
{
    memory->tensors.erase(memory->tensors.begin() + static_cast<ptrdiff_t>(at));
}

/* ---- looks ---- */
static inline uint32_t *host_buffer(struct random_memory *memory)
{
    void *buffer = nullptr;

    if (memory->spare_buffers.empty()) {
        CHECK(cudaMallocHost(&buffer, MOST_UNITS * unit_bytes));
        return static_cast<uint32_t *>(buffer);
    }
    buffer = memory->spare_buffers.back();
    memory->spare_buffers.pop_back();
    return static_cast<uint32_t *>(buffer);
}

static inline void compare(struct random_memory *memory, const struct look *look)
{
    size_t wrong = 0, first = 0;

    CHECK(cudaEventSynchronize(look->over->event));
    for (size_t i = look->expected.size(); i-- > 0;) {
        if (look->host[i] == look->expected[i])
            continue;
        wrong++;
        first = i;
    }
    memory->spare_buffers.push_back(look->host);
    expect(wrong == 0, "wrong: operation %llu: %zu of %zu words, the first is word %zu: %08x, expected %08x",
           static_cast<unsigned long long>(look->issued), wrong, look->expected.size(), first, look->host[first],
           wrong > 0 ? look->expected[first] : 0);
}

static inline void compare_all(struct random_memory *memory)
{
    for (const struct look &look : memory->looks)
        compare(memory, &look);
    memory->looks.clear();
}

static inline void look_at(struct random_memory *memory, int stream, struct tensor_words *tensor)
{
    struct look look = {host_buffer(memory), tensor->words, nullptr, memory->issued};

    before_read(memory, stream, tensor);
    CHECK(cudaMemcpyAsync(look.host, tensor->device, bytes_of(tensor), cudaMemcpyDeviceToHost,
                          handle_of(memory, stream)));
    was_read(tensor, worked(&memory->streams, stream));
    look.over = moment_on(&memory->streams, stream);
    memory->looks.push_back(look);
}

#endif
