/*
 * NVTX ranges of Penstock's own around the queuing of its copies, domain "penstock", for a tool that is the injection library (Nsight Systems), which shows
 * them on the thread and projects them onto the copies. Each has the span's bytes as its payload.
 *
 * Nothing where NVTX_INJECTION64_PATH names no library, or this one: it would be loaded for its own ranges. Threads: any, but for open.
 */
#ifndef PS_NVTX_EMIT_H
#define PS_NVTX_EMIT_H

#include <stdbool.h>

#include "memory/slab.h"

enum ps_nvtx_range {
    PS_NVTX_EVICT,
    PS_NVTX_RELOAD,
};

extern bool ps_nvtx_emit_wanted; /* constant after the set-up */

/* In the set-up. `there_is_a_tool`: the injection library is another tool's; it is loaded now if it is not yet. */
void ps_nvtx_emit_open(bool there_is_a_tool);

/* For the two below. */
void ps_nvtx_range_push(enum ps_nvtx_range what, const struct ps_slot *row);
void ps_nvtx_range_pop(void);

/* Around the copy of so many bytes as the row holds. */
static inline void ps_nvtx_range_begin(enum ps_nvtx_range what, const struct ps_slot *row)
{
    if (__builtin_expect(ps_nvtx_emit_wanted, false))
        ps_nvtx_range_push(what, row);
}

/* Of this thread's latest. */
static inline void ps_nvtx_range_end(void)
{
    if (__builtin_expect(ps_nvtx_emit_wanted, false))
        ps_nvtx_range_pop();
}

#endif
