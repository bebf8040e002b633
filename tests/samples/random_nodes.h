/*
 * Graphs of a random program that are made node by node. Part of random_orders.cu.
 *
 * A plan is a list of nodes in an order that is right. Each pair of nodes that use the same memory
 * has an edge or a path, and no other pair has one. The nodes are made in another order than the
 * plan's, since edges can be added later. Before launches the host changes what pinned buffers
 * hold, which tables the graph's copies bring, the numbers of turns, and the parameters of nodes.
 */
#ifndef PENSTOCK_SAMPLES_RANDOM_NODES_H
#define PENSTOCK_SAMPLES_RANDOM_NODES_H

#include <algorithm>
#include <array>
#include <set>

#include "green.h"
#include "random_tables.h"

#define MOST_PLANNED 8
#define MOST_INNER 3
#define MOST_TURNS 3

enum plan_kind {
    PLAN_MIX,
    PLAN_ADD,
    PLAN_COPY,
    PLAN_FILL,
    PLAN_USE,   /* uses tensors through a table */
    PLAN_BRING, /* copies entries from pinned memory */
    PLAN_MOVE,  /* copies entries from table to table */
    PLAN_MAKE,  /* a kernel writes entries */
    PLAN_SIMPLE_KINDS,
    PLAN_HOST = PLAN_SIMPLE_KINDS,
    PLAN_EVENT,
    PLAN_EMPTY,
    PLAN_CHILD,
    PLAN_IF,
    PLAN_WHILE,
    PLAN_KINDS
};

struct planned {
    enum plan_kind kind;
    tensor_ref to, from;
    uint32_t by;
    size_t table, other;         /* tables by number */
    struct some_entries entries; /* that are brought, moved (without names), or used: first and count */
    uint32_t **pinned;           /* its buffer */
    uint32_t turns;              /* of the inner nodes */
    uint32_t *left;              /* on the device: the number of turns that are left */
    cudaEvent_t event;           /* that it records */
    cudaGraphConditionalHandle condition;
    std::vector<struct planned> inner;
    cudaGraphNode_t first, last; /* the same, but for the kernel that sets the condition */
};

/* Reachable[i][k]: node k comes after node i. */
typedef std::array<std::array<bool, MOST_PLANNED>, MOST_PLANNED> plan_order;

struct plan {
    std::vector<struct planned> nodes;
    plan_order after, edge;
    std::vector<size_t> made; /* the order in which nodes are made */
    bool captured;            /* one after the other, by a capture */
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    moment_ref over; /* after the last launch */
};

/* Sets the number of turns and the condition. */
KERNEL(begin_turns, (uint32_t * left, cudaGraphConditionalHandle condition, uint32_t turns), (left, condition, turns))
{
    FOR_EACH_ITEM (i, 1) {
        *left = turns;
        set_condition(condition, turns);
    }
}

KERNEL(end_turn, (uint32_t * left, cudaGraphConditionalHandle condition), (left, condition))
{
    FOR_EACH_ITEM (i, 1) {
        *left -= 1;
        set_condition(condition, *left);
    }
}

static std::atomic<unsigned> host_nodes_run;

static void run_host_node(void *)
{
    host_nodes_run++;
}

static inline bool has_inner(const struct planned *node)
{
    return node->kind == PLAN_CHILD || node->kind == PLAN_IF || node->kind == PLAN_WHILE;
}

/* ---- what a plan holds ---- */
static inline void hold_planned(std::vector<struct planned> &nodes, int by)
{
    for (struct planned &node : nodes) {
        for (const tensor_ref &tensor : {node.to, node.from})
            if (tensor != nullptr)
                tensor->held += static_cast<unsigned>(by);
        if (node.kind == PLAN_BRING)
            for (const tensor_ref &tensor : node.entries.named)
                if (tensor != nullptr)
                    tensor->held += static_cast<unsigned>(by);
        hold_planned(node.inner, by);
    }
}

