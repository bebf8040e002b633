/*
 * A graph's nodes and their order: each comes after those that it depends on. Programs may make
 * nodes in any order and add the edges later. Inside Penstock, without any lock.
 */
#ifndef PS_GRAPH_ORDER_H
#define PS_GRAPH_ORDER_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Returns the graph's nodes in any order; the caller frees them. NULL: the graph has no nodes, or
 * an error made `unknown` true.
 */
CUgraphNode *ps_graph_nodes(CUgraph graph, size_t *count, bool *unknown);

/* Puts all nodes of the graph into such an order. Without memory or an answer they stay as is. */
void ps_graph_order(CUgraph graph, CUgraphNode *nodes, size_t count);

#endif
