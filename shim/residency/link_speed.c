#include "residency/link_speed.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/per_device.h"
#include "base/rank_exchange.h"
#include "cuda/copy_gate.h"
#include "cuda/device_memory.h"
#include "cuda/driver.h"
#include "memory/budget.h"
#include "memory/mapping_time.h"
#include "memory/registry.h"
#include "memory/shutdown.h"
#include "residency/eviction.h"
#include "residency/page_supply.h"

/*
 * The bytes of one copy, long enough that its start hardly counts (32 MiB take 0.6 ms at 55 GB/s).
 */
#define COPY_BYTES (32ull << 20)
#define ROUNDS 5
/*
 * The number of copies in a row where other ranks measure at the same time. A rank may be alone at
 * the link between rounds; beside this many copies, that time hardly counts.
 */
#define COPIES_BESIDE_PEERS 4u
#define MAPPINGS 31
/*
 * The time that a mapping takes longer in a step than with no other work. It waits for the current
 * piece of a D2H (copy_gate.h), and for other threads in the driver. (H200: 39 to 57 us alone.
 * Fitted: with 115 to 120 us in all, predictions are within 4.4 % of the measured steps. These were
 * a CNN, a compiled model and a Llama, at fifteen budgets.
 * tests/results/README.md#what-advise-predicts)
 */
#define BESIDE_OTHERS_NS 75000u
#define TRIES_MAX 3

/*
 * The figures used while nothing is measured: PCIe 5 x16, as on the target machine
 * (shim/README.md#the-link).
 */
static PS_PER_DEVICE struct penstock_links first_speed = {
    .d2h_bytes_per_s = 55400000000u,
    .h2d_bytes_per_s = 55500000000u,
    .d2h_bytes_per_s_both = 50900000000u,
    .h2d_bytes_per_s_both = 52000000000u,
    /*
     * After the D2H, the helper thread wakes, unmaps and releases (measured on an H200: 60 to 150
     * us).
     */
    .evict_overhead_ns = 150000,
    /*
     * The host pages are unmapped, device pages are made and mapped (165 us for 64 MiB,
     * shim/README.md#mapping-memory).
     */
    .reload_overhead_ns = 250000,
    .mapping_ns = 120000, /* as on the host of an H200 */
};
#define speed PS_HERE(first_speed)

enum direction { OUT, IN, DIRECTIONS };

struct bench {
    CUdeviceptr base;
    size_t bytes;
    uint32_t peers;    /* ranks that measure at the same time */
    unsigned meetings; /* with these ranks so far */
    unsigned copies;   /* copies of `bytes`, in each direction and round */
    /* First the device pages of each direction, then the host pages. */
    CUmemGenericAllocationHandle pages[2 * DIRECTIONS];
    unsigned mapped;
    struct ps_supply held[DIRECTIONS];
    unsigned obtained;
    CUstream stream[DIRECTIONS];
    CUevent go, begin[DIRECTIONS], end[DIRECTIONS];
};

/* One round of copies. Times are in ns by the device's clock, since both streams were let go. */
struct round {
    int64_t begin[DIRECTIONS], end[DIRECTIONS];
};

static bool set_up(struct bench *b)
{
    for (; b->obtained < DIRECTIONS; b->obtained++) {
        ps_registry_lock();
        int r = ps_page_supply_obtain(b->bytes, NULL, &b->held[b->obtained]);
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
        CUdeviceptr address = b->base + b->mapped * b->bytes;
        if (host ? ps_handle_map(address, b->bytes, b->pages[b->mapped])
                 : ps_pages_map(address, b->held[b->mapped].pages)) {
            if (host)
                ps_pages_release(b->pages[b->mapped]);
            return false;
        }
    }
    for (int d = 0; d < DIRECTIONS; d++)
        if (ps_cu.cuStreamCreateWithPriority(&b->stream[d], CU_STREAM_NON_BLOCKING, 0) != CUDA_SUCCESS)
            return false;
    CUevent *events[] = {&b->go, &b->begin[OUT], &b->begin[IN], &b->end[OUT], &b->end[IN]};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (ps_cu.cuEventCreate(events[i], CU_EVENT_DEFAULT) != CUDA_SUCCESS)
            return false;
    /*
     * Pages are made at their first use in places, and that time must not be measured. Bytes that
     * were never written are not copied.
     */
    for (unsigned i = 0; i < b->mapped; i++)
        if (ps_cu.cuMemsetD32Async(b->base + i * b->bytes, 0, b->bytes / 4, b->stream[OUT]) != CUDA_SUCCESS)
            return false;
    return ps_cu.cuStreamSynchronize(b->stream[OUT]) == CUDA_SUCCESS;
}

