/*
 * Executable graphs: what each of them touches, read from its nodes when it is instantiated or changed, for the launch to name.
 *
 * Kept are addresses, not spans: a graph uses what lies at an address when it runs, whoever lived there when it was made. What was once seen in a
 * graph stays: too much costs a reload, too little would cost the bytes. Nodes that can't be read, or a graph that was instantiated while nobody
 * looked, make it unknown; its launches then hold every span where it is.
 *
 * Two clocks: nothing is queued here. A graph's launch is one access to all that it touches, on the stream it is launched on.
 * Any thread, inside Penstock, without the registry lock.
 */
#ifndef PS_GRAPHS_H
#define PS_GRAPHS_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

/* `graph` has become `executable`. Launched by kernels, its launches are not seen: what it touches stays on the device from now on. */
void ps_graph_instantiated(CUgraphExec executable, CUgraph graph, bool launched_by_kernels);

/* It takes over the nodes of `graph`; or this kernel, copy or fill. */
void ps_graph_takes(CUgraphExec executable, CUgraph graph);
void ps_graph_takes_kernel(CUgraphExec executable, const CUDA_KERNEL_NODE_PARAMS *kernel);
void ps_graph_takes_addresses(CUgraphExec executable, CUdeviceptr a, CUdeviceptr b);

/* It was changed in a way that can't be read. */
void ps_graph_unknown(CUgraphExec executable);

void ps_graph_destroyed(CUgraphExec executable);

/*
 * Work of a library's (NCCL's) that uses these addresses is about to be captured on the stream. Its nodes need not name them; the graph that is being
 * captured touches them all the same, and so does what is instantiated from it. A clone of that graph, and one that has it as a child, does not know.
 */
void ps_graph_captures(CUstream stream, const CUdeviceptr *addresses, size_t count);

/* The program destroys a graph (not an executable one): its handle may be given out again. */
void ps_graph_captured_destroyed(CUgraph graph);

/* Names all that it touches to the call under way on this thread (ps_trace_address). False: it is not known. */
bool ps_graph_name(CUgraphExec executable);

#endif
