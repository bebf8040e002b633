/*
 * Memory that torch allocates while a stream is captured. On cudaMallocAsync, which Penstock asks torch for, such memory belongs
 * to a graph. It is there from a launch of that graph until it is freed, and the next launch allocates it again.
 *
 * torch frees it when its tensor goes, as it would free memory of a pool of its own allocator:
 * - Before the graph's first launch. The driver answers with an error, which ends the process: a destructor of torch's meets it.
 * - In the capture of another graph. Each launch of that graph then frees it, and fails unless the first was launched in between.
 * - While launches of the graph are under way on other streams. The free does not come after those.
 * With torch's own allocator the memory stays the graph's until the graph is destroyed, and so it does here. A free becomes a node
 * in the capture that allocated the memory, and in a capture whose kernels use it: a backward pass, which needs the forward graph's
 * launch before each of its own. Any other free has no effect until the graph is destroyed.
 *
 * This holds only for graphs that free at each launch what the launch before it left, as torch's do. Other graphs' frees go to CUDA.
 *
 * Two clocks: memory of a destroyed graph is freed on a stream of our own, after everything that any stream was given until then.
 * No event stands for all that while somebody captures a stream, nor before all streams are known (start.h). The memory is then
 * freed when the last capture ends, or with a later call of these functions.
 *
 * Any thread, inside Penstock or not, without the registry lock.
 */
#ifndef PS_GRAPH_MEMORY_H
#define PS_GRAPH_MEMORY_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The driver has allocated memory in stream order, maybe while the stream is captured. `is_torchs` tells whether torch is here, and has
 * the allocator that Penstock asks it for.
 */
void ps_graph_memory_allocated(CUdeviceptr address, size_t bytes, CUstream stream, bool per_thread_default, bool (*is_torchs)(void));

/*
 * The capture that a launch on the stream belongs to, and the range of addresses that graphs' memory lies in.
 * `capture` is 0 if the launch belongs to none, or if there is no such memory.
 */
struct ps_graph_memory_uses {
    cuuint64_t capture;
    CUdeviceptr start;
    uint64_t bytes;
};
struct ps_graph_memory_uses ps_graph_memory_look(CUstream stream, bool per_thread_default);

/* A kernel of that capture has this word of the range among its parameters. */
void ps_graph_memory_used(cuuint64_t capture, CUdeviceptr word);

/* The program frees memory in stream order. Returns true if the driver is not to be told: a graph keeps the memory. */
bool ps_graph_memory_freed(CUdeviceptr address, CUstream stream, bool per_thread_default);

/* The graph was instantiated. `frees_at_launch`: each launch frees what the launch before it left. */
void ps_graph_memory_instantiated(CUgraph graph, CUgraphExec executable, bool frees_at_launch);

/* The program destroys the graph, or what it was instantiated to. Called before the driver does that. */
void ps_graph_memory_graph_goes(CUgraph graph);
void ps_graph_memory_executable_goes(CUgraphExec executable);

/* A capture has ended: frees what had to wait for that. */
void ps_graph_memory_capture_ended(void);

#endif
