/*
 * The bodies of graphs' conditional nodes. No call of CUDA 13.0 leads from such a node to its
 * bodies. Only the call that adds the node shows them, so they are remembered from there. A node
 * that was added unseen has no known bodies. Then what it touches is unknown.
 *
 * A conditional node is made by nothing but that call, because graphs with such nodes can't be
 * cloned or become children (cuda.h). So a node that gets the handle of an earlier one takes its
 * place here.
 *
 * Any thread, inside Penstock. No driver call is made here.
 */
#ifndef PS_GRAPH_BODIES_H
#define PS_GRAPH_BODIES_H

#include <cuda.h>
#include <stddef.h>

/* The graph got a conditional node with these parameters. The driver has filled in the bodies. */
void ps_graph_bodies_added(CUgraph graph, CUgraphNode node, const CUDA_CONDITIONAL_NODE_PARAMS *params);

/*
 * Returns the node's bodies, and stores their number. The caller frees the array. NULL: they are
 * unknown, or there is no memory.
 */
CUgraph *ps_graph_bodies_of(CUgraphNode node, size_t *count);

/*
 * The graph goes, and its nodes with it. Forgets them, and calls `gone` for each of their bodies.
 */
void ps_graph_bodies_forget(CUgraph graph, void (*gone)(CUgraph body));

#endif
