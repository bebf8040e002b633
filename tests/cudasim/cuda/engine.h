/*
 * The simulated device's engine: streams as queues of operations, positions in them, and the
 * schedulers that run them.
 *
 * Words: an *operation* is one piece of deferred work (a kernel, a copy, a fill, a marker). Its
 * *position* is its stream and its number in that stream; a position is *reached* when the
 * operation has run. Everything that orders work is a position: the stream's own order, an event
 * (the position of its record), a wait (an operation that depends on a position), and the rules of
 * the legacy default stream (dependencies on what the other streams held at the time of the call).
 *
 * Locking: one device lock guards all state of the simulator. Functions here are called with it
 * held unless they say otherwise. Stream structures are never freed, so a position stays valid for
 * ever; their numbers only grow, also when a structure is reused.
 */
#ifndef CUDASIM_ENGINE_H
#define CUDASIM_ENGINE_H

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "../kernel_abi.h"

struct cudasim_kernel_entry;
struct cudasim_pool_block;
struct cudasim_capture;

/* Streams that one capture may have. */
#define CUDASIM_CAPTURE_STREAMS 16u

/* ---- devices and contexts ---- */

/* Whether there is such a device. No lock needed. */
bool cudasim_valid_device(CUdevice device);

struct CUctx_st {
    int device;
    uint32_t id;
    unsigned int flags;
    int retains; /* primary context: how often it was retained; 0 when it is not active */
    bool primary;
    CUresult sticky; /* CUDA_SUCCESS, or the error that every later call answers */
    CUstream legacy; /* the default stream that waits for, and is waited for by, all blocking streams */
    /*
     * Streams that no program has, made at need: records of all that the context does, and waits of
     * all that it will do.
     */
    CUstream records, waits;
};

/* The context current to the calling thread, or NULL. No lock needed. */
CUcontext cudasim_context_current(void);

/*
 * Whether work on the device may use what cudaMalloc and its kin gave out on the other. Under the
 * device lock.
 */
bool cudasim_device_reaches(int device, int other);

/* ---- streams, positions, events ---- */

struct cudasim_position {
    CUstream stream; /* NULL: nothing to wait for */
    uint64_t number;
    uint64_t chain; /* kernels of the longest chain up to there, each of which waits for the one before */
};

struct CUstream_st {
    TAILQ_HEAD(cudasim_operation_queue, cudasim_operation) queue;
    uint64_t issued;  /* number of the newest operation ever queued */
    uint64_t reached; /* number of the newest operation that has run */
    uint64_t chain;   /* of that one (struct cudasim_position) */
    uint64_t told;    /* number of the newest operation that the host knows has run: a query may not deny it */
    uint64_t id;
    uint64_t rank; /* seeded: which stream goes first in a ranked mood; 0: not drawn yet */
    CUcontext context;
    unsigned int flags;
    int priority;
    bool alive;                      /* false once destroyed: handles to it are refused, what it holds still runs */
    bool per_thread;                 /* some thread's own default stream */
    bool has_worker;                 /* threads scheduler: its worker runs */
    pthread_cond_t wake;             /* threads scheduler: what the worker sleeps on */
    struct cudasim_capture *capture; /* what is being recorded instead of run, or NULL */
    unsigned capture_place;          /* among the streams of the capture */
    LIST_ENTRY(CUstream_st) link;    /* all streams that ever were */
};

LIST_HEAD(cudasim_stream_list, CUstream_st);
extern struct cudasim_stream_list cudasim_streams;

struct CUevent_st {
    uint32_t tag;                     /* tells an event from other memory */
    CUcontext context;                /* in which it was made, and on whose streams alone it can be recorded */
    struct cudasim_position position; /* of the newest record; stream NULL before the first */
    uint64_t time_ns;                 /* when that record ran */
    unsigned int flags;
    unsigned int references; /* one for the handle, one for each record operation in a queue */
    bool alive;
    int denials;                     /* seeded scheduler: how often a query may still say "not ready" although it is */
    struct cudasim_capture *capture; /* recorded into this capture, or NULL */
    uint64_t captured[CUDASIM_CAPTURE_STREAMS]; /* of each stream of the capture: so many operations come before it */
    LIST_ENTRY(CUevent_st) link;                /* the used or the unused ones */
};

