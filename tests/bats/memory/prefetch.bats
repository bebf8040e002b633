#!/usr/bin/env bats
# Without a plan evicted spans come back as soon as memory is free again, ahead of the launch that
# names them (shim/residency/prefetch.h), unless that was in vain.

load ../../lib/helper
load ../../lib/small_trainer

setup() { helper_setup 60; }

# Rounds of a training: 16 spans are filled, then used and freed in reverse order. 20 more spans
# stay; all of these are used every USED_EVERY rounds.
build_rounds() {
    build_probe rounds <<'END'
#define STAY 20
#define KEPT 16
#define ROUNDS 24

int main(void)
{
    int used_every = atoi(getenv("USED_EVERY"));
    void *stays[STAY], *kept[KEPT];
    cudaStream_t stream;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < STAY; i++) stays[i] = new_span(i, stream);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < KEPT; i++) {
            CHECK(cudaMallocAsync(&kept[i], span_size(), stream));
            CHECK(cudaMemsetAsync(kept[i], 100 + (round + i) % 100, span_size(), stream));
        }
        for (int i = KEPT; i-- > 0;) {
            EXPECT(holds(kept[i], 100 + (round + i) % 100, stream));
            CHECK(cudaFreeAsync(kept[i], stream));
            usleep(2000); /* a layer's backward */
        }
        for (int i = 0; (round + 1) % used_every == 0 && i < STAY; i++) {
            EXPECT(holds(stays[i], i + (round + 1) / used_every - 1, stream));
            CHECK(cudaMemsetAsync(stays[i], i + (round + 1) / used_every, span_size(), stream));
        }
    }
    for (int i = 0; i < STAY; i++) EXPECT(holds(stays[i], i + ROUNDS / used_every, stream));
    puts("ok");
    return 0;
}
END
}

# rounds USED_EVERY [VARIABLE=VALUE]...: runs them without a plan.
rounds() {
    local every=$1
    shift
    run_probe rounds PENSTOCK_POLICY=lru "USED_EVERY=$every" "$@"
    goes_on
    sound untouched
    at_most $((32 * PROBE_SPAN)) "$(report peak_resident_bytes)" "bytes held"
}

@test "evicted spans come back while memory is free, ahead of the launch that names them" {
    requires cc jq
    build_rounds
    local seed
    rounds 1
    # Four spans don't fit, and two more are kept free, 24 times.
    at_least 24 "$(report early_reloads)" "early reloads"
    equal "$(report reloads)" $(($(report early_reloads) + $(report demand_reloads))) "reloads of both kinds"
    [ "$DEVICE" != sim ] || for seed in 1 2 3 4 5; do
        rounds 1 CUDASIM_SCHED=seeded CUDASIM_SEED=$seed
        counted early_reloads
    done
}

@test "a span that came back in vain waits for the launch that names it next" {
    requires cc jq
    build_rounds
    rounds 24
    # Each span that stays comes back once, and an activation now and then. If those that came in
    # vain came again, it would be six a round, 144.
    at_most 40 "$(report early_reloads)" "early reloads"
    counted early_reloads
}

@test "an early reload that the driver refuses is made by the launch that names the span" {
    requires cc jq sim
    build_rounds
    local at
    for at in 25 40 60; do # counts copies in both directions
        rounds 1 CUDASIM_FAULT=cuMemcpyAsync:error@$at
        struck
        counted early_reloads
    done
}
