/* The simulator's settings, read once from the environment (CUDASIM_...). Thread-safe. */
#ifndef CUDASIM_CONFIG_H
#define CUDASIM_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CUDASIM_MAX_DEVICES 8

enum cudasim_scheduler_kind {
    CUDASIM_SCHEDULER_THREADS, /* one worker thread for each stream; copies take time */
    CUDASIM_SCHEDULER_SEEDED,  /* operations run when a caller waits or polls, in an order that the seed picks */
};

struct cudasim_config {
    enum cudasim_scheduler_kind scheduler; /* CUDASIM_SCHED=threads|seeded */
    uint64_t seed;                         /* CUDASIM_SEED */
    size_t device_bytes;                   /* CUDASIM_MEMORY: the bytes of one device */
    size_t limit_bytes;  /* CUDASIM_LIMIT: the bytes of it that this process may have, as under MPS; default: all */
    size_t others_bytes; /* CUDASIM_OTHERS: the bytes of it that other processes hold */
    /* CUDASIM_OTHERS_FROM: first request for device memory (from 1) that meets them; 0: always */
    uint64_t others_from;
    size_t host_handle_bytes; /* CUDASIM_HOST_MEMORY: the bytes of all host-backed handles together */
    size_t granularity;       /* CUDASIM_GRANULARITY of handles and mappings: a power of two, 4 KiB or more */
    size_t reserve_limit;     /* CUDASIM_VA_LIMIT: the largest address reservation */
    double d2h_bytes_per_ns;  /* CUDASIM_D2H_GBPS, CUDASIM_H2D_GBPS; 0: as fast as memcpy */
    double h2d_bytes_per_ns;
    uint64_t kernel_ns; /* CUDASIM_KERNEL_NS: the least duration of a kernel */
    uint64_t event_ns;  /* CUDASIM_EVENT_NS: the least time that an event record occupies its stream */
    uint64_t launch_ns; /* CUDASIM_LAUNCH_NS: the time that a kernel launch delays its caller before it is queued */
    /*
     * CUDASIM_QUEUE: operations that a hardware queue has room for; 0: any number. A call that
     * queues one waits for room.
     */
    uint64_t queue;
    /* CUDASIM_MAX_CONNECTIONS: hardware queues that all streams share; 0: each has its own */
    uint64_t connections;
    bool split_kernels;   /* CUDASIM_SPLIT_KERNELS: kernels run in parts (seeded) */
    uint64_t slice_ns;    /* CUDASIM_SLICE_NS: the time that a mapping takes beside copies without a gap */
    bool slice_out;       /* CUDASIM_SLICE_WAY is out or both: beside D2H copies */
    bool slice_in;        /* CUDASIM_SLICE_WAY is in or both: beside H2D copies */
    uint64_t patience_ns; /* CUDASIM_PATIENCE_MS: a wait that stands still for this time is a deadlock */
    /* CUDASIM_DRIVER_VERSION: the driver's version, as 13050 for 13.5; 0: that of its release */
    int driver_version;
    bool peers;         /* CUDASIM_PEERS: devices may get access to each other's memory */
    int devices;        /* CUDASIM_DEVICES; 0 with CUDASIM_NO_DEVICE=1 */
    bool vmm;           /* CUDASIM_VMM=0: a device without virtual memory management */
    bool host_vmm;      /* CUDASIM_HOST_VMM=0: no host-backed handles */
    const char *faults; /* CUDASIM_FAULT, or "" */
    const char *costs;  /* CUDASIM_CALL_NS, or "" */
    const char *ledger; /* CUDASIM_LEDGER, or NULL */
    const char *trace;  /* CUDASIM_TRACE, or NULL */
};

/*
 * Returns the settings, which are read at the first call. A value that can't be parsed is named on
 * stderr, and its default is used.
 */
const struct cudasim_config *cudasim_config(void);

#endif
