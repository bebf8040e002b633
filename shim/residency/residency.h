/*
 * Residency: where a span's bytes are, and how work that names the span finds them. The order of an
 * access's parts stands in core/access.h.
 *
 * Threads: any. The lock is the registry's. Functions are [unlocked] unless their comment says
 * otherwise.
 */
#ifndef PS_RESIDENCY_H
#define PS_RESIDENCY_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/ordering_rules.h"
#include "base/settings.h"
#include "memory/budget.h"
#include "memory/registry_lock.h"
#include "memory/span.h"

void ps_residency_open(enum ps_guard guard);
enum ps_guard ps_residency_guard(void); /* the guard of the device that the thread is at */

/*
 * Holds a live span: it stays where it is, and is no victim, until let go as many times. [locked]
 */
static inline void ps_residency_hold_one(struct ps_span *span)
{
    if (ps_ordering_rule(PIN_WHILE_LAUNCHING))
        span->holds.launching++;
}

static inline void ps_residency_let_go_one(struct ps_span *span)
{
    if (!span->holds.launching || --span->holds.launching > span->holds.idle)
        return;
    span->holds.on_slot = false;
    if (ps_budget.program_waits) /* helper threads look again by themselves */
        ps_registry_changed();
}

/*
 * The same for a call that queues no work. It may wait until no launch will run on the slot any
 * more. So its own hold must not keep the span there. [locked]
 */
static inline void ps_residency_hold_idly(struct ps_span *span)
{
    ps_residency_hold_one(span);
    if (ps_ordering_rule(PIN_WHILE_LAUNCHING))
        span->holds.idle++;
}

static inline void ps_residency_let_go_idly(struct ps_span *span)
{
    if (span->holds.idle)
        span->holds.idle--;
    ps_residency_let_go_one(span);
}

/*
 * Returns whether work on `stream` that names the span must wait for something, or needs a reload.
 * [locked]
 */
static inline bool ps_residency_needs_work(const struct ps_span *span, const struct ps_stream *stream)
{
    const uint64_t bit = stream->index < 64 ? 1ull << stream->index : 0;

    if (span->busy || span->residency != PS_RESIDENT || (span->order.fence_set && !(span->order.fence_seen & bit)))
        return true;
    return span->order.after.stream && span->order.after.stream != stream && !(span->order.after_seen & bit);
}

/*
 * Brings a held span to where work on `stream` finds its bytes. `stream` NULL: to where the span
 * can stay, for work that is ordered elsewhere. [locked; releases the lock meanwhile]
 */
void ps_residency_make_ready(struct ps_span *span, struct ps_stream *stream);

/*
 * Begins and ends a launch on `stream` that may use any span. The first holds all spans as
 * ps_access_begin does, but brings none to the device.
 */
void ps_residency_begin_access_to_all(struct ps_stream *stream);
void ps_residency_end_access_to_all(struct ps_stream *stream);

/*
 * Holds spans for a library that keeps their addresses (NCCL), until they are let go as many times.
 * Each span is on device pages, or on its slot if no pages were available, and stays there.
 *
 * No stream waits, and no use is learnt. Spans that are not live are dropped, as in
 * ps_access_begin. The call may wait on the host for evictions.
 *
 * ps_residency_let_go takes the same array, whatever has become of the spans. Work that is queued
 * on `stream` by now (NULL: none) is a use of theirs.
 */
void ps_residency_hold(struct ps_span **spans, size_t *count);
void ps_residency_let_go(struct ps_span *const *spans, size_t count, struct ps_stream *stream);

/*
 * Waits on the host until the bytes of held spans are there. This is for accesses that no stream
 * orders (a network card). `writes`: the accesses write. Then the call also waits until the former
 * owner of the addresses is done. Returns whether all spans are on device pages.
 */
bool ps_residency_settle(struct ps_span *const *spans, size_t count, bool writes);

/*
 * Pins held spans: they stay on their pages until they are freed, or unpinned as many times. The
 * second function unpins the span at `address`.
 */
void ps_residency_pin(struct ps_span *const *spans, size_t count);
void ps_residency_unpin(CUdeviceptr address);

/*
 * Begins the reload of the evicted span at `address` ahead of its next access, if pages are
 * available without waiting. Later accesses wait for the H2D. For tests.
 * 0; -EAGAIN: no pages without waiting; -ENOENT: no live span, or nothing to do; other -errno: the
 * reload failed.
 */
int ps_residency_reload_ahead(CUdeviceptr address);

/*
 * Does the same for a known span. -EALREADY: the span was EVICTING; the eviction is cancelled, and
 * the span stays. -EBUSY: another thread makes driver calls on the span, or is about to queue a
 * launch that may touch it. [locked; releases the lock meanwhile]
 */
int ps_residency_bring(struct ps_span *span);

/*
 * Returns whether the span, if it is away, must stay on its slot for now. The reason is a launch
 * that runs on the slot and is not queued yet, or that no call shows. [locked]
 */
bool ps_residency_stays_on_slot(const struct ps_span *span);

/*
 * Gives the device's present peers access to all that is mapped at this device (device_memory.h).
 * Waits for threads that work on a span. [unlocked]
 */
void ps_residency_let_peers_in(void);

/*
 * The program asks the driver about `address` without calling our hooks (Triton does so before each
 * launch). An evicted span that is mapped to nothing is mapped to its slot, so that the driver
 * knows the address.
 */
void ps_residency_asked_about(CUdeviceptr address);

/*
 * Looks up the live allocation, a span or a block, that holds `address`. Sets its start and the
 * size that the program asked for. The thread goes to the allocation's device.
 * 0; -ENOENT: no such allocation; -ENXIO: the program has mapped it nowhere, or without access.
 */
int ps_residency_look_up(CUdeviceptr address, CUdeviceptr *start, size_t *requested);

#endif
