/* Captured graphs and tables of addresses of a random program. Part of random_orders.cu. */
#ifndef PENSTOCK_SAMPLES_RANDOM_GRAPHS_H
#define PENSTOCK_SAMPLES_RANDOM_GRAPHS_H

#include <functional>
#include <map>

#include "random_tensors.h"

#define MOST_NODES 4
#define MOST_BRANCHED_NODES 12
#define LANES 4
#define TABLES 4
#define MASK 0x5555555555555555ull

static const struct lane whole = {0, 1}; /* on the host one call of a kernel's body takes all items */

KERNEL(mix_words, (uint32_t *__restrict__ out, const uint32_t *in, uint32_t by, size_t count), (out, in, by, count))
{
    FOR_EACH_ITEM (i, count)
        out[i] = (out[i] * 3 + in[i]) ^ by;
}

/* Returns the address as a table holds it, masked. */
static __host__ __device__ inline uint32_t *masked(const uint32_t *address, uint64_t mask)
{
    return reinterpret_cast<uint32_t *>(reinterpret_cast<uint64_t>(address) ^ mask);
}

KERNEL(write_pair, (uint32_t * *__restrict__ table, uint32_t *to, const uint32_t *from, size_t count),
       (table, to, from, count))
{
    FOR_EACH_ITEM (i, count)
        table[i] = masked(i == 0 ? to : from, 0);
}

/*
 * A kernel of its own beside write_pair, because Penstock knows by its first launches that a kernel
 * shows addresses.
 */
KERNEL(write_masked_pair,
       (uint32_t * *__restrict__ table, uint32_t *to, const uint32_t *from, uint64_t mask, size_t count),
       (table, to, from, mask, count))
{
    FOR_EACH_ITEM (i, count)
        table[i] = masked(i == 0 ? to : from, mask);
}

KERNEL(mix_by_table, (uint32_t *const *table, uint64_t mask, uint32_t by, size_t count), (table, mask, by, count))
{
    uint32_t *const to = masked(table[0], mask);
    const uint32_t *const from = masked(table[1], mask);

    FOR_EACH_ITEM (i, count)
        to[i] = (to[i] * 7 + from[i]) ^ by;
}

/* ---- tables ---- */
struct address_table {
    uint32_t **device;
    tensor_ref to, from; /* NULL: the table is empty */
    uint64_t mask;
    uint64_t made_at; /* the number of launches when it was made */
    std::vector<struct work> writes, reads;
};

static inline void clear_table(struct address_table *table)
{
    if (table->to == nullptr)
        return;
    table->to->held--;
    table->from->held--;
    table->to = table->from = nullptr;
}

/* The tensors themselves are not touched, so their words need no order. */
static inline void write_table(struct random_memory *memory, int stream, struct address_table *table,
                               const tensor_ref &to, const tensor_ref &from, uint64_t mask)
{
    clear_table(table);
    table->to = to;
    table->from = from;
    table->mask = mask;
    to->held++;
    from->held++;
    learn_from_legacy_rules(&memory->streams, stream);
    order_after(memory, stream, &table->writes);
    order_after(memory, stream, &table->reads);
    if (mask)
        LAUNCH(handle_of(memory, stream), 2, write_masked_pair, table->device, to->device, from->device, mask, 2);
    else
        LAUNCH(handle_of(memory, stream), 2, write_pair, table->device, to->device, from->device, 2);
    table->made_at = ++memory->launches;
    table->writes.assign(1, worked(&memory->streams, stream));
    table->reads.clear();
}

static inline void use_table(struct random_memory *memory, int stream, struct address_table *table, uint32_t by)
{
    struct tensor_words *to = table->to.get(), *from = table->from.get();
    const size_t count = std::min(to->words.size(), from->words.size());

    before_write(memory, stream, to);
    before_read(memory, stream, from);
    order_after(memory, stream, &table->writes);
    LAUNCH(handle_of(memory, stream), count, mix_by_table, table->device, table->mask, by, count);
    memory->launches++;
    uint32_t *const host[2] = {to->words.data(), from->words.data()};
    mix_by_table_body(whole, host, 0, by, count);
    const struct work work = worked(&memory->streams, stream);
    was_written(to, work);
    was_read(from, work);
    table->reads.push_back(work);
}

/* ---- graphs ---- */
enum node_kind { NODE_MIX, NODE_ADD, NODE_COPY, NODE_FILL, NODE_KINDS };

