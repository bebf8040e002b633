/*
 * Variables of the program, named by their host shadows: places, sizes, and copy nodes of graphs.
 * The copies are in per_stream_copies.h.
 */
#include "runtime.h"

cudaError_t cudasim_symbol_begin(const char *entry_point, const void *symbol, size_t count, size_t offset,
                                 bool direction_fits, void **address)
{
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CUresult result = cudasim_runtime_begin(entry_point);
    if (result == CUDA_SUCCESS)
        result = cudasim_variable_from_symbol(symbol, &base, &bytes);
    if (result != CUDA_SUCCESS)
        return cudasim_variable_lookup_failed(result);
    if (offset > bytes || count > bytes - offset)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (!direction_fits)
        return cudasim_runtime_fail(cudaErrorInvalidMemcpyDirection);
    *address = cudasim_pointer(base + offset);
    return cudaSuccess;
}

cudaError_t cudaGetSymbolAddress(void **address, const void *symbol)
{
    CUresult result = cudasim_runtime_begin(__func__);
    CUdeviceptr base = 0;
    if (address == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS)
        result = cudasim_variable_from_symbol(symbol, &base, NULL);
    if (result != CUDA_SUCCESS)
        return cudasim_variable_lookup_failed(result);
    *address = cudasim_pointer(base);
    return cudaSuccess;
}

cudaError_t cudaGetSymbolSize(size_t *size, const void *symbol)
{
    CUresult result = cudasim_runtime_begin(__func__);
    if (size == NULL)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS)
        result = cudasim_variable_from_symbol(symbol, NULL, size);
    return result == CUDA_SUCCESS ? cudaSuccess : cudasim_variable_lookup_failed(result);
}

/* ---- nodes of graphs ---- */

/*
 * The six entry points: a node is added, changed, or changed in an executable graph, and the copy
 * leads to the symbol or from it. `call` makes the driver's call with the copy `row`.
 */
#define NODE_TO_SYMBOL(call)                                                                                           \
    void *address;                                                                                                     \
    cudaError_t error =                                                                                                \
        cudasim_symbol_begin(__func__, symbol, count, offset, cudasim_leads_to_symbol(kind), &address);                \
    if (error != cudaSuccess)                                                                                          \
        return error;                                                                                                  \
    const CUDA_MEMCPY3D row = cudasim_one_row(address, src, count);                                                    \
    return cudasim_runtime_end(call)

#define NODE_FROM_SYMBOL(call)                                                                                         \
    void *address;                                                                                                     \
    cudaError_t error =                                                                                                \
        cudasim_symbol_begin(__func__, symbol, count, offset, cudasim_leads_from_symbol(kind), &address);              \
    if (error != cudaSuccess)                                                                                          \
        return error;                                                                                                  \
    const CUDA_MEMCPY3D row = cudasim_one_row(dst, address, count);                                                    \
    return cudasim_runtime_end(call)

cudaError_t cudaGraphAddMemcpyNodeToSymbol(cudaGraphNode_t *node, cudaGraph_t graph,
                                           const cudaGraphNode_t *dependencies, size_t dependency_count,
                                           const void *symbol, const void *src, size_t count, size_t offset,
                                           enum cudaMemcpyKind kind)
{
    NODE_TO_SYMBOL(cuGraphAddMemcpyNode(node, graph, dependencies, dependency_count, &row, NULL));
}

cudaError_t cudaGraphAddMemcpyNodeFromSymbol(cudaGraphNode_t *node, cudaGraph_t graph,
                                             const cudaGraphNode_t *dependencies, size_t dependency_count, void *dst,
                                             const void *symbol, size_t count, size_t offset, enum cudaMemcpyKind kind)
{
    NODE_FROM_SYMBOL(cuGraphAddMemcpyNode(node, graph, dependencies, dependency_count, &row, NULL));
}

cudaError_t cudaGraphMemcpyNodeSetParamsToSymbol(cudaGraphNode_t node, const void *symbol, const void *src,
                                                 size_t count, size_t offset, enum cudaMemcpyKind kind)
{
    NODE_TO_SYMBOL(cuGraphMemcpyNodeSetParams(node, &row));
}

cudaError_t cudaGraphMemcpyNodeSetParamsFromSymbol(cudaGraphNode_t node, void *dst, const void *symbol, size_t count,
                                                   size_t offset, enum cudaMemcpyKind kind)
{
    NODE_FROM_SYMBOL(cuGraphMemcpyNodeSetParams(node, &row));
}

cudaError_t cudaGraphExecMemcpyNodeSetParamsToSymbol(cudaGraphExec_t executable, cudaGraphNode_t node,
                                                     const void *symbol, const void *src, size_t count, size_t offset,
                                                     enum cudaMemcpyKind kind)
{
    NODE_TO_SYMBOL(cuGraphExecMemcpyNodeSetParams(executable, node, &row, NULL));
}

cudaError_t cudaGraphExecMemcpyNodeSetParamsFromSymbol(cudaGraphExec_t executable, cudaGraphNode_t node, void *dst,
                                                       const void *symbol, size_t count, size_t offset,
                                                       enum cudaMemcpyKind kind)
{
    NODE_FROM_SYMBOL(cuGraphExecMemcpyNodeSetParams(executable, node, &row, NULL));
}
