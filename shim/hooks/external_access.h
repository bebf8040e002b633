/*
 * Memory that something outside the GPU will reach: a network card or a file's storage. Cards use
 * GPUDirect RDMA, by dma-buf or by the kernel's peer memory; storage uses cuFile. Both keep the
 * pages that lie behind the addresses when they learn of them. So a span is brought to its pages
 * first, on the host's clock. If the real call succeeds, the pages stay until the span is freed or
 * given back. The call fails for mapped memory, except by dma-buf. Then the program gets the real
 * answer, and the user one line with the setting that helps.
 *
 * The driver's functions come from hooks.def. Those of libcufile and libibverbs are exported here;
 * look-ups get those of libcufile too.
 */
#ifndef PS_EXTERNAL_ACCESS_H
#define PS_EXTERNAL_ACCESS_H

/* Returns our function of that name, or `found`, the result of the look-up. Any thread. */
void *ps_cufile_stand_in(const char *name, void *found);

#endif
