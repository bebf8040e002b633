/*
 * Calls in which the driver looks at the kind of memory that a graph's copies and fills name. Each
 * function tells the tracer about that memory before the driver looks (standing_in.h). The caller
 * ends the call with ps_tracer_end, like any traced call. Any thread, inside Penstock, without the
 * registry lock.
 */
#ifndef PS_GRAPH_LOOKS_H
#define PS_GRAPH_LOOKS_H

#include <cuda.h>

/* Names a copy's memory. NULL is the driver's to refuse. */
void ps_graph_looks_at_copy(const CUDA_MEMCPY3D *copy);
/* Names a fill's memory. NULL is the driver's to refuse. */
void ps_graph_looks_at_fill(const CUDA_MEMSET_NODE_PARAMS *fill);
/* Names the memory of a node: a copy, a fill or a child graph. NULL is the driver's to refuse. */
void ps_graph_looks_at_params(const CUgraphNodeParams *params);

/* Names all copies and fills of the graph, of its children, and of bodies of conditional nodes. */
void ps_graph_looks_at(CUgraph graph);

#endif
