/*
 * Kernels that name a span in one launch and none in the next, inside a structure. The structure
 * holds earlier contents of the stack, stale pointers too. torch's cat and its norms of many
 * tensors are such kernels. Then a small kernel seems to use a span in some steps and not in
 * others. If such launches counted, no two steps would be alike. FSDP2's steps were 1,639 and 1,641
 * launches long, torch.compile's 672 to 674 (H200). A span that a pointer parameter names is meant,
 * and so is one that a table of addresses names.
 *
 * The spans that such launches name are held and brought as at any launch, because they may be
 * meant. Only steps are made without these launches.
 *
 * Any thread, no lock. A fingerprint is of kernel and shape (ps_tracer_kernel). If two want the
 * same place in the table, the later one is kept.
 */
#ifndef PS_STALE_POINTERS_H
#define PS_STALE_POINTERS_H

#include <stdbool.h>
#include <stdint.h>

/* A launch of the kernel named no live span. Some ns. */
void ps_stale_pointers_named_none(uint64_t fingerprint);

/* Returns whether a launch of the kernel has lately named no live span. */
bool ps_stale_pointers_is(uint64_t fingerprint);

#endif
