/*
 * The adversarial scheduler. Nothing runs by itself. Operations run one at a time, on the thread of
 * a caller that waits, polls or makes an API call. The seed picks the next one among those that the
 * ordering allows. A seed also picks a mood, a bias that uniform choice would seldom produce for
 * long. Large copies and fills run in pieces, forwards or backwards, and so do kernels on request.
 * So unordered operations can come in between.
 */
#include <sched.h>
#include <unistd.h>

#include "conditions.h"
#include "config.h"
#include "engine.h"
#include "kernels.h"
#include "managed.h"
#include "trace.h"

enum mood {
    MOOD_UNIFORM,       /* any ready operation */
    MOOD_D2H_LAST,      /* copies to the host only when nothing else can run */
    MOOD_H2D_LAST,      /* copies to the device only when nothing else can run */
    MOOD_COMPUTE_LAST,  /* kernels and fills only when nothing else can run */
    MOOD_NEWEST_FIRST,  /* the operation issued last among the heads of the streams */
    MOOD_STARVE_STREAM, /* one stream only when nothing else can run */
    MOOD_RANKED,        /* streams have ranks, and the highest runs; that stream sometimes gets a new rank */
    MOOD_LATE_ONES,     /* some operations, anywhere, only when nothing else can run */
    MOOD_HOST_AHEAD,    /* uniform, but nothing runs before a caller waits or polls */
    MOOD_EAGER,         /* every operation that can run does so at each call */
    MOOD_COUNT,
};

/* A copy or fill of less than twice these bytes is not cut. */
#define MIN_PIECE_BYTES 64u
/* Pieces of a kernel, if it runs in parts: its even items and its odd ones. */
#define KERNEL_PARTS 2u
/*
 * One choice in this many ignores the mood, so that no mood hides a bug that needs one exception.
 */
#define EXCEPTION_ONE_IN 16u
#define MAX_DENIALS 3
#define LATE_ONE_IN 8u
#define LATE_OPERATION_ONE_IN 6u
#define NEW_RANK_ONE_IN 24u

/* All under the device lock. */
static bool seeded;
static uint64_t random_state;
static enum mood mood;
/* a random number that picks the stream, or the operations, that the mood dislikes */
static uint64_t starved_stream;
static uint64_t steps;                 /* pieces of operations that have run */
static unsigned int functions_running; /* host functions, which run without the lock */
static pthread_cond_t progress = PTHREAD_COND_INITIALIZER;

