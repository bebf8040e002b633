/*
 * A small training that allocates all its memory by one cudaMalloc and divides it itself, as a
 * caching allocator does:
 *
 *   arena STEPS [WORD]...
 *
 * Tensors are cut from the first free stretch that is large enough, and freed stretches join. Small
 * tensors of forward become larger tensors in backward, at the same addresses, in every step.
 * Layers have tensors of different sizes. Some tensors are views of one that is used as a whole.
 *
 *   streams   weight gradients and updates on a second stream
 *   threads   a second thread issues the launches of the second stream
 *   mapped    the memory is a range of addresses with one handle, instead of an allocation
 *   segments  the range has 16 times the size. Handles of one size are mapped as more is needed,
 *             and tensors straddle them.
 *   shrinks   with segments: after every other step most of the handles without a tensor are
 *             unmapped and released
 *   grows     halfway through, the number of layers halves, and tensors double in size
 *   wrong     no training: a tensor is larger than those that were used above its start. Kernels
 *             that name its start alone write and read it.
 *   stale     the same, long after those were used
 *   asks      no training: the driver's answers about addresses in the block, and frees of such
 *   idle      no training: half of the block is used, again and again
 *   waits     no training: a stream waits for a later launch, before a launch in the block
 *
 * Prints a hash of the weights after each step.
 */
#include <algorithm>
#include <map>
#include <thread>
#include <vector>

#include "hostile.h"
#include "mappings.h"
#include "word_layers.h"

#define LAYERS 6
#define UNIT 4096 /* words: 16 KiB */

static struct {
    bool streams, threads, grows, mapped, segments, shrinks, wrong, stale, asks, idle, waits;
} words;

/* ---- the allocator ---- */

static struct {
    uint32_t *base;
    size_t count;
    std::map<size_t, size_t> free_from; /* length by first word, in words */
    std::map<const uint32_t *, size_t> given;
    std::vector<CUmemGenericAllocationHandle> handles; /* of a range, in its order; 0 where no handle is mapped */
    size_t handle_bytes;
} arena;

static bool is_range(void)
{
    return words.mapped || words.segments;
}

static CUdeviceptr place_of(size_t handle)
{
    return reinterpret_cast<CUdeviceptr>(arena.base) + handle * arena.handle_bytes;
}

/*
 * Makes all missing handles, maps them, and then sets access once for each stretch of them, as
 * torch's allocator does.
 */
static void map_words(size_t first, size_t count)
{
    const size_t end = ((first + count) * sizeof(uint32_t) + arena.handle_bytes - 1) / arena.handle_bytes;
    std::vector<size_t> missing;

    for (size_t i = first * sizeof(uint32_t) / arena.handle_bytes; i < end; i++) {
        if (arena.handles[i] != 0)
            continue;
        arena.handles[i] = new_handle(arena.handle_bytes);
        missing.push_back(i);
    }
    for (const size_t i : missing)
        MUST(cuMemMap, place_of(i), arena.handle_bytes, 0, arena.handles[i], 0);
    for (size_t at = 0, next; at < missing.size(); at = next) {
        for (next = at + 1; next < missing.size() && missing[next] == missing[next - 1] + 1;)
            next++;
        let_access(place_of(missing[at]), (next - at) * arena.handle_bytes);
    }
}

/* `at_once`: the words that a caller can use without taking them first. */
static void take_arena(size_t count, size_t at_once)
{
    const size_t bytes = count * sizeof(uint32_t);
    void *memory = nullptr;

    if (is_range()) {
        arena.handle_bytes = whole_granules(words.segments ? 6 * UNIT * sizeof(uint32_t) : bytes);
        arena.handles.assign(words.segments ? (16 * bytes + arena.handle_bytes - 1) / arena.handle_bytes : 1, 0);
        arena.base = words_at(new_range(arena.handles.size() * arena.handle_bytes));
        arena.count = arena.handles.size() * arena.handle_bytes / sizeof(uint32_t);
        map_words(0, at_once);
    } else {
        CHECK(cudaMalloc(&memory, bytes));
        arena.base = static_cast<uint32_t *>(memory);
        arena.count = count;
    }
    arena.free_from[0] = arena.count;
}

static void unmap_handle(size_t i)
{
    MUST(cuMemUnmap, place_of(i), arena.handle_bytes);
    MUST(cuMemRelease, arena.handles[i]);
    arena.handles[i] = 0;
}

