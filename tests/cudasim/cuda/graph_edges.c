/* The edges of graphs: which node comes before which. Clones of whole graphs. */
#include <stdlib.h>

#include "engine.h"
#include "entries.h"
#include "graphs.h"

/* An array that a caller gave for an answer; with no array it asks for the number alone. */
struct answer {
    CUgraphNode *from, *to;
    size_t room, count;
};

static void give(struct answer *answer, CUgraphNode from, CUgraphNode to)
{
    if (answer->from && answer->count < answer->room)
        answer->from[answer->count] = from;
    if (answer->to && answer->count < answer->room)
        answer->to[answer->count] = to;
    answer->count++;
}

/* Clears places that are left over. Returns the number that the caller is told. */
static size_t told(const struct answer *answer)
{
    const bool arrays = answer->from || answer->to;
    for (size_t i = answer->count; arrays && i < answer->room; i++) {
        if (answer->from)
            answer->from[i] = NULL;
        if (answer->to)
            answer->to[i] = NULL;
    }
    return arrays && answer->room < answer->count ? answer->room : answer->count;
}

static void clear_data(CUgraphEdgeData *data, size_t count)
{
    for (size_t i = 0; data && i < count; i++)
        data[i] = (CUgraphEdgeData){.from_port = 0};
}

static bool depends(CUgraphNode node, CUgraphNode on)
{
    for (size_t i = 0; i < node->dependency_count; i++)
        if (node->dependencies[i] == on)
            return true;
    return false;
}

CUresult cudasim_cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes)
{
    if (!hGraph || !numRootNodes)
        return CUDA_ERROR_INVALID_VALUE;
    struct answer answer = {.from = rootNodes, .room = *numRootNodes};
    CUgraphNode node;
    cudasim_lock();
    TAILQ_FOREACH (node, &hGraph->nodes, link)
        if (!node->dependency_count)
            give(&answer, node, NULL);
    cudasim_unlock();
    *numRootNodes = told(&answer);
    return CUDA_SUCCESS;
}

CUresult cudasim_cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edgeData,
                                    size_t *numEdges)
{
    if (!hGraph || !numEdges || !from != !to)
        return CUDA_ERROR_INVALID_VALUE;
    struct answer answer = {.from = from, .to = to, .room = *numEdges};
    CUgraphNode node;
    cudasim_lock();
    TAILQ_FOREACH (node, &hGraph->nodes, link)
        for (size_t i = 0; i < node->dependency_count; i++)
            give(&answer, node->dependencies[i], node);
    cudasim_unlock();
    *numEdges = told(&answer);
    clear_data(edgeData, *numEdges);
    return CUDA_SUCCESS;
}

CUresult cudasim_cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies, CUgraphEdgeData *edgeData,
                                               size_t *numDependencies)
{
    if (!hNode || !numDependencies)
        return CUDA_ERROR_INVALID_VALUE;
    struct answer answer = {.from = dependencies, .room = *numDependencies};
    cudasim_lock();
    for (size_t i = 0; i < hNode->dependency_count; i++)
        give(&answer, hNode->dependencies[i], NULL);
    cudasim_unlock();
    *numDependencies = told(&answer);
    clear_data(edgeData, *numDependencies);
    return CUDA_SUCCESS;
}

/* Nodes that come after another one stand behind it in the list. */
CUresult cudasim_cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode *dependentNodes,
                                                 CUgraphEdgeData *edgeData, size_t *numDependentNodes)
{
    if (!hNode || !numDependentNodes)
        return CUDA_ERROR_INVALID_VALUE;
    struct answer answer = {.from = dependentNodes, .room = *numDependentNodes};
    cudasim_lock();
    for (CUgraphNode node = hNode; node; node = TAILQ_NEXT(node, link))
        if (depends(node, hNode))
            give(&answer, node, NULL);
    cudasim_unlock();
    *numDependentNodes = told(&answer);
    clear_data(edgeData, *numDependentNodes);
    return CUDA_SUCCESS;
}

/* ---- changes ---- */

static bool is_in(CUgraph graph, CUgraphNode wanted)
{
    CUgraphNode node;
    TAILQ_FOREACH (node, &graph->nodes, link)
        if (node == wanted)
            return true;
    return false;
}