/* Mixes a number over all 64 bits. */
static uint64_t mix(uint64_t value)
{
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

static uint64_t random_next(void)
{
    random_state += 0x9e3779b97f4a7c15u;
    return mix(random_state);
}

static unsigned int random_below(unsigned int bound)
{
    return (unsigned int)(random_next() % bound);
}

static void seed_once(void)
{
    if (seeded)
        return;
    seeded = true;
    random_state = cudasim_config()->seed;
    mood = (enum mood)random_below(MOOD_COUNT);
    starved_stream = random_next();
}

static bool is_copy(const struct cudasim_operation *operation, enum cudasim_direction direction)
{
    return operation->kind == CUDASIM_OPERATION_COPY && operation->copy.direction == direction;
}

/* Returns whether the mood prefers any other operation. */
static bool disliked(const struct cudasim_operation *operation, size_t stream_count)
{
    switch (mood) {
    case MOOD_D2H_LAST:
        return is_copy(operation, CUDASIM_DIRECTION_D2H);
    case MOOD_H2D_LAST:
        return is_copy(operation, CUDASIM_DIRECTION_H2D);
    case MOOD_COMPUTE_LAST:
        return operation->kind == CUDASIM_OPERATION_KERNEL || operation->kind == CUDASIM_OPERATION_FILL;
    case MOOD_LATE_ONES:
        return mix(starved_stream + operation->issue_index) % LATE_OPERATION_ONE_IN == 0;
    case MOOD_STARVE_STREAM:
        return operation->stream->id % stream_count == starved_stream % stream_count;
    default:
        return false;
    }
}

/*
 * Keeps the `count`-th candidate with probability 1/count, so in the end every candidate was
 * equally likely.
 */
static void consider(struct cudasim_operation **choice, unsigned int *count, struct cudasim_operation *candidate)
{
    if (random_below(++*count) == 0)
        *choice = candidate;
}

/* Returns a stream's rank, a random number that holds until the stream gets another. */
static uint64_t rank_of(CUstream stream)
{
    if (!stream->rank)
        stream->rank = random_next() | 1;
    return stream->rank;
}

static struct cudasim_operation *take_ranked(struct cudasim_operation *operation)
{
    if (random_below(NEW_RANK_ONE_IN) == 0)
        operation->stream->rank = 0;
    return operation;
}

static struct cudasim_operation *pick(void)
{
    struct cudasim_operation *liked = NULL, *any = NULL, *newest = NULL, *highest = NULL;
    unsigned int liked_count = 0, any_count = 0;
    size_t stream_count = 0;
    CUstream stream;
    LIST_FOREACH (stream, &cudasim_streams, link)
        stream_count++;
    LIST_FOREACH (stream, &cudasim_streams, link) {
        struct cudasim_operation *head = TAILQ_FIRST(&stream->queue);
        if (!head || head->running || !cudasim_operation_ready(head))
            continue;
        consider(&any, &any_count, head);
        if (!disliked(head, stream_count))
            consider(&liked, &liked_count, head);
        if (!newest || head->issue_index > newest->issue_index)
            newest = head;
        if (!highest || rank_of(head->stream) > rank_of(highest->stream))
            highest = head;
    }
    if (any_count < 2 || random_below(EXCEPTION_ONE_IN) == 0)
        return any;
    if (mood == MOOD_NEWEST_FIRST)
        return newest;
    if (mood == MOOD_RANKED)
        return take_ranked(highest);
    return liked ? liked : any;
}

static bool runs_in_parts(const struct cudasim_operation *operation)
{
    return operation->kind == CUDASIM_OPERATION_KERNEL && cudasim_config()->split_kernels &&
           operation->kernel.entry->code->abi == CUDASIM_KERNEL_ABI_IN_PARTS;
}

static void start_operation(struct cudasim_operation *operation)
{
    operation->pieces = 1;
    operation->started = true;
    const struct cudasim_box *box =
        operation->kind == CUDASIM_OPERATION_COPY ? &operation->copy.box : &operation->fill.box;
    bool can_split = operation->kind == CUDASIM_OPERATION_COPY || operation->kind == CUDASIM_OPERATION_FILL;
    if (can_split && box->width * box->height * box->depth >= 2 * MIN_PIECE_BYTES) {
        operation->pieces = 1 + random_below(4);
        operation->backwards = random_below(2) != 0;
    } else if (runs_in_parts(operation)) {
        operation->pieces = KERNEL_PARTS;
        operation->backwards = random_below(2) != 0;
    }
    cudasim_trace_operation("start", operation);
    cudasim_managed_operation_starts(operation);
}

static void run_host_function(struct cudasim_operation *operation)
{
    operation->running = true;
    functions_running++;
    cudasim_unlock();
    cudasim_operation_run(operation, 0, 1);
    cudasim_lock();
    functions_running--;
}

/* Runs the operation, or its next piece. */
static void step(struct cudasim_operation *operation)
{
    bool over = true;
    steps++;
    if (cudasim_context_root(operation->stream->context)->sticky == CUDA_SUCCESS) {
        if (!operation->pieces)
            start_operation(operation);
        if (operation->kind == CUDASIM_OPERATION_HOST_FUNCTION) {
            run_host_function(operation);
        } else if (operation->kind == CUDASIM_OPERATION_CONDITIONAL) {
            over = cudasim_conditional_step(operation);
        } else {
            size_t piece =
                operation->backwards ? operation->pieces - 1 - operation->pieces_done : operation->pieces_done;
            cudasim_operation_run(operation, piece, operation->pieces);
            over = ++operation->pieces_done == operation->pieces || operation->faulted;
        }
    }
    if (over)
        cudasim_operation_over(operation);
    pthread_cond_broadcast(&progress);
}

/*
 * Lets the program's other threads in now and then. Otherwise the driving thread would keep the
 * lock until it is done.
 */
static void yield_sometimes(void)
{
    if (random_below(4))
        return;
    cudasim_unlock();
    sched_yield();
    cudasim_lock();
}

/*
 * A waiting thread now and then returns late, like one that lost its processor. The others run on
 * meanwhile.
 */
static void come_back_late(void)
{
    if (random_below(LATE_ONE_IN))
        return;
    unsigned int microseconds = 20 + random_below(280);
    cudasim_unlock();
    usleep(microseconds);
    cudasim_lock();
}

static CUresult seeded_wait(bool (*done)(void *argument), void *argument)
{
    seed_once();
    uint64_t stuck_since = 0, stuck_at = 0;
    while (!done(argument)) {
        struct cudasim_operation *operation = pick();
        if (operation) {
            step(operation);
            yield_sometimes();
            continue;
        }
        if (functions_running) {
            pthread_cond_wait(&progress, &cudasim_device_lock);
            continue;
        }
        uint64_t now = cudasim_now_ns();
        if (!stuck_since || stuck_at != steps) { /* another thread may have run what could run */
            stuck_since = now;
            stuck_at = steps;
        }
        if (!cudasim_word_wait_pending() || now - stuck_since > cudasim_config()->patience_ns)
            return cudasim_report_deadlock();
        cudasim_unlock();
        usleep(100);
        cudasim_lock();
    }
    come_back_late();
    return CUDA_SUCCESS;
}

static void run_some(unsigned int most)
{
    for (unsigned int i = 0; i < most; i++) {
        struct cudasim_operation *operation = pick();
        if (!operation)
            return;
        step(operation);
    }
}

static void seeded_poll(bool must_progress)
{
    seed_once();
    if (must_progress)
        run_some(1 + random_below(2));
    else if (mood == MOOD_EAGER)
        run_some(256);
    else if (mood != MOOD_HOST_AHEAD && random_below(4) == 0)
        run_some(1 + random_below(3));
}

static bool seeded_deny_query(int *denials)
{
    seed_once();
    if (*denials < MAX_DENIALS && random_below(3) == 0) {
        ++*denials;
        return true;
    }
    *denials = 0;
    return false;
}

static bool seeded_prepare(CUstream stream)
{
    (void)stream;
    return true;
}

/* Nothing runs at submission. The functions above decide when operations run. */
static void seeded_submitted(CUstream stream)
{
    (void)stream;
}

/* No time passes here. */
static bool seeded_mapping(void)
{
    return false;
}

const struct cudasim_scheduler cudasim_scheduler_seeded = {
    .prepare = seeded_prepare,
    .submitted = seeded_submitted,
    .wait = seeded_wait,
    .poll = seeded_poll,
    .deny_query = seeded_deny_query,
    .mapping = seeded_mapping,
};
