/*
 * The nodes of a graph with their needs (graph_needs.h), as a tree: a node may have a child graph,
 * or bodies.
 *
 * A part belongs to its holder, whose lock guards it. Makes no driver call, except
 * ps_graph_part_number_copies.
 */
#ifndef PS_GRAPH_PARTS_H
#define PS_GRAPH_PARTS_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#include "tracer/graph_needs.h"

/*
 * What a node needs, and the nodes of its child graph. A whole graph is a part without a node
 * handle. A conditional node's parts are its bodies, with a body's handle as `node`.
 */
struct ps_graph_part {
    CUgraphNode node;
    bool is_disabled;
    struct ps_graph_needs needs;
    size_t nodes, nodes_room;
    struct ps_graph_part *inner; /* sorted by node handle */
};

/* Frees what the part holds, also in the parts in it. */
void ps_graph_part_free(struct ps_graph_part *part);

/* Adds the needs of `part` and of all parts in it, but no makers. */
void ps_graph_part_gather(struct ps_graph_needs *to, const struct ps_graph_part *part);

/* Returns whether the part, or a part in it, has copies. */
bool ps_graph_part_has_copies(const struct ps_graph_part *part);

/*
 * Puts the copies of the part's nodes into the order that the graph's edges give. `nodes` are the
 * graph's, whose order changes. Asks the driver for the edges.
 */
void ps_graph_part_number_copies(struct ps_graph_part *part, CUgraph graph, CUgraphNode *nodes, size_t count);

/* Finds the node at any depth. Returns NULL if it is not there. */
struct ps_graph_part *ps_graph_part_find(struct ps_graph_part *part, CUgraphNode node);

/* Adds a node to the part's own ones. Returns NULL if there is no memory. */
struct ps_graph_part *ps_graph_part_add(struct ps_graph_part *part, CUgraphNode node);

/* From now on, copies of the part and of all parts in it may run at a launch, or may not. */
void ps_graph_part_runs_sometimes(struct ps_graph_part *part);

/* The node is disabled or enabled: its copies do not run, or do. */
void ps_graph_part_disable(struct ps_graph_part *part, bool is_disabled);

/*
 * Replaces what the part has by `found`, which it takes over. Keeps its node and the places of its
 * copies.
 */
void ps_graph_part_replace(struct ps_graph_part *part, struct ps_graph_part found);

/* Returns whether the part, or a part in it, has kernels that may write tables. */
bool ps_graph_part_has_makers(const struct ps_graph_part *part);

/* The kernels of the part and of all parts in it are launched (ps_made_tables_run). */
void ps_graph_part_makes(struct ps_graph_part *part);

#endif
