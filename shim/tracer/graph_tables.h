/*
 * Launches of graphs. Pointer tables that a graph writes when it is launched: its copies bring
 * them, and its kernels make them (kernels/pointer_tables.h, kernels/made_tables.h). And the room
 * that its spans need. Any thread, inside Penstock.
 */
#ifndef PS_GRAPH_TABLES_H
#define PS_GRAPH_TABLES_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#include "memory/span.h"

/*
 * The graph is about to be launched. Its copies bring the tables that are in their sources now.
 * Kernels of the graph may use them, and launches to come: calls `note` for the spans that they
 * name. What its kernels make is added to what is known. Their order among the copies is not
 * followed: they count before and behind all copies. Returns false without memory.
 */
bool ps_graph_tables_run(CUgraphExec executable, void (*note)(void *ctx, CUdeviceptr unit), void *ctx);

/*
 * Warns if a graph's spans do not fit the budget. The launches of a graph's kernels are not seen,
 * so the graph needs all its spans at once.
 */
void ps_graph_look_for_room(struct ps_span *const *spans, size_t count);

#endif
