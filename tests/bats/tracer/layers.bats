#!/usr/bin/env bats
# A program's own information for Penstock: the annotation API from C, C++ and Python, with Penstock
# and without; pinned spans and idle ones; NVTX ranges through the injection library.
# tests/unit/tracer/test_layer_markers.c and test_nvtx_layers.c check the layer of a launch.

load ../../lib/helper
load ../../lib/small_trainer

setup() {
    helper_setup
    requires samples nvcc cc
}

# annotated COMPILER [OPTION]...: builds a program that uses every annotation, from two threads.
annotated() {
    "$@" -Wall -Wextra -Werror -I"$ROOT/include" -I"$TOOLKIT/include" -o annotated -L"$TOOLKIT/lib64" -pthread -lcudart
}
annotations() {
    cat <<'END'
#include <cuda_runtime_api.h>
#include <penstock/penstock.h>
#include <pthread.h>
#include <stdio.h>

static void *say_it(void *unused)
{
    (void)unused;
    penstock_layer_end();
    penstock_layer_begin("block", 3, PENSTOCK_DIRECTION_FORWARD);
    penstock_layer_begin(NULL, -1, PENSTOCK_DIRECTION_NONE);
    penstock_layer_end();
    penstock_step();
    penstock_layer_end();
    penstock_layer_end();
    return NULL;
}

int main(void)
{
    pthread_t thread;
    void *span = NULL;
    int here = 0;

    say_it(NULL); /* before the first CUDA call */
    printf("early %d\n", penstock_pin(&here));
    if (cudaMalloc(&span, 16 << 20) != cudaSuccess) return 1;
    if (pthread_create(&thread, NULL, say_it, NULL) != 0) return 1;
    pthread_join(thread, NULL);
    printf("pin %d", penstock_pin((char *)span + 12345));
    printf(" %d\n", penstock_pin(span));
    printf("hint %d\n", penstock_hint_idle(span));
    printf("unpin %d", penstock_unpin(span));
    printf(" %d", penstock_unpin(span));
    printf(" %d\n", penstock_unpin(span));
    printf("elsewhere %d %d %d\n", penstock_pin(&here), penstock_unpin(NULL), penstock_hint_idle((char *)span + (64 << 20)));
    cudaFree(span);
    printf("freed %d\n", penstock_pin(span));
    return 0;
}
END
}

@test "an annotated program runs with Penstock and without, and links no library for it" {
    local build
    for build in "gcc -std=c11 -x c -" "gcc -std=c11 -O2 -x c -" "g++ -std=c++17 -x c++ -" "gcc -fno-pie -no-pie -x c -"; do
        # shellcheck disable=SC2086 # words
        annotations | annotated $build
        run_sim ./annotated
        ended_with 0
        equal 'early -2|pin -2 -2|hint -2|unpin -2 -2 -2|elsewhere -2 -2 -2|freed -2' "$(paste -sd'|' <<<"$output")" "said without Penstock"
        run_penstock ./annotated
        ended_with 0
        equal 'early -2|pin 0 0|hint 0|unpin 0 0 -22|elsewhere -2 -2 -2|freed -2' "$(grep -v '^penstock: ' <<<"$output" | paste -sd'|')" "said with it"
        equal 2 "$(report user_pins)" "spans pinned"
        equal 1 "$(report idle_hints)" "hints"
    done
}

@test "the annotations work from Python" {
    requires python
    cat >said.py <<END
import sys
sys.path.insert(0, "$ROOT/scripts/command")
import penstock
with penstock.layer("block", 3, "forward"):
    with penstock.layer(None):
        pass
penstock.begin("block", 3, "backward")
penstock.end()
penstock.end()
penstock.step()
print(penstock.loaded(), penstock.pin(4096), penstock.unpin(4096), penstock.hint_idle(1 << 40))
END
    run_sim python3 said.py
    ended_with 0
    equal 'False -2 -2 -2' "$output"
    [ -z "$SANITIZER" ] || skip "a sanitizer's runtime has much to say about Python"
    run_penstock python3 said.py
    ended_with 0
    equal 'True -2 -2 -2' "$output"
}

