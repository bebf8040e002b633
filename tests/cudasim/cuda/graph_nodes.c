/*
 * Graphs by their nodes: nodes are made and changed one by one, children among them, and kernels
 * launch graphs. Addresses of a node must lead to memory of the right kind when the driver looks
 * (graphs.h).
 */
#include <stdlib.h>
#include <string.h>

#include "conditions.h"
#include "engine.h"
#include "entries.h"
#include "graphs.h"
#include "guard.h"
#include "memory.h"

/* ---- kinds of memory at addresses ---- */

enum cudasim_look cudasim_look_at(uintptr_t address)
{
    const struct cudasim_range *range = cudasim_range_find(address);
    if (!address)
        return CUDASIM_LOOK_NONE;
    if (!range)
        return cudasim_guard_covers(address) ? CUDASIM_LOOK_NOWHERE : CUDASIM_LOOK_HOST;
    return range->host && range->kind != CUDASIM_RANGE_MANAGED ? CUDASIM_LOOK_HOST : CUDASIM_LOOK_DEVICE;
}

struct cudasim_looks cudasim_looks_of(const struct cudasim_operation *operation)
{
    struct cudasim_looks looks = {CUDASIM_LOOK_NONE, CUDASIM_LOOK_NONE};
    if (operation->kind == CUDASIM_OPERATION_COPY)
        looks = (struct cudasim_looks){cudasim_look_at(operation->copy.to.address),
                                       cudasim_look_at(operation->copy.from.address)};
    else if (operation->kind == CUDASIM_OPERATION_FILL)
        looks.to = cudasim_look_at(operation->fill.to.address);
    return looks;
}

static bool same_looks(struct cudasim_looks one, struct cudasim_looks other)
{
    return one.to == other.to && one.from == other.from && one.to != CUDASIM_LOOK_NOWHERE &&
           one.from != CUDASIM_LOOK_NOWHERE;
}

size_t cudasim_node_inner(CUgraphNode node, CUgraph **inner)
{
    struct cudasim_conditional *conditional =
        node->operation->kind == CUDASIM_OPERATION_CONDITIONAL ? node->operation->conditional : NULL;
    *inner = conditional ? conditional->bodies : &node->child;
    return conditional ? conditional->size : node->child != NULL;
}

bool cudasim_nodes_look_right(const struct cudasim_node_list *nodes)
{
    CUgraphNode node;
    CUgraph *inner;
    TAILQ_FOREACH (node, nodes, link) {
        if (!same_looks(node->looks, cudasim_looks_of(node->operation)))
            return false;
        for (size_t count = cudasim_node_inner(node, &inner); count; count--)
            if (!cudasim_nodes_look_right(&inner[count - 1]->nodes))
                return false;
    }
    return true;
}

/*
 * Returns whether both nodes come after the nodes of the same places in their lists. Places up to
 * theirs are known.
 */
static bool same_dependencies(CUgraphNode a, CUgraphNode b)
{
    size_t found = 0;
    for (size_t i = 0; i < a->dependency_count; i++)
        for (size_t k = 0; k < b->dependency_count; k++)
            found += a->dependencies[i]->index == b->dependencies[k]->index;
    return found == a->dependency_count && found == b->dependency_count;
}

static bool inner_may_replace(CUgraphNode mine, CUgraphNode theirs)
{
    CUgraph *my_inner, *their_inner;
    const size_t count = cudasim_node_inner(mine, &my_inner);
    if (cudasim_node_inner(theirs, &their_inner) != count)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!cudasim_nodes_may_replace(&my_inner[i]->nodes, &their_inner[i]->nodes))
            return false;
    return true;
}

bool cudasim_nodes_may_replace(const struct cudasim_node_list *mine, const struct cudasim_node_list *theirs)
{
    CUgraphNode a = TAILQ_FIRST(mine), b = TAILQ_FIRST(theirs);
    for (size_t index = 0; a && b; a = TAILQ_NEXT(a, link), b = TAILQ_NEXT(b, link)) {
        a->index = b->index = index++;
        if (!same_dependencies(a, b) || a->operation->kind != b->operation->kind || !a->child != !b->child ||
            !same_looks(a->looks, cudasim_looks_of(b->operation)) ||
            !same_looks(b->looks, cudasim_looks_of(b->operation)))
            return false;
        if (a->operation->kind == CUDASIM_OPERATION_CONDITIONAL &&
            !cudasim_conditional_same_kind(a->operation->conditional, b->operation->conditional))
            return false;
        if (!inner_may_replace(a, b))
            return false;
    }
    return !a && !b;
}

