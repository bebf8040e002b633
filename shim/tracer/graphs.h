/*
 * Executable graphs: what each of them touches, read from its nodes when it is instantiated or changed, for the launch to name.
 *
 * Kept are addresses, not spans: a graph uses what lies at an address when it runs, whoever lived there when it was made. They are kept by node, since programs
 * change nodes: XLA gives its graphs other buffers at each launch, and a launch that named all that they ever had would bring back all of a step's
 * activations (JAX, H200; tests/results/README.md#real-programs-on-one-h200). A node that can't be read or that kernels may change, or a graph that was instantiated while nobody looked,
 * makes it unknown; its launches then hold every span where it is.
 *
 * Two clocks: nothing is queued here. A graph's launch is one access to all that it touches, on the stream it is launched on. What it touched before it was
 * changed was named by the launches that were queued before, which keep their nodes' parameters (cuda.h): they are in the spans' uses.
 * Any thread, inside Penstock, without the registry lock.
 */
#ifndef PS_GRAPHS_H
#define PS_GRAPHS_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * `graph` has become `executable`. Launched by kernels, its launches are not seen: what it touches is on the device when this returns, and stays there while
 * the graph exists (graph_pins.h). So is, from each change on, what it touches then.
 */
void ps_graph_instantiated(CUgraphExec executable, CUgraph graph, bool launched_by_kernels);

/*
 * It has been changed, by a call that succeeded; one that fails changes nothing (cuda.h). All of its nodes: it took over those of `graph`. Or one, which is called by its
 * name in the graph that it was instantiated from, or in a child that this one had: a child's graph; a kernel, copy, fill or batch of values; or something that can't be
 * read. Which node of a graph that it took over goes by a name in the first one nobody knows: such a node then has what it is given besides, since too much costs a
 * reload, and too little would cost the bytes.
 */
void ps_graph_updated(CUgraphExec executable, CUgraph graph);
void ps_graph_child_changed(CUgraphExec executable, CUgraphNode node, CUgraph child);
void ps_graph_kernel_changed(CUgraphExec executable, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *kernel);
void ps_graph_addresses_changed(CUgraphExec executable, CUgraphNode node, CUdeviceptr a, CUdeviceptr b);
void ps_graph_values_changed(CUgraphExec executable, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *values);
void ps_graph_node_unknown(CUgraphExec executable, CUgraphNode node);

void ps_graph_destroyed(CUgraphExec executable);

/*
 * The program has been given memory. A graph that kernels launch uses what lies at its addresses when it runs: what has come to lie there is pinned like what
 * was there before. To be told while there are such graphs.
 */
extern atomic_uint ps_graphs_launched_by_kernels;
void ps_graph_span_was_made(CUdeviceptr address, size_t bytes);

/*
 * Work of a library's (NCCL's) that uses these addresses is about to be captured on the stream. Its nodes need not name them; the graph that is being
 * captured touches them all the same, and so does what is instantiated from it. A clone of that graph, and one that has it as a child, does not know.
 */
void ps_graph_captures(CUstream stream, const CUdeviceptr *addresses, size_t count);

/* The program destroys a graph (not an executable one): its handle may be given out again. */
void ps_graph_captured_destroyed(CUgraph graph);

/*
 * Tells `note` of all that it touches: of each unit of the reservation once, by an address in it, ascending. False: it is not known. `note` calls nothing here.
 */
bool ps_graph_name(CUgraphExec executable, void (*note)(void *ctx, CUdeviceptr unit), void *ctx);

#endif
