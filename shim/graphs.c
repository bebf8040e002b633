#include "graphs.h"

#include <pthread.h>
#include <stdlib.h>

#include "blocks.h"
#include "devices.h"
#include "growing.h"
#include "host_tables.h"
#include "kernel_words.h"
#include "log.h"
#include "pointer_tables.h"
#include "real_cuda.h"
#include "registry.h"
#include "rules.h"
#include "tracer.h"

/* Child graphs in child graphs; deeper ones are not followed. */
#define DEPTH_MAX 32

struct graph {
    struct graph *next;
    const void *handle; /* CUgraphExec, or CUgraph in `captured` */
    bool unknown;
    size_t count, room;
    CUdeviceptr *address; /* of a unit of the reservation each, ascending, none twice once they are in order */
};

#define BUCKETS 256
static struct graph *executables[BUCKETS];
static struct graph *captured[BUCKETS];                  /* graphs that were captured: what their nodes need not show */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf: no driver call with it held */

static struct graph **place_in(struct graph *table[BUCKETS], const void *handle)
{
    struct graph **at = &table[((uintptr_t)handle >> 4) * 0x9E3779B97F4A7C15u >> 56];

    while (*at && (*at)->handle != handle)
        at = &(*at)->next;
    return at;
}

static struct graph *make_in(struct graph *table[BUCKETS], const void *handle)
{
    struct graph **at = place_in(table, handle), *g = *at;

    if (!g && (g = calloc(1, sizeof *g))) {
        g->handle = handle;
        *at = g;
    }
    return g;
}

static void remove_from(struct graph *table[BUCKETS], const void *handle)
{
    pthread_mutex_lock(&lock);
    struct graph **at = place_in(table, handle), *g = *at;
    if (g)
        *at = g->next;
    pthread_mutex_unlock(&lock);
    if (g) {
        free(g->address);
        free(g);
    }
}

/* ---- gathering ---- */

static void take(void *gathered, CUdeviceptr address)
{
    struct graph *g = gathered;
    CUdeviceptr unit = address - (address - ps_reservation.base) % ps_reservation.granularity;

    if (!ps_registry_owns(address) || (g->count && g->address[g->count - 1] == unit))
        return;
    CUdeviceptr *grown = ps_grown_array(g->address, g->count, &g->room, 64, sizeof *grown);
    if (!grown) {
        g->unknown = true;
        return;
    }
    g->address = grown;
    g->address[g->count++] = unit;
}

static int ascending(const void *a, const void *b)
{
    CUdeviceptr one = *(const CUdeviceptr *)a, other = *(const CUdeviceptr *)b;

    return (one > other) - (one < other);
}

static void put_in_order(struct graph *g)
{
    size_t kept = 0;

    if (g->count)
        qsort(g->address, g->count, sizeof *g->address, ascending);
    for (size_t i = 0; i < g->count; i++)
        if (!kept || g->address[kept - 1] != g->address[i])
            g->address[kept++] = g->address[i];
    g->count = kept;
}

static void take_word(void *gathered, CUdeviceptr word, size_t bytes)
{
    (void)bytes;
    take(gathered, word);
}

/* Tables as they are when the graph is made: what is copied into them later is not the graph's. */
static void take_table(void *gathered, CUdeviceptr word, size_t bytes)
{
    (void)bytes;
    ps_pointer_tables_name(word, take, gathered);
}

static void take_kernel(struct graph *g, const CUDA_KERNEL_NODE_PARAMS *kernel)
{
    CUfunction function = kernel->func ? kernel->func : (CUfunction)kernel->kern;
    const struct ps_layout *layout = function ? ps_layout_of(function) : NULL;

    if (!function || !ps_kernel_words(layout, kernel->kernelParams, kernel->extra, take_word, g)) {
        g->unknown = true;
        return;
    }
    if (ps_host_tables_name(layout, kernel->kernelParams, kernel->extra, take, g))
        g->unknown = true; /* they may hold others at each launch */
    if (ps_pointer_tables_exist() && ps_rule(TABLE_NAMES_SPANS))
        ps_kernel_words_between(atomic_load(&ps_pointer_tables_extent.start), atomic_load(&ps_pointer_tables_extent.bytes), layout,
                                kernel->kernelParams, kernel->extra, take_table, g);
}

static void take_graph(struct graph *g, CUgraph graph, unsigned depth);

/* Whether the node could be read. */
static bool take_node(struct graph *g, CUgraphNode node, unsigned depth)
{
    CUgraphNodeType type;
    CUDA_KERNEL_NODE_PARAMS kernel;
    CUDA_MEMCPY3D copy;
    CUDA_MEMSET_NODE_PARAMS fill;
    CUDA_BATCH_MEM_OP_NODE_PARAMS values;
    CUgraph child;

    if (!ps_cu.cuGraphNodeGetType || ps_cu.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
        return false;
    switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        if (!ps_cu.cuGraphKernelNodeGetParams || ps_cu.cuGraphKernelNodeGetParams(node, &kernel) != CUDA_SUCCESS)
            return false;
        take_kernel(g, &kernel);
        return true;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        if (!ps_cu.cuGraphMemcpyNodeGetParams || ps_cu.cuGraphMemcpyNodeGetParams(node, &copy) != CUDA_SUCCESS)
            return false;
        take(g, copy.dstDevice);
        take(g, copy.srcDevice);
        return true;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        if (!ps_cu.cuGraphMemsetNodeGetParams || ps_cu.cuGraphMemsetNodeGetParams(node, &fill) != CUDA_SUCCESS)
            return false;
        take(g, fill.dst);
        return true;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        if (!ps_cu.cuGraphBatchMemOpNodeGetParams || ps_cu.cuGraphBatchMemOpNodeGetParams(node, &values) != CUDA_SUCCESS)
            return false;
        for (unsigned i = 0; i < values.count; i++) /* `address` is in the same place in each that has one */
            take(g, values.paramArray[i].waitValue.address);
        return true;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        if (!ps_cu.cuGraphChildGraphNodeGetGraph || ps_cu.cuGraphChildGraphNodeGetGraph(node, &child) != CUDA_SUCCESS)
            return false;
        take_graph(g, child, depth + 1);
        return true;
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: /* memory of the graph's own, which is no span */
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return true;
    default: /* conditional nodes, and what is younger than this */
        return false;
    }
}

