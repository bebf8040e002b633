/*
 * Finds the tensors that a launch of torch's kernels for lists of tensors uses. One such kernel is
 * multi_tensor_apply_kernel; torch's foreach and fused optimizers, gradient clipping and GradScaler
 * use it. The other is CatArrayBatchedCopy, which concatenates.
 *
 * One of their parameters is a structure with room for some dozens of tensors. A launch fills in
 * the tensors that it uses. The structure lies on the stack, and behind these stand earlier
 * contents: tensors of earlier launches and steps. If those counted as uses, they would shorten the
 * time in which a span is idle. They would also bring back spans that no launch wants.
 *
 * In multi_tensor_apply_kernel it is the first parameter. It has addresses and numbers of elements.
 * For each block of the grid it has a tensor and a chunk of it (65,536 elements).
 * (ATen/native/cuda/MultiTensorApply.cuh of torch 2.11, and the parameters of all 1,392 such
 * kernels in its libtorch_cuda.so, 2.11.0+cu130. This excludes 16 kernels of complex doubles. The
 * same holds in 2.6.0, 2.8.0 and 2.15.0+cu132. Builds with CUDA 13 have seven times as much room.)
 *
 * Nothing in that structure is trusted: if a launch's structure is filled in differently, all of
 * its words are read.
 *
 * In CatArrayBatchedCopy and its relatives it is the second parameter, behind their target. A row
 * of the grid works on each tensor: they look a tensor up by blockIdx.y alone.
 * (ATen/native/cuda/Shape.cu of torch 2.11, and the parameters of all such kernels in those four
 * releases. In the code of 2.6.0's and 2.15.0's, no block reads its blockIdx.z.)
 *
 * Pure. Any thread.
 */
#ifndef PS_TORCH_TENSOR_LISTS_H
#define PS_TORCH_TENSOR_LISTS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/grid.h"

/*
 * The structure's layout, in bytes from its start. All zero: the kernel has no such structure.
 * Without padding, because it is compared as bytes.
 */
struct ps_torch_tensor_lists {
    uint16_t parameter; /* the structure's index among the parameters */
    uint16_t lists;     /* lists of addresses, back to back; a launch fills each from its start */
    uint16_t capacity;  /* tensors of a list */
    uint16_t by_row;    /* 1: a row of the grid works on each tensor, and the fields below are 0 */
    uint16_t blocks;    /* the most of a grid */
    uint16_t index_bytes;
    uint32_t elements, states; /* of each tensor: number of elements; a further address (0: none) */
    uint32_t tensor, chunk;    /* of each block */
};

/*
 * Finds the layout by the kernel's name and the bytes of each of its `count` parameters. `name`:
 * mangled; NULL: unknown.
 */
struct ps_torch_tensor_lists ps_torch_tensor_lists_of(const char *name, const uint32_t *bytes, uint32_t count);

/*
 * Returns the number of each list's tensors that a launch of that grid uses, as its structure says.
 * Returns 0 if the structure is not filled in as torch does it.
 */
uint32_t ps_torch_tensor_lists_used(const struct ps_torch_tensor_lists *where, const void *structure,
                                    struct ps_grid grid);

#endif
