/*
 * The meaning of each traced driver call (traced_calls.def) to the tracer, by its CUPTI id and
 * parameters. This part is the same for both sources: CUPTI (source_cupti.c), and our functions in
 * front of the driver's (source_hooks.c).
 *
 * On the thread that makes the call, inside Penstock (ps_inside). Parameters are read only before
 * these return.
 */
#ifndef PS_TRACED_CALLS_H
#define PS_TRACED_CALLS_H

#include <cupti.h>
#include <stdbool.h>
#include <stddef.h>

#include "cuda/newer_cuda.h"

/*
 * The call is about to be made. `parameters`: its structure of generated_cuda_meta.h. Other ids do
 * no harm.
 */
void ps_traced_call_begins(CUpti_CallbackId id, const void *parameters);

/* The call was made. */
void ps_traced_call_ended(CUpti_CallbackId id, const void *parameters, CUresult result);

/* Every id that these functions look at. */
extern const CUpti_CallbackId ps_traced_call_ids[];
extern const size_t ps_traced_call_count;

/* Returns whether the function in front of the call is the hook of hooks.def. */
bool ps_traced_call_is_below_hook(CUpti_CallbackId id);

/* Returns whether an older CUPTI may not know the call, in which case its absence costs nothing. */
bool ps_traced_call_may_be_unknown(CUpti_CallbackId id);

#endif