/* Makes the buffers and words that nodes have for themselves. */
static inline void prepare_planned(std::vector<struct planned> &nodes)
{
    for (struct planned &node : nodes) {
        void *memory = nullptr;

        if (node.kind == PLAN_BRING && node.pinned == nullptr) {
            CHECK(cudaMallocHost(&memory, ENTRIES * sizeof(uint32_t *)));
            node.pinned = static_cast<uint32_t **>(memory);
            memset(memory, 0, ENTRIES * sizeof(uint32_t *));
        }
        if ((node.kind == PLAN_IF || node.kind == PLAN_WHILE) && node.left == nullptr) {
            CHECK(cudaMalloc(&memory, sizeof(*node.left)));
            node.left = static_cast<uint32_t *>(memory);
        }
        if (node.kind == PLAN_EVENT && node.event == nullptr)
            CHECK(cudaEventCreateWithFlags(&node.event, cudaEventDisableTiming));
        prepare_planned(node.inner);
    }
}

static inline void free_planned(std::vector<struct planned> &nodes)
{
    for (struct planned &node : nodes) {
        CHECK(cudaFreeHost(node.pinned));
        CHECK(cudaFree(node.left));
        if (node.event != nullptr)
            CHECK(cudaEventDestroy(node.event));
        free_planned(node.inner);
    }
}

/* ---- order ---- */
struct used_memory {
    std::set<const void *> read, written;
    bool tensors;  /* it uses tensors by name */
    bool by_table; /* it uses tensors through a table, any at all */
};

static inline void gather_used(const struct planned *node, const struct pointer_table *tables, struct used_memory *used)
{
    for (const struct planned &each : node->inner)
        gather_used(&each, tables, used);
    if (node->kind >= PLAN_SIMPLE_KINDS)
        return;
    if (node->kind < PLAN_USE) {
        used->written.insert(node->to.get());
        used->read.insert(node->from.get());
        used->tensors = true;
        return;
    }
    used->by_table |= node->kind == PLAN_USE;
    (node->kind == PLAN_USE ? used->read : used->written).insert(&tables[node->table]);
    if (node->kind == PLAN_MOVE)
        used->read.insert(&tables[node->other]);
}

static inline bool share(const std::set<const void *> &a, const std::set<const void *> &b)
{
    for (const void *each : a)
        if (b.count(each) > 0)
            return true;
    return false;
}

static inline bool need_order(const struct planned *a, const struct planned *b, const struct pointer_table *tables)
{
    struct used_memory one = {}, other = {};

    gather_used(a, tables, &one);
    gather_used(b, tables, &other);
    if ((one.by_table && (other.by_table || other.tensors)) || (other.by_table && one.tensors))
        return true;
    return share(one.written, other.written) || share(one.written, other.read) || share(one.read, other.written);
}

/* Returns whether the order that the graph has is enough for these nodes. */
static inline bool is_ordered(const std::vector<struct planned> &nodes, const struct plan *plan,
                              const struct pointer_table *tables)
{
    for (size_t k = 0; k < nodes.size(); k++)
        for (size_t i = 0; i < k; i++)
            if (!plan->after[i][k] && need_order(&nodes[i], &nodes[k], tables))
                return false;
    return true;
}

static inline void order_plan(struct plan *plan, const struct pointer_table *tables)
{
    for (size_t k = 0; k < plan->nodes.size(); k++)
        for (size_t i = k; i-- > 0;) {
            if (plan->after[i][k] || !need_order(&plan->nodes[i], &plan->nodes[k], tables))
                continue;
            plan->edge[i][k] = plan->after[i][k] = true;
            for (size_t j = 0; j < i; j++)
                plan->after[j][k] |= plan->after[j][i];
        }
}

/* ---- nodes ---- */
static inline cudaGraphNode_t add_kernel(cudaGraph_t graph, void *function, size_t items, void **arguments,
                                         const cudaGraphNode_t *after)
{
    struct cudaGraphNodeParams parameters = {};
    cudaGraphNode_t node = nullptr;

    parameters.type = cudaGraphNodeTypeKernel;
    parameters.kernel.func = function;
    parameters.kernel.gridDim = dim3(kernel_grid(items));
    parameters.kernel.blockDim = dim3(KERNEL_BLOCK);
    parameters.kernel.kernelParams = arguments;
    CHECK_OR_SKIP(cudaGraphAddNode(&node, graph, after, nullptr, after == nullptr ? 0 : 1, &parameters));
    return node;
}

