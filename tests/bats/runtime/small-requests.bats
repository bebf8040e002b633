#!/usr/bin/env bats
# Allocations too small for a span are the real allocator's. While memory is tight, or where its
# pool keeps freed memory anyway, a block freed on a stream serves the next request of that size
# there (shim/memory/small_cache.h). The program can't tell.

load ../../lib/helper
load ../../lib/small_trainer

setup() { helper_setup 60; }

# A training's memory, and small blocks beside it. Prints everything that a program can see of them.
build_small() {
    build_probe small <<'END'
#include <string.h>

#define COUNT 64
#define SMALL 16

static cudaMemPool_t pool;

/* Prints the increase of the pool's used bytes, as the program sees them. */
static void used(const char *when)
{
    static size_t before = SIZE_MAX;
    size_t now = 0;
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &now));
    if (before == SIZE_MAX) before = now;
    printf("%s: %zu\n", when, now - before);
}

/* The pool releases freed bytes beyond this at a synchronisation. */
static void keep(uint64_t bytes)
{
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &bytes));
}

/* Each block holds its last write in its stream's order, whatever it held before. */
static void fill_and_look(void **small, size_t bytes, int value, cudaStream_t stream)
{
    unsigned char seen[4096];
    for (int i = 0; i < SMALL; i++) {
        CHECK(cudaMallocAsync(&small[i], bytes, stream));
        CHECK(cudaMemsetAsync(small[i], value + i, bytes, stream));
    }
    for (int i = 0; i < SMALL; i++) {
        CHECK(cudaMemcpyAsync(seen, small[i], bytes, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        for (size_t b = 0; b < bytes; b++) EXPECT(seen[b] == (unsigned char)(value + i));
    }
}

int main(void)
{
    static void *span[COUNT], *small[SMALL];
    cudaStream_t stream, second;
    int rounds = 4;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    if (getenv("KEEPS")) keep(strtoull(getenv("KEEPS"), NULL, 0));
    for (int i = 0; i < COUNT; i++) span[i] = new_span(i, stream);
    used("spans");
    for (int round = 0; round < rounds; round++) {
        cudaStream_t on = round % 2 ? second : stream;
        fill_and_look(small, 500 + round, 16 * round, on);
        used("blocks");
        for (int i = 0; i < SMALL; i++) CHECK(cudaFreeAsync(small[i], on));
        CHECK(cudaStreamSynchronize(on));
        used("freed");
    }
    /* Freed a second time, in stream order and at once. */
    printf("%s\n", cudaGetErrorName(cudaFreeAsync(small[0], stream)));
    printf("%s\n", cudaGetErrorName(cudaGetLastError()));
    printf("%s\n", cudaGetErrorName(cudaFree(small[1])));
    (void)cudaGetLastError();
    /* Freed at once; then blocks that end with their stream. */
    fill_and_look(small, 500, 3, second);
    CHECK(cudaFree(small[0]));
    for (int i = 1; i < SMALL; i++) CHECK(cudaFreeAsync(small[i], second));
    CHECK(cudaStreamDestroy(second));
    fill_and_look(small, 500, 5, stream);
    for (int i = 0; i < SMALL; i++) CHECK(cudaFreeAsync(small[i], stream));
    CHECK(cudaMemPoolTrimTo(pool, 0));
    fill_and_look(small, 500, 7, stream);
    for (int i = 0; i < SMALL; i++) CHECK(cudaFreeAsync(small[i], stream));
    used("end");
    for (int i = 0; i < COUNT; i++) EXPECT(holds(span[i], i, stream));
    if (getenv("KEEPS")) {
        keep(0);
        fill_and_look(small, 500, 8, stream);
        for (int i = 0; i < SMALL; i++) CHECK(cudaFreeAsync(small[i], stream));
    }
    if (getenv("POOL")) { /* nothing is kept once the program chooses its pools itself */
        CHECK(cudaDeviceSetMemPool(0, pool));
        fill_and_look(small, 500, 9, stream);
        for (int i = 0; i < SMALL; i++) CHECK(cudaFreeAsync(small[i], stream));
        fill_and_look(small, 500, 11, stream);
        for (int i = 0; i < SMALL; i++) CHECK(cudaFreeAsync(small[i], stream));
    }
    CHECK(cudaDeviceSynchronize());
    return 0;
}
END
}

seen() { grep -v '^penstock: ' <<<"$output"; }

@test "while memory is tight a freed block serves its stream again, and the program can't tell" {
    requires cc
    build_small
    run_sim "PROBE_SPAN=$PROBE_SPAN" ./small
    ended_with 0
    local without=$output calls
    calls=$(ledger calls.cuMemAllocAsync)
    run_probe small
    ended_with 0
    equal "$without" "$(seen)" "what the program sees"
    # Two rounds of four: one on the second stream, and one after that stream is destroyed. A trim
    # leaves no block.
    equal 64 "$(report small_reused)" "small requests that were served by what was freed"
    equal 0 "$(report small_lost)" "blocks that the driver would not have back"
    equal 112 "$(report passthrough.small)" "small requests"
    equal "$calls" "$(($(ledger calls.cuMemAllocAsync) + 64))" "calls of the real allocator, and what was served without"
    sound
}

@test "small requests go to the real allocator while memory suffices, or once the program chooses its pool" {
    requires cc
    build_small
    run_sim "PROBE_SPAN=$PROBE_SPAN" ./small
    ended_with 0
    local without=$output
    run_probe small PENSTOCK_BUDGET=$((80 * PROBE_SPAN))
    ended_with 0
    equal "$without" "$(seen)" "what the program sees"
    equal 0 "$(report small_reused)" "small requests that were served by what was freed"
    sound
    run_probe small POOL=1
    ended_with 0
    equal 64 "$(report small_reused)" "small requests that were served by what was freed"
    sound
}

# torch's allocator tells its pool to keep all memory, so keeping blocks holds no more of it, and
# most of its calls are for small blocks.
@test "where the pool keeps freed memory, freed blocks serve requests while memory suffices, too" {
    requires cc
    build_small
    local keeps without calls
    for keeps in 0xffffffffffffffff 4096; do
        run_sim "PROBE_SPAN=$PROBE_SPAN" "KEEPS=$keeps" ./small
        ended_with 0
        without=$output calls=$(ledger calls.cuMemAllocAsync)
        run_probe small PENSTOCK_BUDGET=$((80 * PROBE_SPAN)) "KEEPS=$keeps"
        ended_with 0
        equal "$without" "$(seen)" "what the program sees"
        # As above. Blocks freed after the trim are not kept, since the pool was told to keep
        # nothing.
        [ "$keeps" = 4096 ] || calls=$((calls - 64))
        equal "$((keeps == 4096 ? 0 : 64))" "$(report small_reused)" "small requests that were served by what was freed"
        equal "$calls" "$(ledger calls.cuMemAllocAsync)" "calls of the real allocator"
        equal 0 "$(report small_lost)" "blocks that the driver would not have back"
        equal 0 "$(($(report small_kept) - $(report small_reused) - $(report small_given_back)))" "blocks that are kept once the pool is to keep nothing"
        equal 0 "$(report evictions)" "evictions"
        sound
    done
}

# torch's allocator does this with memory that several streams have used: it frees it on a stream of
# its own, which makes no requests.
@test "on a stream that makes no requests no block is kept" {
    requires cc
    build_probe beside <<'END'
#define ROUNDS 8
#define BLOCKS 16

int main(void)
{
    void *block[BLOCKS];
    cudaMemPool_t pool;
    uint64_t all = UINT64_MAX;
    cudaStream_t stream, last;
    cudaEvent_t event;

    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&last, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaFree(new_span(1, NULL)));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BLOCKS; i++) CHECK(cudaMallocAsync(&block[i], 512, stream));
        CHECK(cudaEventRecord(event, stream));
        CHECK(cudaStreamWaitEvent(last, event, 0));
        for (int i = 0; i < BLOCKS; i++) CHECK(cudaFreeAsync(block[i], i % 2 ? last : stream));
    }
    CHECK(cudaDeviceSynchronize());
    puts("ok");
    return 0;
}
END
    run_probe beside PENSTOCK_BUDGET=1GiB
    goes_on
    sound
    equal "$((8 * 8)) $((7 * 8))" "$(report small_kept) $(report small_reused)" "blocks that were kept, and served: those of one stream"
}

