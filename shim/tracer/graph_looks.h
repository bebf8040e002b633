/*
 * Calls in which the driver looks at what kind of memory a graph's copies and fills name: each tells the tracer what that is, before the driver looks
 * (standing_in.h). Ends with ps_tracer_end, as any call that is traced. Any thread, inside Penstock, without the registry lock.
 */
#ifndef PS_GRAPH_LOOKS_H
#define PS_GRAPH_LOOKS_H

#include <cuda.h>

/* NULL is the driver's to refuse. */
void ps_graph_looks_at_copy(const CUDA_MEMCPY3D *copy);
void ps_graph_looks_at_fill(const CUDA_MEMSET_NODE_PARAMS *fill);
void ps_graph_looks_at_params(const CUgraphNodeParams *params);

/* All copies and fills of the graph, and of its children. */
void ps_graph_looks_at(CUgraph graph);

#endif
