/*
 * The real NCCL (libnccl.so.2): the functions behind the hooks of nccl.def. They are found when a
 * hook first needs one. Penstock neither links with NCCL nor loads it.
 *
 * Two clocks: nothing here is queued or waited for. Any thread, without a lock of Penstock's,
 * because a look-up may come under the loader's lock.
 */
#ifndef PS_NCCL_H
#define PS_NCCL_H

#include "cuda/nccl_types.h"

enum ps_nccl_function {
#define PS_NCCL_TRANSFER(name, parameters, arguments, sent, of_sent, received, of_received) PS_NCCL_FUNCTION_##name,
#define PS_NCCL_CALL(name, parameters, arguments) PS_NCCL_FUNCTION_##name,
#include "cuda/nccl.def"
#undef PS_NCCL_TRANSFER
#undef PS_NCCL_CALL
    PS_NCCL_FUNCTIONS
};

/* Returns the function's name, as the library exports it. */
const char *ps_nccl_name(enum ps_nccl_function which);

/*
 * Returns the real function, to be cast to its type. Returns NULL if no NCCL is loaded, or if the
 * loaded one lacks the function.
 */
void *ps_real_nccl(enum ps_nccl_function which);

/* The same; if the function is not found, `instead` takes its place for good. */
void *ps_real_nccl_or(enum ps_nccl_function which, void *instead);

#endif