static bool is_at_rest(const struct bench *b)
{
    bool rests = true;

    for (int d = 0; d < DIRECTIONS; d++)
        rests &= !b->stream[d] || !ps_stream_host_wait(b->stream[d]);
    return rests;
}

/*
 * Two clocks: nothing is removed before all that is queued on both streams is over. If that can't
 * be known, everything stays, and the pages count as held.
 */
static bool clear_up(struct bench *b)
{
    if (!is_at_rest(b))
        return false;
    for (int d = 0; d < DIRECTIONS; d++)
        if (b->stream[d])
            ps_cu.cuStreamDestroy(b->stream[d]);
    CUevent events[] = {b->go, b->begin[OUT], b->begin[IN], b->end[OUT], b->end[IN]};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (events[i])
            ps_cu.cuEventDestroy(events[i]);
    for (unsigned i = 0; i < b->mapped; i++) {
        ps_pages_unmap(b->base + i * b->bytes, b->bytes);
        if (i >= DIRECTIONS)
            ps_pages_release(b->pages[i]);
    }
    if (b->base)
        ps_cu.cuMemAddressFree(b->base, 2 * DIRECTIONS * b->bytes);
    for (unsigned i = 0; i < b->obtained; i++) {
        ps_registry_lock();
        ps_page_supply_return(&b->held[i]);
        ps_registry_unlock();
    }
    return true;
}

static bool queue(struct bench *b, enum direction d)
{
    CUdeviceptr device = b->base + d * b->bytes, host = b->base + (DIRECTIONS + d) * b->bytes;

    /*
     * Evictions are queued in this way. Reloads go on meanwhile. The copy is in one piece, or
     * reloads would get a turn at each look at the gate. (Two processes on two H100: 18 to 32 GB/s
     * instead of 48.)
     */
    return !(d == OUT ? ps_copy_gate_copy(b->stream[OUT], PS_COPY_GATE_OUT, host, device, b->bytes)
                      : ps_cuda_errno(ps_cu.cuMemcpyAsync(device, host, b->bytes, b->stream[IN])));
}

/*
 * Two clocks: the first direction's copies stand behind a look at the gate until all are queued.
 * The second direction's copies stand behind an event after that look. Events time both. The host
 * may take longer to queue a copy than the device to make it. If the launching thread is blocked in
 * a full queue, each of our calls waits for that. Timed by the host's clock, the two directions
 * then came one after the other.
 */
static bool queue_all(struct bench *b, enum direction first, enum direction last)
{
    bool well = ps_cu.cuEventRecord(b->go, b->stream[first]) == CUDA_SUCCESS;
    for (enum direction d = first; well && d <= last; d++)
        well = (d == first || ps_cu.cuStreamWaitEvent(b->stream[d], b->go, 0) == CUDA_SUCCESS) &&
               ps_cu.cuEventRecord(b->begin[d], b->stream[d]) == CUDA_SUCCESS;
    for (unsigned copy = 0; copy < b->copies; copy++)
        for (enum direction d = first; well && d <= last; d++)
            well = queue(b, d);
    for (enum direction d = first; well && d <= last; d++)
        well = ps_cu.cuEventRecord(b->end[d], b->stream[d]) == CUDA_SUCCESS;
    return well;
}

