/*
 * The scheduler of real time. Each stream has a worker thread that runs its operations in order.
 * Two copy engines, one for each direction, run one copy at a time. A copy takes at least its bytes
 * over the configured rate.
 *
 * Mappings are made with an engine: D2H on an H200, H2D on two H100 (shim/cuda/copy_gate.h). While
 * one copy follows another there without a gap, a mapping takes a time slice of the engine.
 *
 * An engine stays with a stream whose copies follow one another, whatever their number and size.
 * Another stream's copy gets its turn when that stream has no copy that could begin. It also gets
 * its turn after that stream waited for a memory word, even one that had its value (an H100;
 * tests/results/README.md#turns-on-the-copy-engine).
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "conditions.h"
#include "config.h"
#include "engine.h"
#include "managed.h"
#include "trace.h"

/*
 * A wait for a memory word reads it at the first interval. A waiting host thread checks for
 * progress at the second.
 */
#define WORD_POLL_NS 200000
#define STILL_CHECK_NS 50000000

/* All under the device lock. */
static bool engine_busy[CUDASIM_DIRECTION_COUNT];
/* May be gone: it is compared with the list of streams, and never followed otherwise. */
static CUstream copied_last[CUDASIM_DIRECTION_COUNT];
static bool gives_way[CUDASIM_DIRECTION_COUNT];                 /* that stream has since waited for a word */
static pthread_cond_t host_progress = PTHREAD_COND_INITIALIZER; /* host threads that wait for a position */

static bool uses_engine(const struct cudasim_operation *operation)
{
    return operation->kind == CUDASIM_OPERATION_COPY &&
           (operation->copy.direction == CUDASIM_DIRECTION_D2H || operation->copy.direction == CUDASIM_DIRECTION_H2D);
}

static bool same_engine(const struct cudasim_operation *one, const struct cudasim_operation *other)
{
    return uses_engine(one) && uses_engine(other) && one->copy.direction == other->copy.direction &&
           one->stream->context->device == other->stream->context->device;
}

/* Returns whether the stream's next copy of this sort can begin without any wait. */
static bool goes_on(CUstream stream, const struct cudasim_operation *sort)
{
    const struct cudasim_operation *operation;
    TAILQ_FOREACH (operation, &stream->queue, link) {
        if (same_engine(operation, sort))
            return cudasim_operation_ready(operation);
        if ((operation->kind != CUDASIM_OPERATION_MARKER && operation->kind != CUDASIM_OPERATION_EVENT_RECORD) ||
            !cudasim_operation_ready(operation))
            return false;
    }
    return false;
}

/* Returns whether the stream's head is a copy for the engine and is ready. */
static bool stands_ready(CUstream stream, const struct cudasim_operation *sort)
{
    const struct cudasim_operation *head = TAILQ_FIRST(&stream->queue);
    return head && !head->running && same_engine(head, sort) && cudasim_operation_ready(head);
}

/*
 * Returns whether the engine is kept from the operation for another stream. The stream that copied
 * last keeps it while it goes on. After that has given way, any other stream that stands ready
 * comes before it.
 */
static bool engine_is_kept(const struct cudasim_operation *operation)
{
    const CUstream last = copied_last[operation->copy.direction], own = operation->stream;
    const bool given_way = gives_way[operation->copy.direction];
    CUstream stream;
    LIST_FOREACH (stream, &cudasim_streams, link)
        if (stream != own && (own == last ? given_way && stands_ready(stream, operation)
                                          : stream == last && !given_way && goes_on(stream, operation)))
            return true;
    return false;
}

static bool may_start(const struct cudasim_operation *operation)
{
    if (!cudasim_operation_ready(operation))
        return false;
    return !uses_engine(operation) || !(engine_busy[operation->copy.direction] || engine_is_kept(operation));
}

/* Returns the least duration of the operation, in nanoseconds. */
static uint64_t least_time(const struct cudasim_operation *operation)
{
    const struct cudasim_config *config = cudasim_config();
    if (operation->kind == CUDASIM_OPERATION_KERNEL)
        return config->kernel_ns;
    if (operation->kind == CUDASIM_OPERATION_EVENT_RECORD)
        return config->event_ns;
    if (!uses_engine(operation))
        return 0;
    double rate =
        operation->copy.direction == CUDASIM_DIRECTION_D2H ? config->d2h_bytes_per_ns : config->h2d_bytes_per_ns;
    const struct cudasim_box *box = &operation->copy.box;
    return rate > 0 ? (uint64_t)((double)(box->width * box->height * box->depth) / rate) : 0;
}

