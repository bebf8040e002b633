/*
 * The order of a graph's nodes: each comes after those that it depends on. Programs may make nodes
 * in any order and add the edges later. Inside Penstock, without any lock.
 */
#ifndef PS_GRAPH_ORDER_H
#define PS_GRAPH_ORDER_H

#include <cuda.h>
#include <stddef.h>

/* Puts all nodes of the graph into such an order. Without memory or an answer they stay as is. */
void ps_graph_order(CUgraph graph, CUgraphNode *nodes, size_t count);

#endif
