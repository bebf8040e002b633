/*
 * The tracer: sees each launch, copy and memset before it is queued and tells the residency machine which spans it names.
 *
 * A source of events (source_cupti.c or source_hooks.c) calls the ps_tracer_ functions around each call on the thread that makes it:
 * begin, addresses, ready, (the driver queues the call), end. One call at a time a thread. Nothing here is called from Penstock's own
 * driver calls (ps_inside). Both sources may be on: what comes by the second is told of by it, and CUPTI tells of the rest.
 */
#ifndef PS_TRACER_H
#define PS_TRACER_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#include "cuda/streams.h"
#include "kernels/grid.h"
#include "policy/recording/recorder.h"

/* Starts the source of events. 0; -ENOENT: no CUPTI; -EBUSY: another subscriber; -EIO. `*why` says it in words when it is not 0. */
int ps_tracer_cupti_start(const char *cupti_path, const char **why);

/*
 * CUPTI is left to another tool, if it was ours and the other source has seen every launch and copy that CUPTI saw since all launches are traced.
 * Whether that has been done. Any thread, one at a time.
 */
bool ps_tracer_cupti_give_way(void);

/* The other source. 0; -ENOTSUP: it can't be had in this process. */
int ps_tracer_hooks_start(const char **why);

/* Whether the other source is on: functions of hooks.def then tell of what CUPTI would tell of them. Any thread. */
bool ps_tracer_hooks_are_on(void);

/* Set while the calling thread is in a call to the driver that the other source tells of: CUPTI is not to tell of it again. */
extern __thread unsigned ps_in_front __attribute__((tls_model("initial-exec")));

/* A call begins. */
void ps_tracer_begin(CUstream stream, bool per_thread_default);
/* It names an address: noted if it lies in a span. Cheap for those that don't. */
void ps_tracer_address(CUdeviceptr address);
/* The same where the bytes are known that it touches from there on. */
void ps_tracer_bytes(CUdeviceptr address, size_t bytes);
/* It may read what it names from `source` on ahead of its stream: what lies in a span is there when `ready` comes back. */
void ps_tracer_reads_ahead(CUdeviceptr source);
/* It is a kernel launch with these parameters. */
void ps_tracer_kernel(CUfunction function, struct ps_grid grid, void **parameters, void **extra);
/* It is the launch of an executable graph. */
void ps_tracer_graph(CUgraphExec executable);
/* Everything has been named: the spans are brought to where the call finds them. */
void ps_tracer_ready(bool is_kernel);
/* The same where nothing is queued, and the driver looks at what kind of memory has been named: nodes of graphs. */
void ps_tracer_ready_to_look(void);
/* The driver has queued the call, or refused it. */
void ps_tracer_end(void);

/* What is known of this thread's launch between ready and end, for who looks at launches one by one (verify.h). */
struct ps_traced_launch {
    bool is_blind;   /* nobody knows what it names */
    bool is_learnt;  /* it names spans that are known: it has a number */
    uint64_t number; /* among those that are learnt from */
    struct ps_recorded_layer layer;
};
struct ps_traced_launch ps_tracer_launch(void);

/* The program asks the driver about an address, by whatever way. */
void ps_tracer_asked_about(CUdeviceptr address);

/* Launches counted for the closing line's steps. Thread-safe. 0: none found. */
unsigned long long ps_tracer_steps(void);

/* The same while the program goes on: launches wait for some microseconds. One thread at a time, without any lock. */
unsigned long long ps_tracer_steps_so_far(void);

#endif
