#include <stdlib.h>

#include "communicator.h"

static struct work *entries(ncclComm_t comm, uint32_t count)
{
    struct queue *q = comm->queue;

    if (count > QUEUE_ENTRIES)
        return NULL;
    if (!q || q->used + count > QUEUE_ENTRIES) {
        if (cuMemHostAlloc((void **)&q, sizeof *q, 0) != CUDA_SUCCESS)
            return NULL;
        q->used = 0;
        q->next = comm->queue;
        comm->queue = q;
    }
    q->used += count;
    return &q->entry[q->used - count];
}

/*
 * Finds the mailbox of a send or a receive. A receive takes the first send of its size to the peer
 * that was not taken yet. A send comes before its receive.
 */
static bool find_mailbox(ncclComm_t comm, struct request *r)
{
    struct mail **at = &comm->mail;

    if (r->work.kind == WORK_SEND) {
        struct mail *letter = malloc(sizeof *letter + r->work.bytes);
        if (!letter)
            return false;
        while (*at)
            at = &(*at)->next;
        *letter = (struct mail){.peer = r->peer, .bytes = r->work.bytes};
        *at = letter;
        r->work.mailbox = letter->data;
        return true;
    }
    while (*at && ((*at)->taken || (*at)->peer != r->peer || (*at)->bytes != r->work.bytes))
        at = &(*at)->next;
    if (!*at)
        return false; /* the real NCCL would wait for ever */
    (*at)->taken = true;
    r->work.mailbox = (*at)->data;
    return true;
}

static ncclResult_t find_mailboxes(ncclComm_t comm, struct request *requests, size_t count)
{
    static const enum work_kind order[] = {WORK_SEND, WORK_RECEIVE};

    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < count; i++)
            if (requests[i].comm == comm && !requests[i].window && requests[i].work.kind == order[pass] &&
                !find_mailbox(comm, &requests[i]))
                return ncclInvalidUsage;
    return ncclSuccess;
}

/*
 * The first stream runs the kernel, after all earlier work of every stream and before their later
 * work.
 */
static CUresult launch(ncclComm_t comm, const struct work *first, uint32_t count, CUstream *streams, size_t n)
{
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult r = cuStreamIsCapturing(streams[0], &capturing);

    if (r == CUDA_SUCCESS && capturing != CU_STREAM_CAPTURE_STATUS_NONE)
        return cudasim_nccl_launch(first, count, streams[0]);
    if (r == CUDA_SUCCESS)
        r = cuStreamWaitEvent(streams[0], comm->launched, 0);
    for (size_t i = 1; i < n && r == CUDA_SUCCESS; i++) {
        CUevent before;
        r = cuEventCreate(&before, CU_EVENT_DISABLE_TIMING);
        if (r == CUDA_SUCCESS && (r = cuEventRecord(before, streams[i])) == CUDA_SUCCESS)
            r = cuStreamWaitEvent(streams[0], before, 0);
        cuEventDestroy(before);
    }
    if (r == CUDA_SUCCESS)
        r = cudasim_nccl_launch(first, count, streams[0]);
    if (r == CUDA_SUCCESS)
        r = cuEventRecord(comm->launched, streams[0]);
    for (size_t i = 1; i < n && r == CUDA_SUCCESS; i++)
        r = cuStreamWaitEvent(streams[i], comm->launched, 0);
    return r;
}

/* Carries out the requests of one communicator. */
static ncclResult_t carry_out_for(ncclComm_t comm, struct request *requests, size_t count, CUstream *streams)
{
    uint32_t works = 0;
    size_t n = 0;

    for (size_t i = 0; i < count; i++) {
        if (requests[i].comm != comm)
            continue;
        if (!requests[i].window) {
            works++;
            continue;
        }
        ncclResult_t r =
            cudasim_nccl_register(comm, requests[i].work.received, requests[i].work.bytes, (void **)requests[i].window);
        if (r != ncclSuccess)
            return r;
    }
    ncclResult_t matched = find_mailboxes(comm, requests, count);
    if (matched != ncclSuccess || !works)
        return matched;
    struct work *first = entries(comm, works), *next = first;
    if (!first)
        return ncclSystemError;
    for (size_t turn = 0; turn < 2 * count; turn++) { /* sends come before receives */
        size_t i = turn % count;
        if (requests[i].comm != comm || requests[i].window || (requests[i].work.kind == WORK_SEND) != (turn < count))
            continue;
        *next = requests[i].work;
        next->sent = cudasim_nccl_view(comm, next->sent);
        next++->received = cudasim_nccl_view(comm, requests[i].work.received);
        size_t known = 0;
        while (known < n && streams[known] != requests[i].stream)
            known++;
        if (known == n)
            streams[n++] = requests[i].stream;
    }
    return launch(comm, first, works, streams, n) == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t cudasim_nccl_carry_out(struct request *requests, size_t count)
{
    ncclResult_t result = ncclSuccess;
    CUstream *streams = malloc((count ? count : 1) * sizeof *streams);

    if (!streams)
        return ncclSystemError;
    for (size_t i = 0; i < count && result == ncclSuccess; i++) {
        ncclComm_t comm = requests[i].comm;
        size_t before = 0;
        while (requests[before].comm != comm)
            before++;
        if (before < i)
            continue; /* done for an earlier request */
        CUcontext popped;
        cuCtxPushCurrent(comm->context);
        pthread_mutex_lock(&comm->lock);
        result = carry_out_for(comm, requests, count, streams);
        pthread_mutex_unlock(&comm->lock);
        cuCtxPopCurrent(&popped);
    }
    free(streams);
    return result;
}