/* Gives each node of `to` the `origin` of the node in its place in `from`. */
static void take_names(const struct cudasim_node_list *to, const struct cudasim_node_list *from)
{
    CUgraphNode a = TAILQ_FIRST(to), b = TAILQ_FIRST(from);
    for (; a && b; a = TAILQ_NEXT(a, link), b = TAILQ_NEXT(b, link)) {
        CUgraph *my_inner, *their_inner;
        const size_t count = cudasim_node_inner(a, &my_inner), theirs = cudasim_node_inner(b, &their_inner);
        a->origin = b->origin;
        a->disabled = b->disabled;
        for (size_t i = 0; i < count && i < theirs; i++)
            take_names(&my_inner[i]->nodes, &their_inner[i]->nodes);
    }
}

CUresult cudasim_nodes_replace(struct cudasim_node_list *mine, const struct cudasim_node_list *theirs)
{
    struct cudasim_node_list taken;
    CUresult result = cudasim_nodes_clone(theirs, &taken);
    if (result != CUDA_SUCCESS)
        return result;
    take_names(&taken, mine);
    cudasim_nodes_free(mine);
    TAILQ_INIT(mine);
    TAILQ_CONCAT(mine, &taken, link);
    return CUDA_SUCCESS;
}

CUgraphNode cudasim_node_of(const struct cudasim_node_list *nodes, CUgraphNode origin)
{
    CUgraphNode node, found = NULL;
    CUgraph *inner;
    TAILQ_FOREACH (node, nodes, link) {
        found = node->origin == origin ? node : NULL;
        for (size_t count = cudasim_node_inner(node, &inner); count && !found; count--)
            found = cudasim_node_of(&inner[count - 1]->nodes, origin);
        if (found)
            break;
    }
    return found;
}

/* ---- copies and fills ---- */

/*
 * Stores an end of a copy of the box: rows with `pitch`, in planes of `rows`. It begins at the
 * offset x, y, z. Returns false if the rows or slices overlap.
 */
static bool read_end(uintptr_t base, const size_t offset[3], size_t pitch, size_t rows, const struct cudasim_box *box,
                     struct cudasim_side *end)
{
    const size_t y = offset[1], z = offset[2];
    if (box->height == 1 && box->depth == 1 && !y && !z)
        pitch = box->width;
    if (box->depth == 1 && !z)
        rows = box->height;
    if (pitch < box->width || rows < box->height)
        return false;
    *end = (struct cudasim_side){base + offset[0] + (z * rows + y) * pitch, pitch, rows * pitch};
    return true;
}

/*
 * Reads a copy between addresses. Returns false for arrays, and for memory that is not of the kind
 * that the call names. [locked]
 */
static bool read_copy(const CUDA_MEMCPY3D *params, struct cudasim_copy *copy)
{
    const CUmemorytype array = CU_MEMORYTYPE_ARRAY;
    if (!params || !params->WidthInBytes || params->srcMemoryType == array || params->dstMemoryType == array)
        return false;
    const uintptr_t to = params->dstMemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)params->dstHost : params->dstDevice;
    const uintptr_t from = params->srcMemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)params->srcHost : params->srcDevice;
    const size_t to_offset[] = {params->dstXInBytes, params->dstY, params->dstZ};
    const size_t from_offset[] = {params->srcXInBytes, params->srcY, params->srcZ};
    *copy = (struct cudasim_copy){
        .box = {params->WidthInBytes, params->Height ? params->Height : 1, params->Depth ? params->Depth : 1}};
    if (!read_end(to, to_offset, params->dstPitch, params->dstHeight, &copy->box, &copy->to) ||
        !read_end(from, from_offset, params->srcPitch, params->srcHeight, &copy->box, &copy->from))
        return false;
    copy->direction = cudasim_direction_of(copy->to.address, copy->from.address);
    if (cudasim_look_at(to) == CUDASIM_LOOK_NOWHERE || cudasim_look_at(from) == CUDASIM_LOOK_NOWHERE)
        return false;
    return to && from &&
           (params->dstMemoryType != CU_MEMORYTYPE_DEVICE || cudasim_look_at(to) == CUDASIM_LOOK_DEVICE) &&
           (params->srcMemoryType != CU_MEMORYTYPE_DEVICE || cudasim_look_at(from) == CUDASIM_LOOK_DEVICE);
}

