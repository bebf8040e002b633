/*
 * The tracer sees each launch, copy and memset before it is queued. It tells the residency machine
 * which spans each names.
 *
 * A source (source_cupti.c or source_hooks.c) calls the ps_tracer_ functions around each call, on
 * the thread that makes it. The order is begin, addresses, ready, (the driver queues the call),
 * end. A thread has one call at a time. Penstock's own driver calls (ps_inside) call nothing here.
 * Both sources may be on. Then source_hooks.c reports the calls that come through it, and CUPTI the
 * rest.
 */
#ifndef PS_TRACER_H
#define PS_TRACER_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#include "cuda/streams.h"
#include "kernels/grid.h"
#include "policy/recording/recorder.h"

/*
 * Set while the calling thread is in a driver call that the other source reports, so that CUPTI
 * does not.
 */
extern __thread unsigned ps_in_front __attribute__((tls_model("initial-exec")));

/* A call begins. */
void ps_tracer_begin(CUstream stream, bool per_thread_default);
/* The call names an address: notes it if it lies in a span. Cheap for other addresses. */
void ps_tracer_address(CUdeviceptr address);
/* Like ps_tracer_address, for a call that touches `bytes` from there on. */
void ps_tracer_bytes(CUdeviceptr address, size_t bytes);
/* The call may touch all memory: notes every live span. [unlocked] */
void ps_tracer_all_spans(void);
/*
 * The call may read from `source` on ahead of its stream. Bytes that lie in a span there are in
 * place when `ready` returns.
 */
void ps_tracer_reads_ahead(CUdeviceptr source);
/* The call is a kernel launch with these parameters. */
void ps_tracer_kernel(CUfunction function, struct ps_grid grid, void **parameters, void **extra);
/* The call is the launch of an executable graph. */
void ps_tracer_graph(CUgraphExec executable);
/* The call has named everything: brings the spans to where the call finds them. */
void ps_tracer_ready(bool is_kernel);
/*
 * Like ps_tracer_ready, for a call that queues nothing. The driver looks at the kind of memory that
 * nodes of graphs name.
 */
void ps_tracer_ready_to_look(void);
/* The driver has queued the call, or refused it. Only what was queued may have made tables. */
void ps_tracer_end(bool succeeded);

/*
 * Facts about this thread's launch between ready and end, for code that looks at single launches
 * (verify.h).
 */
struct ps_traced_launch {
    bool is_blind;   /* its accesses can't be read */
    bool is_learnt;  /* it names spans that are known: it has a number */
    uint64_t number; /* among the launches that are learnt from */
    struct ps_recorded_layer layer;
};
struct ps_traced_launch ps_tracer_launch(void);

/* The program asks the driver about an address, in whatever way. */
void ps_tracer_asked_about(CUdeviceptr address);

/*
 * Returns the number of steps for the closing line; 0: no loop was found. Any thread, no lock, also
 * in a signal handler.
 */
unsigned long long ps_tracer_steps(void);

/*
 * Returns the number of steps while the program runs. Launches wait meanwhile, for some
 * microseconds. One thread at a time, without any lock.
 */
unsigned long long ps_tracer_steps_so_far(void);

#endif