@test "of very many small blocks the first ones are known, and the others are the driver's alone" {
    requires cc
    build_probe many <<'END'
#define COUNT 17000 /* KNOWN_MOST is 16384 */

int main(void)
{
    static void *block[COUNT];
    cudaMemPool_t pool;
    uint64_t all = UINT64_MAX;

    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
    CHECK(cudaFree(new_span(1, NULL)));
    for (int i = 0; i < COUNT; i++) CHECK(cudaMallocAsync(&block[i], 512, NULL));
    for (int i = COUNT; i-- > 0;) CHECK(cudaFreeAsync(block[i], NULL));
    for (int i = 0; i < COUNT; i++) CHECK(cudaMallocAsync(&block[i], 512, NULL));
    for (int i = COUNT; i-- > 0;) CHECK(cudaFreeAsync(block[i], NULL));
    CHECK(cudaDeviceSynchronize());
    puts("ok");
    return 0;
}
END
    run_probe many PENSTOCK_BUDGET=1GiB
    goes_on
    sound
    # All 8 MiB in known blocks may be kept (a 128th of the budget) and serve. No more become known,
    # because there is no room for them.
    equal 16384 "$(report small_reused)" "requests that were served by what was freed"
}

# As in a training whose backward pass has a thread of its own, which uses the forward pass's
# stream.
@test "threads pass each other's small blocks on, in the order of their streams" {
    requires cc
    build_probe threads <<'END'
#include <pthread.h>

#define THREADS 4
#define ROUNDS 100
#define BLOCKS 4
#define MOST 4096

static cudaMemPool_t pool;
static cudaStream_t shared[2];

static void keep(uint64_t bytes)
{
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &bytes));
}