static inline struct graph_node as_graph_node(const struct planned *node)
{
    static const enum node_kind kinds[] = {NODE_MIX, NODE_ADD, NODE_COPY, NODE_FILL};

    return {kinds[node->kind], node->to, node->from, node->by};
}

/* Calls `act` with the kernel of the node, its items and its arguments. */
template <typename Act>
static inline void with_kernel(const struct planned *node, const struct pointer_table *tables, Act act)
{
    const struct pointer_table *const table = tables == nullptr ? nullptr : &tables[node->table];
    uint32_t *to = address_of(node->to), *from = address_of(node->from);
    uint32_t by = node->by, turns = node->turns, *left = node->left;
    cudaGraphConditionalHandle condition = node->condition;
    size_t first = node->entries.first, second = node->entries.count, words = USED_WORDS, two = 2;

    if (node->kind == PLAN_MIX || node->kind == PLAN_ADD) {
        const struct graph_node its = as_graph_node(node);
        size_t count = count_of(&its);
        void *mixed[] = {&to, &from, &by, &count}, *added[] = {&to, &by, &count};

        if (node->kind == PLAN_MIX)
            act(reinterpret_cast<void *>(mix_words), count, mixed);
        else
            act(reinterpret_cast<void *>(add_to_words), count, added);
        return;
    }
    if (has_inner(node)) {
        void *arguments[] = {&left, &condition, &turns};

        act(reinterpret_cast<void *>(begin_turns), 1, arguments);
        return;
    }
    uint32_t **entries = table->device;
    if (node->kind == PLAN_MAKE) {
        void *arguments[] = {&entries, &to, &from, &two};

        act(reinterpret_cast<void *>(make_entries), 2, arguments);
    } else if (table->place == IN_VARIABLE) {
        void *arguments[] = {&first, &second, &by, &words};

        first += table->in_variable;
        second += table->in_variable;
        act(reinterpret_cast<void *>(mix_by_variable), words, arguments);
    } else {
        void *arguments[] = {&entries, &first, &second, &by, &words};

        act(reinterpret_cast<void *>(mix_by_entries), words, arguments);
    }
}

struct copied_bytes {
    void *to;
    const void *from;
    size_t bytes;
    cudaMemcpyKind way;
};

static inline struct copied_bytes copy_of(const struct planned *node, const struct pointer_table *tables)
{
    const size_t first = node->entries.first, bytes = node->entries.count * sizeof(uint32_t *);

    if (node->kind == PLAN_COPY) {
        const struct graph_node its = as_graph_node(node);

        return {node->to->device, node->from->device, count_of(&its) * sizeof(uint32_t), cudaMemcpyDeviceToDevice};
    }
    if (node->kind == PLAN_BRING)
        return {tables[node->table].device + first, node->pinned, bytes, cudaMemcpyHostToDevice};
    return {tables[node->table].device + first, tables[node->other].device + first, bytes, cudaMemcpyDeviceToDevice};
}

static inline struct cudaMemsetParams fill_of(const struct planned *node)
{
    struct cudaMemsetParams fill = {};
    const struct graph_node its = as_graph_node(node);

    fill.dst = node->to->device;
    fill.value = node->by & 255;
    fill.elementSize = 1;
    fill.width = fill.pitch = count_of(&its) * sizeof(uint32_t);
    fill.height = 1;
    return fill;
}

static inline bool is_copy(const struct planned *node)
{
    return node->kind == PLAN_COPY || node->kind == PLAN_BRING || node->kind == PLAN_MOVE;
}

static inline bool is_kernel(const struct planned *node)
{
    return node->kind == PLAN_MIX || node->kind == PLAN_ADD || node->kind == PLAN_USE || node->kind == PLAN_MAKE;
}

