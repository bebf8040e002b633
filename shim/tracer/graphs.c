#include "tracer/graphs.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/log.h"
#include "cuda/driver.h"
#include "cuda/questions.h"
#include "residency/graph_pins.h"
#include "tracer/graph_bodies.h"
#include "tracer/graph_needs.h"
#include "tracer/graph_order.h"
#include "tracer/graph_parts.h"
#include "tracer/table_copies.h"

/* Graphs in nodes of graphs; deeper ones are not followed. */
#define DEPTH_MAX 32

struct graph {
    struct graph *next;
    const void *handle; /* CUgraphExec, or CUgraph in `captured` */
    bool launched_by_kernels;
    bool has_disabled;         /* a node has been disabled at some time */
    struct ps_graph_pins pins; /* empty unless launched_by_kernels */
    struct ps_graph_part whole;
    bool has_strangers;        /* a node was changed that is unknown: it may be another one's new name */
    bool told;                 /* `all` and `has_makers` are up to date */
    bool has_makers;           /* kernels of `whole` may write tables */
    struct ps_graph_needs all; /* of `whole` and of all parts in it, in order, without makers */
};

#define BUCKETS 256
static struct graph *executables[BUCKETS];
static struct graph *captured[BUCKETS]; /* captured graphs, with memory that their nodes need not show */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf: no driver call with it held */

/*
 * One thread at a time finds the memory of graphs that kernels launch, and pins it. Taken before
 * `lock`.
 */
static pthread_mutex_t pinning = PTHREAD_MUTEX_INITIALIZER;
atomic_uint ps_graphs_launched_by_kernels;

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

/* Frees everything that the graph holds. The structure itself may be filled again. */
static void end(struct graph *g)
{
    if (g->launched_by_kernels)
        atomic_fetch_sub(&ps_graphs_launched_by_kernels, 1);
    ps_graph_pins_drop(&g->pins);
    ps_graph_part_free(&g->whole);
    ps_graph_needs_free(&g->all);
}

static void remove_from(struct graph *table[BUCKETS], const void *handle)
{
    pthread_mutex_lock(&lock);
    struct graph **at = place_in(table, handle), *g = *at;
    if (g)
        *at = g->next;
    pthread_mutex_unlock(&lock);
    if (g)
        end(g);
    free(g);
}

/* ---- gathering ---- */

static void take_graph(struct ps_graph_part *part, CUgraph graph, unsigned depth, bool is_sometimes);

static int by_node(const void *a, const void *b)
{
    const uintptr_t one = (uintptr_t)((const struct ps_graph_part *)a)->node,
                    other = (uintptr_t)((const struct ps_graph_part *)b)->node;

    return (one > other) - (one < other);
}

/*
 * Returns whether kernels may change the node's parameters while the graph runs. No call shows
 * such a change (cuda.h, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE).
 */
static bool is_changed_by_kernels(CUgraphNode node)
{
    CUlaunchAttributeValue value = {.deviceUpdatableKernelNode = {.deviceUpdatable = 0}};

    return ps_cu.cuGraphKernelNodeGetAttribute &&
           ps_cu.cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value) ==
               CUDA_SUCCESS &&
           value.deviceUpdatableKernelNode.deviceUpdatable;
}

/* Takes the memory of all bodies of a conditional node. Returns false if they are unknown. */
static bool take_bodies(struct ps_graph_part *part, CUgraphNode node, unsigned depth)
{
    size_t count;
    CUgraph *bodies = ps_graph_bodies_of(node, &count);

    if (!bodies || !(part->inner = calloc(count, sizeof *part->inner))) {
        free(bodies);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        part->inner[i].node = (CUgraphNode)bodies[i];
        take_graph(&part->inner[i], bodies[i], depth + 1, true);
    }
    part->nodes = part->nodes_room = count;
    qsort(part->inner, count, sizeof *part->inner, by_node);
    free(bodies);
    return true;
}

