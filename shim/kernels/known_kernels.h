/*
 * Kernels whose names tell more than their parameters do.
 *
 * Some of torch's own templates keep no address. They update parameters and the optimizer's state,
 * cast parameters for computations, and concatenate. They use their arguments and write numbers. So
 * if no other kernel was ever given a span, no table of pointers leads to it. Then only kernels
 * that are given the span use it. (aten/src/ATen/native/cuda: MultiTensorApply.cuh, CUDALoops.cuh,
 * Reduce.cuh, DistributionTemplates.h, Shape.cu.)
 *
 * NCCL's kernels find their work in queues, some of them in host memory. The queues name the
 * buffers that NCCL's calls have named (collectives.h).
 */
#ifndef PS_KNOWN_KERNELS_H
#define PS_KNOWN_KERNELS_H

enum ps_known_kernel {
    PS_KERNEL_UNKNOWN,
    PS_KERNEL_KEEPS_NO_ADDRESS, /* stores no address and follows none in memory */
    PS_KERNEL_NCCL,
};

/* Returns the kind of a kernel by its name in the driver (mangled); NULL: unknown. Any thread. */
enum ps_known_kernel ps_kernel_known(const char *name);

#endif
