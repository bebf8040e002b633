/*
 * What the simulated NCCL does on the device: one kernel, whose parameters name a place in the
 * communicator's queue and nothing else.
 */
#ifndef CUDASIM_NCCL_WORK_H
#define CUDASIM_NCCL_WORK_H

#include <cuda.h>
#include <stdint.h>

#include "nccl.h"

enum work_kind {
    WORK_REDUCE,  /* received = what all ranks' `sent` come to */
    WORK_COPY,    /* `blocks` blocks of what was sent, from the one numbered `from`, each to its place */
    WORK_SEND,    /* to the mailbox */
    WORK_RECEIVE, /* from it */
};

/*
 * An entry of the queue, in pinned memory: written by the host with plain stores, read by the
 * kernel.
 */
struct work {
    enum work_kind kind;
    const char *sent;
    char *received;
    char *mailbox;
    size_t bytes;  /* of one block */
    size_t blocks; /* copied: the same block so many times, one behind the other */
    ncclDataType_t datatype;
    uint32_t factor;    /* what a sum over mirrors of this rank comes to */
    const char *scalar; /* an operator's own factor, in device memory; NULL: none */
};

/* Queues the kernel on the stream: `count` entries from `first` on. */
CUresult cudasim_nccl_launch(const struct work *first, uint32_t count, CUstream stream);

#endif
