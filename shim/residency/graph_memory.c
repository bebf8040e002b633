#include "residency/graph_memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/log.h"
#include "base/ordering_rules.h"
#include "base/per_device.h"
#include "cuda/capture.h"
#include "cuda/device_memory.h"
#include "cuda/devices.h"
#include "cuda/driver.h"
#include "cuda/managed_context.h"
#include "cuda/streams.h"
#include "residency/copies.h"

/* A graph that was captured, and what it has become. */
struct maker {
    struct maker *next;
    cuuint64_t capture;
    CUgraph graph; /* NULL: destroyed */
    size_t count, room;
    CUgraphExec *executables;
    bool instantiated, frees_at_launch;
};

struct memory {
    struct memory *next;
    CUdeviceptr address;
    size_t bytes;
    unsigned device;
    struct maker *maker; /* NULL: gone */
    cuuint64_t used_in;  /* the last capture that was seen to use it; 0: none */
    bool freed;          /* by the program */
};

#define BUCKETS 256
static struct memory *table[BUCKETS];
static struct maker *makers;
static _Atomic CUdeviceptr lowest, highest;              /* where all of it lies, or has lain */
static atomic_uint known;                                /* in the table */
static atomic_uint due;                                  /* of them, those that are freed and whose graph has gone */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf: no driver call with it held */

static struct memory **place_of(CUdeviceptr address)
{
    struct memory **at = &table[(address >> 9) * 0x9E3779B97F4A7C15u >> 56];

    while (*at && (*at)->address != address)
        at = &(*at)->next;
    return at;
}

static bool is_due(const struct memory *m)
{
    return m->freed && !m->maker;
}

static void forget(struct memory **at)
{
    struct memory *m = *at;

    if (is_due(m))
        atomic_fetch_sub(&due, 1);
    atomic_fetch_sub(&known, 1);
    *at = m->next;
    free(m);
}

/* The capture that the stream belongs to, and its graph. 0: none. */
static cuuint64_t capture_of(CUstream stream, bool per_thread_default, CUgraph *graph)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t capture = 0;

    if (!stream && per_thread_default)
        stream = CU_STREAM_PER_THREAD;
    if (!ps_capture_anywhere() || !ps_cu.cuStreamGetCaptureInfo ||
        ps_cu.cuStreamGetCaptureInfo(stream, &status, &capture, graph, NULL, NULL, NULL) != CUDA_SUCCESS)
        return 0;
    return status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? capture : 0;
}

/* ---- graphs that come and go ---- */

/* Whether the program itself frees what a launch leaves, before the next one. */
static bool is_others(const struct maker *m)
{
    return m->instantiated && !m->frees_at_launch;
}

/* The graph can be launched no more: memory that was freed is due. [locked] */
static void has_gone(struct maker **at)
{
    struct maker *gone = *at;

    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct memory **of = &table[i], *m; (m = *of);) {
            if (m->maker == gone && is_others(gone)) {
                forget(of);
                continue;
            }
            if (m->maker == gone) {
                m->maker = NULL;
                atomic_fetch_add(&due, m->freed);
            }
            of = &m->next;
        }
    *at = gone->next;
    free(gone->executables);
    free(gone);
}

/*
 * A graph may be captured in several parts: one maker each. A capture that failed leaves a maker
 * whose handle another graph may get; it is forgotten with that graph. NULL: no memory. [locked]
 */
static struct maker *maker_of(cuuint64_t capture, CUgraph graph)
{
    struct maker *m = makers;

    while (m && (m->capture != capture || m->graph != graph))
        m = m->next;
    if (!m && (m = calloc(1, sizeof *m))) {
        *m = (struct maker){.next = makers, .capture = capture, .graph = graph};
        makers = m;
    }
    return m;
}

static void add_executable(struct maker *m, CUgraphExec executable)
{
    CUgraphExec *grown = ps_grown_array(m->executables, m->count, &m->room, 1, sizeof *grown);

    if (!grown) /* memory may be freed before it is destroyed; its next launch allocates that again */
        return;
    m->executables = grown;
    m->executables[m->count++] = executable;
}

static bool take_executable(struct maker *m, CUgraphExec executable)
{
    size_t left = 0;

    for (size_t i = 0; i < m->count; i++)
        if (m->executables[i] != executable)
            m->executables[left++] = m->executables[i];
    const bool had = left < m->count;
    m->count = left;
    return had;
}

void ps_graph_memory_instantiated(CUgraph graph, CUgraphExec executable, bool frees_at_launch)
{
    pthread_mutex_lock(&lock);
    for (struct maker *m = makers; m; m = m->next)
        if (m->graph == graph) {
            m->instantiated = true;
            m->frees_at_launch |= frees_at_launch;
            add_executable(m, executable);
        }
    pthread_mutex_unlock(&lock);
}

static void let_go(void);

void ps_graph_memory_graph_goes(CUgraph graph)
{
    pthread_mutex_lock(&lock);
    for (struct maker **at = &makers, *m; graph && (m = *at);) {
        if (m->graph == graph)
            m->graph = NULL;
        if (!m->graph && !m->count)
            has_gone(at);
        else
            at = &m->next;
    }
    pthread_mutex_unlock(&lock);
    let_go();
}

void ps_graph_memory_executable_goes(CUgraphExec executable)
{
    pthread_mutex_lock(&lock);
    for (struct maker **at = &makers, *m; (m = *at);) {
        if (take_executable(m, executable) && !m->graph && !m->count)
            has_gone(at);
        else
            at = &m->next;
    }
    pthread_mutex_unlock(&lock);
    let_go();
}

/* ---- memory ---- */

