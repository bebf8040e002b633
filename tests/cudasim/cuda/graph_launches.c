/*
 * Launches of executable graphs. Each node runs when the nodes that it depends on have run. Nodes
 * of parallel branches run on streams of their own, so a missing dependency shows: the seeded
 * scheduler takes any order, and under threads branches run side by side. The first branch, and so
 * the whole of a graph without branches, runs on the launch's stream.
 *
 * A GPU has a limited number of hardware queues, and a launch has CUDASIM_GRAPH_BRANCHES branches.
 * Where a graph is wider, a node is also ordered behind one that it does not depend on.
 */
#include <string.h>

#include "capture.h"
#include "conditions.h"
#include "engine.h"
#include "entries.h"
#include "graphs.h"
#include "kernels.h"
#include "memory.h"

struct graph_launch {
    CUstream stream;
    struct cudasim_position start;            /* what comes before all branches */
    uint64_t placed[CUDASIM_GRAPH_BRANCHES];  /* number of nodes of each branch */
    CUgraphNode last[CUDASIM_GRAPH_BRANCHES]; /* the newest of them */
    CUstream branch[CUDASIM_GRAPH_BRANCHES];  /* the streams of the branches */
    unsigned branches, turn;
};

/* A child's node, and the one that it lies in. */
struct outer_node {
    CUgraphNode node;
    const struct outer_node *outer;
};

/* ---- branches ---- */

static void come_after(CUgraphNode node, CUgraphNode before)
{
    for (unsigned i = 0; i < CUDASIM_GRAPH_BRANCHES; i++)
        if (before->known[i] > node->known[i])
            node->known[i] = before->known[i];
}

static bool is_newest(const struct graph_launch *launch, CUgraphNode node)
{
    return launch->last[node->branch] == node;
}

/* Returns a branch whose nodes all come before this one, or the number of branches. */
static unsigned free_branch(const struct graph_launch *launch, CUgraphNode node)
{
    for (size_t i = 0; i < node->dependency_count; i++)
        if (is_newest(launch, node->dependencies[i]))
            return node->dependencies[i]->branch;
    unsigned branch = 0;
    while (branch < CUDASIM_GRAPH_BRANCHES && launch->placed[branch] > node->known[branch])
        branch++;
    return branch;
}

/* Chooses the node's branch. */
static void place(struct graph_launch *launch, CUgraphNode node)
{
    unsigned branch = free_branch(launch, node);
    if (branch == CUDASIM_GRAPH_BRANCHES) {
        branch = launch->turn++ % CUDASIM_GRAPH_BRANCHES;
        come_after(node, launch->last[branch]);
    }
    node->branch = branch;
    node->known[branch] = ++launch->placed[branch];
    launch->last[branch] = node;
    if (branch >= launch->branches)
        launch->branches = branch + 1;
}

/*
 * Chooses a branch for each node. A child's nodes come after the dependencies of its node, and
 * before that node, which does nothing else.
 */
static void place_nodes(struct graph_launch *launch, struct cudasim_node_list *nodes, CUgraphNode outer)
{
    CUgraphNode node, inner;
    TAILQ_FOREACH (node, nodes, link) {
        memset(node->known, 0, sizeof node->known);
        if (outer)
            come_after(node, outer);
        for (size_t i = 0; i < node->dependency_count; i++)
            come_after(node, node->dependencies[i]);
        if (node->child) {
            place_nodes(launch, &node->child->nodes, node);
            TAILQ_FOREACH (inner, &node->child->nodes, link)
                come_after(node, inner);
        }
        place(launch, node);
    }
}

/* ---- queueing ---- */

static int after_node(struct cudasim_operation *operation, CUgraphNode node, CUgraphNode before)
{
    return before->branch == node->branch ? 0 : cudasim_operation_after(operation, before->position);
}

/* Makes the operation wait for the node's dependencies, or for those of the outer node. */
static int after_dependencies(struct cudasim_operation *operation, const struct graph_launch *launch, CUgraphNode node,
                              const struct outer_node *outer)
{
    CUgraphNode waiting = node;
    int error = 0;
    while (!waiting->dependency_count && outer) {
        waiting = outer->node;
        outer = outer->outer;
    }
    if (!waiting->dependency_count)
        return node->branch ? cudasim_operation_after(operation, launch->start) : 0;
    for (size_t i = 0; i < waiting->dependency_count && !error; i++)
        error = after_node(operation, node, waiting->dependencies[i]);
    return error;
}

