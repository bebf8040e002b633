/*
 * What frameworks are asked for by environment variables of their own, before they are loaded: that torch shows its tensors, that NCCL registers nothing by
 * itself. By constructors, in every process; nothing else is done in one that never calls CUDA.
 */
#ifndef PS_FRAMEWORKS_H
#define PS_FRAMEWORKS_H

/* Says why torch was left its own allocator, if it was and the user did not choose it. With the set-up. */
void ps_frameworks_say(void);

#endif
