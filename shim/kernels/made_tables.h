/*
 * Tables of addresses that kernels write: small memory of the program's on the device, which later launches are given in place of the tensors. No copy and no
 * parameter shows what is in it. But the kernel that writes one is given the tensors, so it is enough to know which kernels do that, and where.
 *
 * After the first launches of a kernel that is given spans and other memory of the device, the beginning of that memory is copied to the host, on the launch's own
 * stream, and looked through. Where the address of a span stands that the same launch was given, the kernel is a *maker* of tables: from then on each of its
 * launches makes what it is given at that parameter a pointer table (pointer_tables.h) of the spans that it is given. So do its launches before that,
 * once it is known; until then what they named does not leave by reaction, if anything else can. A kernel that was looked at some times in vain is none.
 *
 * Not known are a maker whose first launches make no table, one that is given the addresses in disguise or in memory, tables made by graphs, and those that were
 * made before launches were traced. The guard finds what they lead to in its slots, and `penstock verify` names it.
 *
 * Two clocks: the copy stands behind the launch on the program's stream, where whatever writes to that memory or frees it afterwards stands too; it reads memory that
 * the program still has. The host asks now and then whether it is over, and waits for nothing. Relations are in host order.
 *
 * Threads: any, inside Penstock, without the registry lock unless it says otherwise.
 */
#ifndef PS_MADE_TABLES_H
#define PS_MADE_TABLES_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/layouts.h"
#include "memory/span.h"

#define PS_MADE_MEMORY 6u /* parameters that lead to other memory, of one launch; further ones are not looked at */
#define PS_MADE_SPANS 12u /* and spans; further ones are not among what the table names */

/* A launch that may make a table. */
struct ps_made_launch {
    CUfunction function;
    uint64_t key; /* of the kernel; 0: there is nothing to do at the launch's end */
    unsigned memories, spans;
    struct {
        CUdeviceptr address;
        unsigned place; /* among all words of the parameters */
    } memory[PS_MADE_MEMORY], span[PS_MADE_SPANS];
};

/* Before the launch: of a maker's the table is known from here on. */
void ps_made_tables_begin(struct ps_made_launch *launch, CUfunction function, const struct ps_layout *layout, void **parameters,
                          void **extra);

/* It has been queued. `looks`: something may be queued behind it, which is nothing while the stream is captured. */
void ps_made_tables_end(struct ps_made_launch *launch, CUstream stream, bool per_thread, bool looks);

/* That memory is overwritten or freed: what was made there before is no table. */
void ps_made_tables_overwritten(CUdeviceptr to, size_t bytes);

/* Whether the span is named by a launch of which it is not known yet whether it made a table. [with the registry lock or without] */
bool ps_made_tables_may_hold(const struct ps_span *span);

#endif
