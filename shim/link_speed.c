#include "link_speed.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#include "budget.h"
#include "clock.h"
#include "device.h"
#include "eviction.h"
#include "gate.h"
#include "log.h"
#include "per_device.h"
#include "real_cuda.h"
#include "registry.h"

/* One copy of the measurement: long enough to drown its own start (32 MiB take 0.6 ms at 55 GB/s). */
#define COPY_BYTES (32ull << 20)
#define ROUNDS 5

/* What is taken when nothing can be measured: PCIe 5 x16 as on the target machine (FACTS). */
static PS_PER_DEVICE struct penstock_links first_speed = {
    .d2h_bytes_per_s = 55400000000u,
    .h2d_bytes_per_s = 55500000000u,
    .d2h_bytes_per_s_both = 50900000000u,
    .h2d_bytes_per_s_both = 52000000000u,
    /* From the end of a D2H: the helper thread wakes, unmaps, releases (measured on an H200: 60 to 150 us). */
    .evict_overhead_ns = 150000,
    /* Host mapping off, device pages made and mapped (FACTS: 165 us for 64 MiB). */
    .reload_overhead_ns = 250000,
};
#define speed PS_HERE(first_speed)

enum direction { OUT, IN, DIRECTIONS };

struct bench {
    CUdeviceptr base;
    size_t bytes;
    CUmemGenericAllocationHandle pages[2 * DIRECTIONS]; /* device, host of each direction */
    unsigned mapped;
    struct ps_pages held[DIRECTIONS];
    unsigned obtained;
    CUstream stream[DIRECTIONS];
};

static bool set_up(struct bench *b)
{
    for (; b->obtained < DIRECTIONS; b->obtained++) {
        ps_registry_lock();
        int r = ps_budget_obtain(b->bytes, false, &b->held[b->obtained]);
        ps_registry_unlock();
        if (r)
            return false;
    }
    if (ps_cu.cuMemAddressReserve(&b->base, 2 * DIRECTIONS * b->bytes, ps_device.granularity, 0, 0) != CUDA_SUCCESS)
        return false;
    for (; b->mapped < 2 * DIRECTIONS; b->mapped++) {
        bool host = b->mapped >= DIRECTIONS;
        if (host && ps_host_pages_create(b->bytes, &b->pages[b->mapped]))
            return false;
        CUmemGenericAllocationHandle pages = host ? b->pages[b->mapped] : b->held[b->mapped].block->handle;
        if (ps_pages_map(b->base + b->mapped * b->bytes, b->bytes, pages)) {
            if (host)
                ps_pages_release(pages);
            return false;
        }
    }
    for (int d = 0; d < DIRECTIONS; d++)
        if (ps_cu.cuStreamCreateWithPriority(&b->stream[d], CU_STREAM_NON_BLOCKING, 0) != CUDA_SUCCESS)
            return false;
    /* Pages are made at first use here and there, which is not to be timed; and what nobody wrote is not copied. */
    for (unsigned i = 0; i < b->mapped; i++)
        if (ps_cu.cuMemsetD32Async(b->base + i * b->bytes, 0, b->bytes / 4, b->stream[OUT]) != CUDA_SUCCESS)
            return false;
    return ps_cu.cuStreamSynchronize(b->stream[OUT]) == CUDA_SUCCESS;
}

static void clear_up(struct bench *b)
{
    for (int d = 0; d < DIRECTIONS; d++)
        if (b->stream[d]) {
            ps_cu.cuStreamSynchronize(b->stream[d]);
            ps_cu.cuStreamDestroy(b->stream[d]);
        }
    for (unsigned i = 0; i < b->mapped; i++) {
        ps_pages_unmap(b->base + i * b->bytes, b->bytes);
        if (i >= DIRECTIONS)
            ps_pages_release(b->pages[i]);
    }
    if (b->base)
        ps_cu.cuMemAddressFree(b->base, 2 * DIRECTIONS * b->bytes);
    for (unsigned i = 0; i < b->obtained; i++) {
        ps_registry_lock();
        ps_budget_return(&b->held[i]);
        ps_registry_unlock();
    }
}

static void queue(struct bench *b, enum direction d)
{
    CUdeviceptr device = b->base + d * b->bytes, host = b->base + (DIRECTIONS + d) * b->bytes;

    if (d == OUT)
        ps_gate_copy(b->stream[OUT], host, device, b->bytes); /* as evictions are */
    else
        ps_cu.cuMemcpyAsync(device, host, b->bytes, b->stream[IN]);
}

/* Bytes a second of each direction when `out` and `in` copies are queued at once and waited for. */
static uint64_t rate(struct bench *b, bool out, bool in)
{
    uint64_t begin = ps_now_ns();

    for (int i = 0; i < 2; i++) {
        if (out)
            queue(b, OUT);
        if (in)
            queue(b, IN);
    }
    if (out)
        ps_cu.cuStreamSynchronize(b->stream[OUT]);
    if (in)
        ps_cu.cuStreamSynchronize(b->stream[IN]);
    uint64_t ns = ps_now_ns() - begin;
    return ns ? (uint64_t)((double)(2 * b->bytes) * 1e9 / (double)ns) : 0;
}

static bool measure(struct bench *b)
{
    struct penstock_links best = {0};

    /* The best of a few: the program's own copies, and reloads that a launch asked for, are under way beside them. */
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t out = rate(b, true, false), in = rate(b, false, true), both = rate(b, true, true);
        if (out > best.d2h_bytes_per_s)
            best.d2h_bytes_per_s = out;
        if (in > best.h2d_bytes_per_s)
            best.h2d_bytes_per_s = in;
        if (both > best.d2h_bytes_per_s_both)
            best.d2h_bytes_per_s_both = best.h2d_bytes_per_s_both = both;
    }
    if (!best.d2h_bytes_per_s || !best.h2d_bytes_per_s || !best.d2h_bytes_per_s_both)
        return false;
    speed.d2h_bytes_per_s = best.d2h_bytes_per_s;
    speed.h2d_bytes_per_s = best.h2d_bytes_per_s;
    speed.d2h_bytes_per_s_both = best.d2h_bytes_per_s_both < best.d2h_bytes_per_s ? best.d2h_bytes_per_s_both : best.d2h_bytes_per_s;
    speed.h2d_bytes_per_s_both = best.h2d_bytes_per_s_both < best.h2d_bytes_per_s ? best.h2d_bytes_per_s_both : best.h2d_bytes_per_s;
    return true;
}

const struct penstock_links *ps_link_speed(bool measure_it)
{
    static PS_PER_DEVICE bool first_is_measured;
#define measured PS_HERE(first_is_measured)

    if (measure_it && !measured) {
        struct bench b = {.bytes = COPY_BYTES};
        size_t small = (ps_budget.limit / 64) & ~(ps_device.granularity - 1);
        if (small < b.bytes)
            b.bytes = small;
        bool well = false;
        measured = true;
        if (b.bytes && set_up(&b)) {
            /* Our own copies would halve what is measured (28 GB/s each way at once instead of 50, seen at a small budget). */
            ps_eviction_hold();
            well = measure(&b);
            ps_eviction_go_on();
        }
        clear_up(&b);
        ps_log_info(POLICY, "the link: %llu MB/s out, %llu in, %llu each way at once%s",
                    (unsigned long long)(speed.d2h_bytes_per_s / 1000000), (unsigned long long)(speed.h2d_bytes_per_s / 1000000),
                    (unsigned long long)(speed.d2h_bytes_per_s_both / 1000000), well ? "" : " (taken, not measured)");
    }
    return &speed;
}
