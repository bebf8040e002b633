/*
 * Penstock's own NVTX ranges, in the domain "penstock". Each surrounds the queuing of one copy, and
 * its payload is the span's bytes. The tool that is the injection library (Nsight Systems) shows
 * the ranges on the thread. It also projects them onto the copies.
 *
 * These functions do nothing where NVTX_INJECTION64_PATH names no library, or this one. Otherwise
 * NVTX would load this library for Penstock's own ranges.
 * Threads: any, except for ps_nvtx_emit_open.
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

/*
 * Opens the domain, in the set-up. `there_is_a_tool`: the injection library is another tool's. That
 * library is loaded now if it is not loaded yet.
 */
void ps_nvtx_emit_open(bool there_is_a_tool);

/* Begins and ends a range; only the two inline functions below call this pair. */
void ps_nvtx_range_push(enum ps_nvtx_range what, const struct ps_slot *row);
void ps_nvtx_range_pop(void);

/* Begins the range around the copy of the row's bytes. */
static inline void ps_nvtx_range_begin(enum ps_nvtx_range what, const struct ps_slot *row)
{
    if (__builtin_expect(ps_nvtx_emit_wanted, false))
        ps_nvtx_range_push(what, row);
}

/* Ends this thread's latest range. */
static inline void ps_nvtx_range_end(void)
{
    if (__builtin_expect(ps_nvtx_emit_wanted, false))
        ps_nvtx_range_pop();
}

#endif
