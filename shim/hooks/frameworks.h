/*
 * What frameworks are asked for by environment variables of their own, before they are loaded: that torch and JAX show their tensors, that NCCL registers
 * nothing by itself. By constructors, in every process, and by setenv where the program sets torch's variables afterwards; nothing else but for PENSTOCK_SIGNAL
 * (report_signal.h) is done in one that never calls CUDA.
 */
#ifndef PS_FRAMEWORKS_H
#define PS_FRAMEWORKS_H

#include <stdbool.h>

/* Whether torch is asked for the backend that shows its tensors, and not by the user. Any thread. */
bool ps_frameworks_chose_visible_tensors(void);

/* Whether torch is here, and has that backend. Any thread. */
bool ps_frameworks_torch_shows_tensors(void);

#endif