/* ---- operations ---- */

enum cudasim_operation_kind {
    CUDASIM_OPERATION_MARKER, /* does nothing; carries dependencies, and stands for a position */
    CUDASIM_OPERATION_KERNEL,
    CUDASIM_OPERATION_COPY,
    CUDASIM_OPERATION_FILL,
    CUDASIM_OPERATION_EVENT_RECORD,
    CUDASIM_OPERATION_HOST_FUNCTION,
    CUDASIM_OPERATION_POOL_FREE,
    CUDASIM_OPERATION_GRAPH_ALLOC, /* of the memory of a graph that is launched; done already when it is queued */
    CUDASIM_OPERATION_GRAPH_FREE,
    CUDASIM_OPERATION_WRITE_VALUE,
    CUDASIM_OPERATION_WAIT_VALUE,
};

enum cudasim_direction {
    CUDASIM_DIRECTION_H2H,
    CUDASIM_DIRECTION_H2D,
    CUDASIM_DIRECTION_D2H,
    CUDASIM_DIRECTION_D2D,
    CUDASIM_DIRECTION_COUNT,
};

/* A box of bytes: depth planes of height rows of width bytes. A linear copy is one row. */
struct cudasim_box {
    size_t width, height, depth;
};

struct cudasim_side {
    uintptr_t address;
    size_t pitch;       /* bytes from row to row */
    size_t slice_pitch; /* bytes from plane to plane */
};

struct cudasim_copy {
    struct cudasim_box box;
    struct cudasim_side to, from;
    enum cudasim_direction direction;
    void *staging; /* a copy of the source, made at the call, owned by the operation; or NULL */
};

struct cudasim_fill {
    struct cudasim_box box; /* width in bytes */
    struct cudasim_side to;
    uint32_t value;
    unsigned int value_bytes; /* 1, 2 or 4 */
};

struct cudasim_operation {
    enum cudasim_operation_kind kind;
    CUstream stream;
    uint64_t number;      /* in its stream */
    uint64_t issue_index; /* among all operations of the process */
    uint64_t chain;       /* of what it waits for on other streams, until it is queued */
    const char *call;     /* the driver entry point that made it, for traces and faults */
    bool running;
    bool of_graph;  /* queued by the launch of a graph */
    bool faulted;   /* it touched an address that nothing is mapped to */
    bool backwards; /* seeded: a copy or fill that runs from its end to its start */
    size_t pieces;  /* seeded: in how many pieces it runs; 0 before it started */
    size_t pieces_done;
    size_t dependency_count, dependency_room;
    struct cudasim_position *dependencies;
    union {
        struct {
            struct cudasim_kernel_entry *entry;
            struct cudasim_launch launch;
            void *block; /* the parameters' copies; owned */
            size_t block_bytes;
            void **params;         /* where each is; owned */
            uintptr_t unreachable; /* memory that it names and that its stream's device may not use; 0: none */
        } kernel;
        struct cudasim_copy copy;
        struct cudasim_fill fill;
        CUevent event;
        struct {
            CUhostFn function;
            void *data;
        } host;
        struct cudasim_pool_block *pool_block;
        struct {
            uintptr_t address;
            uint64_t value;
            unsigned int flags;
            bool wide; /* 64 bits */
        } word;
    };
    TAILQ_ENTRY(cudasim_operation) link;
};

/* A new operation that is in no queue yet, or NULL without memory. No lock needed. */
struct cudasim_operation *cudasim_operation_new(enum cudasim_operation_kind kind);
/* Releases an operation and what it owns. */
void cudasim_operation_free(struct cudasim_operation *operation);
/*
 * Makes the operation wait for a position; one already reached counts for its chain alone. 0 or
 * -ENOMEM.
 */
int cudasim_operation_after(struct cudasim_operation *operation, struct cudasim_position position);
/*
 * Runs one piece of a copy or fill, or the whole of anything else. A fault is noted in the
 * operation. With or without the lock.
 */
