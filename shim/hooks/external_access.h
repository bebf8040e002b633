/*
 * Memory that something outside the GPU is to reach: a network card (GPUDirect RDMA, by dma-buf or by the kernel's peer memory), or a file's storage
 * (cuFile). Both keep the pages that lie behind the addresses when they are told of them. So a span is brought to its pages first, on the host's clock, and
 * where the real call succeeds they stay its pages until it is freed or given back. Where that fails, as it does for mapped memory but by dma-buf,
 * the program gets the real answer and the user one line with the setting that helps.
 *
 * The driver's functions come from hooks.def. libcufile's and libibverbs' are exported here, the former also answered to look-ups.
 */
#ifndef PS_EXTERNAL_ACCESS_H
#define PS_EXTERNAL_ACCESS_H

/* Our function of that name, or `found`, which the name was found to be. Any thread. */
void *ps_cufile_stand_in(const char *name, void *found);

#endif
