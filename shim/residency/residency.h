/*
 * Residency: where a span's bytes are, and how work that names it finds them. What an access does in which order stands in core/access.h.
 *
 * Threads: any. The lock is the registry's, and not held by the caller where nothing else is said.
 */
#ifndef PS_RESIDENCY_H
#define PS_RESIDENCY_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/settings.h"
#include "memory/span.h"

void ps_residency_open(enum ps_guard guard);
enum ps_guard ps_residency_guard(void); /* that of the current device */

/* Holds a live span where it is: no victim until it is let go as often. [locked] */
void ps_residency_hold_one(struct ps_span *span);
void ps_residency_let_go_one(struct ps_span *span);

/* Whether work on `stream` that names the span has to wait for something, or something has to be brought. [locked] */
bool ps_residency_needs_work(const struct ps_span *span, const struct ps_stream *stream);

/*
 * Brings a held span to where work on `stream` finds its bytes; NULL: to where it can stay, for work whose order others see to.
 * [locked; releases the lock meanwhile]
 */
void ps_residency_make_ready(struct ps_span *span, struct ps_stream *stream);

/* A launch on `stream` may use any span: holds all of them as begin does, but brings none to the device. End with ps_residency_end_access_to_all. */
void ps_residency_begin_access_to_all(struct ps_stream *stream);
void ps_residency_end_access_to_all(struct ps_stream *stream);

/*
 * Holds spans for a library that keeps their addresses (NCCL): each is on device pages, or on its slot where none could be had, and stays there until
 * it is let go as often. No stream is made to wait, and no use is learnt. As begin, drops those that are not live; may wait on the host for
 * evictions. let_go: of the same array, whatever has become of the spans; what is queued on `stream` by now (NULL: nothing) is a use of theirs.
 */
void ps_residency_hold(struct ps_span **spans, size_t *count);
void ps_residency_let_go(struct ps_span *const *spans, size_t count, struct ps_stream *stream);

/*
 * What comes to spans that are held is ordered by no stream (a network card): waits on the host until the bytes are there, and where it writes, too, until
 * whoever had the addresses before is done. Whether all of them are on device pages.
 */
bool ps_residency_settle(struct ps_span *const *spans, size_t count, bool writes);

/* While they are held so: they stay on their pages until they are freed, or unpinned (of the span at `address`) as often. */
void ps_residency_pin(struct ps_span *const *spans, size_t count);
void ps_residency_unpin(CUdeviceptr address);

/*
 * Begins the reload of the span at `address` ahead of its next access, if it is evicted and pages are there without waiting. Its users wait
 * for the H2D when they come. 0; -EAGAIN: no pages without waiting; -ENOENT: no live span, or nothing to do. For planning, and its tests.
 */
int ps_residency_reload_ahead(CUdeviceptr address);

/* The same for a span that is known; -EBUSY: somebody makes driver calls on it, or is about to queue a launch that may touch it. One that is EVICTING stays: -EALREADY. [locked; releases the lock meanwhile] */
int ps_residency_bring(struct ps_span *span);

/* Whether the span, if it is away, must stay on its slot for now: a launch that runs there is not queued yet, or shows to nobody. [locked] */
bool ps_residency_stays_on_slot(const struct ps_span *span);

/* What is mapped at this device lets in the peers that the device has now (device_memory.h). Waits for who works on a span. [unlocked] */
void ps_residency_let_peers_in(void);

/*
 * The program asks the driver about `address` by a way that our hooks don't see (Triton does before each launch): an evicted span that is mapped to
 * nothing is mapped to its slot, for the driver to know of it.
 */
void ps_residency_asked_about(CUdeviceptr address);

/*
 * The live allocation, a span or a block, that holds `address`, to whose device the thread goes: its start and its size as the program asked. 0; -ENOENT;
 * -ENXIO: the program has it mapped nowhere, or without access.
 */
int ps_residency_look_up(CUdeviceptr address, CUdeviceptr *start, size_t *requested);

#endif