static void take_captured(struct graph *g, CUgraph graph)
{
    pthread_mutex_lock(&lock);
    const struct graph *more = *place_in(captured, graph);
    for (size_t i = 0; more && i < more->count; i++)
        take(g, more->address[i]);
    g->unknown |= more && more->unknown;
    pthread_mutex_unlock(&lock);
}

static void take_graph(struct graph *g, CUgraph graph, unsigned depth)
{
    CUgraphNode *nodes = NULL;
    size_t count = 0;

    take_captured(g, graph);
    if (depth > DEPTH_MAX || !ps_cu.cuGraphGetNodes || ps_cu.cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS) {
        g->unknown = true;
        return;
    }
    if (!count)
        return;
    nodes = malloc(count * sizeof *nodes);
    if (!nodes || ps_cu.cuGraphGetNodes(graph, nodes, &count) != CUDA_SUCCESS) {
        g->unknown = true;
        count = 0;
    }
    for (size_t i = 0; i < count && !g->unknown; i++)
        if (!take_node(g, nodes[i], depth))
            g->unknown = true;
    free(nodes);
}

/* ---- keeping ---- */

/* What was gathered goes to the graph's own, which is made if it is `anew`. Takes the addresses. */
static void keep(CUgraphExec executable, struct graph *gathered, bool anew)
{
    pthread_mutex_lock(&lock);
    struct graph *g = *place_in(executables, executable);
    if (g && anew) { /* a handle given out again, whose end was not seen */
        g->count = 0;
        g->unknown = false;
    } else if (anew) {
        g = make_in(executables, executable);
    }
    for (size_t i = 0; g && i < gathered->count; i++)
        take(g, gathered->address[i]);
    if (g) {
        g->unknown |= gathered->unknown;
        put_in_order(g);
    }
    pthread_mutex_unlock(&lock);
    free(gathered->address);
}

/* No victims from now on. */
static void pin(const struct graph *g)
{
    for (size_t i = 0; i < g->count; i++) {
        ps_devices_enter_address(g->address[i]);
        ps_registry_lock();
        struct ps_span *span = ps_registry_live_at(g->address[i]);
        const struct ps_block *block = span ? ps_block_of(span) : NULL;
        if (span)
            span->pinned = true;
        if (block) /* any piece of it may be touched */
            PS_BLOCK_EACH (span, block)
                span->pinned = true;
        ps_registry_unlock();
    }
}

void ps_graph_instantiated(CUgraphExec executable, CUgraph graph, bool launched_by_kernels)
{
    struct graph gathered = {.next = NULL};

    take_graph(&gathered, graph, 0);
    put_in_order(&gathered);
    if (launched_by_kernels)
        pin(&gathered);
    ps_log_debug(TRACER, "a graph was instantiated: it touches %zu units of memory%s", gathered.count,
                 gathered.unknown ? ", and something that can't be read" : "");
    keep(executable, &gathered, true);
}

void ps_graph_takes(CUgraphExec executable, CUgraph graph)
{
    struct graph gathered = {.next = NULL};

    take_graph(&gathered, graph, 0);
    keep(executable, &gathered, false);
}

void ps_graph_takes_kernel(CUgraphExec executable, const CUDA_KERNEL_NODE_PARAMS *kernel)
{
    struct graph gathered = {.next = NULL};

    if (kernel)
        take_kernel(&gathered, kernel);
    keep(executable, &gathered, false);
}

void ps_graph_takes_addresses(CUgraphExec executable, CUdeviceptr a, CUdeviceptr b)
{
    struct graph gathered = {.next = NULL};

    take(&gathered, a);
    take(&gathered, b);
    keep(executable, &gathered, false);
}

void ps_graph_unknown(CUgraphExec executable)
{
    struct graph gathered = {.unknown = true};

    keep(executable, &gathered, false);
}

void ps_graph_destroyed(CUgraphExec executable)
{
    remove_from(executables, executable);
}

void ps_graph_captured_destroyed(CUgraph graph)
{
    remove_from(captured, graph);
}

void ps_graph_captures(CUstream stream, const CUdeviceptr *addresses, size_t count)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUgraph graph = NULL;

    if (!ps_cu.cuStreamGetCaptureInfo || ps_cu.cuStreamGetCaptureInfo(stream, &status, NULL, &graph, NULL, NULL, NULL) != CUDA_SUCCESS ||
        !graph) {
        ps_log_warn_once(
            TRACER,
            "what NCCL does in a graph can't be seen: the driver does not tell which graph is being captured; a newer driver does, or capture without NCCL");
        return;
    }
    pthread_mutex_lock(&lock);
    struct graph *g = make_in(captured, graph);
    for (size_t i = 0; g && i < count; i++)
        take(g, addresses[i]);
    if (g)
        put_in_order(g);
    pthread_mutex_unlock(&lock);
}

bool ps_graph_name(CUgraphExec executable)
{
    pthread_mutex_lock(&lock);
    const struct graph *g = *place_in(executables, executable);
    bool known = g && !g->unknown;
    for (size_t i = 0; known && i < g->count; i++)
        ps_trace_unit(g->address[i]);
    pthread_mutex_unlock(&lock);
    return known;
}