/* A disabled node is as good as an empty one. */
static CUresult leave_out_disabled(CUgraphNode node)
{
    struct cudasim_operation *marker = node->disabled ? cudasim_operation_new(CUDASIM_OPERATION_MARKER) : NULL;
    if (!node->disabled)
        return CUDA_SUCCESS;
    if (!marker)
        return CUDA_ERROR_OUT_OF_MEMORY;
    marker->call = cudasim_call_name();
    cudasim_operation_free(node->operation);
    node->operation = marker;
    return CUDA_SUCCESS;
}

static CUresult queue_nodes(const struct graph_launch *launch, struct cudasim_node_list *nodes,
                            const struct outer_node *outer)
{
    CUresult result = CUDA_SUCCESS;
    CUgraphNode node, inner;
    TAILQ_FOREACH (node, nodes, link) {
        result = leave_out_disabled(node);
        struct cudasim_operation *operation = node->operation;
        if (node->child) {
            const struct outer_node own = {node, outer};
            result = queue_nodes(launch, &node->child->nodes, &own);
        }
        if (result != CUDA_SUCCESS)
            return result;
        int error = after_dependencies(operation, launch, node, outer);
        if (node->child)
            TAILQ_FOREACH (inner, &node->child->nodes, link)
                error = error ? error : after_node(operation, node, inner);
        if (error)
            return CUDA_ERROR_OUT_OF_MEMORY;
        operation->of_graph = true;
        if (operation->kind == CUDASIM_OPERATION_KERNEL)
            cudasim_kernel_is_launched(operation);
        node->operation = NULL; /* the queue owns it, also when this fails */
        if (operation->kind == CUDASIM_OPERATION_EVENT_RECORD || operation->kind == CUDASIM_OPERATION_EVENT_WAIT)
            result = cudasim_event_submit(operation, launch->branch[node->branch]);
        else
            result = cudasim_submit(operation, launch->branch[node->branch]);
        if (result != CUDA_SUCCESS)
            return result;
        node->position = cudasim_stream_end(launch->branch[node->branch]);
    }
    return result;
}

