/*
 * Memory of a random program: tensors whose words the host knows, and copies to the host that are
 * compared later. Part of random_orders.cu.
 *
 * When a kernel changes words on the device, its body changes the host's words at the same time. So
 * every word has one right value in every order that the device may take.
 */
#ifndef PENSTOCK_SAMPLES_RANDOM_TENSORS_H
#define PENSTOCK_SAMPLES_RANDOM_TENSORS_H

#include "random_memory.h"

#define MOST_UNITS 4
#define LEAST_BYTES 256

static size_t unit_bytes = 4096;

struct tensor_words {
    uint32_t *device;
    std::vector<uint32_t> words; /* as they will be when all issued work is complete */
    enum memory_kind kind;
    int home;      /* its device */
    unsigned held; /* the number of references by graphs and tables */
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

/* Some are too small to be spans. */
static inline size_t any_bytes(struct random_streams *streams)
{
    if (all_kinds && one_in(streams, 6))
        return (1 + below(streams, unit_bytes / LEAST_BYTES - 1)) * LEAST_BYTES;
    return (1 + below(streams, MOST_UNITS)) * unit_bytes;
}

/* Allocates on the stream's device, which is the current one. */
static inline tensor_ref new_tensor_of(struct random_memory *memory, int stream, enum memory_kind kind, size_t bytes)
{
    tensor_ref tensor = std::make_shared<struct tensor_words>();

    tensor->words.resize(bytes / sizeof(uint32_t));
    tensor->kind = kind;
    tensor->home = device_here;
    tensor->device = allocate(kind, bytes, handle_of(memory, stream));
    if (is_in_stream_order(kind))
        was_written(tensor.get(), worked(&memory->streams, stream));
    return tensor;
}

static inline tensor_ref new_tensor(struct random_memory *memory, int stream, bool may_wait)
{
    const size_t bytes = any_bytes(&memory->streams);
    enum memory_kind kind = any_kind(&memory->streams);

    if (kind == ON_HOST && !may_wait)
        kind = STREAM_ORDERED;
    memory->tensors.push_back(new_tensor_of(memory, stream, kind, bytes));
    return memory->tensors.back();
}

/*
 * Frees at once. Only cudaFree of memory of cudaMalloc waits for the memory's uses, and only on its
 * own device. Else the program waits.
 */
static inline void free_for_all(struct random_memory *memory, struct tensor_words *tensor)
{
    if (tensor->kind != FOR_ALL || device_count > 1) {
        wait_for(memory, &tensor->writes);
        wait_for(memory, &tensor->reads);
    }
    release(tensor->kind, tensor->device);
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

/* Makes the works ready for the streams of another program to wait for. */
static inline void for_others(struct random_memory *memory, std::vector<struct work> *works)
{
    for (struct work &work : *works) {
        if (work.after == nullptr)
            work.after = moment_on(&memory->streams, work.stream);
        work.stream = -1;
    }
}

/* ---- looks ---- */
static inline uint32_t *new_host_buffer(void)
{
    void *buffer = nullptr;

    CHECK(cudaMallocHost(&buffer, MOST_UNITS * unit_bytes));
    return static_cast<uint32_t *>(buffer);
}

static inline uint32_t *host_buffer(struct random_memory *memory)
{
    if (memory->spare_buffers.empty())
        return new_host_buffer();
    uint32_t *const buffer = memory->spare_buffers.back();
    memory->spare_buffers.pop_back();
    return buffer;
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

static inline void free_buffers(struct random_memory *memory)
{
    for (uint32_t *buffer : memory->spare_buffers)
        CHECK(cudaFreeHost(buffer));
    memory->spare_buffers.clear();
}

/* The copies of a look at pinned memory are made by a kernel: cudaMemcpyAsync would wait. */
static inline void look_at(struct random_memory *memory, int stream, struct tensor_words *tensor)
{
    struct look look = {host_buffer(memory), tensor->words, nullptr, memory->issued};
    const size_t count = tensor->words.size();

    before_read(memory, stream, tensor);
    if (tensor->kind == ON_HOST)
        LAUNCH(handle_of(memory, stream), count, copy_words, look.host, tensor->device, count);
    else
        CHECK(cudaMemcpyAsync(look.host, tensor->device, bytes_of(tensor), cudaMemcpyDeviceToHost,
                              handle_of(memory, stream)));
    was_read(tensor, worked(&memory->streams, stream));
    look.over = moment_on(&memory->streams, stream);
    memory->looks.push_back(look);
}

/* ---- the process ---- */
/* Changes `number` only if the text is one. */
static inline bool read_number(const char *text, unsigned long most, unsigned long *number)
{
    char *end = nullptr;
    const unsigned long read = text[0] >= '0' && text[0] <= '9' ? strtoul(text, &end, 10) : 0;

    if (read == 0 || *end != '\0' || read > most)
        return false;
    *number = read;
    return true;
}

/* With fewer connections to the device, a stream that waits at a gate may hold up others. */
static inline void prepare_process(void)
{
    setvbuf(stdout, nullptr, _IOLBF, 0);
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    patience_s = 60;
}

/*
 * Runs the programs of all seeds up to `last`, until one fails. If it is 0, there is one program.
 */
static inline void run_seeds(unsigned long *seed, unsigned long last, void (*run)(void))
{
    bool is_right;

    do {
        if (last > 0)
            printf("seed %lu\n", *seed);
        for (unsigned gate = 0; gate < GATES; gate++)
            open_from_host(gate, 0);
        case_is_over = false;
        std::thread watcher(watch);
        run();
        is_right = end_watch(&watcher) == 0;
    } while (is_right && (*seed)++ < last);
    destroy_events();
}

#endif
