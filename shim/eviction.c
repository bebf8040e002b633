#include "eviction.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "budget.h"
#include "copies.h"
#include "counters.h"
#include "device.h"
#include "guard.h"
#include "helper_thread.h"
#include "log.h"
#include "penstock/policy.h"
#include "policies.h"
#include "real_cuda.h"
#include "registry.h"
#include "rules.h"
#include "slab.h"
#include "stopping.h"
#include "tracing.h"

/* One D2H of a span. It outlives the span's interest in it: a cancelled one still writes to its slot until `done`. */
struct ps_transfer {
    struct ps_span *span;
    struct ps_slot *slot; /* the first of its row; NULL while it waits for one */
    size_t bytes;
    CUevent done; /* created at first use, kept with the structure */
    bool cancelled;
    bool planned; /* a plan has seen to it that the span is brought back in time */
    STAILQ_ENTRY(ps_transfer) next;
};

STAILQ_HEAD(transfer_list, ps_transfer);

/* All guarded by the registry lock, which the conditions go with. */
static struct transfer_list under_way = STAILQ_HEAD_INITIALIZER(under_way); /* queued on the D2H stream, in about that order */
static struct transfer_list want_slot = STAILQ_HEAD_INITIALIZER(want_slot); /* for the slab thread */
static struct transfer_list unused = STAILQ_HEAD_INITIALIZER(unused);
static uint64_t wanted_slot_bytes; /* of want_slot */
static uint32_t copies_under_way;  /* queued and not finished, cancelled ones too */
static bool started;               /* the helper threads are there */
static bool start_failed;
static uint32_t finisher_calls, slab_calls; /* what there is to do has changed, for each thread */

static enum ps_guard guard;
static uint32_t grace_launches;

/* Spans looked at for one choice. The list is in the order of idleness, so the policy loses nothing by not seeing the rest. */
#define CANDIDATES_MAX 256
/* Slots made ahead of need, at most so many bytes more than are asked for, for the spans that are next in line. */
#define SLOTS_AHEAD_BYTES (1ull << 30)

static unsigned held;            /* the program waits for the device: nothing is queued */
static uint64_t bytes_under_way; /* of the copies under way */

/* D2H bytes queued at a time, but for one copy: 2.4 ms of the link. Who waits for the device waits for them too. */
#define BYTES_QUEUED_MAX (128ull << 20)

static void finish_evictions(void);
static void make_slots(void);

void ps_eviction_open(enum ps_guard how, uint32_t grace)
{
    guard = how;
    grace_launches = grace;
}

/* [locked] */
static bool helpers_are_there(void)
{
    if (ps_stopping_has_begun())
        return false;
    if (started || start_failed)
        return started;
    started = !ps_helper_thread_start("penstock-evict", finish_evictions) &&
              !ps_helper_thread_start("penstock-guard", ps_guard_map_to_slots) && !ps_helper_thread_start("penstock-slab", make_slots);
    start_failed = !started;
    return started;
}

static void call_finisher(void)
{
    finisher_calls++;
    ps_registry_changed();
}

static void call_slab_thread(void)
{
    slab_calls++;
    ps_registry_changed();
}

/* ---- choosing ---- */

bool ps_eviction_may_leave(const struct ps_span *span)
{
    return !ps_registry.blind_launches && span->life == PS_LIFE_LIVE && !span->busy && !span->launching && !span->pinned &&
           !span->user_pins && !span->excluded && span->has_pages && (span->residency == PS_RESIDENT || span->residency == PS_RELOADING);
}

/*
 * A size for which a slot can be had. Room is counted once for the whole choice: what does not fit in the end is found by ps_eviction_start.
 */
static bool slot_can_be_had(size_t bytes)
{
    return ps_slab_free_of(bytes) || ps_slab_has_room(bytes + wanted_slot_bytes);
}

static size_t gather(struct ps_span **spans, struct penstock_candidate *candidates, uint32_t grace)
{
    struct ps_span *span;
    size_t n = 0;
    size_t no_slot_for = 0; /* a steady program has few sizes: one remembered saves most of the asking */

    TAILQ_FOREACH (span, &ps_registry.idle_order, order) {
        if (n == CANDIDATES_MAX)
            break;
        if (ps_registry.launch_number - span->last_access < grace)
            break; /* the rest was used later still */
        if (!ps_eviction_may_leave(span))
            continue;
        if (span->bytes == no_slot_for)
            continue;
        if (!slot_can_be_had(span->bytes)) {
            no_slot_for = span->bytes;
            continue;
        }
        spans[n] = span;
        candidates[n++] = (struct penstock_candidate){.bytes = span->bytes, .last_access = span->last_access};
    }
    return n;
}

