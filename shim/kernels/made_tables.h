/*
 * Tables of addresses that kernels write. Such a table is small memory of the program on the
 * device. Later launches are given the table in place of the tensors. No copy and no parameter
 * shows its contents. But the kernel that writes a table is given the tensors. So it is enough to
 * know which kernels write tables, and where.
 *
 * The first launches of a kernel that is given spans and other memory of the device are examined.
 * The beginning of that memory is copied to the host, on the launch's own stream, and searched. If
 * the address of a span that the launch was given stands there, the kernel is a *maker* of tables.
 * From then on each of its launches makes tables, which name the spans that the launch is given
 * (launch_tables.h). Until then all memory of each of its launches counts as such a table, unless
 * it was searched in vain. A kernel that was examined several times in vain is no maker. A kernel
 * that only reads a table is taken for its maker. So its tables take no other tables away.
 *
 * A maker's table replaces the one that it made there before. But a kernel that is given an index
 * may write one entry at each launch. So a maker's first launches add to what was there, and are
 * examined, too. If a word of the parameters is found in different places of the table, all
 * launches add.
 *
 * Memory in a span of one unit is examined as well, because other allocators have small blocks
 * there. But it counts only when its kernel is known as a maker.
 *
 * Some tables stay unknown. A maker's first launches may make none. A kernel may be given the
 * addresses in disguise or in memory, or write to a larger span. A maker in pieces may write the
 * same place at its first launches. Some tables were made before tracing began. Under the guard
 * `host` their spans are found in their slots, and `penstock verify` names them.
 *
 * Two clocks: the copy stands behind the launch on the program's stream. Later writes to that
 * memory stand there too. Its free may stand elsewhere, if the kernel does not touch the memory. It
 * then comes behind the copy, on a stream of its own. The host asks now and then whether the copy
 * is over, and waits for nothing. Relations are in host order.
 *
 * Threads: any, inside Penstock, without the registry lock unless a function says otherwise.
 */
#ifndef PS_MADE_TABLES_H
#define PS_MADE_TABLES_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/given_memory.h"
#include "kernels/launch_tables.h"
#include "kernels/layouts.h"

/* Reads the looks that are over, and waits for none. */
void ps_made_tables_read_looks(void);

/* Called before each launch whose tables are asked for. Cheap while no look is under way. */
extern atomic_uint ps_made_looks; /* the number of looks under way */
static inline void ps_made_tables_read(void)
{
    if (atomic_load_explicit(&ps_made_looks, memory_order_relaxed))
        ps_made_tables_read_looks();
}

/*
 * Called before a launch that is given spans and other addresses, and does not go into a graph. If
 * the kernel is a maker, its table is known from here on.
 */
void ps_made_tables_begin(struct ps_made_call *call, CUfunction function, const struct ps_layout *layout,
                          void **parameters, void **extra);

/* Called after a launch was queued whose `looks` is true. It is then false. */
void ps_made_tables_end(struct ps_made_call *call, CUstream stream, bool per_thread);

/*
 * The same for a kernel node of a graph. Returns whether it may make tables. If so,
 * ps_made_tables_run is called with the filled structure before each launch of the graph.
 */
bool ps_made_tables_in_graph(struct ps_made_launch *launch, CUfunction function, const struct ps_layout *layout,
                             void **parameters, void **extra);
void ps_made_tables_run(struct ps_made_launch *launch);

/*
 * Returns whether a look under way reads the allocation that begins there, on a stream other than
 * this one. The program may free it in the order of this one. Asked only while there are looks.
 */
bool ps_made_tables_are_read(CUdeviceptr address, CUstream stream);

/*
 * Frees the program's memory behind the looks under way, and in the stream's order (NULL: in none).
 * No stream of the program waits. Returns false if the real function must free it.
 */
struct ps_stream;
bool ps_made_tables_free(CUdeviceptr address, struct ps_stream *stream);

/*
 * The program's context ends, and the events of its looks with it. Called before its end begins,
 * unless that is known only afterwards.
 */
void ps_made_tables_context_ends(CUcontext context);

#endif
