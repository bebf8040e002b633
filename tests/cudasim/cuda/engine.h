/*
 * The simulated device's engine: streams as queues of operations, positions in them, and the
 * schedulers that run them.
 *
 * Terms: an *operation* is one piece of deferred work, such as a kernel, a copy, a fill or a
 * marker. Its *position* is its stream and its number in that stream. A position is *reached* when
 * the operation has run. Everything that orders work is a position:
 * - the stream's own order;
 * - an event: the position of its record;
 * - a wait: an operation that depends on a position;
 * - the legacy default stream: dependencies on all that the other streams hold at the call.
 *
 * Locking: one device lock guards all state of the simulator. Callers hold it unless a comment says
 * otherwise. Stream structures are never freed, so a position stays valid for ever. A reused
 * structure keeps counting, so its numbers only grow.
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
struct cudasim_condition;
struct cudasim_conditional;
struct cudasim_capture;
struct cudasim_variables;

/* Streams that one capture may have. */
#define CUDASIM_CAPTURE_STREAMS 16u

/* Branches of a launched graph that run at the same time. */
#define CUDASIM_GRAPH_BRANCHES 16u

/* ---- devices and contexts ---- */

/* Returns whether the device exists. No lock needed. */
bool cudasim_valid_device(CUdevice device);

struct CUctx_st {
    int device;
    uint32_t id;
    unsigned int flags;
    int retains; /* primary context: number of its retains; 0 while it is not active */
    bool primary;
    CUresult sticky; /* CUDA_SUCCESS, or the error that every later call answers; of a root alone */
    CUstream legacy; /* the legacy default stream: it and all blocking streams wait for each other */
    /*
     * Streams of the driver's own, made at the first need. `records` has the records of the whole
     * context, `waits` the waits that all its later work obeys.
     */
    CUstream records, waits;
    CUgreenCtx green;   /* the green context that this one was converted from, or NULL */
    CUcontext green_of; /* of a green context: the primary context whose memory and errors it shares */
    CUcontext ended_before;
};

struct CUgreenCtx_st {
    uint32_t tag;
    bool alive;            /* false once destroyed; its streams' handles are then refused */
    unsigned int sm_count; /* what its resource holds */
    struct CUctx_st context;
    LIST_ENTRY(CUgreenCtx_st) link; /* in the list of all green contexts ever made */
};

/* Returns the context that has this one's memory, events and errors. No lock needed. */
static inline CUcontext cudasim_context_root(CUcontext context)
{
    return context && context->green_of ? context->green_of : context;
}

/* Returns whether waits for the whole context wait for the other one's work. No lock needed. */
static inline bool cudasim_context_covers(CUcontext context, CUcontext other)
{
    return other == context || (other && other->green_of == context);
}

/* Makes a context usable. Under the device lock. */
CUresult cudasim_context_open(CUcontext context, int device);
/* Ends the green contexts of a primary context that closes. Under the device lock. */
void cudasim_green_contexts_end(CUcontext primary);

/* Returns the calling thread's current context, or NULL. No lock needed. */
CUcontext cudasim_context_current(void);

/*
 * Returns whether work on the device may use memory of cudaMalloc and its kin on the other device.
 * Under the device lock.
 */
bool cudasim_device_reaches(int device, int other);

/* ---- streams, positions, events ---- */

struct cudasim_position {
    CUstream stream; /* NULL: nothing to wait for */
    uint64_t number;
    uint64_t chain; /* kernels of the longest chain up to there, where each waits for the one before */
};