/* Queues a marker in the launch's stream, behind one position. */
static CUresult mark(struct graph_launch *launch, struct cudasim_position after)
{
    struct cudasim_operation *marker = cudasim_operation_new(CUDASIM_OPERATION_MARKER);
    if (!marker)
        return CUDA_ERROR_OUT_OF_MEMORY;
    marker->call = cudasim_call_name();
    if (cudasim_operation_after(marker, after)) {
        cudasim_operation_free(marker);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return cudasim_submit(marker, launch->stream);
}

/*
 * Queues the nodes, after the graph's launch before this one. A graph with branches lies between
 * two markers.
 */
static CUresult queue_graph(struct cudasim_node_list *nodes, CUstream stream, struct cudasim_position before)
{
    struct graph_launch launch = {.stream = stream};
    CUresult result = CUDA_SUCCESS;
    place_nodes(&launch, nodes, NULL);
    for (unsigned i = 0; i < launch.branches; i++)
        if (!(launch.branch[i] = cudasim_stream_branch(stream, i)))
            return CUDA_ERROR_OUT_OF_MEMORY;
    if (launch.branches > 1 || (before.stream != stream && !cudasim_reached(before)))
        result = mark(&launch, before);
    else
        cudasim_stream_waited(stream, before);
    launch.start = cudasim_stream_end(stream);
    if (result == CUDA_SUCCESS)
        result = queue_nodes(&launch, nodes, NULL);
    for (unsigned i = 1; i < launch.branches && result == CUDA_SUCCESS; i++)
        result = mark(&launch, cudasim_stream_end(launch.branch[i]));
    return result;
}

/* ---- conditional nodes ---- */

/* Queues the operation that gives the conditions of a launch their first values. */
static CUresult begin_conditions(const struct cudasim_node_list *nodes, CUstream stream, struct cudasim_position before)
{
    struct cudasim_operation *operation = cudasim_conditions_begin(nodes);
    if (!operation)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (cudasim_operation_after(operation, before)) {
        cudasim_operation_free(operation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return cudasim_submit(operation, stream);
}

CUresult cudasim_graph_run_body(CUgraph body, struct cudasim_operation *conditional)
{
    const struct cudasim_position nothing = {.stream = NULL};
    struct cudasim_node_list copies = TAILQ_HEAD_INITIALIZER(copies);
    CUstream stream = cudasim_stream_bodies(conditional->stream);
    CUresult result = stream ? cudasim_nodes_clone(&body->nodes, &copies) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS && TAILQ_EMPTY(&copies)) /* even an empty body lets others run */
        result = mark(&(struct graph_launch){.stream = stream}, nothing);
    else if (result == CUDA_SUCCESS)
        result = queue_graph(&copies, stream, nothing);
    cudasim_nodes_free(&copies);
    if (result == CUDA_SUCCESS && cudasim_operation_after(conditional, cudasim_stream_end(stream)))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    return result;
}

/* ---- memory of the graph's own ---- */

static bool is_of_memory(const struct cudasim_operation *operation)
{
    return operation->kind == CUDASIM_OPERATION_GRAPH_ALLOC || operation->kind == CUDASIM_OPERATION_GRAPH_FREE;
}

bool cudasim_nodes_may_be_copied(const struct cudasim_node_list *nodes)
{
    CUgraphNode node;
    TAILQ_FOREACH (node, nodes, link)
        if (node->child ? !cudasim_nodes_may_be_copied(&node->child->nodes)
                        : is_of_memory(node->operation) || node->operation->kind == CUDASIM_OPERATION_CONDITIONAL)
            return false;
    return true;
}

/* Makes the memory that a launch allocates appear, and the memory that it frees go. */
static CUresult take_memory(CUgraphExec executable)
{
    bool well = true;
    CUgraphNode node;
    TAILQ_FOREACH (node, &executable->nodes, link)
        if (!node->child && is_of_memory(node->operation))
            cudasim_pool_block_remember(node->operation->pool_block);
    TAILQ_FOREACH (node, &executable->nodes, link) {
        if (node->child || !is_of_memory(node->operation))
            continue;
        if (node->operation->kind == CUDASIM_OPERATION_GRAPH_ALLOC)
            well = well && cudasim_pool_block_appears(node->operation->pool_block, executable->frees);
        else
            well = well && cudasim_pool_block_goes(node->operation->pool_block);
    }
    TAILQ_FOREACH (node, &executable->nodes, link)
        if (!well && !node->child && is_of_memory(node->operation))
            cudasim_pool_block_restore(node->operation->pool_block);
    return well ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Queues one launch of the graph. A captured stream takes none (asked on an H200). */
static CUresult launch(CUgraphExec executable, CUstream stream)
{
    struct cudasim_node_list copies;
    CUresult result = cudasim_capture_answers(stream);
    if (result == CUDA_SUCCESS)
        result = take_memory(executable);
    TAILQ_INIT(&copies);
    if (result == CUDA_SUCCESS)
        result = cudasim_nodes_clone(&executable->nodes, &copies);
    struct cudasim_position before = executable->launched;
    if (result == CUDA_SUCCESS && cudasim_nodes_have_conditions(&executable->nodes)) {
        result = begin_conditions(&executable->nodes, stream, before);
        before = (struct cudasim_position){.stream = NULL};
    }
    if (result == CUDA_SUCCESS)
        result = queue_graph(&copies, stream, before);
    cudasim_nodes_free(&copies);
    if (result == CUDA_SUCCESS) {
        executable->launched = cudasim_stream_end(stream);
        executable->uploaded = true;
    }
    return result;
}

CUresult cudasim_cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
    if (!hGraphExec)
        return CUDA_ERROR_INVALID_VALUE;
    CUstream stream;
    cudasim_lock();
    CUresult result = cudasim_stream_with_room(hStream, &stream);
    if (result == CUDA_SUCCESS)
        result = launch(hGraphExec, stream);
    cudasim_unlock();
    return result;
}