static cudaGraph_t child_of(struct planned *node, const struct pointer_table *tables);
static void add_chain(cudaGraph_t graph, std::vector<struct planned> &nodes, const struct pointer_table *tables,
                      cudaGraphNode_t after);

/* Adds the node that sets the condition, the conditional node, and what is in its body. */
static inline void add_turns(cudaGraph_t graph, struct planned *node, const struct pointer_table *tables)
{
    struct cudaGraphNodeParams parameters = {};

    CHECK_OR_SKIP(cudaGraphConditionalHandleCreate(&node->condition, graph, 0, cudaGraphCondAssignDefault));
    with_kernel(node, nullptr, [graph, node](void *function, size_t items, void **arguments) {
        node->first = add_kernel(graph, function, items, arguments, nullptr);
    });
    parameters.type = cudaGraphNodeTypeConditional;
    parameters.conditional.handle = node->condition;
    parameters.conditional.type = node->kind == PLAN_IF ? cudaGraphCondTypeIf : cudaGraphCondTypeWhile;
    parameters.conditional.size = 1;
    CHECK_OR_SKIP(cudaGraphAddNode(&node->last, graph, &node->first, nullptr, 1, &parameters));
    const cudaGraph_t body = parameters.conditional.phGraph_out[0];
    cudaGraphNode_t begun = nullptr;
    if (node->kind == PLAN_WHILE) {
        void *arguments[] = {&node->left, &node->condition};

        begun = add_kernel(body, reinterpret_cast<void *>(end_turn), 1, arguments, nullptr);
    }
    add_chain(body, node->inner, tables, begun);
}

/* Adds the node, without edges. */
static inline void add_planned(cudaGraph_t graph, struct planned *node, const struct pointer_table *tables)
{
    cudaGraphNode_t made = nullptr;
    CUDA_HOST_NODE_PARAMS host = {};

    if (node->kind == PLAN_IF || node->kind == PLAN_WHILE) {
        add_turns(graph, node, tables);
        return;
    }
    if (is_kernel(node)) {
        with_kernel(node, tables, [graph, &made](void *function, size_t items, void **arguments) {
            made = add_kernel(graph, function, items, arguments, nullptr);
        });
    } else if (is_copy(node)) {
        const struct copied_bytes copy = copy_of(node, tables);

        CHECK(cudaGraphAddMemcpyNode1D(&made, graph, nullptr, 0, copy.to, copy.from, copy.bytes, copy.way));
    } else if (node->kind == PLAN_FILL) {
        const struct cudaMemsetParams fill = fill_of(node);

        CHECK(cudaGraphAddMemsetNode(&made, graph, nullptr, 0, &fill));
    } else if (node->kind == PLAN_CHILD) {
        const cudaGraph_t child = child_of(node, tables);

        CHECK(cudaGraphAddChildGraphNode(&made, graph, nullptr, 0, child));
        CHECK(cudaGraphDestroy(child));
    } else if (node->kind == PLAN_HOST) {
        host.fn = run_host_node;
        DRIVER_CALL(cuGraphAddHostNode, &made, graph, nullptr, 0, &host);
    } else if (node->kind == PLAN_EVENT) {
        DRIVER_CALL(cuGraphAddEventRecordNode, &made, graph, nullptr, 0, node->event);
    } else {
        DRIVER_CALL(cuGraphAddEmptyNode, &made, graph, nullptr, 0);
    }
    node->first = node->last = made;
}

static inline void add_edge(cudaGraph_t graph, cudaGraphNode_t from, cudaGraphNode_t to)
{
    DRIVER_CALL(cuGraphAddDependencies_v2, graph, &from, &to, nullptr, 1);
}

/* Adds nodes of which each comes after the one before. */
static void add_chain(cudaGraph_t graph, std::vector<struct planned> &nodes, const struct pointer_table *tables,
                      cudaGraphNode_t after)
{
    for (struct planned &node : nodes)
        add_planned(graph, &node, tables);
    for (struct planned &node : nodes) {
        if (after != nullptr)
            add_edge(graph, after, node.first);
        after = node.last;
    }
}

