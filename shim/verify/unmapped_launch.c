#include "verify/unmapped_launch.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "cuda/capture.h"
#include "cuda/device_memory.h"
#include "cuda/driver.h"
#include "kernels/kernel_words.h"
#include "memory/blocks.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "memory/slab.h"
#include "residency/guard.h"

#define SETTLED_AFTER_NS 1000000000u

/*
 * Limits of the search through memory that parameters lead to: bytes of one piece, bytes in all,
 * number of pieces.
 */
#define PIECE_BYTES_MAX (64ull << 20)
#define LOOKED_BYTES_MAX (512ull << 20)
#define PIECES_MAX 256
#define BUFFER_BYTES (1u << 20)

struct unmapped {
    struct ps_span *span;
    uint64_t bytes, nth, born;
    CUdeviceptr address;
    enum ps_backing backing;
    bool reached;
};

static struct unmapped *unmapped; /* by ascending address */
static size_t unmapped_count, unmapped_capacity;

/*
 * Spans that the launch could reach, and that were not unmapped because they were in use recently.
 */
#define ALSO_MAX 4096
static struct unmapped also[ALSO_MAX];
static size_t also_count;

static struct {
    CUdeviceptr begin[PIECES_MAX];
    size_t count;
    uint64_t bytes;
    unsigned char *buffer;
} looked;

/* ---- settling ---- */

static void map_what_left(void)
{
    struct ps_span *span;

    for (CUdeviceptr a = ps_registry.start; (span = ps_registry_next(a)); a = span->address + span->bytes) {
        while (span->busy && span->life == PS_LIFE_LIVE)
            ps_registry_wait_changed(1000000u);
        if (span->life == PS_LIFE_LIVE && span->residency == PS_EVICTED)
            ps_guard_map_to_slot(span);
    }
}

/*
 * Waits for spans that a thread works on, or that are leaving. They could not be unmapped, and
 * another run might find them at rest; runs must be alike. Two clocks: the device has done all work
 * queued before. So a D2H is over soon, and each helper thread finishes its span by itself.
 * [locked; releases the lock meanwhile]
 */
static void wait_until_at_rest(void)
{
    const uint64_t since = ps_now_ns();
    struct ps_span *span;

    for (CUdeviceptr a = ps_registry.start; (span = ps_registry_next(a)); a = span->address + span->bytes)
        while (span->life == PS_LIFE_LIVE && (span->busy || span->residency == PS_EVICTING) &&
               ps_now_ns() - since < SETTLED_AFTER_NS)
            ps_registry_wait_changed(1000000u);
}

/*
 * Two clocks: each launch is waited for, so the one before has ended on the device. Evictions wait
 * only for their copies and for work on other streams. The host waits here, on no stream, for the
 * D2H and for the helper thread that unmaps.
 */
void ps_verify_settle(enum ps_guard guard)
{
    uint64_t since = ps_now_ns();

    ps_registry_lock();
    if (guard == PS_GUARD_HOST)
        ps_registry.blind_launches++; /* neither an eviction nor a reload begins */
    while (ps_budget.leaving && ps_now_ns() - since < SETTLED_AFTER_NS)
        ps_registry_wait_changed(1000000u);
    if (guard == PS_GUARD_HOST) {
        wait_until_at_rest();
        map_what_left();
    }
    ps_registry_unlock();
}

void ps_verify_go_on(enum ps_guard guard)
{
    if (guard != PS_GUARD_HOST)
        return;
    ps_registry_lock();
    ps_registry.blind_launches--;
    ps_registry_changed();
    ps_registry_unlock();
}

/* ---- what parameters lead to ---- */

static int by_address(const void *key, const void *element)
{
    CUdeviceptr address = *(const CUdeviceptr *)key;
    const struct unmapped *s = element;

    return address < s->address ? -1 : address >= s->address + s->bytes;
}

static struct unmapped as_it_is(struct ps_span *span)
{
    return (struct unmapped){.span = span,
                             .bytes = span->bytes,
                             .nth = span->plan.nth,
                             .born = span->plan.born,
                             .address = span->address,
                             .backing = span->backing};
}

