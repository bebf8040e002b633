#include "tracer/graph_looks.h"

#include <stdlib.h>

#include "cuda/driver.h"
#include "tracer/graph_bodies.h"
#include "tracer/graph_needs.h"
#include "tracer/tracer.h"

/* Graphs in nodes of graphs; deeper ones are not looked through. */
#define DEPTH_MAX 32u

static void name_side(CUmemorytype type, const void *host, CUdeviceptr device, size_t start, size_t bytes)
{
    if (type != CU_MEMORYTYPE_ARRAY)
        ps_tracer_bytes((type == CU_MEMORYTYPE_HOST ? (CUdeviceptr)host : device) + start, bytes);
}

/* Returns the bytes from the first byte of a box to the end of its last byte. */
static size_t extent(const CUDA_MEMCPY3D *copy, size_t pitch, size_t slice)
{
    return (copy->Depth ? copy->Depth - 1 : 0) * slice + (copy->Height ? copy->Height - 1 : 0) * pitch +
           copy->WidthInBytes;
}

static void name_copy(const CUDA_MEMCPY3D *c)
{
    const size_t to = c->dstPitch ? c->dstPitch : c->WidthInBytes, from = c->srcPitch ? c->srcPitch : c->WidthInBytes;
    const size_t to_slice = to * (c->dstHeight ? c->dstHeight : c->Height),
                 from_slice = from * (c->srcHeight ? c->srcHeight : c->Height);

    name_side(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstZ * to_slice + c->dstY * to + c->dstXInBytes,
              extent(c, to, to_slice));
    name_side(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcZ * from_slice + c->srcY * from + c->srcXInBytes,
              extent(c, from, from_slice));
}

static void name_fill(CUdeviceptr to, size_t pitch, size_t row, size_t height)
{
    ps_tracer_bytes(to, ps_graph_fill_extent(row, height, pitch));
}

static bool name_graph(CUgraph graph, unsigned depth);

/* Returns whether all bodies of the conditional node are known and could be read. */
static bool name_bodies(CUgraphNode node, unsigned depth)
{
    size_t count;
    CUgraph *bodies = ps_graph_bodies_of(node, &count);
    bool read = bodies != NULL;

    for (size_t i = 0; read && i < count; i++)
        read = name_graph(bodies[i], depth + 1);
    free(bodies);
    return read;
}

/* Returns whether the node could be read. */
static bool name_node(CUgraphNode node, unsigned depth)
{
    CUgraphNodeType type;
    CUDA_MEMCPY3D copy;
    CUDA_MEMSET_NODE_PARAMS fill;
    CUgraph child;

    if (!ps_cu.cuGraphNodeGetType || ps_cu.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
        return false;
    switch (type) {
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        if (!ps_cu.cuGraphMemcpyNodeGetParams || ps_cu.cuGraphMemcpyNodeGetParams(node, &copy) != CUDA_SUCCESS)
            return false;
        name_copy(&copy);
        return true;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        if (!ps_cu.cuGraphMemsetNodeGetParams || ps_cu.cuGraphMemsetNodeGetParams(node, &fill) != CUDA_SUCCESS)
            return false;
        name_fill(fill.dst, fill.pitch, fill.width * fill.elementSize, fill.height);
        return true;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return ps_cu.cuGraphChildGraphNodeGetGraph &&
               ps_cu.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS && name_graph(child, depth + 1);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return name_bodies(node, depth);
    default:
        return true;
    }
}

/* Returns whether the whole graph could be read. */
static bool name_graph(CUgraph graph, unsigned depth)
{
    CUgraphNode *nodes = NULL;
    size_t count = 0;

    if (depth > DEPTH_MAX || !ps_cu.cuGraphGetNodes || ps_cu.cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS)
        return false;
    if (!count)
        return true;
    nodes = malloc(count * sizeof *nodes);
    bool known = nodes && ps_cu.cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS;
    for (size_t i = 0; known && i < count; i++)
        known = name_node(nodes[i], depth);
    free(nodes);
    return known;
}

/* Names the graph's memory; all memory, if the driver does not say what the graph has. */
static void name_graph_or_all(CUgraph graph)
{
    if (!name_graph(graph, 0))
        ps_tracer_all_spans();
}

void ps_graph_looks_at_copy(const CUDA_MEMCPY3D *copy)
{
    if (!copy)
        return;
    ps_tracer_begin(NULL, false);
    name_copy(copy);
    ps_tracer_ready_to_look();
}

void ps_graph_looks_at_fill(const CUDA_MEMSET_NODE_PARAMS *fill)
{
    if (!fill)
        return;
    ps_tracer_begin(NULL, false);
    name_fill(fill->dst, fill->pitch, fill->width * fill->elementSize, fill->height);
    ps_tracer_ready_to_look();
}

void ps_graph_looks_at(CUgraph graph)
{
    ps_tracer_begin(NULL, false);
    name_graph_or_all(graph);
    ps_tracer_ready_to_look();
}

void ps_graph_looks_at_params(const CUgraphNodeParams *params)
{
    if (!params)
        return;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        ps_graph_looks_at_copy(&params->memcpy.copyParams);
        return;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        ps_tracer_begin(NULL, false);
        name_fill(params->memset.dst, params->memset.pitch, params->memset.width * params->memset.elementSize,
                  params->memset.height);
        ps_tracer_ready_to_look();
        return;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        ps_graph_looks_at(params->graph.graph);
        return;
    default:
        return;
    }
}