static void give_arena_back(void)
{
    CHECK(cudaDeviceSynchronize());
    if (!is_range()) {
        CHECK(cudaFree(arena.base));
        return;
    }
    for (size_t i = 0; i < arena.handles.size(); i++)
        if (arena.handles[i] != 0)
            unmap_handle(i);
    MUST(cuMemAddressFree, place_of(0), arena.handles.size() * arena.handle_bytes);
}

static bool is_free(size_t first, size_t count)
{
    const auto after = arena.free_from.upper_bound(first);

    return after != arena.free_from.begin() && first + count <= std::prev(after)->first + std::prev(after)->second;
}

/* Unmaps two of three of the handles without a tensor, other ones each time. */
static void shrink(unsigned turn)
{
    const size_t count = arena.handle_bytes / sizeof(uint32_t);

    MUST(cuCtxSynchronize);
    for (size_t i = 0; i < arena.handles.size(); i++)
        if (arena.handles[i] != 0 && (i + turn) % 3 != 0 && is_free(i * count, count))
            unmap_handle(i);
}

static uint32_t *take(size_t count)
{
    for (auto &[from, length] : arena.free_from) {
        if (length < count)
            continue;
        const size_t first = from, rest = length - count;
        arena.free_from.erase(first);
        if (rest > 0)
            arena.free_from[first + count] = rest;
        arena.given[arena.base + first] = count;
        if (is_range())
            map_words(first, count);
        return arena.base + first;
    }
    REQUIRE(false, "the arena is full");
    return nullptr;
}

static void give(const uint32_t *tensor)
{
    const size_t first = static_cast<size_t>(tensor - arena.base);
    size_t count = arena.given[tensor];

    arena.given.erase(tensor);
    auto after = arena.free_from.upper_bound(first);
    if (after != arena.free_from.end() && first + count == after->first) {
        count += after->second;
        after = arena.free_from.erase(after);
    }
    if (after != arena.free_from.begin() && std::prev(after)->first + std::prev(after)->second == first)
        std::prev(after)->second += count;
    else
        arena.free_from[first] = count;
}

/* ---- the training ---- */

static cudaStream_t stream, other;

struct layer {
    size_t count;
    uint32_t *weight;
    uint32_t *activation, *halves; /* `halves`: two views that are written separately and read as a whole */
};

static struct layer layers[LAYERS];
static uint32_t *input;

static size_t words_of(unsigned layer, bool grown)
{
    return (grown ? 2 : 1) * (2 + layer * 3 % 5) * UNIT;
}

static void new_weights(unsigned count, bool grown)
{
    for (unsigned l = 0; l < count; l++) {
        layers[l].count = words_of(l, grown);
        layers[l].weight = take(layers[l].count);
        LAUNCH(stream, layers[l].count, fill_words, layers[l].weight, l, 0, layers[l].count);
    }
}

static void launch_update(const struct layer *layer, const uint32_t *gradient)
{
    LAUNCH(other, layer->count, update, layer->weight, gradient, layer->count);
}

static void train_step(unsigned count)
{
    const uint32_t *in = input;
    size_t in_count = UNIT;
    uint32_t *above = nullptr;

    for (unsigned l = 0; l < count; l++) {
        struct layer *a = &layers[l];
        a->activation = take(a->count);
        LAUNCH(stream, a->count, forward, a->activation, in, a->weight, in_count, a->count);
        a->halves = take(a->count);
        LAUNCH(stream, a->count / 2, split, a->halves, a->halves + a->count / 2, a->activation, a->count / 2);
        in = a->activation;
        in_count = a->count;
    }
    size_t above_count = in_count;
    for (unsigned l = count; l-- > 0;) {
        struct layer *a = &layers[l];
        uint32_t *gradient = take(a->count);
        /*
         * It fills all of the free stretch below, where small tensors were. No address that a
         * launch names shows its end.
         */
        uint32_t *scratch = take(2 * a->count);
        LAUNCH(stream, a->count, backward, gradient, above != nullptr ? above : a->activation, a->activation, a->halves,
               above_count, a->count);
        LAUNCH(stream, 2 * a->count, fill_words, scratch, l, 0, 2 * a->count);
        LAUNCH(stream, a->count, update, gradient, scratch + a->count, a->count);
        first_waits(other, stream);
        if (words.threads)
            std::thread(launch_update, a, gradient).join();
        else
            launch_update(a, gradient);
        first_waits(stream, other);
        give(scratch);
        give(a->halves);
        give(a->activation);
        if (above != nullptr)
            give(above);
        above = gradient;
        above_count = a->count;
    }
    give(above);
}