static void *work(void *number)
{
    unsigned seed = (unsigned)(uintptr_t)number;
    unsigned char *block[BLOCKS], *seen;
    cudaEvent_t event;
    cudaStream_t own;

    CHECK(cudaMallocHost((void **)&seen, BLOCKS * MOST));
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
    for (int round = 0; round < ROUNDS; round++) {
        size_t bytes[BLOCKS];
        cudaStream_t on[BLOCKS];
        unsigned char value = (unsigned char)rand_r(&seed);
        for (int i = 0; i < BLOCKS; i++) {
            bytes[i] = 512u << rand_r(&seed) % 4;
            on[i] = rand_r(&seed) % 4 ? shared[rand_r(&seed) % 2] : own;
            CHECK(cudaMallocAsync((void **)&block[i], bytes[i], on[i]));
            CHECK(cudaMemsetAsync(block[i], value + i, bytes[i], on[i]));
            CHECK(cudaMemcpyAsync(seen + i * MOST, block[i], bytes[i], cudaMemcpyDeviceToHost, on[i]));
        }
        for (int i = 0; i < BLOCKS; i++) {
            cudaStream_t freed_on = on[(i + round) % BLOCKS]; /* after the use on its own stream */
            CHECK(cudaEventRecord(event, on[i]));
            CHECK(cudaStreamWaitEvent(freed_on, event, 0));
            CHECK(cudaFreeAsync(block[i], freed_on));
        }
        for (int i = 0; i < BLOCKS; i++) CHECK(cudaStreamSynchronize(on[i]));
        for (int i = 0; i < BLOCKS; i++)
            for (size_t b = 0; b < bytes[i]; b++) EXPECT(seen[i * MOST + b] == (unsigned char)(value + i));
        if (!number && round % 16 == 7) keep(0);
        if (!number && round % 16 == 9) keep(UINT64_MAX);
        if (number && round % 32 == 31) CHECK(cudaMemPoolTrimTo(pool, 0));
        if (round % 25 == 24) {
            CHECK(cudaStreamDestroy(own));
            CHECK(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
        }
    }
    CHECK(cudaStreamDestroy(own));
    CHECK(cudaFreeHost(seen));
    return NULL;
}

int main(void)
{
    pthread_t thread[THREADS];

    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    keep(UINT64_MAX);
    for (int i = 0; i < 2; i++) CHECK(cudaStreamCreateWithFlags(&shared[i], cudaStreamNonBlocking));
    CHECK(cudaFree(new_span(1, NULL)));
    for (uintptr_t i = 0; i < THREADS; i++) EXPECT(!pthread_create(&thread[i], NULL, work, (void *)i));
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    CHECK(cudaDeviceSynchronize());
    puts("ok");
    return 0;
}
END
    # In the last run a call that gives blocks back takes so long that another thread may destroy
    # the stream meanwhile.
    local seed
    for seed in '' 1 2 3 4 5 6 7 8 slow; do
        case $seed in
        '') run_probe threads PENSTOCK_BUDGET=1GiB ;;
        slow) run_probe threads PENSTOCK_BUDGET=1GiB CUDASIM_FAULT=cuMemFreeAsync:delay@50+ ;;
        *) run_probe threads PENSTOCK_BUDGET=1GiB CUDASIM_SCHED=seeded "CUDASIM_SEED=$seed" ;;
        esac
        goes_on
        equal 0 "$(report small_lost)" "blocks that the driver would not have back"
        counted small_reused
        sound
        [ "$DEVICE" = sim ] || break
    done
}

@test "kept blocks stay kept while a stream is captured, since a capture accepts no free of earlier memory" {
    requires sim cc
    build_probe captured <<'END'
int main(void)
{
    void *first = new_span(1, NULL), *small[16], *again;
    cudaMemPool_t pool;
    cudaStream_t stream;
    cudaGraph_t graph;
    size_t nodes = 0;
    unsigned long long all = ~0ull;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 16; i++) CHECK(cudaMallocAsync(&small[i], 512, stream));
    for (int i = 0; i < 16; i++) CHECK(cudaFreeAsync(small[i], stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(cudaMemsetAsync(first, 2, span_size(), stream));
    CHECK(cudaMemPoolTrimTo(pool, 0));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphGetNodes(graph, NULL, &nodes));
    EXPECT(nodes == 1);
    CHECK(cudaMallocAsync(&again, 512, stream));
    CHECK(cudaFreeAsync(again, stream));
    CHECK(cudaMemPoolTrimTo(pool, 0));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFree(first));
    CHECK(cudaDeviceSynchronize());
    puts("ok");
    return 0;
}
END
    run_probe captured
    goes_on
    sound untouched
    equal 17 "$(report small_kept)" "blocks that were kept"
    equal 0 "$(report small_lost)" "blocks that the driver would not have back"
    equal 16 "$(report small_given_back)" "blocks that went back"
}
