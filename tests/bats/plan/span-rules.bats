#!/usr/bin/env bats
# PENSTOCK_RULES: no byte of an excluded span moves, under any policy. Checked by the driver's
# answer for each span's memory, and in the counters.
# tests/unit/policy/test_span_rules.c checks which rule decides.

load ../../lib/helper
load ../../lib/small_trainer

setup() {
    helper_setup
    requires samples cc
}

# sizes: eight spans of one size and four of twice that, used in turn with room for ten sixteenths
# of them. Prints how many of each size were ever found off the device.
build_sizes() {
    build_probe libnv_sizes <<'END'
#include <dlfcn.h>

/*
 * Asks the driver directly: the program has the name of a library of NVIDIA's. Such look-ups are
 * left alone where CUPTI alone traces.
 */
static CUresult (*attribute_of)(void *, CUpointer_attribute, CUdeviceptr);

static int on_host(const void *span)
{
    unsigned type = 0;

    /*
     * For a moment after its pages are released the addresses lead nowhere, and the driver does not
     * know them. The span is not on the device then either.
     */
    return attribute_of(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)span) != CUDA_SUCCESS || type == CU_MEMORYTYPE_HOST;
}

int main(void)
{
    enum { SPANS = 12, ROUNDS = 8 };
    void *span[SPANS];
    int away[SPANS] = {0}, big = 0, small = 0;

    *(void **)&attribute_of = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuPointerGetAttribute");
    EXPECT(attribute_of);
    for (int i = 0; i < SPANS; i++) CHECK(cudaMalloc(&span[i], i % 3 == 0 ? 2 * span_size() : span_size()));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < SPANS; i++) {
            CHECK(cudaMemsetAsync(span[i], i, span_size(), 0));
            CHECK(cudaDeviceSynchronize());
            for (int k = 0; k < SPANS; k++) away[k] |= on_host(span[k]);
        }
    }
    for (int i = 0; i < SPANS; i++) EXPECT(holds(span[i], i, 0));
    for (int i = 0; i < SPANS; i++) *(i % 3 == 0 ? &big : &small) += away[i];
    printf("big %d small %d\n", big, small);
    puts("ok");
}
END
}

# move [VARIABLE=VALUE]...: runs the program under Penstock with those settings.
move() {
    run_penstock PENSTOCK_TRACER=cupti PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_GRACE=0 "PENSTOCK_BUDGET=$((10 * PROBE_SPAN))" "PROBE_SPAN=$PROBE_SPAN" "$@" ./libnv_sizes
    ended_with 0 && contains "$output" '^ok$'
}

@test "spans that are excluded by size never leave, under each policy" {
    local policy rule
    build_sizes
    for policy in plan layers lru "$SAMPLES/policy_example.so"; do
        # Without a rule the big spans do leave: they were used in as many kernels as the others,
        # and larger ones go first.
        move "PENSTOCK_POLICY=$policy"
        contains "$output" '^big [1-4] small [0-8]$'
        for rule in "exclude size>=$((2 * PROBE_SPAN))" "include size<=$PROBE_SPAN" "exclude; include size<=$PROBE_SPAN" \
            "exclude nth=0-3 size>=$((2 * PROBE_SPAN))"; do
            move "PENSTOCK_POLICY=$policy" "PENSTOCK_RULES=$rule"
            contains "$output" '^big 0 small [1-8]$'
            equal $(($(report evictions) * PROBE_SPAN)) "$(report evicted_bytes)" "$policy, $rule: bytes moved out"
            equal $(($(report reloads) * PROBE_SPAN)) "$(report reloaded_bytes)" "$policy, $rule: bytes moved back"
            sound untouched
        done
    done
}

@test "spans that are excluded by order never leave, and others of their size do" {
    build_sizes
    move "PENSTOCK_RULES=exclude nth=1-3 size>=$((2 * PROBE_SPAN))"
    contains "$output" '^big 1 small [1-8]$'
    sound untouched
    # The smaller spans also have one of each number.
    move "PENSTOCK_RULES=exclude nth=0"
    contains "$output" '^big [1-3] small [1-7]$'
    sound untouched
}

@test "before a step is learnt no span moves that a rule may exclude" {
    local rule
    build_sizes
    for rule in 'exclude layer=3' 'exclude class=parameter' 'exclude birth=0' 'include class=activation'; do
        # Not all of it has to fit: a span that finds no device pages begins its life in host
        # memory.
        move "PENSTOCK_RULES=$rule"
        equal 0 "$(report evictions)" "$rule: evictions"
        equal 0 "$(report evicted_bytes)" "$rule: bytes moved out"
    done
    move 'PENSTOCK_RULES=exclude layer=3; include'
    counted evictions
}
