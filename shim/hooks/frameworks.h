/*
 * Penstock's requests to frameworks: environment variables of theirs, set before they are loaded.
 * Torch and JAX are to show their tensors, and NCCL is to register nothing by itself. Constructors
 * set the variables in every process; setenv sets torch's where the program sets them afterwards. A
 * process that never calls CUDA gets nothing else, except PENSTOCK_SIGNAL (report_signal.h).
 */
#ifndef PS_FRAMEWORKS_H
#define PS_FRAMEWORKS_H

#include <stdbool.h>

/*
 * Returns whether we, not the user, ask torch for the backend that shows its tensors. Any thread.
 */
bool ps_frameworks_chose_visible_tensors(void);

/* Returns whether torch is loaded and has that backend. Any thread. */
bool ps_frameworks_torch_shows_tensors(void);

#endif