static bool read_fill(const CUDA_MEMSET_NODE_PARAMS *params, struct cudasim_fill *fill)
{
    if (!params || !params->dst || !params->width || !params->height ||
        (params->elementSize != 1 && params->elementSize != 2 && params->elementSize != 4))
        return false;
    const size_t width = params->width * params->elementSize;
    *fill = (struct cudasim_fill){
        .box = {width, params->height, 1},
        .to = {(uintptr_t)params->dst, params->height == 1 ? width : params->pitch, params->pitch * params->height},
        .value = params->value,
        .value_bytes = params->elementSize,
    };
    return cudasim_look_at(fill->to.address) == CUDASIM_LOOK_DEVICE;
}

/*
 * Replaces the node's operation by its new form, if its memory has the kinds that the node knows.
 * With `anew` the kinds may differ.
 */
static CUresult set_operation(CUgraphNode node, struct cudasim_operation now, bool anew)
{
    const struct cudasim_looks looks = cudasim_looks_of(&now);
    if (!same_looks(looks, looks) || (!anew && !same_looks(node->looks, looks)))
        return CUDA_ERROR_INVALID_VALUE;
    *node->operation = now;
    node->looks = looks;
    return CUDA_SUCCESS;
}

static bool is_one_row(const struct cudasim_copy *copy)
{
    return copy->box.height == 1 && copy->box.depth == 1;
}

/* Changes a copy. Without `anew` it must be of one row, as cuda.h demands for executable graphs. */
static CUresult set_copy(CUgraphNode node, const CUDA_MEMCPY3D *params, bool anew)
{
    if (!node || node->child || node->operation->kind != CUDASIM_OPERATION_COPY || node->operation->copy.staging)
        return CUDA_ERROR_INVALID_VALUE;
    struct cudasim_operation now = *node->operation;
    if (!read_copy(params, &now.copy) || (!anew && (!is_one_row(&now.copy) || !is_one_row(&node->operation->copy))))
        return CUDA_ERROR_INVALID_VALUE;
    return set_operation(node, now, anew);
}

