/*
 * Kernels that name a span in one launch and none in the next, and name it inside a structure. Those hold what was on the stack before, stale pointers too
 * (torch's cat, its norms of many tensors): a small kernel then seems to use a span in some steps and not in others. Who counts such launches finds no two
 * steps alike: FSDP2's were 1,639 and 1,641 launches long, torch.compile's 672 to 674 (H200). What a parameter names that is a pointer is meant.
 *
 * What they name is held and brought like any other launch's: it may be meant. Only a step is not made of them.
 *
 * Any thread, no lock. A fingerprint is of kernel and shape (ps_tracer_kernel); of two that want the same place in the table the later one is kept.
 */
#ifndef PS_STALE_POINTERS_H
#define PS_STALE_POINTERS_H

#include <stdbool.h>
#include <stdint.h>

/* A launch of the kernel named no span that lives. Some ns. */
void ps_stale_pointers_named_none(uint64_t fingerprint);

/* Whether one has, lately. */
bool ps_stale_pointers_is(uint64_t fingerprint);

#endif