/* Takes the node's memory. Returns false if the node can't be read. */
static bool take_node(struct ps_graph_part *part, CUgraphNode node, unsigned depth, bool is_sometimes)
{
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    CUDA_KERNEL_NODE_PARAMS kernel;
    CUDA_MEMCPY3D copy;
    CUDA_MEMSET_NODE_PARAMS fill;
    CUDA_BATCH_MEM_OP_NODE_PARAMS values;
    CUgraph child;

    if (!ps_cu.cuGraphNodeGetType || !PS_TOLD(ps_cu.cuGraphNodeGetType(node, &type)))
        return false;
    switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        if (!ps_cu.cuGraphKernelNodeGetParams || !PS_TOLD(ps_cu.cuGraphKernelNodeGetParams(node, &kernel)) ||
            is_changed_by_kernels(node))
            return false;
        ps_graph_needs_kernel(&part->needs, &kernel);
        return true;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        if (!ps_cu.cuGraphMemcpyNodeGetParams || !PS_TOLD(ps_cu.cuGraphMemcpyNodeGetParams(node, &copy)))
            return false;
        ps_graph_needs_copy(&part->needs, &copy, is_sometimes);
        return true;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        if (!ps_cu.cuGraphMemsetNodeGetParams || !PS_TOLD(ps_cu.cuGraphMemsetNodeGetParams(node, &fill)))
            return false;
        ps_graph_needs_bytes(&part->needs, fill.dst, PS_GRAPH_FILL_EXTENT(&fill));
        return true;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        if (!ps_cu.cuGraphBatchMemOpNodeGetParams || !PS_TOLD(ps_cu.cuGraphBatchMemOpNodeGetParams(node, &values)))
            return false;
        ps_graph_needs_values(&part->needs, &values);
        return true;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        if (!ps_cu.cuGraphChildGraphNodeGetGraph || !PS_TOLD(ps_cu.cuGraphChildGraphNodeGetGraph(node, &child)))
            return false;
        take_graph(part, child, depth + 1, is_sometimes);
        return true;
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: /* the graph's own memory, which is no span */
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return true;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return take_bodies(part, node, depth);
    default: /* types newer than this code */
        return false;
    }
}

static void take_captured(struct ps_graph_part *part, CUgraph graph)
{
    pthread_mutex_lock(&lock);
    const struct graph *more = *place_in(captured, graph);
    if (more)
        ps_graph_part_gather(&part->needs, &more->whole);
    pthread_mutex_unlock(&lock);
}

/*
 * Adds the graph's nodes to the part, which has no nodes yet. `is_sometimes`: the graph is in a
 * body of a conditional node.
 */
static void take_graph(struct ps_graph_part *part, CUgraph graph, unsigned depth, bool is_sometimes)
{
    size_t count;

    take_captured(part, graph);
    if (depth > DEPTH_MAX) {
        part->needs.unknown = true;
        return;
    }
    CUgraphNode *nodes = ps_graph_nodes(graph, &count, &part->needs.unknown);
    if (count && !(part->inner = calloc(count, sizeof *part->inner))) {
        part->needs.unknown = true;
        count = 0;
    }
    for (size_t i = 0; i < count; i++) {
        part->inner[i].node = nodes[i];
        if (!take_node(&part->inner[i], nodes[i], depth, is_sometimes))
            part->inner[i].needs.unknown = true;
    }
    part->nodes = part->nodes_room = count;
    if (count)
        qsort(part->inner, count, sizeof *part->inner, by_node);
    size_t with_copies = 0;
    for (size_t i = 0; i < count; i++)
        with_copies += ps_graph_part_has_copies(&part->inner[i]);
    if (with_copies > 1)
        ps_graph_part_number_copies(part, graph, nodes, count);
    free(nodes);
}

/* ---- keeping ---- */

static void bring_up_to_date(struct graph *g)
{
    if (g->told)
        return;
    ps_graph_needs_empty(&g->all);
    ps_graph_part_gather(&g->all, &g->whole);
    if (g->launched_by_kernels)
        ps_graph_needs_add_tables(&g->all);
    ps_graph_needs_sort(&g->all);
    g->has_makers = ps_graph_part_has_makers(&g->whole);
    g->told = true;
}

/* Returns the graph with its needs of now, or NULL. The lock is held. */
static struct graph *up_to_date(CUgraphExec executable)
{
    struct graph *g = *place_in(executables, executable);

    if (g)
        bring_up_to_date(g);
    return g;
}

/* ---- launched by kernels ---- */

/*
 * Returns whether this is a graph that kernels launch and that touches memory in the range. If so,
 * adds all memory of the graph, also outside the range, to `touched`. An unknown graph touches
 * every range.
 */
