/*
 * The simulated NCCL's communicators. Every other rank of one is a mirror of this rank: it sends
 * what this one sends, and sends back what it was sent. So one process has communicators of any
 * size, and what must come out is known: a sum is `nranks` times what was put in.
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

/* Bytes that are on their way to a peer, and back. */
struct mail {
    struct mail *next;
    int peer;
    bool taken;
    size_t bytes;
    char data[];
};

/*
 * A registered range, through the pages that lay behind it then: the view that a network card or a
 * peer has of it.
 */
struct registration {
    struct registration *next;
    CUdeviceptr base, alias;
    size_t bytes;
};

/* Entries are used once: a captured one is read whenever its graph runs. */
struct queue {
    struct queue *next;
    uint32_t used;
    struct work entry[QUEUE_ENTRIES];
};

struct ncclComm {
    pthread_mutex_t lock; /* guards what follows, but for the constants */
    CUcontext context;    /* constant, as the next three */
    int nranks, rank;
    bool blocking;
    _Atomic int state; /* ncclInProgress while a thread launches */
    struct queue *queue;
    CUevent launched; /* the communicator's launches come one after the other */
    struct mail *mail;
    struct registration *registrations;
    struct {
        bool used;
        const char *scalar;
    } operators[SCALARS_MAX];
};

/* What a group, or a call without one, asks for. */
struct request {
    ncclComm_t comm;
    CUstream stream;
    int peer;
    struct work work;
    ncclWindow_t *window; /* or this: a window to be made of `work.received` */
};

/* Launches (or registers) what was asked for; all of one communicator in one kernel. */
ncclResult_t cudasim_nccl_carry_out(struct request *requests, size_t count);

/*
 * Makes and ends a registration; the address that the card would use for one of the program's. Lock
 * held.
 */
ncclResult_t cudasim_nccl_register(ncclComm_t comm, void *buffer, size_t bytes, void **handle);
void cudasim_nccl_deregister(ncclComm_t comm, void *handle);
void *cudasim_nccl_view(ncclComm_t comm, const void *address);

#endif
