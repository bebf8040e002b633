/*
 * For which allocations of a step's round pages must be mapped. A freed span keeps its pages and serves the next allocation of its size at no cost; where the budget is
 * short it gives them up, and each allocation that finds none of its size, and each reload, has pages mapped at its addresses. What is kept here is what
 * the shim keeps (freed_spans.c): of freed spans the oldest goes that alone makes enough room, else the largest.
 *
 * Pure: memory from the caller; an operation takes about as many steps as the number of sizes has bits. Threads: the caller serialises.
 */
#ifndef PS_PAGE_REUSE_H
#define PS_PAGE_REUSE_H

#include <stdbool.h>
#include <stddef.h>

#include "penstock/policy.h"

struct ps_page_reuse;

size_t ps_page_reuse_bytes(const struct penstock_step *step);
/* In `memory`, of that size and aligned for any type. `step` stays the caller's and still. */
struct ps_page_reuse *ps_page_reuse_init(const struct penstock_step *step, void *memory);

/*
 * The span is given pages, as it is allocated or (`back`) for its reload: `held` bytes are live on the device with it. Whether they must be mapped.
 */
bool ps_page_reuse_taken(struct ps_page_reuse *reuse, uint32_t span, bool back, int64_t held);

/* The span was freed with its pages. */
void ps_page_reuse_freed(struct ps_page_reuse *reuse, uint32_t span);

#endif
