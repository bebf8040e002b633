/*
 * The insides of graphs, for who makes them (capture.c) and for the calls that name their nodes one
 * by one (graph_nodes.c).
 *
 * A node of a copy or a fill knows of what kind the memory at its addresses was when the driver
 * last looked: host or device. The driver looks when a node is made, changed or instantiated, not
 * when it is launched; it refuses a change to memory of another kind, and an address that leads
 * nowhere (measured: H100, driver 580). Under the device lock.
 */
#ifndef CUDASIM_GRAPHS_H
#define CUDASIM_GRAPHS_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

#include "engine.h"

enum cudasim_look {
    CUDASIM_LOOK_NONE, /* no address of that side */
    CUDASIM_LOOK_DEVICE,
    CUDASIM_LOOK_HOST,
    CUDASIM_LOOK_NOWHERE, /* addresses of a reservation with nothing mapped to them */
};

/* Of an operation's target and source. */
struct cudasim_looks {
    enum cudasim_look to, from;
};

struct CUgraphNode_st {
    struct cudasim_operation *operation; /* of a child: a marker */
    CUgraph child;                       /* a graph of the node's own, or NULL */
    CUgraphNode origin;                  /* of a node of an executable graph: the one that it was made from */
    struct cudasim_looks looks;
    bool kernels_may_change_it; /* CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE; none does here */
    TAILQ_ENTRY(CUgraphNode_st) link;
};

TAILQ_HEAD(cudasim_node_list, CUgraphNode_st);

struct CUgraph_st {
    struct cudasim_node_list nodes;
    size_t node_count;
};

struct CUgraphExec_st {
    struct cudasim_node_list nodes;
    bool launched_by_kernels; /* CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH */
    bool frees;               /* at a launch: its memory that was not freed since the launch before */
    bool uploaded;            /* by cuGraphUpload or a launch, since it was changed last */
};

CUgraph cudasim_graph_new(void);
void cudasim_graph_free(CUgraph graph);

void cudasim_nodes_free(struct cudasim_node_list *nodes);
CUresult cudasim_nodes_clone(const struct cudasim_node_list *from, struct cudasim_node_list *to);
/* Adds a node at the end; owns the operation, also when it fails. */
CUresult cudasim_node_add(struct cudasim_node_list *nodes, struct cudasim_operation *operation);

/* What lies at an address, and at those of an operation. */
enum cudasim_look cudasim_look_at(uintptr_t address);
struct cudasim_looks cudasim_looks_of(const struct cudasim_operation *operation);

/* Whether each copy and fill, children's too, finds memory of the kinds that its node knows. */
bool cudasim_nodes_look_right(const struct cudasim_node_list *nodes);
/*
 * Whether `theirs` are of the same kinds in the same order, and find memory of the kinds that
 * `mine` know.
 */
bool cudasim_nodes_may_replace(const struct cudasim_node_list *mine, const struct cudasim_node_list *theirs);
/*
 * They do, and are known by the names of those before them. CUDA_ERROR_OUT_OF_MEMORY changes
 * nothing.
 */
CUresult cudasim_nodes_replace(struct cudasim_node_list *mine, const struct cudasim_node_list *theirs);

/* The node of an executable graph that was made from `origin`, however deep, or NULL. */
CUgraphNode cudasim_node_of(const struct cudasim_node_list *nodes, CUgraphNode origin);

#endif
