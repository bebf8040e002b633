#!/usr/bin/env bats
# The free memory: cudaMemGetInfo's answer, programs that take it all to see how much there is, and
# how long freed memory is kept.

load ../../lib/helper
load ../../lib/small_trainer

setup() { helper_setup 60 && by_turn 2; }

build_meminfo() {
    build_probe meminfo <<'END'
#define COUNT 64

/* The figures make sense: the bytes in use and the free bytes fit the total. */
static size_t look(size_t used, const char *when)
{
    size_t free_bytes = 0, total = 0;

    CHECK(cudaMemGetInfo(&free_bytes, &total));
    if (free_bytes > total || used > total - free_bytes) {
        fprintf(stderr, "%s: %zu free and %zu used of %zu\n", when, free_bytes, used, total);
        exit(1);
    }
    return free_bytes;
}

int main(void)
{
    static void *span[COUNT];
    cudaStream_t stream;
    size_t at_start, with_all;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaFree(new_span(0, stream))); /* Penstock starts at the first allocation */
    CHECK(cudaStreamSynchronize(stream));
    at_start = look(0, "at the start");
    for (int i = 0; i < COUNT; i++) {
        span[i] = new_span(i, stream);
        look((i + 1) * span_size(), "while allocating");
    }
    with_all = look(COUNT * span_size(), "with all");
    EXPECT(with_all <= at_start);
    for (int i = 0; i < COUNT; i++) EXPECT(holds(span[i], i, stream));
    look(COUNT * span_size(), "after use");
    for (int i = 0; i < COUNT; i++) {
        CHECK(cudaFree(span[i]));
        look((COUNT - 1 - i) * span_size(), "while freeing");
    }
    CHECK(cudaStreamSynchronize(stream));
    /* Freed memory counts as free, although its pages may be kept. */
    EXPECT(look(0, "at the end") + span_size() >= at_start);
    puts("ok");
    return 0;
}
END
}

@test "free and used memory never exceed the total in cudaMemGetInfo, under every budget and guard" {
    requires cc
    build_meminfo
    run_sim "PROBE_SPAN=$PROBE_SPAN" ./meminfo
    goes_on
    local budget guard
    for budget in 0 "$PROBE_SPAN" $((20 * PROBE_SPAN)) $((63 * PROBE_SPAN)) $((64 * PROBE_SPAN)) 90% 100% auto unlimited; do
        for guard in host unmap; do
            run_probe meminfo PENSTOCK_BUDGET="$budget" PENSTOCK_GUARD=$guard
            goes_on
            said
        done
    done
}

