#!/usr/bin/env bats
# Device pages that no span has any more: given back to the driver while memory suffices; while it is tight, the next spans' whatever their sizes are
# (shim/spare_pages.h), within the budget, and given back to whoever else wants memory.

load helper
load small_trainer

setup() { helper_setup 60; }

# Spans of several sizes that come and go in turn beside 20 that stay, so that each takes pages of others; what all of them hold is looked at.
build_sizes() {
    build_probe sizes <<'END'
#define STAY 20

/* So many spans' worth of bytes, of one value, looked at through one span at its end. */
static void *new_bytes(size_t bytes, int value, cudaStream_t stream)
{
    void *memory;
    CHECK(cudaMallocAsync(&memory, bytes, stream));
    CHECK(cudaMemsetAsync(memory, value, bytes, stream));
    return memory;
}

int main(void)
{
    static const int sizes[] = {3, 5, 2, 8, 1, 6, 4, 7};
    static void *stays[STAY];
    cudaStream_t stream;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < STAY; i++) stays[i] = new_span(i, stream);
    for (int round = 0; round < 12; round++)
        for (int i = 0; i < 8; i++) {
            size_t bytes = sizes[i] * span_size();
            char *first = new_bytes(bytes, 100 + i, stream), *second = new_bytes(bytes / 2, 120 + i, stream);
            EXPECT(holds(first + bytes - span_size(), 100 + i, stream));
            if (bytes / 2 >= span_size()) EXPECT(holds(second + bytes / 2 - span_size(), 120 + i, stream));
            CHECK(cudaFreeAsync(first, stream));
            CHECK(cudaFreeAsync(second, stream));
        }
    for (int i = 0; i < STAY; i++) EXPECT(holds(stays[i], i, stream));
    if (getenv("OTHERS")) { /* small ones are the real allocator's: as many as the device has room for beside what stays */
        size_t small = span_size() / 32, wanted = strtoull(getenv("OTHERS"), NULL, 10);
        void *other;
        for (size_t i = 0; i < wanted / small; i++) CHECK(cudaMalloc(&other, small));
    }
    CHECK(cudaDeviceSynchronize());
    puts("ok");
    return 0;
}
END
}

# in_spans KEY: of the report, in spans of the probe
in_spans() { echo $(($(report "$1") / PROBE_SPAN)); }

@test "while memory is tight spans are put together of what others had, within the budget" {
    requires cc jq
    build_sizes
    local budget reused
    for budget in 26 30 33; do
        run_probe sizes PENSTOCK_BUDGET=$((budget * PROBE_SPAN))
        goes_on
        said
        # 96 times some 6 spans' worth come and go; most of it are pages that were there.
        reused=$(in_spans pages_reused_bytes)
        at_least 100 "$reused" "spans' worth of pages that had been others'"
        at_most $((reused * 2)) "$(in_spans pages_given_back_bytes)" "spans' worth of pages that were given back"
        at_most $((budget * PROBE_SPAN)) "$(report peak_resident_bytes)" "bytes held"
        [ "$DEVICE" != sim ] || at_most $((budget * PROBE_SPAN)) "$(ledger peak.device)" "bytes on the device"
    done
}

@test "while memory suffices none is kept back" {
    requires cc jq
    build_sizes
    run_probe sizes PENSTOCK_BUDGET=$((200 * PROBE_SPAN))
    goes_on
    equal 0 "$(report pages_reused_bytes)" "bytes of pages that had been another span's"
    equal 0 "$(report evictions)" evictions
}

@test "what is spare goes back when the real allocator wants it" {
    requires cc sim
    build_sizes
    # Of the device's 36 spans' worth the program keeps 20; 14 are small allocations' at the end.
    run_probe sizes PENSTOCK_BUDGET=$((34 * PROBE_SPAN)) CUDASIM_MEMORY=$((36 * PROBE_SPAN)) OTHERS=$((14 * PROBE_SPAN))
    goes_on
    counted pages_reused_bytes
}
