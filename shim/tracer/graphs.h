/*
 * Executable graphs: the memory that each of them touches, for its launch to name. It is read from
 * the graph's nodes when the graph is instantiated or changed.
 *
 * Addresses are kept, not spans: a graph uses the span that lies at an address when it runs. That
 * may be another span than when the graph was made. They are kept by node, since programs change
 * nodes. XLA gives its graphs other buffers at each launch. A launch that named all buffers so far
 * would bring back all of a step's activations (JAX, H200;
 * tests/results/README.md#real-programs-on-one-h200). Some graphs are unknown: a node can't be read
 * or kernels may change it, or the graph was instantiated unseen. Launches of an unknown graph hold
 * every span in its place.
 *
 * Two clocks: nothing is queued here. A graph's launch is one access to all that it touches, on the
 * stream of the launch. A change does not affect launches that were queued before it, since they
 * keep their nodes' parameters (cuda.h). Their accesses are in the spans' uses.
 *
 * Any thread, inside Penstock, without the registry lock.
 */
#ifndef PS_GRAPHS_H
#define PS_GRAPHS_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * `graph` has become `executable`. If kernels launch it, its launches are not seen. Then the memory
 * that it touches is on the device when this returns. It stays there while the graph exists
 * (graph_pins.h). After each change the same holds for the memory that it touches from then on.
 */
void ps_graph_instantiated(CUgraphExec executable, CUgraph graph, bool launched_by_kernels);

/*
 * The executable graph was changed, and took over all nodes of `graph`.
 *
 * This and the next five functions are called only after a call that succeeded; a failed one
 * changes nothing (cuda.h). A node goes by its name in the graph that was instantiated, or in a
 * child of that graph. After another graph was taken over, it is unknown which of its nodes such a
 * name means. The new memory of that node is then added to the old. Too much costs a reload; too
 * little would cost the bytes.
 */
void ps_graph_updated(CUgraphExec executable, CUgraph graph);
/* The node's child graph was changed. */
void ps_graph_child_changed(CUgraphExec executable, CUgraphNode node, CUgraph child);
/* The kernel of the node was changed. */
void ps_graph_kernel_changed(CUgraphExec executable, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *kernel);
/* The node's copy was changed, or its fill: the bytes from `to` to the end of the last row. */
void ps_graph_copy_changed(CUgraphExec executable, CUgraphNode node, const CUDA_MEMCPY3D *copy);
void ps_graph_fill_changed(CUgraphExec executable, CUgraphNode node, CUdeviceptr to, size_t bytes);
/* The batch of values of the node was changed. */
void ps_graph_values_changed(CUgraphExec executable, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *values);
/* The node was changed to something that can't be read. */
void ps_graph_node_unknown(CUgraphExec executable, CUgraphNode node);

/*
 * The node was disabled, or enabled again. A disabled copy brings no table. If it is unknown which
 * node that is, each copy of the graph may run, or may not.
 */
void ps_graph_node_switched(CUgraphExec executable, CUgraphNode node, bool is_enabled);

/* The executable graph is destroyed. */
void ps_graph_destroyed(CUgraphExec executable);

/* The number of executable graphs that kernels launch. */
extern atomic_uint ps_graphs_launched_by_kernels;
/*
 * The program was given memory. A graph that kernels launch uses the memory at its addresses when
 * it runs. So a new span there is pinned like the memory that was there before. Called while such
 * graphs exist.
 */
void ps_graph_span_was_made(CUdeviceptr address, size_t bytes);

/*
 * A library (NCCL) is about to be captured on the stream with work that uses these addresses. Its
 * nodes need not name them. The graph under capture touches them all the same, and so do graphs
 * that are instantiated from it.
 */
void ps_graph_captures(CUstream stream, const CUdeviceptr *addresses, size_t count);

/*
 * `graph` was made as a clone of `other`, or got a copy of it as a child. It touches such addresses
 * of `other`, too.
 */
void ps_graph_holds(CUgraph graph, CUgraph other);

/* The program destroys a graph (not an executable one): its handle may be given out again. */
void ps_graph_captured_destroyed(CUgraph graph);

/*
 * Calls `note_bytes` for what the graph's copies and fills touch. Then calls `note` once for each
 * unit of the reservation in which its other nodes touch memory, with an address in it, ascending;
 * and for spans of the pointer tables that its kernels are given, as these tables are now. Returns
 * false if the graph is unknown. Both functions call nothing here.
 */
bool ps_graph_name(CUgraphExec executable, void (*note_bytes)(CUdeviceptr start, size_t bytes),
                   void (*note)(void *ctx, CUdeviceptr unit), void *ctx);

/*
 * The graph is about to be launched: its kernels make the tables that they are known to make, or
 * may make (kernels/made_tables.h).
 */
void ps_graph_makes(CUgraphExec executable);

struct ps_graph_copy;
/*
 * Returns the graph's copies that may bring or move pointer tables at a launch now, in their order
 * (table_copies.h); the caller frees the array. NULL: no such copy, or no memory, which makes
 * `failed` true.
 */
struct ps_graph_copy *ps_graph_copies(CUgraphExec executable, size_t *count, bool *failed);

#endif
