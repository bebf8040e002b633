/*
 * Kernels of which more is known than their parameters, by their names. torch's own templates, which update parameters and the optimizer's state, cast
 * the former for whoever computes with them, and concatenate, keep no address: what they are given they use, and write numbers. A span that no other kernel has ever been
 * given is used by nobody who was not given it: there is no table of pointers that leads to it. (aten/src/ATen/native/cuda: MultiTensorApply.cuh,
 * CUDALoops.cuh, Reduce.cuh, DistributionTemplates.h, Shape.cu.) NCCL's find their work in queues, in host memory some of them, which name what NCCL's calls have
 * named (collectives.h).
 */
#ifndef PS_KNOWN_KERNELS_H
#define PS_KNOWN_KERNELS_H

enum ps_known_kernel {
    PS_KERNEL_UNKNOWN,
    PS_KERNEL_KEEPS_NO_ADDRESS, /* it writes none of what it is given into memory, and follows none that it finds there */
    PS_KERNEL_NCCL,
};

/* By the kernel's name as the driver has it (mangled); NULL: not known. Any thread. */
enum ps_known_kernel ps_kernel_known(const char *name);

#endif
