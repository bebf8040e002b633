/*
 * Page reuse: tells which allocations and reloads of a round must map pages. A freed span keeps its
 * pages, and serves the next allocation of its size at no cost. Where the budget is short, a freed
 * span gives its pages up. Pages are mapped for each allocation that finds no freed span of its
 * size, and for each reload. The choice follows the shim (freed_spans.c). A reload takes a freed
 * span of its own size first. Otherwise the oldest goes that alone makes enough room, or else the
 * largest.
 *
 * Pure: memory from the caller. With n sizes an operation takes about log n steps. Threads: the
 * caller serialises.
 */
#ifndef PS_PAGE_REUSE_H
#define PS_PAGE_REUSE_H

#include <stdbool.h>
#include <stddef.h>

#include "penstock/policy.h"

struct ps_page_reuse;

/* Returns the bytes of memory that ps_page_reuse_init wants. */
size_t ps_page_reuse_bytes(const struct penstock_step *step);

/*
 * Prepares `memory`, which has that size and is aligned for any type, without freed spans. The
 * caller owns `step`.
 */
struct ps_page_reuse *ps_page_reuse_init(const struct penstock_step *step, void *memory);

/*
 * Gives pages to the span, for its allocation or, if `back` is set, for its reload. `held` is the
 * number of live bytes on the device, the span's included. Returns whether the pages must be
 * mapped.
 */
bool ps_page_reuse_taken(struct ps_page_reuse *reuse, uint32_t span, bool back, int64_t held);

/* Notes that the program has freed the span while it had pages. */
void ps_page_reuse_freed(struct ps_page_reuse *reuse, uint32_t span);

#endif