static void note_also(CUdeviceptr word)
{
    for (size_t i = 0; i < also_count; i++)
        if (word - also[i].address < also[i].bytes)
            return;
    ps_registry_lock();
    struct ps_span *span = ps_registry_live_at(word);
    if (span && !span->holds.launching && also_count < ALSO_MAX)
        also[also_count++] = as_it_is(span);
    ps_registry_unlock();
}

static void mark_word(void *ctx, CUdeviceptr word, size_t bytes)
{
    struct unmapped *s = unmapped_count ? bsearch(&word, unmapped, unmapped_count, sizeof *unmapped, by_address) : NULL;

    (void)ctx, (void)bytes;
    if (s)
        s->reached = true;
    else
        note_also(word);
}

/* Finds the piece of memory that holds the address. Returns false if the device can't read it. */
static bool piece_at(CUdeviceptr address, CUdeviceptr *begin, size_t *bytes)
{
    size_t requested;

    if (ps_address_is_a_spans(address)) {
        ps_registry_lock();
        const struct ps_span *span = ps_registry_live_at(address);
        bool there = span && span->backing != PS_BACKING_NONE && !span->busy;
        if (there) {
            *begin = span->address;
            *bytes = span->bytes;
        }
        ps_registry_unlock();
        return there;
    }
    return ps_cu.cuMemGetAddressRange(begin, &requested, address) == CUDA_SUCCESS && (*bytes = requested) > 0;
}

/*
 * Searches the memory that a parameter's word leads to. A word that is no address lies in no piece
 * of memory.
 */
static void look_at_word(void *ctx, CUdeviceptr word, size_t of_parameter)
{
    CUdeviceptr begin = 0;
    size_t bytes = 0;

    (void)ctx, (void)of_parameter;
    if (word < 4096 || looked.count == PIECES_MAX || looked.bytes >= LOOKED_BYTES_MAX ||
        !piece_at(word, &begin, &bytes))
        return;
    for (size_t i = 0; i < looked.count; i++)
        if (looked.begin[i] == begin)
            return;
    looked.begin[looked.count++] = begin;
    bytes = bytes < PIECE_BYTES_MAX ? bytes : PIECE_BYTES_MAX;
    looked.bytes += bytes;
    for (size_t at = 0; at + 8 <= bytes; at += BUFFER_BYTES) {
        size_t part = bytes - at < BUFFER_BYTES ? bytes - at : BUFFER_BYTES;
        if (ps_cu.cuMemcpyAsync((CUdeviceptr)(uintptr_t)looked.buffer, begin + at, part, NULL) != CUDA_SUCCESS ||
            ps_cu.cuStreamSynchronize(NULL) != CUDA_SUCCESS)
            return;
        ps_words_of(ps_reservation.base, ps_reservation.reserved, looked.buffer, part, mark_word, NULL, NULL);
    }
}

static void look(CUfunction function, void **parameters, void **extra)
{
    looked.count = 0;
    looked.bytes = 0;
    if (!looked.buffer)
        looked.buffer = malloc(BUFFER_BYTES);
    if (looked.buffer && function)
        ps_kernel_words_between(0, UINT64_MAX, ps_layout_of(function), parameters, extra, look_at_word, NULL);
}

/* ---- stripping ---- */

/*
 * Returns whether a plan gives the span no grace. Launches have named such a span, and no kernel
 * can have kept its address. [locked]
 */
static bool leaves_at_once(const struct ps_span *span)
{
    return span->plan.mentioned != span->plan.born && ps_guard_sees_all(span, true);
}

/* [locked] */
static bool may_be_unmapped(const struct ps_verify_task *task, const struct ps_span *span, uint32_t grace)
{
    if (span->life != PS_LIFE_LIVE || span->busy || span->holds.launching || span->holds.pinned ||
        span->holds.user_pins || span->residency == PS_EVICTING)
        return false;
    if (ps_block_of(span))
        return false; /* an access that no call shows always finds a piece on its slot */
    return ps_registry.launch_number - span->access.named > (leaves_at_once(span) ? 0 : grace) &&
           ps_verify_task_wants(task, span);
}

