#include "memory/registry.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/host_memory.h"
#include "base/log.h"
#include "base/per_device.h"
#include "base/policies.h"
#include "cuda/driver.h"
#include "memory/blocks.h"
#include "memory/size_classes.h"
#include "memory/slab.h"

PS_PER_DEVICE struct ps_registry_state ps_first_registry;

#define LARGEST_RESERVATION (16ull << 40)
#define SMALLEST_RESERVATION (64ull << 20)

static struct ps_span *_Atomic *map_of(uint64_t units)
{
    void *map = mmap(NULL, units * sizeof(struct ps_span *), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return map == MAP_FAILED ? NULL : map;
}

/*
 * Reserves the addresses. They cost nothing on a GPU (1 TiB: 9 us, shim/README.md#mapping-memory).
 * A smaller address space (a sanitizer's) gives fewer.
 */
static int reserve(size_t granularity, unsigned areas)
{
    struct ps_reservation *r = &ps_reservation;
    uint64_t bytes = ps_host_memory_addresses(LARGEST_RESERVATION);
    unsigned area_log = 0; /* logarithm of the number of areas */
    CUresult result;

    do {
        result = ps_cu.cuMemAddressReserve(&r->base, bytes, granularity, 0, 0);
    } while (result != CUDA_SUCCESS && (bytes /= 2) >= SMALLEST_RESERVATION);
    if (result != CUDA_SUCCESS)
        return ps_cuda_errno(result);
    while (1u << area_log < areas)
        area_log++;
    r->granularity = granularity;
    r->unit_shift = (unsigned)__builtin_ctzll(granularity);
    r->area_shift = (unsigned)__builtin_ctzll(bytes) - area_log;
    r->map = map_of(bytes >> r->unit_shift);
    if (!r->map) {
        ps_cu.cuMemAddressFree(r->base, bytes);
        return -ENOMEM;
    }
    /* This comes last: ps_address_is_a_spans is true from here on. */
    atomic_store_explicit(&r->reserved, bytes, memory_order_release);
    return 0;
}

int ps_registry_open(size_t granularity, unsigned areas, unsigned area)
{
    struct ps_registry_state *r = &ps_registry;
    int error = 0;

    TAILQ_INIT(&r->idle_order);
    TAILQ_INIT(&r->cached);
    TAILQ_INIT(&r->draining);
    TAILQ_INIT(&r->unused);
    ps_registry_lock_open();

    if (!ps_reservation.reserved)
        error = reserve(granularity, areas);
    if (error)
        return error;
    const uint64_t bytes = 1ull << ps_reservation.area_shift;
    if (granularity > ps_reservation.granularity)
        return -EINVAL;
    if ((area + 1) * bytes > ps_reservation.reserved)
        return -ENOSPC;
    r->start = r->highest = ps_reservation.base + area * bytes;
    return ps_address_space_init(&r->addresses, r->start, bytes);
}

void ps_registry_disown(void)
{
    ps_reservation.reserved = 0;
}

struct ps_span *ps_registry_live_at(CUdeviceptr address)
{
    struct ps_span *span = ps_address_span(address);

    return span && span->life == PS_LIFE_LIVE ? span : NULL;
}

struct ps_span *ps_registry_numbered(uint64_t number)
{
    /* Structures are never freed, so this pointer stays readable. */
    struct ps_span *span = (struct ps_span *)(uintptr_t)(number & 0xFFFFFFFFFFFFu);

    return span && span->number == number && span->life == PS_LIFE_LIVE ? span : NULL;
}

struct ps_span *ps_registry_next(CUdeviceptr address)
{
    for (; address < ps_registry.highest; address += ps_reservation.granularity) {
        struct ps_span *span = ps_address_span(address);
        if (span)
            return span;
    }
    return NULL;
}

struct ps_span *ps_registry_next_settled(CUdeviceptr *from, bool only_live)
{
    struct ps_span *span;

