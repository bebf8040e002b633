#include "tracer/collectives.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/counters.h"
#include "base/log.h"
#include "base/ordering_rules.h"
#include "base/state.h"
#include "core/access.h"
#include "cuda/capture.h"
#include "cuda/helper_thread.h"
#include "cuda/managed_context.h"
#include "memory/blocks.h"
#include "memory/registry.h"
#include "plan/layer_markers.h"
#include "residency/residency.h"
#include "tracer/graphs.h"

/* How the spans are held while NCCL may be launching. */
enum held {
    NOT_HELD,
    BY_ACCESS, /* by ps_access_begin */
    WITH_ALL,  /* by ps_residency_begin_access_to_all, since the spans could not be listed */
    /*
     * By ps_residency_hold, without tracing: no span moves and nothing is learnt. Tracing may begin
     * meanwhile.
     */
    STILL,
};

/* One access: the buffers that a group names on one stream for one communicator. */
struct ps_collective {
    struct ps_collective *next;
    ncclComm_t communicator;
    CUstream handle;
    struct ps_stream *stream;
    enum held held;
    struct ps_access_kind kind;
    uint64_t launch; /* the access's launch number, from begin to end */
    uint64_t number; /* awaited: the value of `awaited_so_far` when its group joined the list */
    bool unlisted;   /* there was no memory to list an address */
    unsigned device; /* the spans' device; a communicator has one device */
    size_t count, room;
    CUdeviceptr *address; /* as named; their spans are looked up when NCCL is about to launch */
    struct ps_span **span;
};

/* The calling thread's group. A call outside groups is a group of its own. */
static __thread struct {
    unsigned depth;              /* of ncclGroupStart */
    struct ps_collective *named; /* newest first; not held yet */
    struct ps_collective *begun; /* held, while NCCL is in the call that launches */
} group __attribute__((tls_model("initial-exec")));

/*
 * Collectives that NCCL's own threads will launch. The lock is a leaf: with it held, nothing of
 * Penstock or the driver is called.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ps_collective *awaited;
static uint64_t awaited_so_far;
static atomic_uint awaited_now; /* the length of the list, to be read without the lock */

/* ---- buffers that are named ---- */

bool ps_collective_concerns(const void *address)
{
    return ps_address_is_a_spans((CUdeviceptr)address);
}

static struct ps_collective *collective_of(ncclComm_t communicator, CUstream stream)
{
    struct ps_collective *c = group.named;

    while (c && (c->communicator != communicator || c->handle != stream))
        c = c->next;
    if (c)
        return c;
    c = calloc(1, sizeof *c);
    if (!c) {
        ps_log_warn_once(TRACER, "no memory to record an NCCL call: Penstock can't see what it "
                                 "uses; a lower PENSTOCK_HOST_BUDGET makes the slab smaller");
        return NULL;
    }
    c->communicator = communicator;
    c->handle = stream;
    c->next = group.named;
    group.named = c;
    return c;
}

static void name(struct ps_collective *c, CUdeviceptr address)
{
    if (!ps_address_is_a_spans(address))
        return;
    CUdeviceptr *grown = ps_grown_array(c->address, c->count, &c->room, 8, sizeof *grown);
    if (!grown) {
        c->unlisted = true;
        return;
    }
    c->address = grown;
    if (!c->count)
        c->device = ps_address_device(address);
    c->address[c->count++] = address;
}

static void forget(struct ps_collective *c)
{
    free(c->address);
    free(c->span);
    free(c);
}

/* ---- from before NCCL launches to after ---- */

/*
 * Finds the spans in which the addresses lie now. Work in place often names a span twice in a row,
 * which is listed once. Returns false if the spans can't be listed.
 */
static bool look_up(struct ps_collective *c, size_t *count)
{
    size_t n = 0;

    c->span = malloc((c->count ? c->count : 1) * sizeof(struct ps_span *));
    if (!c->span || c->unlisted)
        return false;
    for (size_t i = 0; i < c->count; i++) {
        struct ps_span *span = ps_address_span(c->address[i]);
        if (span && (!n || c->span[n - 1] != span))
            c->span[n++] = span;
    }
    *count = n;
    return true;
}

static void begin(struct ps_collective *c)
{
    size_t n = 0;

    c->stream = ps_stream_find(c->handle, false);
    if (!c->stream)
        return;
    c->kind.is_kernel = true;
    c->kind.layer = ps_layer_markers_now(NULL);
    c->kind.capturing = ps_capture_has(c->handle, false);
    if (c->kind.capturing && ps_ordering_rule(NCCL_IN_GRAPH_IS_KNOWN))
        ps_graph_captures(c->handle, c->address, c->count);
    if (!look_up(c, &n)) {
        if (c->kind.capturing)
            return; /* nothing runs now */
        c->held = WITH_ALL;
        ps_residency_begin_access_to_all(c->stream);
        return;
    }
    if (!n)
        return;
    c->held = ps_tracing_notes() ? BY_ACCESS : STILL;
    if (c->held == BY_ACCESS)
        c->launch = ps_access_begin(c->span, &n, c->stream, &c->kind);
    else
        ps_residency_hold(c->span, &n);
    c->count = n;
}

