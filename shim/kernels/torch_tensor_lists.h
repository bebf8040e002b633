/*
 * torch's kernels for lists of tensors (multi_tensor_apply_kernel, which its foreach and fused optimizers, gradient clipping and GradScaler are made of; and
 * CatArrayBatchedCopy, which concatenates): which tensors a launch uses.
 *
 * One of their parameters is a structure with room for some dozens of tensors, of which a launch fills in those that it uses. It lies on the stack, and behind what
 * is filled in stands what was there before: tensors of launches before, of steps before. Taken for uses, those shorten the time in which a span is idle, and
 * bring back spans that nobody wants.
 *
 * Of multi_tensor_apply_kernel it is the first parameter, with addresses, numbers of elements, and for each block of the grid which tensor and which chunk of it
 * (65,536 elements) the block works on. (ATen/native/cuda/MultiTensorApply.cuh of torch 2.11, and the parameters of all of the 1,392 such kernels in
 * libtorch_cuda.so of 2.11.0+cu130, but for 16 of complex doubles; likewise in 2.6.0, 2.8.0 and 2.15.0+cu132. Where it is built with CUDA 13 there is seven
 * times as much room.) Nothing in it is trusted: who finds a launch's structure filled in differently reads all of its words.
 *
 * Of CatArrayBatchedCopy and its relatives it is the second, behind what they write to. A row of the grid works on each tensor: blockIdx.y is the only number
 * that they look one up by. (ATen/native/cuda/Shape.cu of torch 2.11, and the parameters of all such kernels in those four; in the code of those of 2.6.0 and
 * 2.15.0 no block asks for its blockIdx.z.)
 *
 * Pure. Any thread.
 */
#ifndef PS_TORCH_TENSOR_LISTS_H
#define PS_TORCH_TENSOR_LISTS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/grid.h"

/* Where what lies in the structure, in bytes from its start. All zero: the kernel has none. Without padding: it is compared as bytes. */
struct ps_torch_tensor_lists {
    uint16_t parameter; /* which one the structure is */
    uint16_t lists;     /* of addresses, one behind the other: a launch's tensors are the first of each */
    uint16_t capacity;  /* tensors of a list */
    uint16_t by_row;    /* 1: a row of the grid works on each tensor, and what follows is 0 */
    uint16_t blocks;    /* the most of a grid */
    uint16_t index_bytes;
    uint32_t elements, states; /* of each tensor: its number of elements; a further address, 0: there is none */
    uint32_t tensor, chunk;    /* of each block */
};

/* By the kernel's name (mangled; NULL: not known) and the bytes of each of its `count` parameters. */
struct ps_torch_tensor_lists ps_torch_tensor_lists_of(const char *name, const uint32_t *bytes, uint32_t count);

/* How many of each list's tensors a launch of such a grid uses, by the structure that it is given. 0: it is not filled in as it should be. */
uint32_t ps_torch_tensor_lists_used(const struct ps_torch_tensor_lists *where, const void *structure, struct ps_grid grid);

#endif
