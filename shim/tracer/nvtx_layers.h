/*
 * NVTX ranges as layer boundaries. Every copy of NVTX in the process loads Penstock as its
 * injection library, at its first call.
 *
 * The constructor names this library in NVTX_INJECTION64_PATH if PENSTOCK_LAYERS asks for NVTX and
 * the user named no other library.
 */
#ifndef PS_NVTX_LAYERS_H
#define PS_NVTX_LAYERS_H

#include <stdbool.h>

/* Says once if PENSTOCK_LAYERS asks for ranges that go to another library. At the set-up. */
void ps_nvtx_layers_check(void);

/*
 * Returns whether another injection library is named; false, too, without any. Reads the
 * environment and the file system. Any thread.
 */
bool ps_nvtx_layers_is_others(void);

#endif