# torch's cudaMallocAsync backend probes in this way how large a workspace of cuDNN's may be
# (cudnn.benchmark). It takes all free memory and gives it back unused. It asserts that the free
# bytes and its own (with small allocations, which are not spans) fit the device.
# TRIM=1: it empties its cache each time, as torch does. ASKS=N: it asks N more times, a fifth of a
# second apart, and gets the same answer each time. IDLE=1: it lives on for a while afterwards.
build_workspaces() {
    build_probe workspaces <<'END'
#include <unistd.h>
#define LAYERS 12
#define SMALL 8

int main(void)
{
    size_t least = getenv("ALL") ? strtoull(getenv("ALL"), NULL, 10) : 0; /* the least that must be available */
    static void *kept[LAYERS], *small[LAYERS][SMALL];
    size_t used = 0, small_bytes = span_size() / 32;
    cudaStream_t stream;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < LAYERS; i++) {
        size_t free_bytes = 0, total = 0;
        void *all, *workspace;

        for (int s = 0; s < SMALL; s++) {
            CHECK(cudaMallocAsync(&small[i][s], small_bytes, stream));
            used += small_bytes;
        }
        CHECK(cudaMallocAsync(&kept[i], span_size(), stream));
        CHECK(cudaMemsetAsync(kept[i], i, span_size(), stream));
        used += span_size();
        CHECK(cudaMemGetInfo(&free_bytes, &total));
        if (free_bytes + used > total) {
            fprintf(stderr, "layer %d: %zu free and %zu used of %zu\n", i, free_bytes, used, total);
            return 1;
        }
        size_t guess = free_bytes;
        while (guess && cudaMallocAsync(&all, guess, stream) == cudaErrorMemoryAllocation) {
            (void)cudaGetLastError();
            guess >>= 1;
        }
        EXPECT(guess >= least);
        if (guess) CHECK(cudaFreeAsync(all, stream));
        if (getenv("TRIM")) {
            cudaMemPool_t pool;
            CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
            CHECK(cudaMemPoolTrimTo(pool, 0));
        }
        CHECK(cudaMallocAsync(&workspace, span_size(), stream));
        CHECK(cudaMemsetAsync(workspace, 255, span_size(), stream));
        CHECK(cudaFreeAsync(workspace, stream));
    }
    for (int i = 0; i < LAYERS; i++) {
        EXPECT(holds(kept[i], i, stream));
        for (int s = 0; s < SMALL; s++) CHECK(cudaFreeAsync(small[i][s], stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    for (int i = getenv("ASKS") ? atoi(getenv("ASKS")) : 0; i > 0; i--) {
        size_t free_bytes = 0, total = 0;
        void *all;
        cudaMemPool_t pool;

        CHECK(cudaMemGetInfo(&free_bytes, &total));
        CHECK(cudaMallocAsync(&all, free_bytes, stream));
        CHECK(cudaFreeAsync(all, stream));
        CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
        CHECK(cudaMemPoolTrimTo(pool, 0));
        usleep(200000);
    }
    if (getenv("IDLE")) sleep(4);
    puts("ok");
    return 0;
}
END
}

@test "a program that takes all free memory and gives it back moves nothing while memory suffices" {
    requires cc sim
    build_workspaces
    # It does not start tracing either, which costs a little with each launch, and does not count as
    # demand.
    run_probe workspaces ALL=$((64 << 20)) CUDASIM_MEMORY=128MiB PENSTOCK_BUDGET=auto PENSTOCK_LOG=info
    goes_on
    lacks "$output" 'launches are traced'
    equal 0 "$(report evictions)" evictions
    at_most $((4 << 20)) "$(report peak_demand_bytes)" "bytes that the program needs"
    # The program takes more than the pages kept in any case. The pages that it gives back serve the
    # next of its twelve probes: each part of 256 KiB is made once.
    local all=$((768 * 4)) try
    # If the machine stands still for two seconds, the program seems to have stopped asking.
    for try in 1 2 3 4 5; do
        run_probe workspaces CUDASIM_MEMORY=768MiB PENSTOCK_BUDGET=auto TRIM=1 ASKS=14
        goes_on
        [ "$(ledger made.handles)" -gt $((all + 100)) ] || break
    done
    at_most "$(quiet_or $((2 * all)) $((all + 100)))" "$(ledger made.handles)" "parts that the driver made"
    # The pages go back to the driver when the program stops asking, even if it does nothing else.
    run_probe workspaces CUDASIM_MEMORY=768MiB PENSTOCK_BUDGET=auto TRIM=1 IDLE=1 CUDASIM_TRACE=trace
    goes_on
    at_least $((all - 100)) "$(grep -c ' cuMemRelease' trace)" "parts that were given back"
    # An odd budget in which everything fits.
    run_probe workspaces PENSTOCK_BUDGET=$((40 * PROBE_SPAN - 1)) ALL=$((20 * PROBE_SPAN))
    goes_on
    said
    equal 0 "$(report evictions)" evictions
}

@test "a program that takes all free memory gets true answers under pressure too, beside small allocations" {
    requires cc
    build_workspaces
    local budget
    for budget in $((7 * PROBE_SPAN)) $((9 * PROBE_SPAN + 4097)) $((12 * PROBE_SPAN)); do
        # The device then has only the room that small allocations take.
        run_probe workspaces PENSTOCK_BUDGET=$budget CUDASIM_MEMORY=$((budget / PROBE_SPAN * PROBE_SPAN + 4 * PROBE_SPAN))
        goes_on
        said
        counted evictions
        sound untouched
    done
}

@test "sizes of a step that peak at different times are made once, although more is held for that" {
    requires cc sim
    # One after the other: the program has one size at a time, and each freed span serves its own
    # size alone.
    build_probe sizes <<'END'
int main(void)
{
    for (int step = 0; step < 5; step++)
        for (size_t i = 0; i < 12; i++) {
            void *span;
            CHECK(cudaMallocAsync(&span, (64 + i) << 20, 0));
            CHECK(cudaMemsetAsync(span, 0, 64, 0));
            CHECK(cudaFreeAsync(span, 0));
        }
    CHECK(cudaDeviceSynchronize());
    puts("ok");
    return 0;
}
END
    run_probe sizes PENSTOCK_BUDGET=auto CUDASIM_TRACE=trace
    goes_on
    equal 60 "$(report allocations)" allocations
    # In parts of 64 pages of 4 KiB: each of 64 to 75 MiB once.
    equal $((12 * (64 + 75) / 2 * 4)) "$(grep -c ' cuMemCreate' trace)" "parts of pages that were made"
}

@test "for sizes that don't repeat hardly more than a quarter above the peak is held, though memory suffices" {
    requires cc sim jq
    # Each is larger than the one before, so no freed span serves. Most of their bytes are never
    # written.
    build_probe growing-sizes <<'END'
int main(void)
{
    void *lasting, *span;

    CHECK(cudaMallocAsync(&lasting, (size_t)4096 << 20, 0));
    for (size_t i = 0; i < 60; i++) {
        CHECK(cudaMallocAsync(&span, (100 + 2 * i) << 20, 0));
        CHECK(cudaMemsetAsync(span, 0, 64, 0));
        CHECK(cudaFreeAsync(span, 0));
        CHECK(cudaStreamSynchronize(0));
    }
    puts("ok");
    return 0;
}
END
    local most
    run_probe growing-sizes PENSTOCK_BUDGET=auto CUDASIM_MEMORY=24GiB CUDASIM_GRANULARITY=2097152
    goes_on
    equal $(((4096 + 218) << 20)) "$(report peak_demand_bytes)" "bytes in use at the most"
    # Plus 256 MiB, and two spans on their way: the excess goes when the next span has been made. At
    # half above the peak it would be at least 6.6 GiB; all of them together are 13.3 GiB.
    most=$(((4096 + 218) * 5 / 4 + 256 + 2 * 218))
    at_most $((most << 20)) "$(ledger peak.device)" "bytes that the device gave at the most"
}

@test "cudaMemGetInfo returns the bytes that the budget leaves" {
    requires cc
    build_probe left <<'END'
int main(void)
{
    size_t first, free_bytes, total;
    void *span = new_span(1, NULL);

    CHECK(cudaFree(span));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemGetInfo(&first, &total));
    EXPECT(first == 32 * span_size());
    span = new_span(1, NULL);
    CHECK(cudaMemGetInfo(&free_bytes, &total));
    EXPECT(free_bytes == 31 * span_size());
    puts("ok");
    return 0;
}
END
    run_probe left
    goes_on
    said
}

build_others() {
    build_probe others <<'END'
/* COUNT spans, freed or not; then LARGE MiB from CUDA, and spans again. */
int main(int argc, char **argv)
{
    EXPECT(argc == 4);
    int count = atoi(argv[1]), is_freed = !strcmp(argv[2], "freed");
    void *span[16], *large;
    size_t one = 1u << 20;

    for (int i = 0; i < count; i++) {
        CHECK(cudaMalloc(&span[i], one));
        CHECK(cudaMemset(span[i], i, one));
    }
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; is_freed && i < count; i++) CHECK(cudaFree(span[i]));
    cudaError_t result = cudaMalloc(&large, strtoull(argv[3], NULL, 10) << 20);
    EXPECT(result == (is_freed ? cudaSuccess : cudaErrorMemoryAllocation));
    for (int i = count; !is_freed && i < 8; i++) CHECK(cudaMalloc(&span[i], one));
    CHECK(cudaDeviceSynchronize());
    puts("ok");
    return 0;
}
END
}

@test "an allocation by CUDA larger than the budget gets the memory of freed spans" {
    requires cc sim
    build_others
    run_sim CUDASIM_MEMORY=16MiB ./others 4 freed 13
    goes_on
    local budget
    for budget in 4MiB 5000000 64MiB; do
        run_penstock CUDASIM_MEMORY=16MiB PENSTOCK_MIN_SPAN=65536 PENSTOCK_BUDGET=$budget PENSTOCK_RULES='plain size>=8MiB' ./others 4 freed 13
        goes_on
        said
    done
}

@test "an allocation by CUDA that can't be made room for leaves spans their memory" {
    requires cc sim
    build_others
    run_sim CUDASIM_MEMORY=16MiB ./others 2 live 15
    goes_on
    run_penstock CUDASIM_MEMORY=16MiB PENSTOCK_MIN_SPAN=65536 PENSTOCK_BUDGET=9MiB PENSTOCK_HOST_BUDGET=0 PENSTOCK_RULES='plain size>=10MiB' \
        ./others 2 live 15
    goes_on
    said
}
