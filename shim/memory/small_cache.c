#include "memory/small_cache.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "base/counters.h"
#include "base/ordering_rules.h"
#include "cuda/device_memory.h"
#include "cuda/driver.h"
#include "cuda/managed_context.h"
#include "cuda/streams.h"
#include "memory/budget.h"

#define BUCKETS 4096u
#define KEPT_MOST (64ull << 20) /* bytes; the programs in tests/gpu ask for 2 to 20 MiB a step in such blocks */
#define KEPT_OF_ALL 128u        /* or this part of a small budget */
#define LOOKED_AT 64u           /* oldest kept blocks that a search for one of a certain stream considers */
/*
 * Most blocks that are known. Beyond it a look-up would take longer than the driver does. A large
 * model has some thousand small tensors.
 */
#define KNOWN_MOST (4 * BUCKETS)

/* A block that the program owns, or that is kept. */
struct small_block {
    CUdeviceptr address;
    size_t bytes;
    struct ps_stream *stream; /* the stream on which it was freed; NULL: the program owns it */
    LIST_ENTRY(small_block) by_address;
    LIST_ENTRY(small_block) by_size; /* kept blocks, by stream and size, last freed first */
    TAILQ_ENTRY(small_block) by_age; /* kept blocks */
};
LIST_HEAD(small_blocks, small_block);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all data below */
static pthread_cond_t one_has_gone = PTHREAD_COND_INITIALIZER;
static struct small_blocks known[BUCKETS], kept[BUCKETS];
/*
 * Blocks on their way back to the real allocator, on their streams, linked by by_size. Those
 * streams must still exist.
 */
static struct small_blocks going;
static TAILQ_HEAD(, small_block) oldest_first = TAILQ_HEAD_INITIALIZER(oldest_first);
static uint64_t kept_bytes;
static size_t known_blocks;
/*
 * By index of the stream: blocks were asked for on it, so a block that is freed there may serve
 * again.
 */
static bool is_asked[PS_STREAMS_MAX];

static atomic_bool are_known;

static struct small_blocks *bucket(struct small_blocks *table, uint64_t key)
{
    return &table[(key * 0x9e3779b97f4a7c15u) >> 52];
}

static struct small_blocks *bucket_of_size(const struct ps_stream *stream, size_t bytes)
{
    return bucket(kept, bytes / PS_SMALL_UNIT +
                            (ps_ordering_rule(SMALL_STAYS_ON_STREAM) ? (uint64_t)stream->index << 32 : 0));
}

static struct small_block *find(CUdeviceptr address)
{
    struct small_block *b;

    LIST_FOREACH (b, bucket(known, address / PS_SMALL_UNIT), by_address)
        if (b->address == address)
            break;
    return b;
}

static void keep(struct small_block *b, struct ps_stream *stream)
{
    b->stream = stream;
    LIST_INSERT_HEAD(bucket_of_size(stream, b->bytes), b, by_size);
    TAILQ_INSERT_TAIL(&oldest_first, b, by_age);
    kept_bytes += b->bytes;
    ps_count(small_kept);
}

static void no_longer_kept(struct small_block *b)
{
    LIST_REMOVE(b, by_size);
    TAILQ_REMOVE(&oldest_first, b, by_age);
    kept_bytes -= b->bytes;
    b->stream = NULL;
}

/* Ends the keeping of a block that the real allocator has, or is about to get. */
static void stop_keeping(struct small_block *b)
{
    no_longer_kept(b);
    ps_count(small_given_back);
}

static void no_longer_known(struct small_block *b)
{
    LIST_REMOVE(b, by_address);
    known_blocks--;
}

static void forget(struct small_block *b)
{
    no_longer_known(b);
    free(b);
}

CUdeviceptr ps_small_take(struct ps_stream *stream, size_t bytes)
{
    CUdeviceptr address = 0;
    struct small_block *b;

    pthread_mutex_lock(&lock);
    is_asked[stream->index] = true;
    LIST_FOREACH (b, bucket_of_size(stream, bytes), by_size)
        if (b->bytes == bytes && (b->stream == stream || !ps_ordering_rule(SMALL_STAYS_ON_STREAM)))
            break;
    if (b) {
        no_longer_kept(b);
        address = b->address;
    }
    pthread_mutex_unlock(&lock);
    if (address)
        ps_count(small_reused);
    return address;
}

bool ps_small_are_known(void)
{
    return atomic_load_explicit(&are_known, memory_order_relaxed);
}

void ps_small_note(CUdeviceptr address, size_t bytes)
{
    /* A free of the block comes after this, in the program's order. */
    atomic_store_explicit(&are_known, true, memory_order_relaxed);
    pthread_mutex_lock(&lock);
    struct small_block *b = find(address);
    if (b && b->stream)
        stop_keeping(b); /* the real allocator has given the address out again although the block was kept */
    if (!b && known_blocks < KNOWN_MOST && (b = calloc(1, sizeof *b))) {
        b->address = address;
        LIST_INSERT_HEAD(bucket(known, address / PS_SMALL_UNIT), b, by_address);
        known_blocks++;
    }
    if (b)
        b->bytes = bytes;
    pthread_mutex_unlock(&lock);
}

