/*
 * What each traced driver call (traced_calls.def) means to the tracer, by its CUPTI id and parameters: the part that is the same whoever sees
 * the calls, CUPTI (source_cupti.c) or functions of ours that stand in front of the driver's (source_hooks.c).
 *
 * On the thread that makes the call, inside Penstock (ps_inside). Parameters are read only before these return.
 */
#ifndef PS_TRACED_CALLS_H
#define PS_TRACED_CALLS_H

#include <cupti.h>
#include <stdbool.h>
#include <stddef.h>

#include "cuda/newer_cuda.h"

/* The call is about to be made; `parameters` is its structure of generated_cuda_meta.h. Other ids are no harm. */
void ps_traced_call_begins(CUpti_CallbackId id, const void *parameters);

/* It has been made. */
void ps_traced_call_ended(CUpti_CallbackId id, const void *parameters, CUresult result);

/* Every id that these look at. */
extern const CUpti_CallbackId ps_traced_call_ids[];
extern const size_t ps_traced_call_count;

/* Whether it is the hook of hooks.def that stands in front of it. */
bool ps_traced_call_is_below_hook(CUpti_CallbackId id);

/* Whether an older CUPTI may not know it: its absence costs nothing. */
bool ps_traced_call_may_be_unknown(CUpti_CallbackId id);

#endif
