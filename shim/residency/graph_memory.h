/*
 * Memory that torch allocates while a stream is captured. On cudaMallocAsync, which Penstock asks
 * torch for, such memory belongs to a graph. It is there from a launch of that graph until it is
 * freed, and the next launch allocates it again.
 *
 * torch frees it when its tensor goes, as it would free memory of a pool of its own allocator:
 * - Before the graph's first launch. The driver returns an error. A torch destructor gets that
 *   error, and the process ends.
 * - In the capture of another graph. Each launch of that graph then frees it, and fails unless the
 *   first graph was launched in between.
 * - While launches of the graph are under way on other streams. The free does not come after those.
 *
 * With torch's own allocator the memory stays the graph's until the graph is destroyed, and so it
 * does here. A free becomes a node in the capture that allocated the memory, and in a capture whose
 * kernels use it. Such a capture is a backward pass, which needs the forward graph's launch before
 * each of its own. Any other free has no effect until the graph is destroyed.
 *
 * This holds only for graphs that free, at each launch, the memory that the former launch left.
 * torch's graphs do so. Other graphs' frees go to CUDA.
 *
 * Two clocks: memory of a destroyed graph is freed on a stream of Penstock's own. The free comes
 * after everything that any stream was given until then. No event stands for all that while a
 * stream is captured, nor before all streams are known (start.h). The memory is then freed when the
 * last capture ends, or with a later call of these functions.
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
 * The driver has allocated memory in stream order; the stream may be captured. `is_torchs` tells
 * whether torch is here, and has the allocator that Penstock asks it for.
 */
void ps_graph_memory_allocated(CUdeviceptr address, size_t bytes, CUstream stream, bool per_thread_default,
                               bool (*is_torchs)(void));

/*
 * The capture that a launch on a stream belongs to, and the address range of graphs' memory.
 * `capture` is 0 if the launch belongs to none, or if there is no such memory.
 */
struct ps_graph_memory_uses {
    cuuint64_t capture;
    CUdeviceptr start;
    uint64_t bytes;
};
struct ps_graph_memory_uses ps_graph_memory_look(CUstream stream, bool per_thread_default);

/* A kernel of that capture has this word, an address of the range, among its parameters. */
void ps_graph_memory_used(cuuint64_t capture, CUdeviceptr word);

/*
 * The program frees memory in stream order. Returns true if the driver must not be called: a graph
 * keeps the memory.
 */
bool ps_graph_memory_freed(CUdeviceptr address, CUstream stream, bool per_thread_default);

/*
 * The graph was instantiated. `frees_at_launch`: each launch frees the memory that the launch
 * before it left.
 */
void ps_graph_memory_instantiated(CUgraph graph, CUgraphExec executable, bool frees_at_launch);

/* The program destroys the graph, or an executable graph. Called before the driver destroys it. */
void ps_graph_memory_graph_goes(CUgraph graph);
void ps_graph_memory_executable_goes(CUgraphExec executable);

/* A capture has ended. Frees the memory that waited for its end. */
void ps_graph_memory_capture_ended(void);

#endif