# keeper CASE: twelve spans with room for eight, used in turn. Prints how often the driver's answer
# was that span 0 is off the device.
build_keeper() {
    build_probe libnv_keeper -I"$ROOT/include" <<'END'
#include <dlfcn.h>
#include <penstock/penstock.h>

/*
 * Asks the driver directly: the program has the name of a library of NVIDIA's, whose look-ups are
 * left alone.
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

static void use(void *span, int value)
{
    CHECK(cudaMemsetAsync(span, value, span_size(), 0));
    CHECK(cudaDeviceSynchronize());
}

int main(int argc, char **argv)
{
    enum { SPANS = 12, ROUNDS = 20 };
    const char *how = argc > 1 ? argv[1] : "";
    void *span[SPANS];
    int away = 0, in_time = 0;

    for (int i = 0; i < SPANS; i++) {
        CHECK(cudaMalloc(&span[i], span_size()));
        use(span[i], i);
        if (i == 0 && !strcmp(how, "pin")) EXPECT(penstock_pin(span[0]) == 0);
    }
    *(void **)&attribute_of = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuPointerGetAttribute");
    EXPECT(attribute_of);
    for (int round = 0; round < ROUNDS; round++) {
        if (!strcmp(how, "unpin") && round == 0) EXPECT(penstock_pin(span[0]) == 0);
        if (!strcmp(how, "unpin") && round == 1) EXPECT(penstock_unpin(span[0]) == 0);
        for (int i = 1; i < SPANS; i++) {
            use(span[i], i);
            away += on_host(span[0]);
        }
        use(span[0], 0);
        /* Just used: without a hint it would be the last to leave. */
        if (!strcmp(how, "hint")) EXPECT(penstock_hint_idle(span[0]) == 0);
        use(span[1], 1);
        use(span[2], 2);
        use(span[3], 3);
        for (int wait = 0; wait < 20 && !on_host(span[0]); wait++) usleep(1000);
        in_time += on_host(span[0]);
    }
    for (int i = 0; i < SPANS; i++) EXPECT(holds(span[i], i, 0));
    printf("away %d, soon %d\n", away > 0, in_time);
    puts("ok");
}
END
}
keep() { run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_TRACER=cupti PENSTOCK_GRACE=0 PENSTOCK_POLICY=lru "PENSTOCK_BUDGET=$((8 * PROBE_SPAN))" "PROBE_SPAN=$PROBE_SPAN" ./libnv_keeper "$@"; }

@test "a pinned span stays until it is unpinned" {
    build_keeper
    keep
    ended_with 0
    contains "$output" '^away 1, soon 0$' # without annotations it does leave
    keep unpin
    ended_with 0
    contains "$output" '^away 1, soon 0$'
    keep pin
    ended_with 0
    contains "$output" '^away 0, soon 0$'
    contains "$output" '^ok$'
    sound
}

@test "a span with an idle hint leaves first" {
    build_keeper
    keep hint
    ended_with 0
    contains "$output" '^ok$'
    at_least 18 "$(sed -nE 's/^away 1, soon ([0-9]+)$/\1/p' <<<"$output")" "rounds in which it left before those that were idle longer"
    sound
}

@test "NVTX ranges come to Penstock only where the settings ask for them" {
    local good
    good=$(plain | grep -v '^allocated')
    train PENSTOCK_LOG=info 'PENSTOCK_LAYERS=nvtx:layer *'
    right_results_beside_lines "$good"
    contains "$output" 'NVTX ranges mark layers'
    train PENSTOCK_LOG=info
    lacks "$output" 'NVTX ranges mark layers'
    train PENSTOCK_LOG=info PENSTOCK_LAYERS=api
    lacks "$output" 'NVTX ranges mark layers'
    # Another injection library keeps the ranges, and Penstock reports that it finds no layers.
    train PENSTOCK_LAYERS=nvtx: "NVTX_INJECTION64_PATH=$WORK/theirs.so"
    right_results_beside_lines "$good"
    said "PENSTOCK_LAYERS=nvtx:\* finds no layers: NVTX_INJECTION64_PATH=$WORK/theirs.so receives the program's NVTX ranges"
    lacks "$output" 'NVTX ranges mark layers'
}

right_results_beside_lines() { ended_with 0 && equal "$1" "$(grep -v '^penstock: ' <<<"$output")" "losses and gradients"; }
