/*
 * The hooks of nccl.def under names of their own, so that a look-up gets ours whatever else is
 * preloaded. They are exported under the names of nccl.h.
 */
#ifndef PS_NCCL_CALLS_H
#define PS_NCCL_CALLS_H

#include "cuda/nccl_types.h"

#define PS_NCCL_TRANSFER(name, parameters, arguments, sent, of_sent, received, of_received)                            \
    int ps_hook_##name parameters;
#define PS_NCCL_CALL(name, parameters, arguments) int ps_hook_##name parameters;
#include "cuda/nccl.def"
#undef PS_NCCL_TRANSFER
#undef PS_NCCL_CALL

/*
 * Returns the answer to a look-up by name (dlsym in some library's handle) that found `found`. That
 * is our function if `found` is the real one behind it. Else it is `found` itself: another NCCL's
 * function or another tool's.
 */
void *ps_nccl_stand_in(const char *name, void *found);

#endif
