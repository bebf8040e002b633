/*
 * The real NCCL (libnccl.so.2): the functions behind the hooks of nccl.def, found when a hook first needs one. Penstock doesn't link with it and
 * doesn't load it.
 *
 * Two clocks: nothing here is queued or waited for. Any thread, without a lock of ours: a look-up may come under the loader's.
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

/* Its name, as the library exports it. */
const char *ps_nccl_name(enum ps_nccl_function which);

/* The real function, to be cast to its type; NULL: the NCCL that is loaded has none of that name, or none is loaded. */
void *ps_real_nccl(enum ps_nccl_function which);

/* The same; `instead` is taken for it where none is found. */
void *ps_real_nccl_or(enum ps_nccl_function which, void *instead);

#endif