struct graph_node {
    enum node_kind kind;
    tensor_ref to, from;
    uint32_t by;
};

struct random_graph {
    cudaGraphExec_t handle;
    int home;                             /* its device */
    std::vector<struct graph_node> nodes; /* the second half on another branch, if the halves share no written tensor */
};

static inline size_t count_of(const struct graph_node *node)
{
    return std::min(node->to->words.size(), node->from->words.size());
}

static inline bool is_on_host(const struct tensor_words *tensor)
{
    return tensor->kind == ON_HOST;
}

/* Fills of pinned memory, and copies within it, would wait for the stream on the host. */
static inline bool is_for_kernels_alone(const struct graph_node *node)
{
    return is_on_host(node->to.get()) && (node->kind == NODE_FILL || is_on_host(node->from.get()));
}

static inline cudaMemcpyKind way_of_copy(const struct graph_node *node)
{
    const bool on_host = is_on_host(node->to.get()) || is_on_host(node->from.get());

    return on_host ? cudaMemcpyDefault : cudaMemcpyDeviceToDevice;
}

static inline void capture_node(cudaStream_t stream, const struct graph_node *node)
{
    const size_t count = count_of(node);

    if (node->kind == NODE_MIX)
        LAUNCH(stream, count, mix_words, node->to->device, node->from->device, node->by, count);
    else if (node->kind == NODE_ADD)
        LAUNCH(stream, count, add_to_words, node->to->device, node->by, count);
    else if (node->kind == NODE_COPY)
        CHECK(
            cudaMemcpyAsync(node->to->device, node->from->device, count * sizeof(uint32_t), way_of_copy(node), stream));
    else
        CHECK(cudaMemsetAsync(node->to->device, static_cast<int>(node->by & 255), count * sizeof(uint32_t), stream));
}

static inline void do_on_host(const struct graph_node *node)
{
    uint32_t *const to = node->to->words.data();
    const size_t count = count_of(node);

    if (node->kind == NODE_MIX)
        mix_words_body(whole, to, node->from->words.data(), node->by, count);
    else if (node->kind == NODE_ADD)
        add_to_words_body(whole, to, node->by, count);
    else if (node->kind == NODE_COPY)
        copy_words_body(whole, to, node->from->words.data(), count);
    else
        memset(to, static_cast<int>(node->by & 255), count * sizeof(uint32_t));
}

static inline bool share_a_tensor(const struct graph_node *a, const struct graph_node *b)
{
    return a->to == b->to || a->to == b->from || a->from == b->to;
}

/* Returns the first of the nodes that depend on none before it, and so may run beside those. */
static inline size_t branch_of(const std::vector<struct graph_node> &nodes)
{
    const size_t middle = nodes.size() / 2;

    for (size_t i = 0; i < middle; i++)
        for (size_t k = middle; k < nodes.size(); k++)
            if (share_a_tensor(&nodes[i], &nodes[k]))
                return nodes.size();
    return middle;
}

/* What is to be captured, and beside what. */
struct graph_capture {
    const std::vector<struct graph_node> *nodes;
    cudaStream_t stream, beside;
    std::function<void(void)> between; /* does other work between nodes; may be empty */
    struct random_streams *lanes;      /* LANES streams for branches whose order matters, or NULL */
};

/*
 * Captures branches whose order matters. Each node is on a random lane. Waits order it after the
 * nodes on other lanes that write what it uses or use what it writes, and after no others.
 */
static inline cudaGraph_t capture_branches(const struct graph_capture *capture)
{
    struct random_streams *const lanes = capture->lanes;
    std::map<const struct tensor_words *, std::vector<struct work>> writes, reads;
    cudaGraph_t captured = nullptr;
    bool joined[LANES] = {true};

    CHECK(cudaStreamBeginCapture(lanes->all[0].handle, cudaStreamCaptureModeThreadLocal));
    const moment_ref fork = moment_on(lanes, 0);
    for (const struct graph_node &node : *capture->nodes) {
        const int lane = static_cast<int>(below(lanes, LANES));
        const cudaStream_t stream = lanes->all[static_cast<size_t>(lane)].handle;

        if (!joined[lane])
            CHECK(cudaStreamWaitEvent(stream, fork->event, 0));
        joined[lane] = true;
        for (std::vector<struct work> *before :
             {&writes[node.to.get()], &reads[node.to.get()], &writes[node.from.get()]})
            for (struct work &work : *before)
                come_after(lanes, lane, &work);
        capture_node(stream, &node);
        const struct work work = worked(lanes, lane);
        writes[node.to.get()].assign(1, work);
        reads[node.to.get()].clear();
        reads[node.from.get()].push_back(work);
    }
    for (int lane = 1; lane < LANES; lane++) {
        struct work last = {lane, number_in(lanes->all[static_cast<size_t>(lane)].clock, static_cast<size_t>(lane)),
                            nullptr};

        if (joined[lane])
            come_after(lanes, 0, &last);
    }
    CHECK(cudaStreamEndCapture(lanes->all[0].handle, &captured));
    return captured;
}

