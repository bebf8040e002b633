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

/* `graph` has become `executable`. Launched by kernels, its launches are not seen: what it touches stays on the device from now on. */
void ps_graph_instantiated(CUgraphExec executable, CUgraph graph, bool launched_by_kernels);

/* It takes over the nodes of `graph`; or this kernel, copy or fill. */
void ps_graph_takes(CUgraphExec executable, CUgraph graph);
void ps_graph_takes_kernel(CUgraphExec executable, const CUDA_KERNEL_NODE_PARAMS *kernel);
void ps_graph_takes_addresses(CUgraphExec executable, CUdeviceptr a, CUdeviceptr b);

/* It was changed in a way that can't be read. */
void ps_graph_unknown(CUgraphExec executable);

void ps_graph_destroyed(CUgraphExec executable);

/* Names all that it touches to the call under way on this thread (ps_trace_address). False: it is not known. */
bool ps_graph_name(CUgraphExec executable);

#endif