static void print_hash(unsigned step, unsigned count)
{
    uint64_t hash = HASH_START;

    for (unsigned l = 0; l < count; l++)
        hash = hash_words(hash, layers[l].weight, layers[l].count, stream);
    printf("step %u weights %016llx\n", step, static_cast<unsigned long long>(hash));
}

static void train(unsigned long steps)
{
    unsigned count = LAYERS;

    take_arena(104 * UNIT, 0);
    input = take(UNIT);
    LAUNCH(stream, UNIT, fill_words, input, 100, 0, UNIT);
    new_weights(count, false);
    for (unsigned step = 1; step <= steps; step++) {
        if (words.grows && step == steps / 2 + 1) {
            for (unsigned l = 0; l < count; l++)
                give(layers[l].weight);
            new_weights(count /= 2, true);
        }
        train_step(count);
        print_hash(step, count);
        if (words.shrinks && step % 2 == 0)
            shrink(step / 2);
    }
}

/* ---- without a training ---- */

static void use(uint32_t *tensor, uint32_t salt, size_t count)
{
    LAUNCH(stream, count, fill_words, tensor, salt, 0, count);
}

/* Reads words of the block through a buffer outside of the block. */
static void expect_from(const uint32_t *tensor, uint32_t salt, size_t first, size_t count, const char *what)
{
    uint32_t *copy = new_span();

    LAUNCH(stream, count, copy_words, copy, tensor, count);
    expect_words(copy, salt, first, count, stream, what);
    CHECK(cudaFree(copy));
}

static void case_wrong(void)
{
    const size_t large = 32 * UNIT, small = 4 * UNIT;
    const unsigned turns = words.stale ? 400 : 4;

    take_arena(64 * UNIT, 64 * UNIT);
    for (unsigned round = 0; round < 3; round++) {
        /*
         * Small tensors in the lower half, then others in the upper half until the small ones have
         * left.
         */
        for (size_t at = 0; at < large && (round == 0 || !words.stale); at += small)
            use(arena.base + at, 7, small);
        for (unsigned turn = 0; turn < turns; turn++)
            for (size_t at = large; at < 2 * large; at += small)
                use(arena.base + at, 8, small);
        CHECK(cudaStreamSynchronize(stream));
        use(arena.base, 9 + round, large);
        for (unsigned turn = 0; turn < turns; turn++)
            for (size_t at = large; at < 2 * large; at += small)
                use(arena.base + at, 8, small);
        for (size_t at = 0; at < large && !words.stale; at += small)
            expect_from(arena.base + at, 9 + round, at, small, "of a tensor that is larger than it seems");
    }
    for (size_t at = 0; at < large; at += small)
        expect_from(arena.base + at, 11, at, small, "of the last of the large tensors");
}

static void case_asks(void)
{
    const size_t bytes = 64 * UNIT * sizeof(uint32_t), at = 37 * UNIT + 5;
    struct cudaPointerAttributes attributes;
    CUdeviceptr start = 0, own = 0;
    size_t size = 0;
    unsigned type = 0;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *values[] = {&start, &size};
    const auto range = driver<CUresult (*)(CUdeviceptr *, size_t *, CUdeviceptr)>("cuMemGetAddressRange_v2");
    const auto attribute = driver<CUresult (*)(void *, CUpointer_attribute, CUdeviceptr)>("cuPointerGetAttribute");
    const auto several =
        driver<CUresult (*)(unsigned, CUpointer_attribute *, void **, CUdeviceptr)>("cuPointerGetAttributes");

    take_arena(64 * UNIT, 64 * UNIT);
    use(arena.base, 1, 64 * UNIT);
    const CUdeviceptr base = reinterpret_cast<CUdeviceptr>(arena.base),
                      inside = reinterpret_cast<CUdeviceptr>(arena.base + at);
    expect(range(&start, &size, inside) == CUDA_SUCCESS && start == base && size == bytes, "the range of the block");
    start = size = 0;
    expect(several(2, which, values, inside) == CUDA_SUCCESS && start == base && size == bytes, "its attributes");
    expect(attribute(&own, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside) == CUDA_SUCCESS && own == inside,
           "its address");
    expect(attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside) == CUDA_SUCCESS && type == CU_MEMORYTYPE_DEVICE,
           "its type");
    CHECK(cudaPointerGetAttributes(&attributes, arena.base + at));
    expect(attributes.type == cudaMemoryTypeDevice && attributes.devicePointer == arena.base + at,
           "the runtime's attributes");
    for (size_t i = 1; i < 16; i++)
        expect_result(cudaErrorInvalidValue, cudaFree(arena.base + i * 4 * UNIT), "cudaFree inside of the block");
    expect_from(arena.base + at, 1, at, UNIT, "after frees inside");
    for (unsigned i = 0; i < 4; i++) {
        uint32_t *block = arena.base;
        expect_result(cudaSuccess, cudaFree(block), "cudaFree");
        expect_result(cudaErrorInvalidValue, cudaFree(block), "cudaFree for the second time");
        take_arena(64 * UNIT, 64 * UNIT);
        use(arena.base, 2 + i, 64 * UNIT);
        expect_from(arena.base + at, 2 + i, at, UNIT, "in a block that follows another");
    }
}