static void sleep_until(uint64_t time_ns)
{
    struct timespec until = {.tv_sec = (time_t)(time_ns / 1000000000u), .tv_nsec = (long)(time_ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        continue;
}

static void wake_idle_streams(void)
{
    CUstream stream;
    LIST_FOREACH (stream, &cudasim_streams, link) {
        struct cudasim_operation *head = TAILQ_FIRST(&stream->queue);
        if (head && !head->running && may_start(head))
            pthread_cond_signal(&stream->wake);
    }
    pthread_cond_broadcast(&host_progress);
}

/* Sleeps on the condition for at most that many nanoseconds. */
static void sleep_at_most(pthread_cond_t *condition, long nanoseconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += nanoseconds;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(condition, &cudasim_device_lock, &until);
}

/*
 * Waits for the stream's wake-up. No thread signals a head that waits for a memory word, so its
 * worker looks again after a while.
 */
static void sleep_worker(CUstream stream)
{
    struct cudasim_operation *head = TAILQ_FIRST(&stream->queue);
    if (head && head->kind == CUDASIM_OPERATION_WAIT_VALUE)
        sleep_at_most(&stream->wake, WORD_POLL_NS);
    else
        pthread_cond_wait(&stream->wake, &cudasim_device_lock);
}

static void run_head(struct cudasim_operation *operation)
{
    bool engine = uses_engine(operation);
    enum cudasim_direction direction = engine ? operation->copy.direction : CUDASIM_DIRECTION_H2H;
    bool dropped = cudasim_context_root(operation->stream->context)->sticky != CUDA_SUCCESS;
    operation->running = true;
    operation->started = true;
    if (engine) {
        engine_busy[direction] = true;
        copied_last[direction] = operation->stream;
        gives_way[direction] = false;
    }
    if (cudasim_config()->connections)
        wake_idle_streams(); /* the next operation of the hardware queue may start */
    if (!dropped) {
        cudasim_trace_operation("start", operation);
        cudasim_managed_operation_starts(operation);
        cudasim_unlock();
        uint64_t start = cudasim_now_ns();
        uint64_t least = least_time(operation);
        cudasim_operation_run(operation, 0, 1);
        if (least)
            sleep_until(start + least);
        cudasim_lock();
    }
    if (engine)
        engine_busy[direction] = false;
    if (operation->kind == CUDASIM_OPERATION_WAIT_VALUE)
        for (int d = 0; d < CUDASIM_DIRECTION_COUNT; d++)
            gives_way[d] |= copied_last[d] == operation->stream;
    cudasim_operation_over(operation);
    wake_idle_streams();
}

/* Runs a step of a conditional node. Between two steps the node waits as the stream's head. */
static void step_conditional(struct cudasim_operation *operation)
{
    if (!operation->started && operation->stream->context->sticky == CUDA_SUCCESS)
        cudasim_trace_operation("start", operation);
    operation->started = true;
    if (operation->stream->context->sticky != CUDA_SUCCESS || cudasim_conditional_step(operation))
        cudasim_operation_over(operation);
    wake_idle_streams();
}

static void *worker_main(void *argument)
{
    CUstream stream = argument;
    cudasim_lock();
    for (;;) {
        struct cudasim_operation *head = TAILQ_FIRST(&stream->queue);
        if (head && may_start(head) && head->kind == CUDASIM_OPERATION_CONDITIONAL)
            step_conditional(head);
        else if (head && may_start(head))
            run_head(head);
        else
            sleep_worker(stream);
    }
    return NULL;
}

/*
 * Workers block signals, which are for the program's own threads. A fault in a kernel still reaches
 * its worker.
 */
static int start_worker(CUstream stream)
{
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t worker;
    int error = pthread_create(&worker, &attributes, worker_main, stream);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return -error;
}

static bool threads_prepare(CUstream stream)
{
    if (!stream->has_worker)
        stream->has_worker = start_worker(stream) == 0;
    return stream->has_worker;
}

static void threads_submitted(CUstream stream)
{
    pthread_cond_signal(&stream->wake);
}

/*
 * Returns whether nothing runs or could run: all queued work waits, in the end, for a memory word.
 */
static bool standing_still(void)
{
    CUstream stream;
    LIST_FOREACH (stream, &cudasim_streams, link) {
        const struct cudasim_operation *head = TAILQ_FIRST(&stream->queue);
        if (head && (head->running || may_start(head)))
            return false;
    }
    return cudasim_word_wait_pending();
}

static CUresult threads_wait(bool (*done)(void *argument), void *argument)
{
    uint64_t still_since = 0;
    while (!done(argument)) {
        if (!standing_still()) {
            still_since = 0;
            sleep_at_most(&host_progress, STILL_CHECK_NS);
            continue;
        }
        if (!still_since)
            still_since = cudasim_now_ns();
        else if (cudasim_now_ns() - still_since > cudasim_config()->patience_ns)
            return cudasim_report_deadlock();
        sleep_at_most(&host_progress, WORD_POLL_NS);
    }
    return CUDA_SUCCESS;
}

static void threads_poll(bool must_progress)
{
    (void)must_progress;
}

static bool threads_deny_query(int *denials)
{
    (void)denials;
    return false;
}

static bool holds_up_mappings(const struct cudasim_operation *operation)
{
    const struct cudasim_config *config = cudasim_config();

    return uses_engine(operation) &&
           (operation->copy.direction == CUDASIM_DIRECTION_D2H ? config->slice_out : config->slice_in);
}

/*
 * Returns whether a copy that delays mappings follows another at once. A stream with such a copy
 * goes on by itself with its queue.
 */
static bool copying_goes_on(void)
{
    CUstream stream;
    LIST_FOREACH (stream, &cudasim_streams, link) {
        const struct cudasim_operation *head = TAILQ_FIRST(&stream->queue), *operation;
        if (!head || !(head->running || may_start(head)))
            continue;
        TAILQ_FOREACH (operation, &stream->queue, link)
            if (holds_up_mappings(operation))
                return true;
    }
    return false;
}

static bool threads_mapping(void)
{
    const uint64_t slice_ns = cudasim_config()->slice_ns, until = cudasim_now_ns() + slice_ns;
    while (slice_ns && copying_goes_on()) {
        uint64_t now = cudasim_now_ns();
        if (now >= until)
            return true;
        sleep_at_most(&host_progress, (long)(until - now < STILL_CHECK_NS ? until - now : STILL_CHECK_NS));
    }
    return false;
}

const struct cudasim_scheduler cudasim_scheduler_threads = {
    .prepare = threads_prepare,
    .submitted = threads_submitted,
    .wait = threads_wait,
    .poll = threads_poll,
    .deny_query = threads_deny_query,
    .mapping = threads_mapping,
};