/* Changes a fill. Without `anew` its shape must stay, as cuda.h demands for executable graphs. */
static CUresult set_fill(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params, bool anew)
{
    if (!node || node->child || node->operation->kind != CUDASIM_OPERATION_FILL)
        return CUDA_ERROR_INVALID_VALUE;
    struct cudasim_operation now = *node->operation;
    const struct cudasim_box *was = &node->operation->fill.box;
    if (!read_fill(params, &now.fill))
        return CUDA_ERROR_INVALID_VALUE;
    if (!anew && (now.fill.box.width != was->width || now.fill.box.height != was->height ||
                  now.fill.value_bytes != node->operation->fill.value_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return set_operation(node, now, anew);
}

/* Notes a change of an executable graph, unless it failed. Returns `result`. [locked] */
static CUresult changed(CUgraphExec executable, CUresult result)
{
    if (result == CUDA_SUCCESS)
        executable->uploaded = false;
    return result;
}

CUresult cudasim_cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    (void)ctx;
    if (!hGraphExec || !hNode)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    CUresult result = changed(hGraphExec, set_copy(cudasim_node_of(&hGraphExec->nodes, hNode), copyParams, false));
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
    (void)ctx;
    if (!hGraphExec || !hNode)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    CUresult result = changed(hGraphExec, set_fill(cudasim_node_of(&hGraphExec->nodes, hNode), memsetParams, false));
    cudasim_unlock();
    return result;
}

/* Returns the executable graph's node if it is a kernel, a copy or a fill: others stay enabled. */
static CUgraphNode find_switched(CUgraphExec executable, CUgraphNode origin)
{
    CUgraphNode node = cudasim_node_of(&executable->nodes, origin);
    const enum cudasim_operation_kind kind = node ? node->operation->kind : CUDASIM_OPERATION_MARKER;
    return kind == CUDASIM_OPERATION_KERNEL || kind == CUDASIM_OPERATION_COPY || kind == CUDASIM_OPERATION_FILL ? node
                                                                                                                : NULL;
}

CUresult cudasim_cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled)
{
    if (!hGraphExec || !hNode)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    CUgraphNode node = find_switched(hGraphExec, hNode);
    if (node)
        node->disabled = !isEnabled;
    CUresult result = changed(hGraphExec, node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int *isEnabled)
{
    if (!hGraphExec || !hNode || !isEnabled)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    const CUgraphNode node = find_switched(hGraphExec, hNode);
    if (node)
        *isEnabled = !node->disabled;
    cudasim_unlock();
    return node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cudasim_cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams)
{
    cudasim_lock();
    CUresult result = set_copy(hNode, nodeParams, true);
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
    cudasim_lock();
    CUresult result = set_fill(hNode, nodeParams, true);
    cudasim_unlock();
    return result;
}

/* ---- new nodes ---- */

/* Returns whether the dependencies of a new node are nodes of the graph. [locked] */
static bool are_in(CUgraph graph, const CUgraphNode *dependencies, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        CUgraphNode node;
        TAILQ_FOREACH (node, &graph->nodes, link)
            if (node == dependencies[i])
                break;
        if (!node)
            return false;
    }
    return true;
}

/*
 * Takes the node that was added last, and makes it wait for its dependencies. `made` may be one of
 * their places. [locked]
 */
static CUresult take_new_node(CUgraph graph, const CUgraphNode *dependencies, size_t count, CUgraphNode *made)
{
    CUgraphNode node = TAILQ_LAST(&graph->nodes, cudasim_node_list);
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = cudasim_node_depend(node, dependencies[i]);
    *made = node;
    return result;
}

CUresult cudasim_graph_add(CUgraph graph, const CUgraphNode *dependencies, size_t count,
                           struct cudasim_operation *operation, CUgraphNode *made)
{
    if (!are_in(graph, dependencies, count)) {
        cudasim_operation_free(operation);
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = cudasim_node_add(graph, operation);
    return result == CUDA_SUCCESS ? take_new_node(graph, dependencies, count, made) : result;
}

CUresult cudasim_cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                      size_t numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    (void)ctx;
    struct cudasim_operation *operation = phGraphNode && hGraph ? cudasim_operation_new(CUDASIM_OPERATION_COPY) : NULL;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (!operation)
        return result;
    operation->call = cudasim_call_name();
    cudasim_lock();
    if (read_copy(copyParams, &operation->copy))
        result = cudasim_graph_add(hGraph, dependencies, numDependencies, operation, phGraphNode);
    else
        cudasim_operation_free(operation);
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                      size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS *memsetParams,
                                      CUcontext ctx)
{
    (void)ctx;
    struct cudasim_operation *operation = phGraphNode && hGraph ? cudasim_operation_new(CUDASIM_OPERATION_FILL) : NULL;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (!operation)
        return result;
    operation->call = cudasim_call_name();
    cudasim_lock();
    if (read_fill(memsetParams, &operation->fill))
        result = cudasim_graph_add(hGraph, dependencies, numDependencies, operation, phGraphNode);
    else
        cudasim_operation_free(operation);
    cudasim_unlock();
    return result;
}

/* Copies the child into a graph of the node's own. */
CUresult cudasim_cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                          size_t numDependencies, CUgraph childGraph)
{
    if (!phGraphNode || !hGraph || !childGraph || childGraph->moved)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (!cudasim_nodes_may_be_copied(&childGraph->nodes))
        result = CUDA_ERROR_NOT_SUPPORTED; /* a child with memory would have to be moved into the graph */
    else if (are_in(hGraph, dependencies, numDependencies) && cudasim_nodes_look_right(&childGraph->nodes))
        result = cudasim_node_add_child(hGraph, &childGraph->nodes);
    if (result == CUDA_SUCCESS)
        result = take_new_node(hGraph, dependencies, numDependencies, phGraphNode);
    cudasim_unlock();
    return result;
}