static cudaGraph_t child_of(struct planned *node, const struct pointer_table *tables)
{
    cudaGraph_t child = nullptr;

    CHECK(cudaGraphCreate(&child, 0));
    add_chain(child, node->inner, tables, nullptr);
    return child;
}

static inline void capture_planned(cudaStream_t stream, const struct planned *node, const struct pointer_table *tables)
{
    if (node->kind == PLAN_USE) {
        launch_by_entries(stream, &tables[node->table], node->entries.first, node->entries.count, node->by);
    } else if (node->kind == PLAN_MAKE) {
        LAUNCH(stream, 2, make_entries, tables[node->table].device, node->to->device, node->from->device, 2);
    } else if (node->kind == PLAN_BRING || node->kind == PLAN_MOVE) {
        const struct copied_bytes copy = copy_of(node, tables);

        CHECK(cudaMemcpyAsync(copy.to, copy.from, copy.bytes, copy.way, stream));
    } else if (node->kind < PLAN_USE) {
        const struct graph_node its = as_graph_node(node);

        capture_node(stream, &its);
    }
}

static inline cudaGraph_t graph_of(struct plan *plan, const struct pointer_table *tables, cudaStream_t stream)
{
    cudaGraph_t graph = nullptr;

    if (plan->captured) {
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        for (const struct planned &node : plan->nodes)
            capture_planned(stream, &node, tables);
        CHECK(cudaStreamEndCapture(stream, &graph));
        return graph;
    }
    CHECK(cudaGraphCreate(&graph, 0));
    for (const size_t at : plan->made)
        add_planned(graph, &plan->nodes[at], tables);
    for (size_t i = 0; i < plan->nodes.size(); i++)
        for (size_t k = i; k < plan->nodes.size(); k++)
            if (plan->edge[i][k])
                add_edge(graph, plan->nodes[i].last, plan->nodes[k].first);
    return graph;
}

/* ---- changes ---- */
/* Gives a node of the executable graph its parameters as they are now. */
static inline void set_parameters(const struct plan *plan, struct planned *node, const struct pointer_table *tables)
{
    const bool has_turns = node->kind == PLAN_IF || node->kind == PLAN_WHILE;

    if (is_kernel(node) || has_turns) {
        struct cudaKernelNodeParams parameters;

        CHECK(cudaGraphKernelNodeGetParams(node->first, &parameters));
        with_kernel(node, tables, [&](void *, size_t items, void **arguments) {
            parameters.gridDim = dim3(kernel_grid(items));
            parameters.kernelParams = arguments;
            CHECK(cudaGraphExecKernelNodeSetParams(plan->executable, node->first, &parameters));
        });
    } else if (is_copy(node)) {
        const struct copied_bytes copy = copy_of(node, tables);

        CHECK(cudaGraphExecMemcpyNodeSetParams1D(plan->executable, node->first, copy.to, copy.from, copy.bytes,
                                                 copy.way));
    } else if (node->kind == PLAN_FILL) {
        const struct cudaMemsetParams fill = fill_of(node);

        CHECK(cudaGraphExecMemsetNodeSetParams(plan->executable, node->first, &fill));
    } else if (node->kind == PLAN_CHILD) {
        struct planned other = *node; /* its nodes get other handles */
        const cudaGraph_t child = child_of(&other, tables);

        CHECK(cudaGraphExecChildGraphNodeSetParams(plan->executable, node->first, child));
        CHECK(cudaGraphDestroy(child));
    }
}

/* ---- what a launch does ---- */
struct plan_effects {
    std::vector<std::array<tensor_ref, ENTRIES>> entries; /* of each table */
    std::vector<tensor_ref> written, read;
    std::set<size_t> tables_written, tables_read;
};

static inline void add_once(std::vector<tensor_ref> *tensors, const tensor_ref &tensor)
{
    if (tensor != nullptr && std::find(tensors->begin(), tensors->end(), tensor) == tensors->end())
        tensors->push_back(tensor);
}