static void case_idle(void)
{
    take_arena(64 * UNIT, 64 * UNIT);
    use(arena.base + 32 * UNIT, 5, 32 * UNIT);
    for (unsigned turn = 0; turn < 64; turn++)
        for (size_t at = 0; at < 32 * UNIT; at += 4 * UNIT)
            use(arena.base + at, turn, 4 * UNIT);
    for (size_t at = 0; at < 64 * UNIT; at += 4 * UNIT)
        expect_from(arena.base + at, at < 32 * UNIT ? 63 : 5, at % (32 * UNIT) * (at >= 32 * UNIT), 4 * UNIT,
                    "after many rounds");
}

/*
 * For lack of pages, half of the block begins in host memory. It is used there while no launch in
 * the block completes.
 */
static void case_waits(void)
{
    const auto wait = driver<CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned)>("cuStreamWaitValue32_v2");
    void *filler = nullptr, *flag = nullptr;

    CHECK(cudaMalloc(&flag, 256));
    CHECK(cudaMemset(flag, 0, 256));
    CHECK(cudaMalloc(&filler, 32 * UNIT * sizeof(uint32_t)));
    CHECK(cudaMemset(filler, 0, 32 * UNIT * sizeof(uint32_t)));
    take_arena(64 * UNIT, 64 * UNIT);
    CHECK(cudaFree(filler));
    CHECK(cudaDeviceSynchronize());
    other = new_stream();
    REQUIRE(wait(other, reinterpret_cast<CUdeviceptr>(flag), 1, CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS,
            "a wait for a value is refused");
    LAUNCH(other, 4 * UNIT, fill_words, arena.base, 3, 0, 4 * UNIT);
    for (size_t at = 4 * UNIT; at < 64 * UNIT; at += 4 * UNIT)
        use(arena.base + at, 4, 4 * UNIT);
    CHECK(cudaMemsetAsync(flag, 1, 1, stream));
    CHECK(cudaDeviceSynchronize());
    for (size_t at = 0; at < 64 * UNIT; at += 4 * UNIT)
        expect_words(arena.base + at, at ? 4 : 3, 0, 4 * UNIT, stream, "while a stream waited");
    CHECK(cudaFree(flag));
}

static bool read_word(const char *word)
{
    const struct {
        const char *name;
        bool *flag;
    } known[] = {{"streams", &words.streams}, {"threads", &words.threads},   {"grows", &words.grows},
                 {"mapped", &words.mapped},   {"segments", &words.segments}, {"shrinks", &words.shrinks},
                 {"wrong", &words.wrong},     {"stale", &words.stale},       {"asks", &words.asks},
                 {"idle", &words.idle},       {"waits", &words.waits}};

    for (const auto &each : known)
        if (strcmp(word, each.name) == 0)
            return *each.flag = true;
    return false;
}

int main(int argc, char **argv)
{
    const unsigned long steps = argc > 1 ? strtoul(argv[1], nullptr, 10) : 0;

    for (int i = 2; i < argc; i++) {
        if (read_word(argv[i]))
            continue;
        fprintf(stderr, "%s: no such word\n", argv[i]);
        return 2;
    }
    setvbuf(stdout, nullptr, _IOLBF, 0);
    span_bytes = 16 * UNIT * sizeof(uint32_t);
    if (is_range())
        find_mapping_functions(false);
    stream = new_stream();
    other = words.streams || words.threads ? new_stream() : stream;
    if (words.wrong || words.stale)
        case_wrong();
    else if (words.asks)
        case_asks();
    else if (words.idle)
        case_idle();
    else if (words.waits)
        case_waits();
    else
        train(steps);
    give_arena_back();
    if (failures)
        return 1;
    printf("ok\n");
    return 0;
}