uint64_t ps_eviction_start_some(uint64_t need)
{
    struct ps_span *spans[CANDIDATES_MAX];
    struct penstock_candidate candidates[CANDIDATES_MAX];
    size_t chosen[CANDIDATES_MAX];
    uint64_t begun = 0;

    /* What nobody has watched being used can't leave. */
    if (!ps_tracing_is_on() || !helpers_are_there())
        return 0;
    size_t n = gather(spans, candidates, grace_launches);
    /* Grace is for accesses that nobody sees; when nothing else is left to leave, it gives way before the program runs out of memory. */
    if (!n && grace_launches)
        n = gather(spans, candidates, 0);
    if (ps_budget.evictions_fail)
        need = 1; /* the driver refused the last ones: one will tell whether it still does */
    size_t k = ps_policies_choose(candidates, n, need, chosen);
    for (size_t i = 0; i < k; i++) {
        struct ps_span *span = spans[chosen[i]];
        uint64_t bytes = candidates[chosen[i]].bytes;
        /* The lock was released for the one before: look again. */
        if (span->bytes != bytes || !ps_eviction_may_leave(span))
            continue;
        if (!ps_eviction_start(span))
            begun += bytes;
    }
    if (begun)
        call_slab_thread(); /* for the spans that are next in line now */
    return begun;
}

/* ---- starting ---- */

/* [locked] */
static struct ps_transfer *transfer_new(struct ps_span *span)
{
    struct ps_transfer *t = STAILQ_FIRST(&unused);

    if (t)
        STAILQ_REMOVE_HEAD(&unused, next);
    else if (!(t = calloc(1, sizeof *t)))
        return NULL;
    t->span = span;
    t->slot = NULL;
    t->bytes = span->bytes;
    t->cancelled = false;
    t->planned = false;
    return t;
}

/* The span stays where it is. [locked] */
static void stays(struct ps_span *span)
{
    span->residency = PS_RESIDENT;
    span->transfer = NULL;
    /* As the most recently used: in its old place it would be the first to be tried again, and in the order it must stand by its number. */
    span->last_access = ps_registry.launch_number;
    TAILQ_INSERT_TAIL(&ps_registry.idle_order, span, order);
}

