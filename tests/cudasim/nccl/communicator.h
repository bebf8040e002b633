/*
 * The simulated NCCL's communicators. Every other rank of a communicator is a mirror of this rank:
 * it sends what this one sends, and sends back what it received. So one process has communicators
 * of any size, and every result is known: a sum is `nranks` times the input.
 */
#ifndef CUDASIM_NCCL_COMMUNICATOR_H
#define CUDASIM_NCCL_COMMUNICATOR_H

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "nccl.h"
#include "work.h"

#define QUEUE_ENTRIES 4096u
#define SCALARS_MAX 16

/* Bytes on their way to a peer, and back. */
struct mail {
    struct mail *next;
    int peer;
    bool taken;
    size_t bytes;
    char data[];
};

/*
 * A registered range, through the pages that lay behind it at its registration. A network card or a
 * peer sees it so.
 */
struct registration {
    struct registration *next;
    CUdeviceptr base, alias;
    size_t bytes;
};

/* Each entry is used once, because a captured one is read whenever its graph runs. */
struct queue {
    struct queue *next;
    uint32_t used;
    struct work entry[QUEUE_ENTRIES];
};

struct ncclComm {
    pthread_mutex_t lock; /* guards the fields below that are not constant */
    CUcontext context;    /* constant, as the next three */
    int nranks, rank;
    bool blocking;
    _Atomic int state; /* ncclInProgress while a thread launches */
    struct queue *queue;
    CUevent launched; /* orders the communicator's launches one after the other */
    struct mail *mail;
    struct registration *registrations;
    struct {
        bool used;
        const char *scalar;
    } operators[SCALARS_MAX];
};

/* One request of a group, or of a call outside a group. */
struct request {
    ncclComm_t comm;
    CUstream stream;
    int peer;
    struct work work;
    ncclWindow_t *window; /* if set, the request is to make this window of `work.received` */
};

/* Launches or registers the requests. All launches of one communicator are one kernel. */
ncclResult_t cudasim_nccl_carry_out(struct request *requests, size_t count);

/*
 * Make and end a registration, and translate an address of the program into the card's. Lock held.
 */
ncclResult_t cudasim_nccl_register(ncclComm_t comm, void *buffer, size_t bytes, void **handle);
void cudasim_nccl_deregister(ncclComm_t comm, void *handle);
void *cudasim_nccl_view(ncclComm_t comm, const void *address);

#endif
