/*
 * Flags of the process that every room reads. They say whether allocations are managed, launches
 * are traced, and `penstock verify` runs the process. The room that a flag is about sets it.
 *
 * Threads: any.
 */
#ifndef PS_STATE_H
#define PS_STATE_H

#include <stdatomic.h>
#include <stdbool.h>

/* ---- the process (process.c sets it) ---- */

enum ps_process_state {
    PS_PROCESS_NOT_BEGUN, /* no CUDA allocation yet */
    PS_PROCESS_MANAGING,
    PS_PROCESS_ASIDE, /* new allocations never move */
};

extern _Atomic enum ps_process_state ps_process_state;

/*
 * Ends the making of new spans. A warning says `why`, unless it is NULL (the device was reset, the
 * process was forked). Only the first call has an effect; it also tells the observers.
 */
void ps_process_stand_aside(const char *why);

/* ---- tracing (tracer/start.c sets it) ---- */

extern atomic_bool ps_tracing_has_begun, ps_tracing_is_complete;

/* Says whether every launch is seen. */
static inline bool ps_tracing_notes(void)
{
    return atomic_load_explicit(&ps_tracing_has_begun, memory_order_acquire);
}

/* Says whether every launch is seen and all launches that were not seen are over. */
static inline bool ps_tracing_is_on(void)
{
    return atomic_load_explicit(&ps_tracing_is_complete, memory_order_acquire);
}

/* ---- penstock verify (verify/verify.c sets it) ---- */

/* Whether `penstock verify` runs the process. Constant after the set-up. */
extern bool ps_verify_on;

static inline bool ps_verify_is_on(void)
{
    return __builtin_expect(ps_verify_on, false);
}

#endif
