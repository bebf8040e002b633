/*
 * Graphs: their nodes, and the executable graphs that are made from them and changed as a whole.
 */
#include "graphs.h"

#include <stdlib.h>
#include <string.h>

#include "conditions.h"
#include "entries.h"
#include "kernels.h"
#include "memory.h"

/* ---- nodes ---- */

void cudasim_nodes_free(struct cudasim_node_list *nodes)
{
    CUgraphNode node;
    while ((node = TAILQ_FIRST(nodes))) {
        TAILQ_REMOVE(nodes, node, link);
        if (node->operation)
            cudasim_operation_free(node->operation);
        if (node->child)
            cudasim_graph_free(node->child);
        free(node->dependencies);
        free(node);
    }
}

/* Adds a node at the end. Takes ownership of the operation, also when it fails. */
static CUresult add_to(struct cudasim_node_list *nodes, struct cudasim_operation *operation)
{
    CUgraphNode node = calloc(1, sizeof *node);
    if (!node) {
        cudasim_operation_free(operation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    static uint64_t made;
    node->made = ++made;
    node->operation = operation;
    node->looks = cudasim_looks_of(operation);
    TAILQ_INSERT_TAIL(nodes, node, link);
    return CUDA_SUCCESS;
}

/* Returns whether the node's operation may be in a body of a conditional node (cuda.h). */
static bool may_be_in_body(const struct cudasim_operation *operation)
{
    switch (operation->kind) {
    case CUDASIM_OPERATION_KERNEL:
    case CUDASIM_OPERATION_COPY:
    case CUDASIM_OPERATION_FILL:
    case CUDASIM_OPERATION_MARKER:
    case CUDASIM_OPERATION_CONDITIONAL:
        return true;
    default:
        return false;
    }
}

static bool may_all_be_in_body(const struct cudasim_node_list *nodes)
{
    CUgraphNode node;
    TAILQ_FOREACH (node, nodes, link)
        if (!may_be_in_body(node->operation) || (node->child && !may_all_be_in_body(&node->child->nodes)))
            return false;
    return true;
}

CUresult cudasim_node_add(CUgraph graph, struct cudasim_operation *operation)
{
    if (graph->restricted && !may_be_in_body(operation)) {
        cudasim_operation_free(operation);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = add_to(&graph->nodes, operation);
    graph->node_count += result == CUDA_SUCCESS;
    return result;
}

CUresult cudasim_node_depend(CUgraphNode node, CUgraphNode on)
{
    for (size_t i = 0; i < node->dependency_count; i++)
        if (node->dependencies[i] == on)
            return CUDA_SUCCESS;
    if (node->dependency_count == node->dependency_room) {
        const size_t room = node->dependency_room ? 2 * node->dependency_room : 4;
        CUgraphNode *grown = realloc(node->dependencies, room * sizeof *grown);
        if (!grown)
            return CUDA_ERROR_OUT_OF_MEMORY;
        node->dependencies = grown;
        node->dependency_room = room;
    }
    node->dependencies[node->dependency_count++] = on;
    return CUDA_SUCCESS;
}

static void *copy_memory(const void *from, size_t bytes)
{
    void *to = malloc(bytes ? bytes : 1);
    return to ? memcpy(to, from, bytes) : NULL;
}

static bool clone_kernel(struct cudasim_operation *clone, const struct cudasim_operation *operation)
{
    uint32_t count = operation->kernel.entry->code->param_count;
    unsigned char *old_block = operation->kernel.block;
    unsigned char *block = copy_memory(old_block, operation->kernel.block_bytes);
    clone->kernel.block = block;
    clone->kernel.params = calloc((size_t)count + 1, sizeof(void *));
    if (!block || !clone->kernel.params)
        return false;
    for (uint32_t i = 0; i < count; i++)
        clone->kernel.params[i] = block + ((unsigned char *)operation->kernel.params[i] - old_block);
    return true;
}

/* Copies an operation that was never queued. */
static struct cudasim_operation *clone_operation(const struct cudasim_operation *operation)
{
    struct cudasim_operation *clone = cudasim_operation_new(operation->kind);
    if (!clone)
        return NULL;
    *clone = *operation;
    bool complete = true;
    if (operation->kind == CUDASIM_OPERATION_KERNEL) {
        complete = clone_kernel(clone, operation);
    } else if (operation->kind == CUDASIM_OPERATION_COPY && operation->copy.staging) {
        const struct cudasim_box *box = &operation->copy.box;
        clone->copy.staging = copy_memory(operation->copy.staging, box->width * box->height * box->depth);
        clone->copy.from.address = (uintptr_t)clone->copy.staging;
        complete = clone->copy.staging != NULL;
    } else if (operation->kind == CUDASIM_OPERATION_EVENT_RECORD || operation->kind == CUDASIM_OPERATION_EVENT_WAIT) {
        clone->event->references++;
    } else if (operation->kind == CUDASIM_OPERATION_CONDITIONAL) {
        clone->conditional = cudasim_conditional_clone(operation->conditional);
        if (!clone->conditional) {
            free(clone);
            return NULL;
        }
    }
    if (complete)
        return clone;
    cudasim_operation_free(clone);
    return NULL;
}

static CUresult clone_node(CUgraphNode node, struct cudasim_node_list *to)
{
    struct cudasim_operation *clone = clone_operation(node->operation);
    CUgraph child = node->child ? cudasim_graph_new() : NULL;
    CUresult result = clone && (child || !node->child) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS && child)
        result = cudasim_nodes_clone(&node->child->nodes, &child->nodes);
    if (result == CUDA_SUCCESS)
        result = add_to(to, clone);
    else if (clone)
        cudasim_operation_free(clone);
    if (result != CUDA_SUCCESS) {
        free(child);
        return result;
    }
    CUgraphNode made = TAILQ_LAST(to, cudasim_node_list);
    if (child) {
        child->node_count = node->child->node_count;
        child->restricted = node->child->restricted;
        child->is_child = true;
    }
    made->child = child;
    made->origin = node;
    made->looks = node->looks;
    made->disabled = node->disabled;
    made->kernels_may_change_it = node->kernels_may_change_it;
    node->copy = made;
    for (size_t i = 0; i < node->dependency_count && result == CUDA_SUCCESS; i++)
        result = cudasim_node_depend(made, node->dependencies[i]->copy);
    return result;
}

CUresult cudasim_nodes_clone(const struct cudasim_node_list *from, struct cudasim_node_list *to)
{
    CUgraphNode node;
    TAILQ_INIT(to);
    TAILQ_FOREACH (node, from, link) {
        CUresult result = clone_node(node, to);
        if (result != CUDA_SUCCESS) {
            cudasim_nodes_free(to);
            return result;
        }
    }
    return CUDA_SUCCESS;
}

CUresult cudasim_node_move_child(CUgraph graph, CUgraph child)
{
    if (graph->restricted && !may_all_be_in_body(&child->nodes))
        return CUDA_ERROR_NOT_SUPPORTED;
    struct cudasim_operation *operation = cudasim_operation_new(CUDASIM_OPERATION_MARKER);
    if (!operation)
        return CUDA_ERROR_OUT_OF_MEMORY;
    operation->call = cudasim_call_name();
    CUresult result = cudasim_node_add(graph, operation);
    if (result != CUDA_SUCCESS)
        return result;
    child->is_child = child->moved = true;
    child->restricted = graph->restricted;
    TAILQ_LAST(&graph->nodes, cudasim_node_list)->child = child;
    return CUDA_SUCCESS;
}

CUresult cudasim_node_add_child(CUgraph graph, const struct cudasim_node_list *nodes)
{
    if (graph->restricted && !may_all_be_in_body(nodes))
        return CUDA_ERROR_NOT_SUPPORTED;
    struct cudasim_operation *operation = cudasim_operation_new(CUDASIM_OPERATION_MARKER);
    CUgraph child = operation ? cudasim_graph_new() : NULL;
    if (!child) {
        if (operation)
            cudasim_operation_free(operation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    operation->call = cudasim_call_name();
    child->is_child = true;
    child->restricted = graph->restricted;
    CUresult result = cudasim_nodes_clone(nodes, &child->nodes);
    CUgraphNode node;
    TAILQ_FOREACH (node, &child->nodes, link)
        child->node_count++;
    if (result == CUDA_SUCCESS)
        result = cudasim_node_add(graph, operation);
    else
        cudasim_operation_free(operation);
    if (result == CUDA_SUCCESS)
        TAILQ_LAST(&graph->nodes, cudasim_node_list)->child = child;
    else
        cudasim_graph_free(child);
    return result;
}

CUgraph cudasim_graph_new(void)
{
    CUgraph graph = calloc(1, sizeof *graph);
    if (graph)
        TAILQ_INIT(&graph->nodes);
    return graph;
}

void cudasim_graph_free(CUgraph graph)
{
    cudasim_conditions_graph_gone(graph);
    cudasim_nodes_free(&graph->nodes);
    free(graph);
}

/* ---- graphs ---- */

CUresult cudasim_cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
    if (!phGraph || flags)
        return CUDA_ERROR_INVALID_VALUE;
    *phGraph = cudasim_graph_new();
    return *phGraph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cudasim_cuGraphDestroy(CUgraph hGraph)
{
    if (!hGraph || hGraph->outer || hGraph->moved) /* a body is its node's, and so is a moved child */
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    cudasim_graph_free(hGraph);
    cudasim_unlock();
    return CUDA_SUCCESS;
}

/*
 * Returns whether kernels may launch a graph of these nodes: only kernels, copies and fills
 * (cuda.h, cuGraphInstantiateWithFlags).
 */
static bool may_be_launched_by_kernels(const struct cudasim_node_list *nodes)
{
    CUgraphNode node;
    TAILQ_FOREACH (node, nodes, link) {
        enum cudasim_operation_kind kind = node->operation->kind;
        if (node->child
                ? !may_be_launched_by_kernels(&node->child->nodes)
                : kind != CUDASIM_OPERATION_KERNEL && kind != CUDASIM_OPERATION_COPY && kind != CUDASIM_OPERATION_FILL)
            return false;
    }
    return true;
}

CUresult cudasim_cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
{
    const unsigned long long taken = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                     CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY |
                                     CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
    const bool by_kernels = flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
    /* Nodes have no priorities here. */
    if (!phGraphExec || !hGraph || hGraph->outer || hGraph->moved || (flags & ~taken) ||
        (by_kernels && (flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)))
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphExec made = calloc(1, sizeof *made);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    cudasim_lock();
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (cudasim_conditions_are_taken(&hGraph->nodes, NULL))
        result = CUDA_ERROR_NOT_SUPPORTED; /* such a graph has one executable graph at a time */
    else if (cudasim_nodes_look_right(&hGraph->nodes) && cudasim_conditions_are_used(hGraph) &&
             (!by_kernels || may_be_launched_by_kernels(&hGraph->nodes)))
        result = cudasim_nodes_clone(&hGraph->nodes, &made->nodes);
    if (result == CUDA_SUCCESS)
        cudasim_conditions_take(&made->nodes, made);
    cudasim_unlock();
    made->flags = flags;
    made->launched_by_kernels = by_kernels;
    made->frees = flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    if (result != CUDA_SUCCESS)
        free(made);
    else
        *phGraphExec = made;
    return result;
}

CUresult cudasim_cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                              CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    const cuuint64_t upload = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    if (!instantiateParams)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cudasim_cuGraphInstantiateWithFlags(phGraphExec, hGraph, instantiateParams->flags & ~upload);
    if (result == CUDA_SUCCESS && instantiateParams->flags & upload)
        result = cudasim_cuGraphUpload(*phGraphExec, instantiateParams->hUploadStream);
    instantiateParams->hErrNode_out = NULL;
    instantiateParams->result_out =
        result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    cudasim_lock();
    if (result != CUDA_SUCCESS && hGraph && !cudasim_conditions_are_used(hGraph))
        instantiateParams->result_out = CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t *flags)
{
    if (!hGraphExec || !flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = hGraphExec->flags;
    return CUDA_SUCCESS;
}

/*
 * Replaces the executable graph's nodes by the other graph's, if these have the same kinds in the
 * same order. Conditional nodes take the other graph's handles with them.
 */
CUresult cudasim_cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo)
{
    if (!hGraphExec || !hGraph || !resultInfo || hGraph->moved)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    CUresult result = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    if (!cudasim_conditions_are_taken(&hGraph->nodes, hGraphExec) &&
        cudasim_nodes_may_replace(&hGraphExec->nodes, &hGraph->nodes))
        result = cudasim_nodes_replace(&hGraphExec->nodes, &hGraph->nodes);
    if (result == CUDA_SUCCESS) {
        cudasim_conditions_leave(hGraphExec);
        cudasim_conditions_take(&hGraphExec->nodes, hGraphExec);
        hGraphExec->uploaded = false;
    }
    cudasim_unlock();
    *resultInfo = (CUgraphExecUpdateResultInfo){.result = result == CUDA_SUCCESS ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                                                                 : CU_GRAPH_EXEC_UPDATE_ERROR};
    return result;
}

CUresult cudasim_cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    if (!hGraphExec)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    cudasim_conditions_leave(hGraphExec);
    cudasim_nodes_free(&hGraphExec->nodes);
    cudasim_unlock();
    free(hGraphExec);
    return CUDA_SUCCESS;
}