/*
 * The capture does not restrict another thread. It forbids this thread some calls, except if other
 * work is to be done between nodes.
 */
static inline cudaGraph_t capture_nodes(const struct graph_capture *capture)
{
    const std::vector<struct graph_node> &nodes = *capture->nodes;
    const size_t branch = branch_of(nodes);
    const struct moment fork, join;
    cudaGraph_t captured = nullptr;

    if (capture->lanes)
        return capture_branches(capture);
    CHECK(cudaStreamBeginCapture(capture->stream,
                                 capture->between ? cudaStreamCaptureModeRelaxed : cudaStreamCaptureModeThreadLocal));
    if (branch < nodes.size()) {
        CHECK(cudaEventRecord(fork.event, capture->stream));
        CHECK(cudaStreamWaitEvent(capture->beside, fork.event, 0));
    }
    for (size_t i = 0; i < nodes.size(); i++) {
        capture_node(i < branch ? capture->stream : capture->beside, &nodes[i]);
        if (capture->between)
            capture->between();
    }
    if (branch < nodes.size()) {
        CHECK(cudaEventRecord(join.event, capture->beside));
        CHECK(cudaStreamWaitEvent(capture->stream, join.event, 0));
    }
    CHECK(cudaStreamEndCapture(capture->stream, &captured));
    return captured;
}

static inline void hold_tensors(const std::vector<struct graph_node> &nodes)
{
    for (const struct graph_node &node : nodes) {
        node.to->held++;
        node.from->held++;
    }
}

static inline void let_go_of_tensors(const std::vector<struct graph_node> &nodes)
{
    for (const struct graph_node &node : nodes) {
        node.to->held--;
        node.from->held--;
    }
}

static inline void instantiate(struct random_graph *graph, cudaGraph_t captured)
{
    CHECK(cudaGraphInstantiate(&graph->handle, captured, 0));
    CHECK(cudaGraphDestroy(captured));
}

static inline void capture_graph(struct random_graph *graph, const struct graph_capture *capture)
{
    hold_tensors(graph->nodes);
    instantiate(graph, capture_nodes(capture));
}

/*
 * Gives the graph new nodes. The device may refuse to change a node in its place, for example a
 * fill of another width. Then the graph is instantiated anew, as frameworks do.
 */
static inline void update_graph(struct random_graph *graph, std::vector<struct graph_node> *nodes,
                                const struct graph_capture *capture)
{
    cudaGraphExecUpdateResultInfo info = {};

    hold_tensors(*nodes);
    const cudaGraph_t captured = capture_nodes(capture);
    let_go_of_tensors(graph->nodes);
    graph->nodes.swap(*nodes);
    if (cudaGraphExecUpdate(graph->handle, captured, &info) == cudaSuccess) {
        CHECK(cudaGraphDestroy(captured));
        return;
    }
    cudaGetLastError();
    CHECK(cudaGraphExecDestroy(graph->handle));
    instantiate(graph, captured);
}

static inline void launch_graph(struct random_memory *memory, int stream, const struct random_graph *graph)
{
    for (const struct graph_node &node : graph->nodes) {
        before_write(memory, stream, node.to.get());
        before_read(memory, stream, node.from.get());
    }
    CHECK(cudaGraphLaunch(graph->handle, handle_of(memory, stream)));
    memory->launches += std::max<uint64_t>(MOST_NODES, graph->nodes.size());
    for (const struct graph_node &node : graph->nodes)
        do_on_host(&node);
    const struct work work = worked(&memory->streams, stream);
    for (const struct graph_node &node : graph->nodes)
        was_read(node.from.get(), work);
    for (const struct graph_node &node : graph->nodes)
        was_written(node.to.get(), work);
}

static inline void drop_graph(struct random_graph *graph)
{
    CHECK(cudaGraphExecDestroy(graph->handle));
    let_go_of_tensors(graph->nodes);
}

#endif
