/*
 * Kernels that are known to keep no address: what they are given they use, and write numbers. A span that no other kernel has ever been given is used by
 * nobody who was not given it: there is no table of pointers that leads to it. Known by the names of torch's own templates, which update parameters and
 * the optimizer's state and cast the former for whoever computes with them (aten/src/ATen/native/cuda: MultiTensorApply.cuh, CUDALoops.cuh,
 * Reduce.cuh, DistributionTemplates.h).
 */
#ifndef PS_KNOWN_KERNELS_H
#define PS_KNOWN_KERNELS_H

#include <stdbool.h>

/* By the kernel's name as the driver has it (mangled); NULL: not known. Any thread. */
bool ps_kernel_keeps_no_address(const char *name);

#endif