/* [locked] */
static bool add(struct ps_span *span)
{
    struct unmapped *grown = ps_grown_array(unmapped, unmapped_count, &unmapped_capacity, 256, sizeof *grown);

    if (!grown)
        return false;
    unmapped = grown;
    unmapped[unmapped_count++] = as_it_is(span);
    return true;
}

/*
 * A unmapped span stays busy until ps_verify_remap. No helper thread moves it meanwhile, and a
 * thread of the program that needs it waits. No work that this launch waits for on its stream waits
 * for such a span.
 */
static void choose(const struct ps_verify_task *task, uint32_t grace)
{
    struct ps_span *span;

    unmapped_count = also_count = 0;
    ps_registry_lock();
    for (CUdeviceptr a = ps_registry.start; (span = ps_registry_next(a)); a = span->address + span->bytes)
        if (may_be_unmapped(task, span, grace) && add(span))
            span->busy = true;
    ps_registry_unlock();
}

size_t ps_verify_unmap_idle(const struct ps_verify_task *task, uint32_t grace, CUfunction function, void **parameters,
                            void **extra)
{
    /*
     * Two clocks: the host waits for the device, so that no queued work still uses spans that lose
     * their addresses. Another thread's capture begins before that wait or after it.
     */
    unmapped_count = also_count = 0;
    if (!ps_capture_keep_out())
        return 0;
    const CUresult result = ps_cu.cuCtxSynchronize();
    ps_capture_let_in();
    if (result != CUDA_SUCCESS)
        return 0;
    choose(task, grace);
    look(function, parameters, extra);
    for (size_t i = 0; i < unmapped_count; i++)
        if (unmapped[i].backing != PS_BACKING_NONE && ps_pages_unmap(unmapped[i].address, unmapped[i].bytes)) {
            ps_log_warn_once(RESIDENCY, "an idle span could not be unmapped: accesses to it are not "
                                        "found; `penstock verify --moved-only` does not need that");
            unmapped[i].backing = PS_BACKING_NONE;
        }
    return unmapped_count;
}

void ps_verify_remap(void)
{
    for (size_t i = 0; i < unmapped_count; i++) {
        struct ps_span *span = unmapped[i].span;
        if (unmapped[i].backing == PS_BACKING_DEVICE)
            ps_pages_map(unmapped[i].address, span->pages);
        else if (unmapped[i].backing == PS_BACKING_SLOT)
            ps_slab_map_row(unmapped[i].address, span->slot);
    }
    ps_registry_lock();
    for (size_t i = 0; i < unmapped_count; i++)
        unmapped[i].span->busy = false;
    ps_registry_changed();
    ps_registry_unlock();
}

/* ---- telling ---- */

static void write_span(struct ps_json *json, const struct unmapped *s, bool is_bare)
{
    ps_json_begin_object(json, NULL);
    ps_json_u64(json, "bytes", s->bytes);
    ps_json_u64(json, "nth", s->nth);
    ps_json_u64(json, "born", s->born);
    ps_json_bool(json, "bare", is_bare);
    ps_json_bool(json, "reached", s->reached || !is_bare);
    ps_json_end(json);
}

void ps_verify_take_evicted(void)
{
    struct ps_span *span;

    unmapped_count = also_count = 0;
    ps_registry_lock();
    for (CUdeviceptr a = ps_registry.start; (span = ps_registry_next(a)); a = span->address + span->bytes)
        if (span->life == PS_LIFE_LIVE && span->residency == PS_EVICTED && span->backing == PS_BACKING_NONE &&
            !span->holds.launching)
            add(span);
    ps_registry_unlock();
}

void ps_verify_write_spans(struct ps_json *json)
{
    ps_json_begin_array(json, "spans");
    for (size_t i = 0; i < unmapped_count; i++)
        write_span(json, &unmapped[i], true);
    for (size_t i = 0; i < also_count; i++)
        write_span(json, &also[i], false);
    ps_json_end(json);
}