struct CUstream_st {
    TAILQ_HEAD(cudasim_operation_queue, cudasim_operation) queue;
    uint64_t issued;  /* number of the newest operation ever queued */
    uint64_t reached; /* number of the newest operation that has run */
    uint64_t chain;   /* of the newest operation queued (struct cudasim_position) */
    uint64_t told;    /* number of the newest operation that the host knows has run; no query denies it */
    uint64_t id;
    uint64_t rank; /* seeded: its rank in a ranked mood; 0: not drawn yet */
    /* number of its hardware queue, from 1; 0: it has one of its own (queues.c) */
    uint64_t connection;
    CUcontext context;
    unsigned int flags;
    int priority;
    bool alive;                      /* false once destroyed: its handle is refused, but its operations still run */
    uintptr_t owner;                 /* the number of the thread whose default stream it is; else 0 */
    bool has_worker;                 /* threads scheduler: its worker runs */
    pthread_cond_t wake;             /* threads scheduler: wakes the worker */
    struct cudasim_capture *capture; /* the capture that records this stream's work, or NULL */
    unsigned capture_place;          /* index among the capture's streams */
    /*
     * Streams of the driver's own for the branches of graphs that are launched here, made at the
     * first need. The first branch runs on the stream itself.
     */
    CUstream branches[CUDASIM_GRAPH_BRANCHES];
    /*
     * Another one, for the bodies of conditional nodes that this stream runs. One node at a time
     * has a body there.
     */
    CUstream bodies;
    bool fed_by_device;           /* it is such a stream, or a branch of one: the device queues its operations */
    LIST_ENTRY(CUstream_st) link; /* in the list of all streams ever made */
};

LIST_HEAD(cudasim_stream_list, CUstream_st);
extern struct cudasim_stream_list cudasim_streams;

/* A place in a capture: the first `number` operations of one of its streams. */
struct cudasim_mark {
    uint64_t number;
    CUgraphNode node; /* of the last of them; NULL if there are none */
    bool covered;     /* a node of another mark beside this one comes after it */
};

struct CUevent_st {
    uint32_t tag; /* distinguishes an event from other memory */
    /* The root of the context that made it; only streams with that root can record it. */
    CUcontext context;
    struct cudasim_position position; /* of the newest record; stream NULL before the first */
    uint64_t time_ns;                 /* time at which that record ran */
    unsigned int flags;
    unsigned int references; /* one for the handle, one for each record operation in a queue */
    bool alive;
    /* seeded scheduler: queries that may still answer "not ready" although it is ready */
    int denials;
    struct cudasim_capture *capture; /* the capture that recorded it, or NULL */
    /* for each stream of the capture: its operations that come before the event */
    struct cudasim_mark captured[CUDASIM_CAPTURE_STREAMS];
    LIST_ENTRY(CUevent_st) link; /* in the list of used or of unused events */
};

/* ---- operations ---- */

enum cudasim_operation_kind {
    CUDASIM_OPERATION_MARKER, /* does nothing; carries dependencies and marks a position */
    CUDASIM_OPERATION_KERNEL,
    CUDASIM_OPERATION_COPY,
    CUDASIM_OPERATION_FILL,
    CUDASIM_OPERATION_EVENT_RECORD,
    CUDASIM_OPERATION_EVENT_WAIT, /* of a graph: a launch makes it wait for the event's newest record */
    CUDASIM_OPERATION_HOST_FUNCTION,
    CUDASIM_OPERATION_POOL_FREE,
    CUDASIM_OPERATION_GRAPH_ALLOC, /* allocation of a launched graph's memory; it took effect before it was queued */
    CUDASIM_OPERATION_GRAPH_FREE,
    CUDASIM_OPERATION_CONDITIONS_BEGIN, /* of a launched graph: its conditions get their first values */
    CUDASIM_OPERATION_CONDITIONAL,      /* stays its stream's head while a body runs (conditions.h) */
    CUDASIM_OPERATION_WRITE_VALUE,
    CUDASIM_OPERATION_WAIT_VALUE,
    CUDASIM_OPERATION_PREFETCH, /* of managed memory; its pages move when it starts (managed.h) */
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
    void *staging; /* copy of the source that the call made, owned by the operation; or NULL */
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
    uint64_t chain;       /* longest chain among the positions that it waits for, until it is queued */
    const char *call;     /* the driver entry point that made it, for traces and faults */
    bool running;
    bool started;   /* it runs, or a piece of it has run */
    bool of_graph;  /* queued by a launch of a graph */
    bool faulted;   /* it touched an address without a mapping */
    bool backwards; /* seeded: its last piece runs first */
    size_t pieces;  /* seeded: number of pieces that it runs in; 0 before it starts */
    size_t pieces_done;
    size_t dependency_count, dependency_room;
    struct cudasim_position *dependencies;
    union {
        struct {
            struct cudasim_kernel_entry *entry;
            struct cudasim_launch launch;
            void *block; /* copies of the parameters; owned */
            size_t block_bytes;
            void **params;                             /* address of each copy; owned */
            const struct cudasim_variables *variables; /* its module's, in the launch's context; or NULL */
            int device;                                /* that it runs on */
            uintptr_t unreachable; /* memory that its parameters name and its device may not use; 0: none */
        } kernel;
        struct cudasim_copy copy;
        struct cudasim_fill fill;
        CUevent event;
        struct {
            CUhostFn function;
            void *data;
        } host;
        struct cudasim_pool_block *pool_block;
        struct cudasim_conditional *conditional; /* owned */
        struct {
            struct cudasim_condition **array; /* owned */
            size_t count;
        } conditions;
        struct {
            uintptr_t address;
            uint64_t value;
            unsigned int flags;
            bool wide; /* 64 bits */
        } word;
        struct {
            uintptr_t address;
            size_t bytes;
            int place; /* a device's number, or CU_DEVICE_CPU */
        } prefetch;
    };
    TAILQ_ENTRY(cudasim_operation) link;
};