    while ((span = ps_registry_next(*from))) {
        const CUdeviceptr address = span->address, behind = address + span->bytes;
        const bool is_wanted = !only_live || span->life == PS_LIFE_LIVE;
        while (is_wanted && span->busy)
            ps_registry_wait_changed(1000000000u);
        if (is_wanted && (ps_address_span(address) != span || span->address != address))
            continue;
        *from = behind;
        if (is_wanted)
            break;
    }
    return span;
}

static void map_set(const struct ps_span *span, struct ps_span *value)
{
    uint64_t first = (span->address - ps_reservation.base) >> ps_reservation.unit_shift;

    for (uint64_t i = 0; i < span->bytes >> ps_reservation.unit_shift; i++)
        atomic_store_explicit(&ps_reservation.map[first + i], value, memory_order_release);
}

uint64_t ps_registry_count_birth(size_t bytes)
{
    return ps_registry.counts_births ? ps_size_class_count_birth(bytes) : PS_SPAN_UNKNOWN_NTH;
}

static void count_in(struct ps_span *span, size_t requested)
{
    static _Atomic uint64_t lives_begun;
    struct ps_registry_state *r = &ps_registry;
    /* A piece's birth then counts as the block's birth. */
    const struct ps_block *block = ps_block_whole(span);
    uint64_t lives = (span->number >> 48) + 1;

    span->number = (uint64_t)(uintptr_t)span | lives << 48;
    span->buffer_id = 1 + atomic_fetch_add_explicit(&lives_begun, 1, memory_order_relaxed);
    span->plan.move = 0;
    span->plan.due = 0;
    span->requested = requested;
    span->returns.left = span->returns.stays_until = span->returns.bounces = span->returns.stays = 0;
    span->grace.known = span->access.is_shared = false;
    const size_t wanted = ps_address_rounded(requested);
    span->plan.nth = block ? block->nth : ps_registry_count_birth(wanted);
    span->holds.excluded =
        !ps_policies_may_move(&(struct ps_span_facts){.bytes = block ? block->bytes : wanted, .nth = span->plan.nth});
    r->live_spans++;
    r->live_bytes += span->bytes;
    r->padding_bytes += span->bytes - wanted;
    r->live_requested += (requested + 511) & ~(size_t)511;
    const uint64_t demand = r->live_bytes - r->padding_bytes;
    if (demand > r->only_asked_bytes && demand - r->only_asked_bytes > r->peak_live_bytes)
        r->peak_live_bytes = demand - r->only_asked_bytes;
    if (r->live_requested > r->peak_live_requested)
        r->peak_live_requested = r->live_requested;
    if (r->live_bytes + r->cached_bytes > r->peak_reserved_bytes)
        r->peak_reserved_bytes = r->live_bytes + r->cached_bytes;
}

CUdeviceptr ps_registry_take_addresses(size_t bytes)
{
    /* So the address behind a span is no other span's (ps_address_meant). */
    const CUdeviceptr apart = ps_address_space_take_apart(&ps_registry.addresses, bytes, ps_reservation.granularity);

    return apart ? apart : ps_address_space_take(&ps_registry.addresses, bytes);
}

void ps_registry_give_addresses(CUdeviceptr address, size_t bytes)
{
    if (ps_address_space_give(&ps_registry.addresses, address, bytes))
        ps_log_warn_once(
            REGISTRY,
            "an address range could not be returned to the free addresses; it stays unused; nothing needs to be done");
}

static void note_highest(const struct ps_span *span)
{
    if (span->address + span->bytes > ps_registry.highest)
        ps_registry.highest = span->address + span->bytes;
}

/* Returns a structure for a new span. `address` 0: any address. */
static struct ps_span *new_structure(CUdeviceptr address, size_t bytes)
{
    struct ps_registry_state *r = &ps_registry;
    struct ps_span *span = TAILQ_FIRST(&r->unused);

    if (span)
        TAILQ_REMOVE(&r->unused, span, listed);
    else if ((span = calloc(1, sizeof *span)))
        span->device = ps_address_device(r->start);
    else
        return NULL;