/*
 * Other ranks measure at the same time as this one, since during the run they copy beside each
 * other. The ranks meet once before the first round. They meet again in each round, once its copies
 * are queued. The host's time to queue copies differs by tens of ms between two ranks. (On two
 * H100, one of two measurements found 44 GB/s to the device, where each gets 28.)
 *
 * Two clocks: the host waits while the copies stand behind the gate. Without a gate, the copies are
 * under way by then.
 */
static void meet_peers(struct bench *b)
{
    const struct ps_rank_exchange_key key = {PS_RANK_EXCHANGE_LINK, ps_address_device(ps_registry.start), 0,
                                             b->meetings};

    if (b->peers || !b->meetings)
        b->peers = ps_rank_exchange_exchange(key, NULL, 0, ps_shutdown_asked, NULL, NULL);
    b->meetings++;
}

/*
 * Runs one round in one direction, or in both at once. Returns false if a call failed, or if both
 * directions did not begin together.
 */
static bool run(struct bench *b, enum direction first, enum direction last, struct round *round)
{
    const bool held = ps_copy_gate_hold(b->stream[first]);
    bool well = queue_all(b, first, last);

    meet_peers(b);
    /* The gate is never shut for long. */
    const bool late = well && held && ps_cu.cuEventQuery(b->go) != CUDA_ERROR_NOT_READY;

    if (held)
        ps_copy_gate_let_go();
    for (enum direction d = first; d <= last; d++)
        well = ps_cu.cuStreamSynchronize(b->stream[d]) == CUDA_SUCCESS && well;
    for (enum direction d = first; well && d <= last; d++)
        well = !ps_cuda_elapsed_ns(b->go, b->begin[d], &round->begin[d]) &&
               !ps_cuda_elapsed_ns(b->go, b->end[d], &round->end[d]) && round->end[d] > round->begin[d];
    return well && (first == last || !late); /* one direction alone may be late */
}

static uint64_t a_second(double bytes, int64_t ns)
{
    return bytes > 0 && ns > 0 ? (uint64_t)(bytes * 1e9 / (double)ns) : 0;
}

static uint64_t alone(struct bench *b, enum direction d)
{
    struct round round;

    return run(b, d, d, &round) ? a_second((double)b->bytes * b->copies, round.end[d] - round.begin[d]) : 0;
}

/*
 * Finds the rate of each direction while the other is busy too. Bytes carried before the other
 * direction began, or after it ended, are left out.
 */
static bool both_at_once(struct bench *b, const uint64_t alone[DIRECTIONS], uint64_t both[DIRECTIONS])
{
    struct round r;

    if (!run(b, OUT, IN, &r))
        return false;
    const int64_t from = r.begin[OUT] > r.begin[IN] ? r.begin[OUT] : r.begin[IN],
                  to = r.end[OUT] < r.end[IN] ? r.end[OUT] : r.end[IN];
    for (int d = 0; d < DIRECTIONS; d++) {
        const double outside = (double)(from - r.begin[d] + r.end[d] - to) * (double)alone[d] / 1e9;
        both[d] = a_second((double)b->bytes * b->copies - outside, to - from);
        if (both[d] > alone[d])
            both[d] = alone[d];
    }
    return both[OUT] && both[IN];
}

/* The rates of a round, in bytes/s. */
struct rates {
    uint64_t of[DIRECTIONS];
};

static int by_sum(const void *a, const void *b)
{
    const struct rates *one = a, *other = b;
    const uint64_t sum = one->of[OUT] + one->of[IN], other_sum = other->of[OUT] + other->of[IN];

    return (sum > other_sum) - (sum < other_sum);
}

/*
 * Returns the index of the round to use, of `rounds` in ascending order. Without peers it is the
 * best one. In the others, the program's own copies, and reloads for launches, are under way too.
 * With peers it is the median, since in the best rounds some peers were at rest.
 */
static unsigned which_of(const struct bench *b, unsigned rounds)
{
    return b->peers ? rounds / 2 : rounds - 1;
}