/* Returns a new operation that is in no queue yet, or NULL without memory. No lock needed. */
struct cudasim_operation *cudasim_operation_new(enum cudasim_operation_kind kind);
/* Releases an operation and everything that it owns. */
void cudasim_operation_free(struct cudasim_operation *operation);
/*
 * Makes the operation wait for a position. A position already reached counts only for the chain.
 * Returns 0 or -ENOMEM.
 */
int cudasim_operation_after(struct cudasim_operation *operation, struct cudasim_position position);
/*
 * Runs one piece of a copy, fill or kernel, or the whole of any other operation. Marks the
 * operation if it faults. The caller may hold the lock or not.
 */
void cudasim_operation_run(struct cudasim_operation *operation, size_t piece, size_t pieces);
/*
 * Runs a whole operation for a kernel that is running on this thread. A fault counts as the
 * kernel's.
 */
void cudasim_operation_run_in_kernel(struct cudasim_operation *operation);
/* Returns the operation whose kernel this thread is running, or NULL. */
const struct cudasim_operation *cudasim_kernel_running(void);
/* Returns whether everything that the operation waits for has happened. */
bool cudasim_operation_ready(const struct cudasim_operation *operation);

/* ---- the device lock ---- */

void cudasim_lock(void);
void cudasim_unlock(void);
extern pthread_mutex_t cudasim_device_lock;

/* ---- queueing and waiting ---- */

/*
 * Queues the operation at the end of the stream, by the default stream's rules. Takes ownership,
 * also when it fails.
 */
CUresult cudasim_submit(struct cudasim_operation *operation, CUstream stream);
/*
 * Notes that the stream waits for a position that is reached already. It counts only for the
 * stream's chain.
 */
void cudasim_stream_waited(CUstream stream, struct cudasim_position position);
/*
 * Stores the position behind everything queued in the stream now. For the legacy stream that is
 * behind all blocking streams too.
 */
CUresult cudasim_stream_tail(CUstream stream, struct cudasim_position *position);
/* Returns the position of the operation that was queued last in the stream. */
struct cudasim_position cudasim_stream_end(CUstream stream);
bool cudasim_reached(struct cudasim_position position);
/*
 * Blocks until the position is reached or the context has a sticky error. Releases the lock
 * meanwhile.
 */
CUresult cudasim_wait_position(CUcontext context, struct cudasim_position position);
/* Blocks until everything queued in the context, and in green contexts of it, has run. */
CUresult cudasim_wait_context(CUcontext context);

/* Priorities run from 0 (least) to this value (greatest), as on an H200. */
#define CUDASIM_PRIORITY_GREATEST (-5)

/*
 * Returns the stream that a handle names for this call: 0, legacy, per-thread, or one of the
 * program's. Returns NULL for any other handle.
 */
CUstream cudasim_stream_resolve(CUstream handle);
/*
 * Returns whether the stream is `records` or `waits` of its context. Those take only records and
 * waits of the whole context.
 */