static bool touches(CUgraphExec executable, CUdeviceptr start, size_t bytes, struct ps_graph_needs *touched)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    struct graph *g = *place_in(executables, executable);
    if (g && g->launched_by_kernels) {
        bring_up_to_date(g);
        found = ps_graph_needs_touch(&g->all, start, bytes);
        if (found)
            ps_graph_needs_add(touched, &g->all);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* Pins the graph's memory of now if the graph touches the range. Then drops its former pins. */
static void pin_in(CUgraphExec executable, CUdeviceptr start, size_t bytes)
{
    struct ps_graph_needs touched = {.count = 0};

    pthread_mutex_lock(&pinning);
    if (touches(executable, start, bytes, &touched)) {
        if (touched.unknown)
            ps_log_warn_once(TRACER, "the nodes of a CUDA graph that kernels launch can't be read: "
                                     "while the graph exists, all memory stays where it is");
        ps_graph_needs_add_pieces(&touched);
        struct ps_graph_pins pins = ps_graph_pins_take(touched.address, touched.count, touched.unknown);
        pthread_mutex_lock(&lock);
        struct graph *g = *place_in(executables, executable);
        struct ps_graph_pins before = g ? g->pins : pins; /* NULL: the graph was destroyed meanwhile */
        if (g)
            g->pins = pins;
        pthread_mutex_unlock(&lock);
        ps_graph_pins_drop(&before);
    }
    pthread_mutex_unlock(&pinning);
    ps_graph_needs_free(&touched);
}

static void pin_all(CUgraphExec executable)
{
    pin_in(executable, 0, SIZE_MAX);
}

/*
 * Returns the graphs that kernels launch; the caller frees the array. NULL: no such graph, or no
 * memory.
 */
static const void **launched_by_kernels(size_t *count)
{
    size_t room = 0;
    const void **handle = NULL;

    *count = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < BUCKETS; i++)
        for (const struct graph *g = executables[i]; g; g = g->next) {
            const void **grown =
                g->launched_by_kernels ? ps_grown_array(handle, *count, &room, 8, sizeof *grown) : NULL;
            if (grown) {
                handle = grown;
                handle[(*count)++] = g->handle;
            }
        }
    pthread_mutex_unlock(&lock);
    return handle;
}

void ps_graph_span_was_made(CUdeviceptr address, size_t bytes)
{
    size_t count;
    const void **handle = launched_by_kernels(&count);

    for (size_t i = 0; i < count; i++)
        pin_in((CUgraphExec)handle[i], address, bytes);
    free(handle);
}

/* ---- made and changed ---- */

void ps_graph_instantiated(CUgraphExec executable, CUgraph graph, bool launched_by_kernels)
{
    struct graph made = {.handle = executable, .launched_by_kernels = launched_by_kernels};

    take_graph(&made.whole, graph, 0, false);
    bring_up_to_date(&made);
    ps_log_debug(TRACER, "a graph was instantiated: it touches %zu units and %zu ranges of memory%s", made.all.count,
                 made.all.ranges, made.all.unknown ? ", and others that can't be read" : "");
    if (launched_by_kernels)
        atomic_fetch_add(&ps_graphs_launched_by_kernels, 1);
    pthread_mutex_lock(&lock);
    struct graph *g = make_in(executables, executable);
    struct graph before = g ? *g : made; /* the driver reused a handle, and its end was not seen */
    if (g) {
        made.next = g->next;
        *g = made;
    }
    pthread_mutex_unlock(&lock);
    end(&before);
    if (launched_by_kernels)
        pin_all(executable);
}

/* The graph's node, or all its nodes (NULL), touch `found` from now on. Takes over `found`. */
static void changed(CUgraphExec executable, CUgraphNode node, struct ps_graph_part found)
{
    pthread_mutex_lock(&lock);
    struct graph *g = *place_in(executables, executable);
    const bool launched_by_kernels = g && g->launched_by_kernels;
    struct ps_graph_part *part = g ? &g->whole : NULL;
    if (g && node && !(part = ps_graph_part_find(&g->whole, node))) {
        part = ps_graph_part_add(&g->whole, node);
        g->has_strangers = true;
    }
    if (g && !part)
        g->whole.needs.unknown = true;
    if (g && !node)
        g->has_strangers = false;
    if (g && g->has_disabled && (!node || found.nodes))
        ps_graph_part_runs_sometimes(&found); /* nodes that are disabled may be among them */
    if (part)
        ps_graph_part_replace(part, found);
    if (g)
        g->told = false;
    pthread_mutex_unlock(&lock);
    if (!part)
        ps_graph_part_free(&found);
    if (launched_by_kernels)
        pin_all(executable);
}

void ps_graph_updated(CUgraphExec executable, CUgraph graph)
{
    struct ps_graph_part found = {.node = NULL};

    take_graph(&found, graph, 0, false);
    changed(executable, NULL, found);
}

void ps_graph_child_changed(CUgraphExec executable, CUgraphNode node, CUgraph child)
{
    struct ps_graph_part found = {.node = NULL};

    take_graph(&found, child, 1, false);
    changed(executable, node, found);
}