static inline void do_planned(const struct planned *node, struct plan_effects *effects, bool is_real)
{
    if (node->kind < PLAN_USE) {
        const struct graph_node its = as_graph_node(node);

        add_once(&effects->written, node->to);
        add_once(&effects->read, node->from);
        if (is_real)
            do_on_host(&its);
    } else if (has_inner(node)) {
        for (uint32_t i = 0; i < (node->kind == PLAN_CHILD ? 1 : node->turns); i++)
            for (const struct planned &each : node->inner)
                do_planned(&each, effects, is_real);
    } else if (node->kind == PLAN_USE) {
        const tensor_ref to = effects->entries[node->table][node->entries.first],
                         from = effects->entries[node->table][node->entries.count];

        effects->tables_read.insert(node->table);
        add_once(&effects->written, to);
        add_once(&effects->read, from);
        if (is_real)
            mix_on_host(to, from, node->by);
    } else if (node->kind == PLAN_MAKE) {
        effects->tables_written.insert(node->table);
        effects->entries[node->table][0] = node->to;
        effects->entries[node->table][1] = node->from;
    } else if (node->kind < PLAN_SIMPLE_KINDS) {
        for (size_t i = 0; i < node->entries.count; i++)
            effects->entries[node->table][node->entries.first + i] =
                node->kind == PLAN_BRING ? node->entries.named[i]
                                         : effects->entries[node->other][node->entries.first + i];
        effects->tables_written.insert(node->table);
        if (node->kind == PLAN_MOVE)
            effects->tables_read.insert(node->other);
    }
}

static inline struct plan_effects effects_of(const struct plan *plan, const std::vector<struct pointer_table> &tables,
                                             bool is_real)
{
    struct plan_effects effects = {};

    for (const struct pointer_table &table : tables) {
        std::array<tensor_ref, ENTRIES> entries;

        std::copy(table.named, table.named + ENTRIES, entries.begin());
        effects.entries.push_back(entries);
    }
    for (const struct planned &node : plan->nodes)
        do_planned(&node, &effects, is_real);
    return effects;
}

/* The order of work must be known for all memory that the graph uses if all of its nodes run. */
static inline void launch_plan(struct random_memory *memory, int stream, struct plan *plan,
                               std::vector<struct pointer_table> *tables)
{
    const struct plan_effects effects = effects_of(plan, *tables, false);

    for (const tensor_ref &tensor : effects.written)
        before_write(memory, stream, tensor.get());
    for (const tensor_ref &tensor : effects.read)
        before_read(memory, stream, tensor.get());
    for (const size_t at : effects.tables_written)
        before_entries_are_written(memory, stream, &(*tables)[at]);
    for (const size_t at : effects.tables_read)
        before_entries_are_read(memory, stream, &(*tables)[at]);
    CHECK(cudaGraphLaunch(plan->executable, handle_of(memory, stream)));
    memory->launches += MOST_PLANNED;
    effects_of(plan, *tables, true);
    for (size_t at = 0; at < tables->size(); at++)
        for (size_t i = 0; i < ENTRIES; i++)
            name_entry(&(*tables)[at].named[i], effects.entries[at][i]);
    const struct work work = worked(&memory->streams, stream);
    for (const tensor_ref &tensor : effects.read)
        was_read(tensor.get(), work);
    for (const tensor_ref &tensor : effects.written)
        was_written(tensor.get(), work);
    for (const size_t at : effects.tables_read)
        (*tables)[at].reads.push_back(work);
    for (const size_t at : effects.tables_written)
        entries_were_written(&(*tables)[at], work);
    plan->over = moment_on(&memory->streams, stream);
}

static inline void drop_plan(struct plan *plan)
{
    if (plan->over != nullptr)
        CHECK(cudaEventSynchronize(plan->over->event));
    CHECK(cudaGraphExecDestroy(plan->executable));
    CHECK(cudaGraphDestroy(plan->graph));
    hold_planned(plan->nodes, -1);
    free_planned(plan->nodes);
}

#endif