/* Returns whether `child` is the graph, or a child or body that stands somewhere in it. */
static bool is_within(CUgraph child, CUgraph graph)
{
    CUgraphNode node;
    CUgraph *inner;
    bool within = child == graph;
    TAILQ_FOREACH (node, &graph->nodes, link)
        for (size_t count = cudasim_node_inner(node, &inner); count && !within; count--)
            within = is_within(child, inner[count - 1]);
    return within;
}

CUresult cudasim_add_moved_child(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                 CUgraph child)
{
    if (!child || child->is_child || child->outer)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (!cudasim_nodes_may_be_copied(&child->nodes))
        result = CUDA_ERROR_NOT_SUPPORTED;
    else if (!is_within(graph, child) && are_in(graph, dependencies, count) && cudasim_nodes_look_right(&child->nodes))
        result = cudasim_node_move_child(graph, child);
    if (result == CUDA_SUCCESS)
        result = take_new_node(graph, dependencies, count, made);
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph)
{
    if (!hNode || !hNode->child || !phGraph)
        return CUDA_ERROR_INVALID_VALUE;
    *phGraph = hNode->child;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph)
{
    if (!hGraphExec || !hNode || !childGraph)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    CUgraphNode node = cudasim_node_of(&hGraphExec->nodes, hNode);
    CUresult result = node && node->child ? CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE : CUDA_ERROR_INVALID_VALUE;
    if (node && node->child && cudasim_nodes_may_replace(&node->child->nodes, &childGraph->nodes))
        result = cudasim_nodes_replace(&node->child->nodes, &childGraph->nodes);
    changed(hGraphExec, result);
    cudasim_unlock();
    return result;
}

/* ---- attributes of kernels: may other kernels change them? ---- */

static bool has_attribute(CUgraphNode node, CUkernelNodeAttrID attribute)
{
    return node && !node->child && node->operation->kind == CUDASIM_OPERATION_KERNEL &&
           attribute == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;
}

CUresult cudasim_cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                               CUkernelNodeAttrValue *value_out)
{
    if (!value_out || !has_attribute(hNode, attr))
        return CUDA_ERROR_INVALID_VALUE;
    value_out->deviceUpdatableKernelNode.deviceUpdatable = hNode->kernels_may_change_it;
    value_out->deviceUpdatableKernelNode.devNode = NULL;
    return CUDA_SUCCESS;
}

CUresult cudasim_cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                               const CUkernelNodeAttrValue *value)
{
    if (!value || !has_attribute(hNode, attr))
        return CUDA_ERROR_INVALID_VALUE;
    hNode->kernels_may_change_it = value->deviceUpdatableKernelNode.deviceUpdatable != 0;
    return CUDA_SUCCESS;
}

/* ---- graphs that kernels launch ---- */

CUresult cudasim_cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream)
{
    if (!hGraphExec)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    CUresult result = cudasim_stream_resolve(hStream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        hGraphExec->uploaded = true;
    cudasim_unlock();
    return result;
}

static void run_nodes(const struct cudasim_node_list *nodes)
{
    CUgraphNode node;
    TAILQ_FOREACH (node, nodes, link)
        if (node->child)
            run_nodes(&node->child->nodes);
        else
            cudasim_operation_run_in_kernel(node->operation);
}

/*
 * The graph may run at any time from the kernel's call on; here it runs within the call. The kernel
 * must also belong to a graph (CUDA's programming guide).
 */
int cudasim_graph_launch(void *executable)
{
    const struct cudasim_operation *kernel = cudasim_kernel_running();
    CUgraphExec graph = executable;
    if (!kernel || !kernel->of_graph || !graph || !graph->launched_by_kernels || !graph->uploaded)
        return -1;
    run_nodes(&graph->nodes);
    return 0;
}