static void widen(CUdeviceptr from, CUdeviceptr to)
{
    if (!lowest || from < lowest)
        lowest = from;
    if (to > highest)
        highest = to;
}

void ps_graph_memory_allocated(CUdeviceptr address, size_t bytes, CUstream stream, bool per_thread_default,
                               bool (*is_torchs)(void))
{
    CUgraph graph = NULL;
    unsigned device = 0;

    if (!ps_capture_anywhere() && !atomic_load_explicit(&known, memory_order_relaxed))
        return;
    const cuuint64_t capture = capture_of(stream, per_thread_default, &graph);
    const bool is_ours = capture && graph && is_torchs() && ps_devices_enter_current() == PS_DEVICES_MANAGED &&
                         ps_devices_find(ps_device.ordinal, &device);
    struct memory *m = is_ours ? calloc(1, sizeof *m) : NULL;
    pthread_mutex_lock(&lock);
    struct memory **at = place_of(address);
    if (*at) /* the driver hands out the address again: what was there is no more */
        forget(at);
    struct maker *maker = m ? maker_of(capture, graph) : NULL;
    if (maker) {
        *m = (struct memory){.next = *at, .address = address, .bytes = bytes, .device = device, .maker = maker};
        *at = m;
        widen(address, address + bytes);
        atomic_fetch_add(&known, 1);
        m = NULL;
    }
    pthread_mutex_unlock(&lock);
    free(m);
    let_go();
}

struct ps_graph_memory_uses ps_graph_memory_look(CUstream stream, bool per_thread_default)
{
    CUgraph graph = NULL;

    if (!atomic_load_explicit(&known, memory_order_relaxed))
        return (struct ps_graph_memory_uses){.capture = 0};
    const CUdeviceptr start = lowest;
    return (struct ps_graph_memory_uses){
        .capture = capture_of(stream, per_thread_default, &graph), .start = start, .bytes = highest - start};
}

void ps_graph_memory_used(cuuint64_t capture, CUdeviceptr word)
{
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct memory *m = table[i]; m; m = m->next)
            if (word - m->address < m->bytes)
                m->used_in = capture;
    pthread_mutex_unlock(&lock);
}

/*
 * Whether the driver gets the free: as a node of the capture, or since the graph is not torch's.
 * [locked]
 */
static bool is_drivers(const struct memory *m, cuuint64_t capture)
{
    return m->freed || (capture && m->used_in == capture) ||
           (m->maker && (is_others(m->maker) || m->maker->capture == capture));
}

bool ps_graph_memory_freed(CUdeviceptr address, CUstream stream, bool per_thread_default)
{
    CUgraph graph = NULL;
    bool put_off = false;

    if (!atomic_load_explicit(&known, memory_order_relaxed))
        return false;
    const cuuint64_t capture = capture_of(stream, per_thread_default, &graph);
    pthread_mutex_lock(&lock);
    struct memory **at = place_of(address), *m = *at;
    if (m) {
        const struct maker *maker = m->maker;
        put_off = !is_drivers(m, capture);
        m->freed |= put_off;
        if (put_off)
            atomic_fetch_add(&due, !maker);
        else
            forget(at);
    }
    pthread_mutex_unlock(&lock);
    let_go();
    return put_off;
}

/* ---- what is due ---- */

/* Takes what is due on one device from the table. */
static struct memory *take_due(unsigned device)
{
    struct memory *taken = NULL;

    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct memory **at = &table[i], *m; (m = *at);) {
            if (!is_due(m) || m->device != device) {
                at = &m->next;
                continue;
            }
            *at = m->next;
            m->next = taken;
            taken = m;
        }
    pthread_mutex_unlock(&lock);
    return taken;
}

static void put_back(struct memory *taken)
{
    pthread_mutex_lock(&lock);
    for (struct memory *m; (m = taken);) {
        struct memory **at = place_of(m->address);
        taken = m->next;
        m->next = *at;
        *at = m;
    }
    pthread_mutex_unlock(&lock);
}

static bool comes_after_everything(CUstream stream)
{
    if (!ps_ordering_rule(GRAPH_MEMORY_WAITS_FOR_ALL))
        return true;
    ps_stream_settle(NULL);
    CUevent event = ps_copies_after_everything();
    const bool does = event && ps_cu.cuStreamWaitEvent(stream, event, 0) == CUDA_SUCCESS;
    ps_copies_give_event(event);
    return does;
}

static void free_taken(struct memory *taken, CUstream stream)
{
    unsigned count = 0;

    for (struct memory *m; (m = taken); count++) {
        taken = m->next;
        ps_cu.cuMemFreeAsync(m->address, stream); /* fails if its graph was never launched */
        free(m);
    }
    atomic_fetch_sub(&due, count);
    atomic_fetch_sub(&known, count);
    ps_log_debug(HOOKS, "%u allocations of a destroyed graph are freed", count);
}

static void let_go_at(unsigned device)
{
    struct ps_managed_context context = ps_managed_context_enter_at(device);
    CUstream stream = NULL;
    struct memory *taken = take_due(device);

    if (taken && ps_cu.cuMemFreeAsync &&
        ps_cu.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS) {
        if (comes_after_everything(stream)) {
            free_taken(taken, stream);
            taken = NULL;
        }
        ps_cu.cuStreamDestroy(stream);
    }
    put_back(taken);
    ps_managed_context_leave(context);
}

static void let_go(void)
{
    const ptrdiff_t before = ps_here;

    if (!atomic_load_explicit(&due, memory_order_relaxed) || ps_capture_anywhere())
        return;
    for (unsigned i = ps_devices_count(); i-- > 0;)
        let_go_at(i);
    ps_here = before;
}

void ps_graph_memory_capture_ended(void)
{
    let_go();
}