bool cudasim_stream_is_contexts(CUstream stream);
CUstream cudasim_stream_new(CUcontext context, unsigned int flags, int priority);
/* Makes a stream of the program's in the context, and announces it. Without the device lock. */
CUresult cudasim_stream_create(CUstream *made, CUcontext context, unsigned int flags, int priority);
/*
 * Returns the stream for a branch of the graphs launched in this one, or NULL without memory.
 * Branch 0 is the stream itself.
 */
CUstream cudasim_stream_branch(CUstream stream, unsigned branch);
/*
 * Returns the stream for the bodies of conditional nodes that this one runs, or NULL without
 * memory.
 */
CUstream cudasim_stream_bodies(CUstream stream);
/* Gives back the streams of branches and bodies. What is queued there still runs. */
void cudasim_stream_drop_branches(CUstream stream);
/* Drops one reference. After the last one the structure may become another event. */
void cudasim_event_release(CUevent event);
/* The context ends, and the handles of its events with it. Under the device lock. */
void cudasim_events_end_context(CUcontext context);
/* Returns the event of a handle, or NULL. */
CUevent cudasim_event_of(CUevent handle);
/*
 * Makes an operation that records or awaits the event, and holds a reference to it. Returns NULL
 * without memory.
 */
struct cudasim_operation *cudasim_event_operation(enum cudasim_operation_kind kind, CUevent event);
/* Queues such an operation and takes it over. A record becomes the event's newest. */
CUresult cudasim_event_submit(struct cudasim_operation *operation, CUstream stream);

/* ---- hardware queues ---- */

/* Gives the new stream its hardware queue. */
void cudasim_connection_assign(CUstream stream);
/*
 * Returns whether an operation that no order demands is in the way. In a hardware queue, each
 * operation starts after those that were queued before it have started.
 */
bool cudasim_connection_holds_back(const struct cudasim_operation *operation);
/*
 * Resolves the handle for a call that queues work, and waits for room in the hardware queue.
 * Releases the lock meanwhile. Stores the stream, or returns the error.
 */
CUresult cudasim_stream_with_room(CUstream handle, CUstream *stream);

/* Returns whether the memory word of a WAIT_VALUE operation has its value. */
bool cudasim_wait_value_met(const struct cudasim_operation *operation);

/* ---- schedulers ---- */

struct cudasim_scheduler {
    /* Prepares the stream to run operations. Returns false when that is impossible. */
    bool (*prepare)(CUstream stream);
    /* An operation was appended to the stream. */
    void (*submitted)(CUstream stream);
    /*
     * Blocks until done(argument). Returns CUDA_ERROR_LAUNCH_TIMEOUT when that can never become
     * true.
     */
    CUresult (*wait)(bool (*done)(void *argument), void *argument);
    /* Gives work a chance to progress, at a call that polls (a query) or at any other API call. */
    void (*poll)(bool must_progress);
    /* Returns whether a query that could answer "ready" should answer "not ready" once more. */
    bool (*deny_query)(int *denials);
    /*
     * Blocks a mapping beside copies without a gap, for at most a time slice (config's slice_ns).
     * Returns true after a whole slice. Releases the lock meanwhile.
     */
    bool (*mapping)(void);
};

extern const struct cudasim_scheduler cudasim_scheduler_threads;
extern const struct cudasim_scheduler cudasim_scheduler_seeded;
const struct cudasim_scheduler *cudasim_scheduler(void);

/*
 * Removes the stream's head, which has run, marks its position reached and frees it. A fault in it
 * becomes its context's sticky error. Called by schedulers.
 */
void cudasim_operation_over(struct cudasim_operation *operation);

/*
 * Returns whether the head of some stream waits for a memory word. The engine does not control when
 * such a word gets its value.
 */
bool cudasim_word_wait_pending(void);
/* Reports a deadlock on stderr and in the ledger. Returns the error for the waiting call. */
CUresult cudasim_report_deadlock(void);

/* Returns the host time in nanoseconds, monotonic. No lock needed. */
uint64_t cudasim_now_ns(void);

#endif