static bool may_come_now(CUgraphNode node)
{
    for (size_t i = 0; i < node->dependency_count; i++)
        if (!node->dependencies[i]->index)
            return false;
    return true;
}

/* Puts each node behind its dependencies. Returns false where that is impossible: in a circle. */
static bool put_in_order(CUgraph graph)
{
    struct cudasim_node_list ordered = TAILQ_HEAD_INITIALIZER(ordered);
    CUgraphNode node, next;
    size_t left = 0, before;
    TAILQ_FOREACH (node, &graph->nodes, link) {
        node->index = 0; /* 1: it has its place */
        left++;
    }
    do {
        before = left;
        for (node = TAILQ_FIRST(&graph->nodes); node; node = next) {
            next = TAILQ_NEXT(node, link);
            if (!may_come_now(node))
                continue;
            TAILQ_REMOVE(&graph->nodes, node, link);
            TAILQ_INSERT_TAIL(&ordered, node, link);
            node->index = 1;
            left--;
        }
    } while (left && left < before);
    TAILQ_CONCAT(&ordered, &graph->nodes, link);
    TAILQ_CONCAT(&graph->nodes, &ordered, link);
    return !left;
}

static void drop_dependency(CUgraphNode node, CUgraphNode on)
{
    size_t kept = 0;
    for (size_t i = 0; i < node->dependency_count; i++)
        if (node->dependencies[i] != on)
            node->dependencies[kept++] = node->dependencies[i];
    node->dependency_count = kept;
}

/* Adds one edge, which must be new and close no circle. */
static CUresult add_edge(CUgraph graph, CUgraphNode from, CUgraphNode to)
{
    if (!is_in(graph, from) || !is_in(graph, to) || from == to || depends(to, from))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cudasim_node_depend(to, from);
    if (result == CUDA_SUCCESS && !put_in_order(graph)) {
        drop_dependency(to, from);
        put_in_order(graph);
        result = CUDA_ERROR_INVALID_VALUE;
    }
    return result;
}

static CUresult remove_edge(CUgraph graph, CUgraphNode from, CUgraphNode to)
{
    if (!is_in(graph, to) || !depends(to, from))
        return CUDA_ERROR_INVALID_VALUE;
    drop_dependency(to, from);
    return CUDA_SUCCESS;
}

/* Changes each of the edges, up to the first that can't be changed. */
static CUresult change_edges(CUresult (*change)(CUgraph graph, CUgraphNode from, CUgraphNode to), CUgraph graph,
                             const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data, size_t count)
{
    CUresult result = CUDA_SUCCESS;
    if (!graph || (count && (!from || !to)))
        return CUDA_ERROR_INVALID_VALUE;
    if (!cudasim_edges_are_plain(data, count))
        return CUDA_ERROR_NOT_SUPPORTED;
    cudasim_lock();
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = change(graph, from[i], to[i]);
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                           const CUgraphEdgeData *edgeData, size_t numDependencies)
{
    return change_edges(add_edge, hGraph, from, to, edgeData, numDependencies);
}

CUresult cudasim_cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                              const CUgraphEdgeData *edgeData, size_t numDependencies)
{
    return change_edges(remove_edge, hGraph, from, to, edgeData, numDependencies);
}

/* ---- clones ---- */

/* Memory of a graph's own, and conditional nodes, belong to one graph (cuda.h, cuGraphClone). */
CUresult cudasim_cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
    if (!phGraphClone || !originalGraph)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraph made = cudasim_graph_new();
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    cudasim_lock();
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (cudasim_nodes_may_be_copied(&originalGraph->nodes))
        result = cudasim_nodes_clone(&originalGraph->nodes, &made->nodes);
    made->node_count = originalGraph->node_count;
    if (result != CUDA_SUCCESS)
        cudasim_graph_free(made);
    else
        *phGraphClone = made;
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph)
{
    if (!phNode || !hOriginalNode || !hClonedGraph)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    *phNode = cudasim_node_of(&hClonedGraph->nodes, hOriginalNode);
    cudasim_unlock();
    return *phNode ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