static uint64_t most(void)
{
    const uint64_t part = ps_budget.limit / KEPT_OF_ALL;

    return part < KEPT_MOST ? part : KEPT_MOST;
}

/*
 * Returns whether a block that is freed on this stream may be kept. A free on the legacy stream
 * orders others, and keeping the block would not.
 */
static bool may_stay(const struct ps_stream *stream)
{
    return !ps_stream_orders_others(stream) || !ps_ordering_rule(FREE_ON_LEGACY_IS_BARRIER);
}

enum ps_small ps_small_free(CUdeviceptr address, struct ps_stream *stream)
{
    enum ps_small how = PS_SMALL_UNKNOWN;

    pthread_mutex_lock(&lock);
    struct small_block *b = find(address);
    if (b && b->stream) {
        how = PS_SMALL_TWICE;
        /* Beyond that bound, other streams have left excess. */
    } else if (b && stream && is_asked[stream->index] && kept_bytes < 2 * most() && may_stay(stream)) {
        keep(b, stream);
        how = PS_SMALL_KEPT;
    } else if (b) {
        forget(b);
    }
    pthread_mutex_unlock(&lock);
    return how;
}

CUdeviceptr ps_small_excess(const struct ps_stream *stream)
{
    CUdeviceptr address = 0;
    unsigned looked_at = 0;
    struct small_block *b;

    pthread_mutex_lock(&lock);
    if (kept_bytes > most()) {
        TAILQ_FOREACH (b, &oldest_first, by_age)
            if (b->stream == stream || ++looked_at == LOOKED_AT)
                break;
        if (b && b->stream == stream) {
            address = b->address;
            stop_keeping(b);
            forget(b);
        }
    }
    pthread_mutex_unlock(&lock);
    return address;
}

/*
 * Takes out a kept block of the context, or of `stream` if that is set, and marks it as going.
 * Returns NULL if none is kept.
 */
static struct small_block *next_to_give_back(CUcontext context, const struct ps_stream *stream)
{
    struct small_block *b;

    pthread_mutex_lock(&lock);
    TAILQ_FOREACH (b, &oldest_first, by_age)
        if (stream ? b->stream == stream : b->stream->context == context)
            break;
    if (b) {
        struct ps_stream *of = b->stream;
        stop_keeping(b);
        no_longer_known(b);
        b->stream = of;
        LIST_INSERT_HEAD(&going, b, by_size);
    }
    pthread_mutex_unlock(&lock);
    return b;
}

static void has_gone(struct small_block *b)
{
    pthread_mutex_lock(&lock);
    LIST_REMOVE(b, by_size);
    pthread_cond_broadcast(&one_has_gone);
    pthread_mutex_unlock(&lock);
    free(b);
}

/*
 * Two clocks: the free on its stream returns a block to the real allocator after all work queued
 * there.
 */
static bool give_back(const struct ps_stream *stream)
{
    struct ps_managed_context context = ps_managed_context_enter();
    bool some = false;

    for (struct small_block *b; (b = next_to_give_back(ps_device.context, stream)); some = true) {
        if (!ps_cu.cuMemFreeAsync || ps_cu.cuMemFreeAsync(b->address, b->stream->handle) != CUDA_SUCCESS)
            ps_count(small_lost);
        has_gone(b);
    }
    ps_managed_context_leave(context);
    return some;
}

static const struct small_block *going_on(CUstream handle)
{
    const struct small_block *b;

    LIST_FOREACH (b, &going, by_size)
        if (b->stream->handle == handle)
            break;
    return b;
}

/*
 * Another thread may be about to free blocks on this stream: it trims the pool, or its allocation
 * found no memory. That thread is in a driver call that only queues. It waits neither for the
 * device nor for this thread.
 */
static void wait_for_those_of(CUstream handle)
{
    pthread_mutex_lock(&lock);
    while (going_on(handle))
        pthread_cond_wait(&one_has_gone, &lock);
    pthread_mutex_unlock(&lock);
}

void ps_small_give_back_of(CUstream handle)
{
    struct ps_stream *stream = NULL;
    struct small_block *b;

    pthread_mutex_lock(&lock);
    TAILQ_FOREACH (b, &oldest_first, by_age)
        if (b->stream->handle == handle && handle)
            stream = b->stream;
    pthread_mutex_unlock(&lock);
    if (stream)
        give_back(stream);
    wait_for_those_of(handle);
}

bool ps_small_give_back(void)
{
    return give_back(NULL);
}

uint64_t ps_small_kept(void)
{
    uint64_t bytes = 0;
    struct small_block *b;

    pthread_mutex_lock(&lock);
    TAILQ_FOREACH (b, &oldest_first, by_age)
        if (b->stream->context == ps_device.context)
            bytes += b->bytes;
    pthread_mutex_unlock(&lock);
    return bytes;
}
