#!/usr/bin/env bats
# Programs whose device waits for an action of their own thread: no wait of Penstock's for the
# device may last forever.

load ../../lib/helper
load ../../lib/small_trainer

setup() { helper_setup 20; }

# A host function stands for a collective whose peer is this thread, or for a cuStreamWaitValue that
# it ends.
build_gated() {
    build_probe gated <<'END'
#include <semaphore.h>

static sem_t gate;

static void CUDART_CB wait_at_gate(void *unused) { sem_wait(&gate); }

int main(int argc, char **argv)
{
    size_t one = 1u << 20;
    cudaStream_t a, b;
    int count = argc == 2 ? 2 : 4;
    void *span[4], *other = NULL;

    sem_init(&gate, 0, 0);
    CHECK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    for (int i = 0; i < count; i++) {
        CHECK(cudaMallocAsync(&span[i], one, a));
        CHECK(cudaMemsetAsync(span[i], i, one, a));
    }
    CHECK(cudaStreamSynchronize(a));
    CHECK(cudaLaunchHostFunc(a, wait_at_gate, NULL));
    if (argc == 2) {
        int freed = atoi(argv[1]);

        /*
         * One of the two stays on its slot, because there are pages for one. Its next use may be on
         * the pages of the other, which has been freed.
         */
        CHECK(cudaMemcpyAsync(span[1], span[0], one, cudaMemcpyDeviceToDevice, a));
        CHECK(cudaFreeAsync(span[freed], a));
        CHECK(cudaMemsetAsync(span[!freed], 5, one, a));
    } else {
        for (int i = 0; i < count; i++) {
            CHECK(cudaMemsetAsync(span[i], 5, one, a));
            CHECK(cudaFreeAsync(span[i], a));
        }
        CHECK(cudaMallocAsync(&other, one / 2, b));
        CHECK(cudaMemsetAsync(other, 1, one / 2, b));
    }
    sem_post(&gate);
    CHECK(cudaDeviceSynchronize());
    puts("ok");
    return 0;
}
END
}

@test "a launch that can use pages once its slot is free waits briefly, not for its own thread" {
    requires sim cc
    build_gated
    local freed
    for freed in 0 1; do
        run_sim ./gated $freed
        goes_on
        run_penstock PENSTOCK_MIN_SPAN=65536 PENSTOCK_BUDGET=1MiB ./gated $freed
        goes_on
        sound
        said
        counted accesses_on_slot
        at_most 5000000000 "$(report host_wait_ns)" "time waited"
    done
}

@test "an allocation that only this thread's later action could serve goes on without pages" {
    requires sim cc
    LIMIT=60
    build_gated
    run_sim ./gated
    goes_on
    run_penstock PENSTOCK_MIN_SPAN=65536 PENSTOCK_BUDGET=4MiB ./gated
    goes_on
    sound
    said 'no eviction and no use of freed memory ended within 5 s'
    at_least 5000000000 "$(report host_wait_ns)" "time waited"
    at_most 12000000000 "$(report host_wait_ns)" "time waited" # with the launch that uses it, too
}
