/*
 * NVTX ranges as layer boundaries: Penstock as the injection library that every copy of NVTX in the process loads at its first call.
 *
 * The constructor names this library in NVTX_INJECTION64_PATH if PENSTOCK_LAYERS asks for NVTX and the user named no other.
 */
#ifndef PS_NVTX_LAYERS_H
#define PS_NVTX_LAYERS_H

#include <stdbool.h>

/* Says once if PENSTOCK_LAYERS asks for ranges that go to somebody else's library. At the set-up. */
void ps_nvtx_layers_check(void);

/* Whether the injection library is somebody else's; false, too, where there is none. Looks at the environment and the file system. Any thread. */
bool ps_nvtx_layers_is_others(void);

#endif