void ps_graph_kernel_changed(CUgraphExec executable, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *kernel)
{
    struct ps_graph_part found = {.node = NULL};

    ps_graph_needs_kernel(&found.needs, kernel);
    changed(executable, node, found);
}

void ps_graph_copy_changed(CUgraphExec executable, CUgraphNode node, const CUDA_MEMCPY3D *copy)
{
    struct ps_graph_part found = {.node = NULL};

    ps_graph_needs_copy(&found.needs, copy, false);
    changed(executable, node, found);
}

void ps_graph_fill_changed(CUgraphExec executable, CUgraphNode node, CUdeviceptr to, size_t bytes)
{
    struct ps_graph_part found = {.node = NULL};

    ps_graph_needs_bytes(&found.needs, to, bytes);
    changed(executable, node, found);
}

void ps_graph_values_changed(CUgraphExec executable, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *values)
{
    struct ps_graph_part found = {.node = NULL};

    ps_graph_needs_values(&found.needs, values);
    changed(executable, node, found);
}

void ps_graph_node_unknown(CUgraphExec executable, CUgraphNode node)
{
    changed(executable, node, (struct ps_graph_part){.needs.unknown = true});
}

void ps_graph_node_switched(CUgraphExec executable, CUgraphNode node, bool is_enabled)
{
    pthread_mutex_lock(&lock);
    struct graph *g = *place_in(executables, executable);
    struct ps_graph_part *part = g ? ps_graph_part_find(&g->whole, node) : NULL;
    if (part)
        ps_graph_part_disable(part, !is_enabled);
    else if (g)
        ps_graph_part_runs_sometimes(&g->whole);
    if (g) {
        g->has_disabled |= !is_enabled;
        g->told = false;
    }
    pthread_mutex_unlock(&lock);
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

    if (!ps_cu.cuStreamGetCaptureInfo ||
        ps_cu.cuStreamGetCaptureInfo(stream, &status, NULL, &graph, NULL, NULL, NULL) != CUDA_SUCCESS || !graph) {
        ps_log_warn_once(TRACER,
                         "Penstock can't see what NCCL uses in a CUDA graph, because the driver does not report "
                         "which graph is being captured; use a newer driver, or capture without NCCL");
        return;
    }
    pthread_mutex_lock(&lock);
    struct graph *g = make_in(captured, graph);
    for (size_t i = 0; g && i < count; i++)
        ps_graph_needs_address(&g->whole.needs, addresses[i]);
    if (g)
        ps_graph_needs_sort(&g->whole.needs);
    pthread_mutex_unlock(&lock);
}

void ps_graph_holds(CUgraph graph, CUgraph other)
{
    pthread_mutex_lock(&lock);
    const struct graph *more = *place_in(captured, other);
    struct graph *g = more && graph != other ? make_in(captured, graph) : NULL;
    if (g) {
        ps_graph_part_gather(&g->whole.needs, &more->whole);
        ps_graph_needs_sort(&g->whole.needs);
    }
    pthread_mutex_unlock(&lock);
}

bool ps_graph_name(CUgraphExec executable, void (*note_bytes)(CUdeviceptr start, size_t bytes),
                   void (*note)(void *ctx, CUdeviceptr unit), void *ctx)
{
    pthread_mutex_lock(&lock);
    struct graph *g = up_to_date(executable);
    bool known = g && !g->all.unknown;
    if (known)
        ps_graph_needs_name(&g->all, note_bytes, note, ctx);
    pthread_mutex_unlock(&lock);
    return known;
}

void ps_graph_makes(CUgraphExec executable)
{
    pthread_mutex_lock(&lock);
    struct graph *g = up_to_date(executable);
    if (g && g->has_makers)
        ps_graph_part_makes(&g->whole);
    pthread_mutex_unlock(&lock);
}

struct ps_graph_copy *ps_graph_copies(CUgraphExec executable, size_t *count, bool *failed)
{
    struct ps_graph_copy *copies = NULL;

    *count = 0;
    pthread_mutex_lock(&lock);
    struct graph *g = up_to_date(executable);
    if (g && g->all.copies && ps_graph_needs_bring(&g->all)) {
        copies = malloc(g->all.copies * sizeof *copies);
        *failed = !copies;
    }
    if (copies) {
        *count = g->all.copies;
        memcpy(copies, g->all.copy, *count * sizeof *copies);
        for (size_t i = 0; i < *count; i++)
            copies[i].is_sometimes |= g->has_strangers;
    }
    pthread_mutex_unlock(&lock);
    return copies;
}