/* Queues the D2H of a transfer that has its slot. On failure the span stays. [locked; releases the lock meanwhile] */
static int queue_copy(struct ps_transfer *t)
{
    struct ps_span *span = t->span;
    int r = 0;

    span->busy = true;
    span->readers++;
    ps_registry_unlock();
    if (!t->done)
        r = ps_cuda_errno(ps_cu.cuEventCreate(&t->done, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
    /*
     * Two clocks: the D2H waits on its stream for the span's uses; the host goes on. No launch can have named the span and not be queued yet:
     * it would be `launching` (PIN_WHILE_LAUNCHING).
     */
    if (!r)
        r = ps_copies_evict(span->address, &span->uses, span->fence_set, span->fence, t->slot, t->done);
    if (r)
        ps_copies_drain_evictions(); /* part of it may be queued: the slot must be quiet before it is used again */
    ps_registry_lock();
    span->busy = false;
    if (r) {
        ps_count(eviction_errors);
        ps_log_warn_once(COPIES, "the driver refused a copy to the host (error %d); the span stays on the device", -r);
        span->readers--;
        ps_slab_give(t->slot);
        ps_budget.leaving -= span->bytes;
        stays(span);
        STAILQ_INSERT_HEAD(&unused, t, next);
        ps_registry_changed();
        return r;
    }
    STAILQ_INSERT_TAIL(&under_way, t, next);
    copies_under_way++;
    bytes_under_way += t->bytes;
    call_finisher();
    return 0;
}

static bool queue_is_full(void)
{
    return copies_under_way >= PS_COPIES_QUEUED_MAX || (copies_under_way > 1 && bytes_under_way >= BYTES_QUEUED_MAX);
}

bool ps_eviction_are_there_copies(void)
{
    ps_registry_lock();
    bool some = copies_under_way || !STAILQ_EMPTY(&want_slot);
    ps_registry_unlock();
    return some;
}

void ps_eviction_hold(void)
{
    ps_registry_lock();
    held++;
    ps_registry_unlock();
}

void ps_eviction_go_on(void)
{
    ps_registry_lock();
    held--;
    call_slab_thread();
    ps_registry_unlock();
}

bool ps_eviction_is_held(void)
{
    return held != 0;
}

/* The span is EVICTING from here on, by this transfer. [locked] */
static void begin(struct ps_span *span, struct ps_transfer *t)
{
    TAILQ_REMOVE(&ps_registry.idle_order, span, order);
    span->residency = PS_EVICTING;
    span->transfer = t;
    ps_budget.leaving += span->bytes;
}

/* The slab thread finds a slot and queues the copy. [locked] */
static void leave_to_slab_thread(struct ps_transfer *t)
{
    STAILQ_INSERT_TAIL(&want_slot, t, next);
    wanted_slot_bytes += t->bytes;
    call_slab_thread();
}

int ps_eviction_start(struct ps_span *span)
{
    if (held || queue_is_full())
        return ps_eviction_start_later(span);

    struct ps_slot *slot = ps_slab_take(span->bytes);
    struct ps_transfer *t;

    if (!slot && !ps_slab_has_room(span->bytes + wanted_slot_bytes))
        return -ENOSPC;
    t = transfer_new(span);
    if (!t) {
        if (slot)
            ps_slab_give(slot);
        return -ENOMEM;
    }
    begin(span, t);
    t->slot = slot;
    if (slot)
        return queue_copy(t);
    leave_to_slab_thread(t);
    return 0;
}

int ps_eviction_start_planned(struct ps_span *span)
{
    int r = ps_eviction_start_later(span);

    if (!r)
        span->transfer->planned = true;
    return r;
}

int ps_eviction_start_later(struct ps_span *span)
{
    struct ps_transfer *t;

    if (!helpers_are_there())
        return -EAGAIN;
    if (!slot_can_be_had(span->bytes))
        return -ENOSPC;
    t = transfer_new(span);
    if (!t)
        return -ENOMEM;
    begin(span, t);
    leave_to_slab_thread(t);
    return 0;
}

bool ps_eviction_copies_under_way(void)
{
    return copies_under_way != 0;
}

/* ---- what can happen to one under way ---- */

/* The transfer waits for a slot: nothing is queued, forget it. [locked] */
static bool withdraw(struct ps_transfer *t)
{
    if (t->slot)
        return false;
    STAILQ_REMOVE(&want_slot, t, ps_transfer, next);
    wanted_slot_bytes -= t->bytes;
    STAILQ_INSERT_HEAD(&unused, t, next);
    return true;
}

void ps_eviction_cancel(struct ps_span *span)
{
    struct ps_transfer *t = span->transfer;

    ps_budget.leaving -= span->bytes;
    stays(span);
    /* A D2H that is queued goes on reading the pages; its copy counts for nothing, and its slot is free when it is over. */
    if (!withdraw(t))
        t->cancelled = true;
    ps_count(evictions_cancelled);
}

void ps_eviction_freed(struct ps_span *span)
{
    struct ps_transfer *t = span->transfer;

    ps_budget.leaving -= span->bytes;
    span->transfer = NULL;
    /*
     * The D2H goes on reading: `readers` keeps the addresses mapped until it is over. The next owner of the pages may write to them meanwhile,
     * since the copy counts for nothing.
     */
    if (!withdraw(t))
        t->cancelled = true;
    ps_registry_cache(span);
}

/* ---- finishing ---- */

void ps_eviction_husk_waits(void)
{
    helpers_are_there(); /* a program whose spans all begin on slots comes here before it ever evicts */
    call_finisher();
}

/* Gives back addresses (and slots) of freed spans whose uses are over. Returns whether some are still in use. [locked; releases it meanwhile] */
static bool reap_husks(void)
{
    struct ps_span *span, *after;
    bool some_left = false;

    for (span = TAILQ_FIRST(&ps_registry.husks); span; span = after) {
        if (span->busy || (span->readers && ps_rule(FREE_WAITS_FOR_COPY))) {
            after = TAILQ_NEXT(span, order);
            some_left = true;
            continue;
        }
        span->busy = true;
        ps_registry_unlock();
        int over = ps_uses_query(&span->uses);
        if (over == 1 && span->fence_set && ps_cu.cuEventQuery(span->fence) != CUDA_SUCCESS)
            over = 0;
        if (over < 0 && !ps_uses_host_wait(&span->uses))
            over = 1; /* it can't be asked; it can be waited for */
        int r = over == 1 && span->backing != PS_BACKING_NONE ? ps_pages_unmap(span->address, span->bytes) : 0;
        ps_registry_lock();
        after = TAILQ_NEXT(span, order); /* only this thread takes husks out, so the list is still ours to walk */
        span->busy = false;
        if (over != 1 || r) {
            if (r && span->pages)
                ps_budget_give_up(span->pages);
            some_left = true;
            continue;
        }
        TAILQ_REMOVE(&ps_registry.husks, span, order);
        struct ps_page_block *block = span->pages;
        span->pages = NULL;
        span->backing = PS_BACKING_NONE;
        if (span->slot)
            ps_slab_give(span->slot);
        span->slot = NULL;
        ps_registry_delete(span);
        ps_registry_changed();
        if (block) {
            ps_budget_let_go(block, false);
            after = TAILQ_FIRST(&ps_registry.husks); /* the lock was released: begin anew */
        }
    }
    return some_left;
}

/* The driver is going away, or the context is broken: all stays as it is. [locked] */
static void leave_as_it_is(struct ps_span *span, struct ps_slot *slot, int error)
{
    ps_count(eviction_errors);
    ps_log_warn_once(RESIDENCY, "the driver refused to unmap a span's pages (error %d); it stays on the device", -error);
    span->busy = false;
    span->transfer = NULL;
    ps_slab_give(slot);
    ps_budget.leaving -= span->bytes;
    stays(span);
    ps_registry_changed();
}

/*
 * The D2H is over: the pages go, then the mapping moves to the slot, which takes longer (1.8 ms for 256 MiB, FACTS) and nobody waits for.
 * [locked; releases the lock meanwhile; the span is busy meanwhile]
 */
static void move_to_slot(struct ps_span *span, struct ps_slot *slot, bool planned)
{
    span->busy = true;
    ps_registry_unlock();
    int r = ps_pages_unmap(span->address, span->bytes);
    ps_registry_lock();
    if (r) {
        leave_as_it_is(span, slot, r);
        return;
    }
    struct ps_page_block *block = span->pages;
    span->pages = NULL;
    span->has_pages = false;
    span->backing = PS_BACKING_NONE;
    ps_budget.leaving -= block->bytes;
    ps_budget.evictions_fail = false;
    ps_budget_let_go(block, true);
    span->busy = false;
    span->transfer = NULL;
    span->residency = PS_EVICTED;
    span->slot = slot;
    span->fence_set = false;
    ps_uses_clear(&span->uses); /* the D2H came after them */
    ps_count(evictions);
    ps_count_by(evicted_bytes, span->bytes);
    if (ps_guard_is_for(guard, planned))
        ps_guard_soon(span);
    ps_registry_changed();
}

/* [locked; may release it meanwhile] */
static void finish(struct ps_transfer *t)
{
    struct ps_span *span = t->span;

    ps_slab_read_is_over(t->slot);
    span->readers--;
    copies_under_way--;
    bytes_under_way -= t->bytes;
    if (!STAILQ_EMPTY(&want_slot))
        call_slab_thread(); /* there is room in the queue, and maybe a slot */
    if (t->cancelled) {
        ps_slab_give(t->slot);
        call_slab_thread();
    } else {
        move_to_slot(span, t->slot, t->planned);
    }
    STAILQ_INSERT_HEAD(&unused, t, next);
#ifdef PS_DEBUG
    ps_registry_is_valid();
#endif
}

static void finish_evictions(void)
{
    uint32_t seen = 0;

    ps_registry_lock();
    ps_stopping_helper_begins();
    for (;;) {
        ps_stopping_park_if_due();
        bool husks_left = reap_husks();
        struct ps_transfer *t = STAILQ_FIRST(&under_way);
        if (!t) {
            /* Husks are in no hurry; everything else calls. */
            if (seen == finisher_calls)
                ps_registry_wait_changed(husks_left ? 2000000u : 3600ull * 1000000000u);
            seen = finisher_calls;
            continue;
        }
        STAILQ_REMOVE_HEAD(&under_way, next);
        ps_registry_unlock();
        CUresult result = ps_rule(REMAP_WAITS_FOR_COPY) ? ps_cu.cuEventSynchronize(t->done) : CUDA_SUCCESS;
        if (result == CUDA_ERROR_DEINITIALIZED || result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_INVALID_CONTEXT)
            ps_helper_thread_park();
        ps_registry_lock();
        if (result != CUDA_SUCCESS && !t->cancelled && t->span->life == PS_LIFE_LIVE) {
            /* The copy failed on the device: its bytes are still there and nowhere else. */
            ps_count(eviction_errors);
            ps_log_warn_once(COPIES, "a copy to the host failed on the device (error %d); the span stays", (int)result);
            while (t->span->busy)
                ps_registry_wait_changed(1000000u);
            ps_eviction_cancel(t->span);
        }
        finish(t);
    }
}

/* ---- the slab's thread ---- */

/* Different sizes looked at when slots are made ahead; a training step has a dozen or so. */
#define SIZES_AHEAD_MAX 32

/* The size of a slot worth making ahead: for the spans next in line that have none. 0 if there is enough. [locked] */
static size_t worth_making(void)
{
    struct {
        size_t bytes;
        uint64_t wanted;
    } sizes[SIZES_AHEAD_MAX];
    unsigned n = 0;
    uint64_t in_line = 0;
    const struct ps_span *span;

    if (!ps_budget_is_tight())
        return 0;
    TAILQ_FOREACH (span, &ps_registry.idle_order, order) {
        unsigned i = 0;
        if (in_line >= SLOTS_AHEAD_BYTES)
            break;
        in_line += span->bytes;
        while (i < n && sizes[i].bytes != span->bytes)
            i++;
        if (i == SIZES_AHEAD_MAX)
            break;
        if (i == n) {
            sizes[n].bytes = span->bytes;
            sizes[n++].wanted = 0;
        }
        sizes[i].wanted += span->bytes;
    }
    for (unsigned i = 0; i < n; i++)
        if (ps_slab_can_hold_more(sizes[i].bytes) && ps_slab_free_of(sizes[i].bytes) < sizes[i].wanted && !ps_slab_has_row(sizes[i].bytes))
            return sizes[i].bytes;
    return 0;
}

/* [locked; releases the lock meanwhile] */
static void serve_one(struct ps_transfer *t)
{
    struct ps_slot *slot = ps_slab_take_row(t->bytes);
    size_t bytes = t->bytes;
    int r = 0;

    if (!slot) {
        ps_registry_unlock();
        r = ps_slab_make(bytes, false, &slot);
        ps_registry_lock();
    }
    /* While the slot was made the one that asked may have gone: any other of its size will do. */
    STAILQ_FOREACH(t, &want_slot, next)
    if (t->bytes == bytes)
        break;
    if (!t) {
        if (slot)
            ps_slab_give(slot);
        return;
    }
    STAILQ_REMOVE(&want_slot, t, ps_transfer, next);
    wanted_slot_bytes -= bytes;
    if (!slot) {
        ps_log_debug(SLAB, "no slot of %zu bytes can be had (error %d)", bytes, -r);
        ps_budget.leaving -= bytes;
        stays(t->span);
        STAILQ_INSERT_HEAD(&unused, t, next);
        ps_registry_changed();
        return;
    }
    t->slot = slot;
    queue_copy(t);
}

static void make_slots(void)
{
    uint32_t seen = 0;

    ps_registry_lock();
    ps_stopping_helper_begins();
    for (;;) {
        ps_stopping_park_if_due();
        struct ps_transfer *t = STAILQ_FIRST(&want_slot);
        if (t && !held && !queue_is_full()) {
            serve_one(t);
            continue;
        }
        size_t bytes = worth_making();
        if (bytes) {
            ps_registry_unlock();
            int r = ps_slab_make(bytes, true, NULL);
            ps_registry_lock();
            if (!r)
                continue;
        }
        if (seen == slab_calls)
            ps_registry_wait_changed(3600ull * 1000000000u);
        seen = slab_calls;
    }
}
