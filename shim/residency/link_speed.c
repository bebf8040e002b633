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
 * One copy of the measurement: long enough to drown its own start (32 MiB take 0.6 ms at 55 GB/s).
 */
#define COPY_BYTES (32ull << 20)
#define ROUNDS 5
/*
 * So many one after the other where other ranks measure at the same time: what lies between rounds,
 * when a rank is alone at the link, is little against them.
 */
#define COPIES_BESIDE_PEERS 4u
#define MAPPINGS 31
/*
 * What a mapping takes longer in a step than with nothing beside it: it waits for the piece of a
 * D2H that is under way (copy_gate.h), and for who else is in the driver. (H200: 39 to 57 us alone.
 * Fitted: with 115 to 120 in all, predictions from the recordings of a CNN, a compiled model and a
 * Llama are within 4.4 % of what these took, at fifteen budgets.
 * tests/results/README.md#what-advise-predicts)
 */
#define BESIDE_OTHERS_NS 75000u
#define TRIES_MAX 3

/*
 * What is taken when nothing can be measured: PCIe 5 x16 as on the target machine
 * (shim/README.md#the-link).
 */
static PS_PER_DEVICE struct penstock_links first_speed = {
    .d2h_bytes_per_s = 55400000000u,
    .h2d_bytes_per_s = 55500000000u,
    .d2h_bytes_per_s_both = 50900000000u,
    .h2d_bytes_per_s_both = 52000000000u,
    /*
     * From the end of a D2H: the helper thread wakes, unmaps, releases (measured on an H200: 60 to
     * 150 us).
     */
    .evict_overhead_ns = 150000,
    /*
     * Host mapping off, device pages made and mapped (165 us for 64 MiB,
     * shim/README.md#mapping-memory).
     */
    .reload_overhead_ns = 250000,
    .mapping_ns = 120000, /* the host of an H200 */
};
#define speed PS_HERE(first_speed)

enum direction { OUT, IN, DIRECTIONS };

struct bench {
    CUdeviceptr base;
    size_t bytes;
    uint32_t peers;                                     /* who measure at the same time */
    unsigned meetings;                                  /* with them so far */
    unsigned copies;                                    /* of those bytes, each way in each round */
    CUmemGenericAllocationHandle pages[2 * DIRECTIONS]; /* device, host of each direction */
    unsigned mapped;
    struct ps_supply held[DIRECTIONS];
    unsigned obtained;
    CUstream stream[DIRECTIONS];
    CUevent go, begin[DIRECTIONS], end[DIRECTIONS];
};

/* A round of copies, by the device's clock, in ns from when both streams were let go. */
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
     * Pages are made at first use here and there, which is not to be timed; and what nobody wrote
     * is not copied.
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
 * Two clocks: nothing goes before what is queued on both streams is over. Where that can't be told
 * all of it stays, and the pages count as held.
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
     * As evictions are; and in one piece, since reloads, which go on meanwhile, would have their
     * turns at each look (18 to 32 GB/s instead of 48, seen with two processes on two H100).
     */
    return !(d == OUT ? ps_copy_gate_copy(b->stream[OUT], PS_COPY_GATE_OUT, host, device, b->bytes)
                      : ps_cuda_errno(ps_cu.cuMemcpyAsync(device, host, b->bytes, b->stream[IN])));
}

/*
 * Two clocks: the first direction's copies stand behind a look at the gate until all are queued,
 * the second's behind an event after it, and they are timed by events. The host may take longer to
 * queue a copy than the device to make it: where the launching thread stands in a full queue, each
 * call of ours waits for that. Timed by the host's clock, both directions then came one after the
 * other.
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
 * Other ranks measure when this one does, since that is how they will copy: beside each other. They
 * meet first of all and at each round, once its copies are queued: what the host takes to queue
 * some differs by tens of ms between two ranks (one of two measurements on two H100 found 44 GB/s
 * to the device, where 28 is what each gets). Two clocks: the host waits, while the copies stand
 * behind the gate; where there is none they are under way by then.
 */
static void meet_peers(struct bench *b)
{
    const struct ps_rank_exchange_key key = {PS_RANK_EXCHANGE_LINK, ps_address_device(ps_registry.start), 0,
                                             b->meetings};

    if (b->peers || !b->meetings)
        b->peers = ps_rank_exchange_exchange(key, NULL, 0, ps_shutdown_asked, NULL, NULL);
    b->meetings++;
}

/* One direction, or both at once. False: something failed, or both did not begin together. */
static bool run(struct bench *b, enum direction first, enum direction last, struct round *round)
{
    const bool held = ps_copy_gate_hold(b->stream[first]);
    bool well = queue_all(b, first, last);

    meet_peers(b);
    const bool late =
        well && held && ps_cu.cuEventQuery(b->go) != CUDA_ERROR_NOT_READY; /* the gate is never shut for long */

    if (held)
        ps_copy_gate_let_go();
    for (enum direction d = first; d <= last; d++)
        well = ps_cu.cuStreamSynchronize(b->stream[d]) == CUDA_SUCCESS && well;
    for (enum direction d = first; well && d <= last; d++)
        well = !ps_cuda_elapsed_ns(b->go, b->begin[d], &round->begin[d]) &&
               !ps_cuda_elapsed_ns(b->go, b->end[d], &round->end[d]) && round->end[d] > round->begin[d];
    return well && (first == last || !late); /* being late takes nothing but time */
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
 * What each direction reaches while the other is busy too: what it carries when the other is over
 * or has not begun is not of it.
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

/* What a round found, each way. */
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
 * Of rounds in order: the best, since the program's own copies, and reloads that a launch asked
 * for, are under way beside the others. But where other ranks measure too, the one in the middle:
 * in the best of those some were at rest.
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
 * Where that was not measured before (mapping_time.h): what it takes to unmap device pages and to
 * map them again, which is the host's time. The median, since a call that met one of the program's
 * in the driver waited for that.
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
     * A helper thread gets no pages while the program waits for some: then it is measured for a
     * later plan.
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
             * Our own copies would halve what is measured (28 GB/s each way at once instead of 50,
             * seen at a small budget).
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
