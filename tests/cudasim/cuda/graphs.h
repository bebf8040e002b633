/*
 * Internals of graphs, for captures (capture.c), for calls that name their nodes one by one
 * (graph_nodes.c), and for launches (graph_launches.c).
 *
 * A graph is a list of nodes in one of the orders that their dependencies allow. A launch runs each
 * node when the nodes before it have run, on streams of its own for parallel branches.
 *
 * Each side of a copy's or a fill's node has a kind of memory, host or device: the one that the
 * driver last saw there. The driver looks when a node is made, changed or instantiated, not when it
 * is launched. It refuses a change to memory of another kind, and an address without a mapping
 * (measured: H100, driver 580).
 *
 * All functions: under the device lock.
 */
#ifndef CUDASIM_GRAPHS_H
#define CUDASIM_GRAPHS_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

#include "engine.h"

enum cudasim_look {
    CUDASIM_LOOK_NONE, /* no address on that side */
    CUDASIM_LOOK_DEVICE,
    CUDASIM_LOOK_HOST,
    CUDASIM_LOOK_NOWHERE, /* addresses of a reservation without a mapping */
};

/* The kinds of memory at an operation's target and source. */
struct cudasim_looks {
    enum cudasim_look to, from;
};

struct CUgraphNode_st {
    struct cudasim_operation *operation; /* a child's node has a marker */
    CUgraph child;                       /* a child's node has a graph of its own; else NULL */
    CUgraphNode origin;                  /* in an executable graph: the node that it was made from */
    struct cudasim_looks looks;
    bool disabled;              /* cuGraphNodeSetEnabled: a launch has an empty node in its place */
    bool kernels_may_change_it; /* CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE; no kernel here does so */
    /* Nodes of the same list that come before this one in each launch; owned. */
    CUgraphNode *dependencies;
    size_t dependency_count, dependency_room;
    uint64_t made; /* the nodes of a graph in this order are in the order of their making */
    /* Scratch: its place in the list, its copy, and its place in a launch (graph_launches.c). */
    size_t index;
    CUgraphNode copy;
    unsigned branch;
    uint64_t known[CUDASIM_GRAPH_BRANCHES];
    struct cudasim_position position;
    TAILQ_ENTRY(CUgraphNode_st) link;
};

TAILQ_HEAD(cudasim_node_list, CUgraphNode_st);

struct CUgraph_st {
    struct cudasim_node_list nodes;
    size_t node_count;
    CUgraph outer;   /* the graph of the conditional node whose body this is, or NULL */
    bool restricted; /* such a body, or a child in one: only some kinds of nodes may be in it */
    bool is_child;   /* a child's graph */
    bool moved;      /* a child that was the program's graph; no call may take it for a graph of its own */
};

struct CUgraphExec_st {
    struct cudasim_node_list nodes;
    bool launched_by_kernels; /* CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH */
    unsigned long long flags; /* of its instantiation */
    bool frees;               /* a launch first frees the graph's memory that is still there from the launch before */
    bool uploaded;            /* by cuGraphUpload or a launch, since its last change */
    struct cudasim_position launched; /* the end of its newest launch, after which the next one begins */
};

CUgraph cudasim_graph_new(void);
void cudasim_graph_free(CUgraph graph);

void cudasim_nodes_free(struct cudasim_node_list *nodes);
CUresult cudasim_nodes_clone(const struct cudasim_node_list *from, struct cudasim_node_list *to);
/* Adds a node at the end. Takes ownership of the operation, also when it fails. */
CUresult cudasim_node_add(CUgraph graph, struct cudasim_operation *operation);
/* Adds a node at the end whose child graph has copies of these nodes. */
CUresult cudasim_node_add_child(CUgraph graph, const struct cudasim_node_list *nodes);
/* The same, but the child is the program's graph itself. */
CUresult cudasim_node_move_child(CUgraph graph, CUgraph child);
/*
 * Adds a node behind its dependencies, nodes of the graph. Takes ownership of the operation, also
 * when it fails.
 */
CUresult cudasim_graph_add(CUgraph graph, const CUgraphNode *dependencies, size_t count,
                           struct cudasim_operation *operation, CUgraphNode *made);
/* Makes the node wait for another of its list, unless it does so already. */
CUresult cudasim_node_depend(CUgraphNode node, CUgraphNode on);

/* Return the kind of memory at an address, and at the addresses of an operation. */
enum cudasim_look cudasim_look_at(uintptr_t address);
struct cudasim_looks cudasim_looks_of(const struct cudasim_operation *operation);

/*
 * Returns whether each copy and fill, children's too, finds the kinds of memory that its node
 * knows.
 */
bool cudasim_nodes_look_right(const struct cudasim_node_list *nodes);
/*
 * Returns whether `theirs` has the same kinds of nodes in the same order as `mine`, with the same
 * dependencies. Their memory must also be of the kinds that `mine` knows.
 */
bool cudasim_nodes_may_replace(const struct cudasim_node_list *mine, const struct cudasim_node_list *theirs);
/*
 * Replaces the nodes of `mine` by copies of `theirs`. Each keeps the `origin` of the node in its
 * place. CUDA_ERROR_OUT_OF_MEMORY changes nothing.
 */
CUresult cudasim_nodes_replace(struct cudasim_node_list *mine, const struct cudasim_node_list *theirs);

/*
 * Returns whether the edges have no data. Edges of programmatic launches are not simulated. No lock
 * needed.
 */
bool cudasim_edges_are_plain(const CUgraphEdgeData *edges, size_t count);
/*
 * Returns whether a graph of these nodes may become a clone, or a child. It may not if a node
 * allocates or frees memory of the graph's own, or is conditional.
 */
bool cudasim_nodes_may_be_copied(const struct cudasim_node_list *nodes);
/*
 * Stores the array of graphs in the node, and returns their number: the graph of a child, or the
 * bodies of a conditional node.
 */
size_t cudasim_node_inner(CUgraphNode node, CUgraph **inner);
/* Adds a child's node that takes the graph over. Without the device lock. */
CUresult cudasim_add_moved_child(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                 CUgraph child);
/* Adds a conditional node, and stores its bodies in the parameters. Without the device lock. */
CUresult cudasim_add_conditional_node(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                      CUDA_CONDITIONAL_NODE_PARAMS *params);
/* Queues the nodes of a body for a conditional node that is running, and makes that one wait. */
CUresult cudasim_graph_run_body(CUgraph body, struct cudasim_operation *conditional);
/* Returns the node of an executable graph, however deep, that was made from `origin`; or NULL. */
CUgraphNode cudasim_node_of(const struct cudasim_node_list *nodes, CUgraphNode origin);

#endif
