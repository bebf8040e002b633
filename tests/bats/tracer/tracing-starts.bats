#!/usr/bin/env bats
# While memory is plentiful nothing is traced: how tracing starts later, and the rules until then.

load ../../lib/helper
load ../../lib/small_trainer

setup() { helper_setup 60; }

@test "under auto's budget tracing starts late, with hooks too" {
    requires sim
    local need
    need=$(share 100)
    train PENSTOCK_TRACER=hook PENSTOCK_BUDGET=auto PENSTOCK_RESERVE=$((need / 5)) CUDASIM_MEMORY=$((need * 9 / 10)) PENSTOCK_LOG=info
    right_results
    contains "$output" 'launches are traced from now on: three quarters'
    equal hook "$(report tracer)" tracer
    counted evictions
}

@test "late tracing waits for no work that waits for the program, and no span leaves before that work is over" {
    requires sim cc
    build_probe waits <<'END'
#include <stdatomic.h>
static atomic_int go;
static void CUDART_CB wait_for(void *nothing)
{
    (void)nothing;
    while (!atomic_load(&go)) usleep(1000);
}
int main(int count, char **ways)
{
    void *unseen, *memory[52], *more[24];
    cudaStream_t stream;
    unsigned char *seen;

    (void)count;
    CHECK(cudaMallocHost((void **)&seen, span_size()));
    unseen = new_span(7, NULL);
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaLaunchHostFunc(stream, wait_for, NULL));
    CHECK(cudaMemcpyAsync(seen, unseen, span_size(), cudaMemcpyDeviceToHost, stream));
    for (int i = 0; i < 52; i++) {
        if (*ways[1] == 'a')
            CHECK(cudaMalloc(&memory[i], span_size()));
        else
            CHECK(cudaMallocAsync(&memory[i], span_size(), NULL));
        CHECK(cudaMemsetAsync(memory[i], i, span_size(), NULL));
    }
    puts("allocated");
    atomic_store(&go, 1);
    for (int i = 0; i < 24; i++) more[i] = new_span(100 + i, NULL);
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(seen[0] == 7 && seen[span_size() - 1] == 7);
    for (int i = 0; i < 52; i++) EXPECT(holds(memory[i], i, NULL));
    for (int i = 0; i < 24; i++) EXPECT(holds(more[i], 100 + i, NULL));
    puts("ok");
    return 0;
}
END
    local way
    LIMIT=15
    for way in at-once in-order; do
        run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_RESERVE=$((8 * PROBE_SPAN)) CUDASIM_MEMORY=$((72 * PROBE_SPAN)) \
            PENSTOCK_LOG=info "PROBE_SPAN=$PROBE_SPAN" ./waits "$way"
        goes_on
        contains "$output" 'launches are traced from now on: three quarters'
        counted evictions
    done
}

@test "before tracing starts, memory freed in stream order goes to other streams only after its last use" {
    requires sim cc
    build_probe unseen <<'END'
static void CUDART_CB take_long(void *nothing)
{
    (void)nothing;
    usleep(300000);
}
int main(void)
{
    void *first, *second, *third, *begins;
    unsigned char *seen;
    cudaStream_t one, other;

    CHECK(cudaMallocHost((void **)&seen, span_size()));
    CHECK(cudaMalloc(&begins, span_size()));
    CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK(cudaMallocAsync(&first, span_size(), one));
    CHECK(cudaMemsetAsync(first, 7, span_size(), one));
    CHECK(cudaLaunchHostFunc(one, take_long, NULL));
    CHECK(cudaMemcpyAsync(seen, first, span_size(), cudaMemcpyDeviceToHost, one));
    CHECK(cudaFreeAsync(first, one));
    CHECK(cudaMalloc(&second, span_size()));
    CHECK(cudaMemsetAsync(second, 9, span_size(), other));
    CHECK(cudaDeviceSynchronize());
    EXPECT(seen[0] == 7 && seen[span_size() - 1] == 7);
    CHECK(cudaMalloc(&third, span_size()));
    printf("%s\nok\n", third == first ? "again" : "elsewhere");
    return 0;
}
END
    local budget
    for budget in auto unlimited 32MiB; do
        run_probe unseen PENSTOCK_BUDGET=$budget
        goes_on
        said
        [ $budget = 32MiB ] || contains "$output" '^again$'
    done
}