static void end(struct ps_collective *c)
{
    switch (c->held) {
    case NOT_HELD:
        break;
    case BY_ACCESS:
        ps_access_end(c->span, c->count, c->stream, &c->kind, c->launch);
        break;
    case WITH_ALL:
        ps_residency_end_access_to_all(c->stream);
        break;
    case STILL:
        ps_residency_let_go(c->span, c->count, c->stream);
        break;
    }
    forget(c);
}

/*
 * Ends each collective of the list. Any thread: one thread may call NCCL, and another ask about the
 * communicator's state.
 */
static void end_all(struct ps_collective *c)
{
    while (c) {
        struct ps_collective *next = c->next;
        struct ps_managed_context context = ps_managed_context_enter_at(c->device);
        end(c);
        ps_managed_context_leave(context);
        c = next;
    }
}

/*
 * NCCL is about to be called. It launches before it returns, or leaves the launch to a thread of
 * its own.
 */
static void launching(void)
{
    if (!group.named)
        return;
    group.begun = group.named;
    group.named = NULL;
    for (struct ps_collective *c = group.begun; c; c = c->next) {
        struct ps_managed_context context = ps_managed_context_enter_at(c->device);
        begin(c);
        ps_managed_context_leave(context);
    }
}

/* From now on a thread of NCCL's launches these collectives. */
static void await(struct ps_collective *first)
{
    struct ps_collective *last = first;

    pthread_mutex_lock(&lock);
    awaited_so_far++;
    for (;; last = last->next) {
        last->number = awaited_so_far;
        atomic_fetch_add(&awaited_now, 1);
        if (!last->next)
            break;
    }
    last->next = awaited;
    awaited = first;
    pthread_mutex_unlock(&lock);
}

static void launched(int result)
{
    struct ps_collective *begun = group.begun;

    group.begun = NULL;
    if (!begun)
        return;
    /* After an error a part may have been launched. A use noted in vain does no harm. */
    if (result == PS_NCCL_IN_PROGRESS && ps_ordering_rule(NCCL_HOLDS_UNTIL_SUCCESS))
        await(begun);
    else
        end_all(begun);
}

/* ---- calls and groups ---- */

static bool launches_now(void)
{
    return !group.depth || !ps_ordering_rule(NCCL_HOLDS_UNTIL_GROUP_END);
}

void ps_collective_begins(ncclComm_t communicator, CUstream stream, unsigned what,
                          const struct ps_collective_buffer *buffers, unsigned count)
{
    if (!ps_ordering_rule(NCCL_NAMES_SPANS))
        return;
    struct ps_collective *c = collective_of(communicator, stream);

    ps_count(nccl_calls);
    if (!c)
        return;
    for (unsigned i = 0; i < count; i++) {
        CUdeviceptr first = (CUdeviceptr)buffers[i].address;
        c->kind.fingerprint = (c->kind.fingerprint ^ what ^ buffers[i].bytes << 8) * 0x9E3779B97F4A7C15u;
        /*
         * A buffer lies in one allocation. If that is one span, the names of both ends are enough.
         * If it is a block, each piece is named.
         */
        name(c, first);
        for (CUdeviceptr at = first; (at = ps_block_next_piece(at)) && at - first < buffers[i].bytes;)
            name(c, at);
        if (buffers[i].bytes > 1)
            name(c, first + buffers[i].bytes - 1);
    }
    if (launches_now())
        launching();
}

void ps_collective_ended(int result)
{
    if (launches_now())
        launched(result);
}

void ps_collective_group_starts(void)
{
    group.depth++;
}

bool ps_collective_is_in_group(void)
{
    return group.depth != 0;
}

void ps_collective_group_ends(bool launches)
{
    if (!group.depth || --group.depth)
        return;
    if (launches) {
        launching();
        return;
    }
    while (group.named) {
        struct ps_collective *c = group.named;
        group.named = c->next;
        forget(c);
    }
}

void ps_collective_group_ended(int result)
{
    launched(result);
}

/* ---- communicators that do not block ---- */

uint64_t ps_collective_mark(void)
{
    if (!atomic_load_explicit(&awaited_now, memory_order_relaxed))
        return 0;
    pthread_mutex_lock(&lock);
    uint64_t mark = awaited_so_far;
    pthread_mutex_unlock(&lock);
    return mark;
}

/* Takes the communicator's awaited collectives up to that number off the list. */
static struct ps_collective *take(ncclComm_t communicator, uint64_t number)
{
    struct ps_collective *taken = NULL;

    pthread_mutex_lock(&lock);
    for (struct ps_collective **at = &awaited; *at;) {
        struct ps_collective *c = *at;
        if (c->communicator != communicator || c->number > number) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        c->next = taken;
        taken = c;
        atomic_fetch_sub(&awaited_now, 1);
    }
    pthread_mutex_unlock(&lock);
    return taken;
}

void ps_collective_asked(ncclComm_t communicator, uint64_t mark, int state)
{
    /*
     * Later collectives than the mark stay: another thread may have called NCCL after NCCL answered
     * this one.
     */
    struct ps_collective *taken = mark && state == PS_NCCL_SUCCESS ? take(communicator, mark) : NULL;

    if (taken)
        end_all(taken);
}

struct ps_collective *ps_collective_communicator_ends(ncclComm_t communicator)
{
    return take(communicator, UINT64_MAX);
}

void ps_collective_communicator_ended(struct ps_collective *collectives)
{
    if (collectives)
        end_all(collectives);
}