    if (!address)
        address = ps_registry_take_addresses(bytes);
    if (!address) {
        TAILQ_INSERT_HEAD(&r->unused, span, listed);
        return NULL;
    }
    /*
     * These outlive a life: the event, the number, and the count of launches that named these
     * addresses by accident. Those launches are about to take their mark back.
     */
    const size_t kept = offsetof(struct ps_span, address);
    const struct ps_span fresh = {.address = address,
                                  .bytes = bytes,
                                  .order.fence = span->order.fence,
                                  .number = span->number,
                                  .holds.launching = span->holds.launching,
                                  .holds.idle = span->holds.idle,
                                  .access.launch = r->launch_number,
                                  .access.named = r->launch_number,
                                  .grace.since = r->launch_number};
    memcpy((char *)span + kept, (const char *)&fresh + kept, sizeof fresh - kept);
    note_highest(span);
    return span;
}

struct ps_span *ps_registry_new_unowned(size_t bytes)
{
    return new_structure(0, bytes);
}

static struct ps_span *begin_life(struct ps_span *span, struct ps_block *block, size_t requested)
{
    if (!span)
        return NULL;
    span->life = PS_LIFE_LIVE;
    atomic_store_explicit(&span->block, block, memory_order_relaxed);
    count_in(span, requested);
    map_set(span, span);
    return span;
}

struct ps_span *ps_registry_new(size_t bytes, size_t requested)
{
    return begin_life(new_structure(0, bytes), NULL, requested);
}

struct ps_span *ps_registry_new_piece(struct ps_block *block, CUdeviceptr address, size_t bytes, size_t requested)
{
    return begin_life(new_structure(address, bytes), block, requested);
}

void ps_registry_cache_unowned(struct ps_span *span)
{
    map_set(span, span);
    ps_registry_cache(span);
}

/* ---- freed spans that launches still use ---- */

static void await_no_more(struct ps_span *span)
{
    struct ps_registry_state *r = &ps_registry;
    uint32_t kept = 0;

    if (!span->freed.awaited_on)
        return;
    span->freed.awaited_on = NULL;
    for (uint32_t i = 0; i < r->awaiting_count; i++)
        if (r->awaiting[i] != span)
            r->awaiting[kept++] = r->awaiting[i];
    r->awaiting_count = kept;
}

/*
 * Launches after a free that may still use the span. Few come between the free and its kernel, such
 * as one that fills the result first.
 */
#define AWAITED_LAUNCHES 4

void ps_registry_await_launches(struct ps_span *span, struct ps_stream *stream)
{
    struct ps_registry_state *r = &ps_registry;

    if (r->awaiting_count == PS_AWAITING_MAX)
        await_no_more(r->awaiting[0]);
    span->freed.awaited_on = stream;
    span->freed.awaited = AWAITED_LAUNCHES;
    r->awaiting[r->awaiting_count++] = span;
}

void ps_registry_launched(const struct ps_stream *stream)
{
    struct ps_registry_state *r = &ps_registry;

    for (uint32_t i = r->awaiting_count; i-- > 0;) {
        struct ps_span *span = r->awaiting[i];
        if (span->freed.awaited_on != stream || --span->freed.awaited)
            continue;
        await_no_more(span);
        ps_registry_changed();
        if (span->life == PS_LIFE_DRAINING)
            ps_registry_call(PS_HELPER_EVICT);
    }
}

void ps_registry_delete(struct ps_span *span)
{
    struct ps_registry_state *r = &ps_registry;

    map_set(span, NULL);
    await_no_more(span);
    span->life = PS_LIFE_NONE;
    if (!span->placed)
        ps_registry_give_addresses(span->address, span->bytes);
    TAILQ_INSERT_HEAD(&r->unused, span, listed);
}

void ps_registry_move(struct ps_span *span, CUdeviceptr address, bool placed)
{
    map_set(span, NULL);
    if (!span->placed)
        ps_registry_give_addresses(span->address, span->bytes);
    span->address = address;
    span->placed = placed;
    map_set(span, span);
    note_highest(span);
}

static bool in_idle_order(const struct ps_span *span)
{
    return span->life == PS_LIFE_LIVE && (span->residency == PS_RESIDENT || span->residency == PS_RELOADING) &&
           span->has_pages;
}

void ps_registry_end_life(struct ps_span *span)
{
    struct ps_registry_state *r = &ps_registry;

    if (in_idle_order(span))
        TAILQ_REMOVE(&r->idle_order, span, listed);
    r->live_spans--;
    r->live_bytes -= span->bytes;
    r->padding_bytes -= span->bytes - ps_address_rounded(span->requested);
    r->live_requested -= (span->requested + 511) & ~(size_t)511;
    ps_block_piece_ends(span);
    atomic_store_explicit(&span->block, NULL, memory_order_relaxed);
}

void ps_registry_cache(struct ps_span *span)
{
    struct ps_registry_state *r = &ps_registry;

    span->life = PS_LIFE_CACHED;
    span->residency = PS_RESIDENT;
    span->has_class = false;
    if (!span->placed)
        ps_size_class_offer(span);
    r->cached_bytes += span->bytes;
    if (r->only_asked_bytes == span->bytes) {
        span->freed.period = 0;
        TAILQ_INSERT_HEAD(&r->cached, span, listed);
    } else {
        span->freed.period = r->period + 1;
        TAILQ_INSERT_TAIL(&r->cached, span, listed);
    }
}

#define WANTED_WITHIN_NS 30000000000u

bool ps_registry_is_unwanted(const struct ps_span *span)
{
    return !span->freed.period || span->freed.period + 1 <= ps_registry.period;
}

uint64_t ps_registry_unwanted(uint64_t now_ns, uint64_t at_most)
{
    struct ps_registry_state *r = &ps_registry;
    struct ps_span *span;
    uint64_t bytes = 0;

    /*
     * A free only notes the period: reading a clock there would cost a tenth of the free. A span
     * that was freed in the period before may have been freed a moment ago.
     */
    if (now_ns - r->period_began >= WANTED_WITHIN_NS) {
        r->period++;
        r->period_began = now_ns;
    }
    TAILQ_FOREACH (span, &r->cached, listed) {
        if (bytes >= at_most || !ps_registry_is_unwanted(span))
            break;
        bytes += span->bytes;
    }
    return bytes;
}

void ps_registry_set_placed(struct ps_span *span, bool placed)
{
    if (span->placed == placed)
        return;
    span->placed = placed;
    if (span->life == PS_LIFE_CACHED && placed)
        ps_size_class_withdraw(span);
    if (span->life == PS_LIFE_CACHED && !placed)
        ps_size_class_offer(span);
}

void ps_registry_cached_remove(struct ps_span *span)
{
    struct ps_registry_state *r = &ps_registry;

    await_no_more(span);
    ps_size_class_withdraw(span);
    TAILQ_REMOVE(&r->cached, span, listed);
    r->cached_bytes -= span->bytes;
}

uint32_t ps_registry_cached_count(size_t bytes)
{
    return ps_size_class_count(bytes);
}

static struct ps_span *take_out(struct ps_span *span)
{
    if (span)
        ps_registry_cached_remove(span);
    return span;
}

struct ps_span *ps_registry_cached_take(size_t bytes, const struct ps_stream *stream)
{
    return take_out(ps_size_class_find(bytes, bytes, stream));
}

struct ps_span *ps_registry_cached_take_ordered(size_t bytes, size_t at_most, const struct ps_stream *stream,
                                                bool for_any)
{
    return take_out(ps_size_class_find_ordered(bytes, at_most, stream, for_any));
}

struct ps_span *ps_registry_cached_take_at_once(size_t bytes)
{
    return take_out(ps_size_class_find_freed_at_once(bytes));
}

void ps_registry_revive(struct ps_span *span, size_t requested)
{
    span->life = PS_LIFE_LIVE;
    span->residency = PS_RESIDENT;
    span->holds.pinned = 0;
    span->hidden = false;
    span->holds.user_pins = 0;
    span->returns.is_early = span->returns.is_unwanted = false;
    span->access.launch = span->access.named = span->grace.since = ps_registry.launch_number;
    count_in(span, requested);
    TAILQ_INSERT_TAIL(&ps_registry.idle_order, span, listed);
}

void ps_registry_touch(struct ps_span *span)
{
    struct ps_registry_state *r = &ps_registry;

    span->access.launch = r->launch_number;
    span->access.count = r->access_number;
    span->returns.is_early = false;
    if (!in_idle_order(span) || TAILQ_LAST(&r->idle_order, ps_span_list) == span)
        return;
    TAILQ_REMOVE(&r->idle_order, span, listed);
    TAILQ_INSERT_TAIL(&r->idle_order, span, listed);
}

void ps_registry_hint_idle(struct ps_span *span)
{
    span->access.launch = 0;
    if (!in_idle_order(span))
        return;
    TAILQ_REMOVE(&ps_registry.idle_order, span, listed);
    TAILQ_INSERT_HEAD(&ps_registry.idle_order, span, listed);
}

/* Checks the invariants of one span. Returns the broken one, or NULL. */
static const char *broken(const struct ps_span *span)
{
    if (span->busy)
        return NULL; /* a thread is changing the span */
    if (ps_address_span(span->address) != span || ps_address_span(span->address + span->bytes - 1) != span)
        return "the map does not lead to it";
    switch (span->life) {
    case PS_LIFE_LIVE:
        if ((span->residency == PS_EVICTED) != !span->has_pages)
            return "evicted and pages disagree";
        if ((span->residency == PS_EVICTED) != (span->slot != NULL))
            return "evicted and slot disagree";
        if ((span->residency == PS_EVICTING) != (span->transfer != NULL))
            return "evicting and transfer disagree";
        if (span->has_pages && span->backing != PS_BACKING_DEVICE)
            return "has pages and is not mapped to them";
        if (!span->has_pages && span->backing == PS_BACKING_DEVICE)
            return "is mapped to pages that it does not have";
        if (span->residency == PS_RELOADING && !span->order.fence_set)
            return "reloading without a fence";
        if (span->slot && ps_slab_row_bytes(span->slot) != span->bytes)
            return "its slots don't add up to it";
        break;
    case PS_LIFE_CACHED:
        if (!span->has_pages || span->backing != PS_BACKING_DEVICE || span->slot || span->transfer)
            return "cached in disorder";
        break;
    case PS_LIFE_DRAINING:
        if (span->has_pages)
            return "a draining span with pages";
        break;
    case PS_LIFE_NONE:
        return "unused but listed";
    }
    return NULL;
}

bool ps_registry_is_valid(void)
{
    const struct ps_registry_state *r = &ps_registry;
    const struct ps_span_list *lists[] = {&r->idle_order, &r->cached, &r->draining};
    const struct ps_span *span, *previous = NULL;
    uint64_t cached = 0;
    bool valid = true;

    for (unsigned i = 0; i < 3; i++)
        TAILQ_FOREACH (span, lists[i], listed) {
            const char *what = broken(span);
            if (!what && i == 0 && !in_idle_order(span))
                what = "in the idle order and not idle";
            if (!what && i == 0 && previous && previous->access.launch > span->access.launch)
                what = "the idle order is out of order";
            if (!what) {
                if (i == 1)
                    cached += span->bytes;
                if (i == 0)
                    previous = span;
                continue;
            }
            ps_log_error(REGISTRY, "invariant broken: span of %zu bytes, life %d, residency %d: %s", span->bytes,
                         (int)span->life, (int)span->residency, what);
            valid = false;
        }
    if (cached != r->cached_bytes) {
        ps_log_error(REGISTRY, "invariant broken: cached bytes %llu, counted %llu", (unsigned long long)r->cached_bytes,
                     (unsigned long long)cached);
        valid = false;
    }
    return valid;
}