void cudasim_operation_run(struct cudasim_operation *operation, size_t piece, size_t pieces);
/* The same of all of it, by a kernel that is running on this thread: a fault is that kernel's. */
void cudasim_operation_run_in_kernel(struct cudasim_operation *operation);
/* The operation whose kernel this thread is running, or NULL. */
const struct cudasim_operation *cudasim_kernel_running(void);
/* Whether everything the operation waits for has happened. */
bool cudasim_operation_ready(const struct cudasim_operation *operation);

/* ---- the device lock ---- */

void cudasim_lock(void);
void cudasim_unlock(void);
extern pthread_mutex_t cudasim_device_lock;

/* ---- queueing and waiting ---- */

/*
 * Queues the operation at the end of the stream, with the default stream's rules; takes ownership
 * also when it fails.
 */
CUresult cudasim_submit(struct cudasim_operation *operation, CUstream stream);
/*
 * The stream has been told to wait for a position that is reached already: that counts for its
 * chain alone.
 */
void cudasim_stream_waited(CUstream stream, struct cudasim_position position);
/*
 * The position behind everything queued in the stream now; for the legacy stream, behind all
 * blocking streams too.
 */
CUresult cudasim_stream_tail(CUstream stream, struct cudasim_position *position);
/* The position of what has been queued in the stream last. */
struct cudasim_position cudasim_stream_end(CUstream stream);
bool cudasim_reached(struct cudasim_position position);
/*
 * Blocks (the lock is released meanwhile) until the position is reached or the context has a sticky
 * error.
 */
CUresult cudasim_wait_position(CUcontext context, struct cudasim_position position);
/* Blocks until everything queued in the context now has run. */
CUresult cudasim_wait_context(CUcontext context);

/* Priorities run from 0 (least) to this (greatest), as on an H200. */
#define CUDASIM_PRIORITY_GREATEST (-5)

/*
 * The stream that a handle names for this call (0, legacy, per-thread, or one of the program's), or
 * NULL when it is none.
 */
CUstream cudasim_stream_resolve(CUstream handle);
/*
 * Whether the stream is one of its context's own two, which take nothing but records and waits of
 * the whole context.
 */
bool cudasim_stream_is_contexts(CUstream stream);
CUstream cudasim_stream_new(CUcontext context, unsigned int flags, int priority);
/* Drops one reference; the last one makes the structure free for use as another event. */
void cudasim_event_release(CUevent event);

/* Whether the memory word that a WAIT_VALUE operation waits for has its value. */
bool cudasim_wait_value_met(const struct cudasim_operation *operation);

/* ---- schedulers ---- */

struct cudasim_scheduler {
    /* Makes ready to run what the stream will hold; false when that is impossible. */
    bool (*prepare)(CUstream stream);
    /* An operation was appended to the stream. */
    void (*submitted)(CUstream stream);
    /* Blocks until done(argument); CUDA_ERROR_LAUNCH_TIMEOUT when it can never become true. */
    CUresult (*wait)(bool (*done)(void *argument), void *argument);
    /* A call that polls (query) or any other API call: a chance to make progress. */
    void (*poll)(bool must_progress);
    /* Whether a query that could say "ready" should say "not ready" once more. */
    bool (*deny_query)(int *denials);
    /*
     * Blocks who makes a mapping until the D2H engine stands still, or for a time slice of its
     * (config's slice_ns): then true.
     */
    bool (*mapping)(void);
};

extern const struct cudasim_scheduler cudasim_scheduler_threads;
extern const struct cudasim_scheduler cudasim_scheduler_seeded;
const struct cudasim_scheduler *cudasim_scheduler(void);

/*
 * Removes the stream's head, which has run, marks its position reached and frees it; a fault in it
 * becomes its context's sticky error. Called by schedulers.
 */
void cudasim_operation_over(struct cudasim_operation *operation);

/*
 * Whether some stream's head waits for a memory word, the only thing whose coming the engine does
 * not control.
 */
bool cudasim_word_wait_pending(void);
/* Says so on stderr and in the ledger; the error that the waiting call answers. */
CUresult cudasim_report_deadlock(void);

/* Host time in nanoseconds, monotonic. No lock needed. */
uint64_t cudasim_now_ns(void);

#endif
