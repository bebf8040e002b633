/* The simulator's settings, read once from the environment (CUDASIM_...). Thread-safe. */
#ifndef CUDASIM_CONFIG_H
#define CUDASIM_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CUDASIM_MAX_DEVICES 8

enum cudasim_scheduler_kind {
    CUDASIM_SCHEDULER_THREADS, /* one worker a stream, copies take time */
    CUDASIM_SCHEDULER_SEEDED,  /* operations run when somebody must wait, in an order picked by a seed */
};

struct cudasim_config {
    enum cudasim_scheduler_kind scheduler; /* CUDASIM_SCHED=threads|seeded */
    uint64_t seed;                         /* CUDASIM_SEED */
    size_t device_bytes;                   /* CUDASIM_MEMORY: what one device holds */
    size_t limit_bytes;   /* CUDASIM_LIMIT: what this process may have of it, as under MPS; all of it */
    size_t others_bytes;  /* CUDASIM_OTHERS: what other processes hold of it */
    uint64_t others_from; /* CUDASIM_OTHERS_FROM: from this request for device memory on, counted from 1; 0: always */
    size_t host_handle_bytes; /* CUDASIM_HOST_MEMORY: what host-backed handles may hold together */
    size_t granularity;       /* CUDASIM_GRANULARITY: of handles and mappings, a power of two, 4 KiB or more */
    size_t reserve_limit;     /* CUDASIM_VA_LIMIT: the largest address reservation granted */
    double d2h_bytes_per_ns;  /* CUDASIM_D2H_GBPS, CUDASIM_H2D_GBPS; 0: a copy takes what memcpy takes */
    double h2d_bytes_per_ns;
    uint64_t kernel_ns; /* CUDASIM_KERNEL_NS: the least time a kernel takes */
    uint64_t event_ns;  /* CUDASIM_EVENT_NS: the least time that the record of an event takes its stream */
    uint64_t launch_ns; /* CUDASIM_LAUNCH_NS: how long a kernel launch holds up its caller before it is queued */
    uint64_t
        /*
         * CUDASIM_QUEUE: operations that a stream has room for: one more kernel waits in its call;
         * 0: any number
         */
        queue;
    uint64_t slice_ns;    /* CUDASIM_SLICE_NS: what a mapping takes beside copies without a gap */
    bool slice_out;       /* CUDASIM_SLICE_WAY: out, in or both: beside D2H copies, */
    bool slice_in;        /* and beside H2D copies */
    uint64_t patience_ns; /* CUDASIM_PATIENCE_MS: how long a wait may stand still before it is called a deadlock */
    /*
     * CUDASIM_DRIVER_VERSION: what it calls itself, as 13050 for 13.5; 0: the release that it is
     * like
     */
    int driver_version;
    bool peers;         /* CUDASIM_PEERS: the devices can be let to reach each other's memory */
    int devices;        /* CUDASIM_DEVICES; 0 with CUDASIM_NO_DEVICE=1 */
    bool vmm;           /* CUDASIM_VMM=0: a device without virtual memory management */
    bool host_vmm;      /* CUDASIM_HOST_VMM=0: no host-backed handles */
    const char *faults; /* CUDASIM_FAULT, or "" */
    const char *ledger; /* CUDASIM_LEDGER, or NULL */
    const char *trace;  /* CUDASIM_TRACE, or NULL */
};

/*
 * The settings; read at the first call. A value that can't be understood is named on stderr and its
 * default is used.
 */
const struct cudasim_config *cudasim_config(void);

#endif
