/*
 * Conditional nodes of graphs, and the conditions that they look at. A condition is a number behind
 * a handle, which kernels set (kernel_abi.h). When the node's turn comes in a launch, it chooses
 * one of its bodies. The device then queues the body's nodes, on streams of its own. The node is
 * over when they have run. A WHILE goes on until its condition is 0.
 *
 * All functions: under the device lock, unless a comment says otherwise.
 */
#ifndef CUDASIM_CONDITIONS_H
#define CUDASIM_CONDITIONS_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

struct cudasim_condition;
struct cudasim_node_list;
struct cudasim_operation;

/* The parameters of a conditional node. */
struct cudasim_conditional {
    struct cudasim_condition *condition;
    CUgraphConditionalNodeType type;
    unsigned int size;
    CUgraph *bodies; /* `size` graphs, owned */
    bool over;       /* in a launch: it has queued the only body that it will */
};

void cudasim_conditional_free(struct cudasim_conditional *conditional);
/* Returns a copy with copies of the bodies, or NULL without memory. */
struct cudasim_conditional *cudasim_conditional_clone(const struct cudasim_conditional *conditional);
/* Returns whether two nodes differ in nothing but their handles and what their bodies have. */
bool cudasim_conditional_same_kind(const struct cudasim_conditional *one, const struct cudasim_conditional *other);

/* Returns whether the list has conditional nodes. A child graph has none. */
bool cudasim_nodes_have_conditions(const struct cudasim_node_list *nodes);
/* Returns whether each handle that was made for the graph, or for a body in it, has its node. */
bool cudasim_conditions_are_used(CUgraph graph);
/* Returns whether an executable graph other than `executable` has conditions of these nodes. */
bool cudasim_conditions_are_taken(const struct cudasim_node_list *nodes, CUgraphExec executable);
/* Gives the conditions of these nodes to the executable graph, or takes all that it has. */
void cudasim_conditions_take(const struct cudasim_node_list *nodes, CUgraphExec executable);
void cudasim_conditions_leave(CUgraphExec executable);
/* Forgets the graph, whose handles can get no node any more. */
void cudasim_conditions_graph_gone(CUgraph graph);

/*
 * Makes the operation that begins a launch of these nodes: it gives their conditions their first
 * values. Returns NULL without memory.
 */
struct cudasim_operation *cudasim_conditions_begin(const struct cudasim_node_list *nodes);
/* Runs that operation. No lock needed. */
void cudasim_conditions_assign(const struct cudasim_operation *operation);
/*
 * Runs the next step of a conditional node, which is its stream's head. Returns true if the node is
 * over. Otherwise a body was queued, and the operation waits for it.
 */
bool cudasim_conditional_step(struct cudasim_operation *operation);

#endif
