/*
 * The device side of the simulated NCCL: one kernel, whose parameters only name a place in the
 * communicator's queue.
 */
#ifndef CUDASIM_NCCL_WORK_H
#define CUDASIM_NCCL_WORK_H

#include <cuda.h>
#include <stdint.h>

#include "nccl.h"

enum work_kind {
    WORK_REDUCE,  /* received = the reduction of all ranks' `sent` */
    WORK_COPY,    /* received = `blocks` copies of `sent` */
    WORK_SEND,    /* mailbox = `sent` */
    WORK_RECEIVE, /* received = the mailbox */
};

/*
 * An entry of the queue, in pinned memory. The host writes it with plain stores, and the kernel
 * reads it.
 */
struct work {
    enum work_kind kind;
    const char *sent;
    char *received;
    char *mailbox;
    size_t bytes;  /* of one block */
    size_t blocks; /* copies of the block that WORK_COPY makes, one behind the other */
    ncclDataType_t datatype;
    uint32_t factor;    /* factor of a sum over mirrors of this rank */
    const char *scalar; /* an operator's own factor, in device memory; NULL: none */
};

/* Queues the kernel on the stream, for `count` entries from `first` on. */
CUresult cudasim_nccl_launch(const struct work *first, uint32_t count, CUstream stream);

#endif