static bool measure(struct bench *b)
{
    uint64_t rate[DIRECTIONS][ROUNDS], best[DIRECTIONS];
    struct rates both[ROUNDS];
    unsigned rounds = 0;

    for (int round = 0; round < ROUNDS; round++)
        for (enum direction d = OUT; d < DIRECTIONS; d++)
            rate[d][round] = alone(b, d);
    for (enum direction d = OUT; d < DIRECTIONS; d++) {
        qsort(rate[d], ROUNDS, sizeof *rate[d], ps_by_ns);
        best[d] = rate[d][which_of(b, ROUNDS)];
    }
    for (int round = 0; round < ROUNDS && best[OUT] && best[IN]; round++)
        rounds += both_at_once(b, best, both[rounds].of);
    if (!rounds)
        return false;
    qsort(both, rounds, sizeof *both, by_sum);
    const uint64_t *best_both = both[which_of(b, rounds)].of;
    speed.d2h_bytes_per_s = best[OUT];
    speed.h2d_bytes_per_s = best[IN];
    speed.d2h_bytes_per_s_both = best_both[OUT];
    speed.h2d_bytes_per_s_both = best_both[IN];
    return true;
}

/*
 * Measures how long the host takes to unmap device pages and to map them again. This is for links
 * where mapping_time.h has no figure. The median is used, since a call may wait for one of the
 * program's in the driver.
 */
static bool measure_mapping(struct bench *b)
{
    uint64_t took[MAPPINGS];

    if (!is_at_rest(b)) /* the last round may have failed */
        return false;
    for (size_t i = 0; i < MAPPINGS; i++) {
        const uint64_t since = ps_now_ns();
        if (ps_pages_unmap(b->base, b->bytes) || ps_pages_map(b->base, b->held[0].pages))
            return false;
        took[i] = ps_now_ns() - since;
    }
    qsort(took, MAPPINGS, sizeof *took, ps_by_ns);
    speed.mapping_ns = took[MAPPINGS / 2] + BESIDE_OTHERS_NS;
    ps_log_info(POLICY, "a mapping of %llu KiB takes %llu us, at best %llu", (unsigned long long)(b->bytes >> 10),
                (unsigned long long)(took[MAPPINGS / 2] / 1000), (unsigned long long)(took[0] / 1000));
    return true;
}

const struct penstock_links *ps_link_speed(bool measure_it)
{
    /*
     * A helper thread gets no pages while the program waits for some. Then a later plan has the
     * link measured.
     */
    static PS_PER_DEVICE unsigned first_tries;
#define tries PS_HERE(first_tries)

    if (measure_it && tries < TRIES_MAX) {
        struct bench b = {.bytes = COPY_BYTES};
        size_t small = (ps_budget.limit / 64) & ~(ps_reservation.granularity - 1);
        if (small < b.bytes)
            b.bytes = small;
        bool well = false;
        tries++;
        if (b.bytes && set_up(&b)) {
            meet_peers(&b);
            b.copies = b.peers ? COPIES_BESIDE_PEERS : 1;
            /*
             * Our own copies would halve the result. (At a small budget: 28 GB/s each way at once
             * instead of 50.)
             */
            ps_eviction_hold(false);
            ps_copy_gate_stay_open(true);
            well = measure(&b);
            ps_copy_gate_stay_open(false);
            if (ps_mapping_time_ns())
                speed.mapping_ns = ps_mapping_time_ns() + BESIDE_OTHERS_NS;
            else
                well = well && measure_mapping(&b);
            ps_eviction_go_on(false);
        }
        if (!clear_up(&b) || well)
            tries = TRIES_MAX;
        ps_log_info(POLICY, "the link: %llu MB/s out, %llu in, at once %llu and %llu%s%s",
                    (unsigned long long)(speed.d2h_bytes_per_s / 1000000),
                    (unsigned long long)(speed.h2d_bytes_per_s / 1000000),
                    (unsigned long long)(speed.d2h_bytes_per_s_both / 1000000),
                    (unsigned long long)(speed.h2d_bytes_per_s_both / 1000000),
                    b.peers ? ", while other ranks measured theirs" : "", well ? "" : " (taken, not measured)");
    }
    return &speed;
}
