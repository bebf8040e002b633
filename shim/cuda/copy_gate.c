#include "cuda/copy_gate.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/per_device.h"
#include "cuda/driver.h"
#include "cuda/helper_thread.h"

/*
 * The least piece in pages: 16 MiB, 0.3 ms of the link, for which a mapping may wait. In a
 * direction for which no mapping waits, it is twice as large.
 */
#define PIECE_PAGES 8u
#define WORDS_APART 16u /* the word of each direction has a cache line of its own */
/*
 * The most pieces of a copy. A stream holds some 1,000 commands. Up to 48 copies to the host are
 * queued. Copies to the device of more than 256 MiB are few (copies.h). Beside pieces of 64 MiB a
 * mapping waits as long as without a gate.
 */
static const size_t pieces_a_copy[PS_COPY_GATE_WAYS] = {[PS_COPY_GATE_OUT] = 8, [PS_COPY_GATE_IN] = 32};
#define SHUT_AT_MOST_NS 2000000u
#define HELD_AT_MOST_NS 333000000u
#define LOOK_EVERY_NS 1000000
#define QUIET_LOOKS 100u /* after this many quiet looks the watcher sleeps until the gate is shut */
/*
 * Copies to the device of at most this size go along with the command; no engine copies them
 * (H100).
 */
#define SENT_ALONG_BYTES 4096u
/*
 * How long the program's copies to devices get their turns after each. A copy that comes later
 * waits for the copies queued by then, some 10 ms of the link.
 */
#define TURNS_FOR_NS 2000000000ull

static _Atomic uint64_t program_copied_in; /* the time of the program's last copy in; 0: never */

static PS_PER_DEVICE struct {
    uint32_t *words;                          /* one for each direction; 0: open. NULL: there is no gate */
    CUdeviceptr looked_at[PS_COPY_GATE_WAYS]; /* the words' addresses for the device */
    size_t page;
    size_t since_look[PS_COPY_GATE_WAYS];  /* bytes queued since the last look; atomic */
    bool mappings_wait[PS_COPY_GATE_WAYS]; /* mappings wait for the copies of that direction; atomic */
    bool copies[PS_COPY_GATE_WAYS];        /* copies have been queued; atomic */
    bool stays_open;                       /* atomic */
    pthread_mutex_t lock;
    pthread_cond_t was_shut;
    unsigned shut_by, held_by; /* the callers that have the gate shut; those of them that hold a stream */
    uint64_t shut_since, times_shut;
    bool watched, ends;
} first_dev = {.mappings_wait = {[PS_COPY_GATE_OUT] = true},
               .lock = PTHREAD_MUTEX_INITIALIZER,
               .was_shut = PTHREAD_COND_INITIALIZER};
#define dev (&PS_HERE(first_dev))

static bool mappings_wait(enum ps_copy_gate_way way)
{
    return __atomic_load_n(&dev->mappings_wait[way], __ATOMIC_RELAXED);
}

void ps_copy_gate_holds_up(enum ps_copy_gate_way way, bool wait)
{
    __atomic_store_n(&dev->mappings_wait[way], wait, __ATOMIC_RELAXED);
}

void ps_copy_gate_stay_open(bool stays)
{
    __atomic_store_n(&dev->stays_open, stays, __ATOMIC_RELAXED);
}

/* Sets a word, at which the device may look at any time. [with lock] */
static void set_word(enum ps_copy_gate_way way, uint32_t value)
{
    __atomic_store_n(&dev->words[way * WORDS_APART], value, __ATOMIC_SEQ_CST);
}

static void open_all(void)
{
    for (enum ps_copy_gate_way way = 0; way < PS_COPY_GATE_WAYS; way++)
        set_word(way, 0);
}

/*
 * The watcher's thread: opens a gate that was shut for too long. The thread that shut the gate goes
 * on with its mapping, which then takes a time slice. While mappings come, the watcher looks once a
 * millisecond, so that no thread that shuts the gate need wake it.
 */
static void watch(void)
{
    static const struct timespec pause = {.tv_nsec = LOOK_EVERY_NS};
    uint64_t seen = 0;
    unsigned quiet = 0;

    pthread_mutex_lock(&dev->lock);
    while (!dev->ends) {
        if (dev->shut_by && ps_now_ns() - dev->shut_since > (dev->held_by ? HELD_AT_MOST_NS : SHUT_AT_MOST_NS))
            open_all();
        quiet = dev->shut_by || dev->times_shut != seen ? 0 : quiet + 1;
        seen = dev->times_shut;
        if (quiet > QUIET_LOOKS) {
            dev->watched = false;
            while (!dev->shut_by && !dev->ends)
                pthread_cond_wait(&dev->was_shut, &dev->lock);
            dev->watched = true;
        }
        pthread_mutex_unlock(&dev->lock);
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&dev->lock);
    }
    pthread_mutex_unlock(&dev->lock);
}

void ps_copy_gate_end(void)
{
    pthread_mutex_lock(&dev->lock);
    dev->words = NULL;
    dev->ends = true;
    pthread_cond_signal(&dev->was_shut);
    pthread_mutex_unlock(&dev->lock);
}

/*
 * Makes the words. They lie in our own memory, which outlives the context. A thread may be opening
 * the gate when the context goes. Returns NULL if the driver can't provide them.
 */
static uint32_t *new_words(CUdeviceptr *on_device)
{
    const size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        return NULL;
    if (ps_cu.cuStreamWaitValue32 && ps_cu.cuMemHostRegister && ps_cu.cuMemHostGetDevicePointer &&
        ps_cu.cuMemHostRegister(memory, bytes, CU_MEMHOSTREGISTER_DEVICEMAP) == CUDA_SUCCESS) {
        if (ps_cu.cuMemHostGetDevicePointer(on_device, memory, 0) == CUDA_SUCCESS)
            return memory;
        ps_cu.cuMemHostUnregister(memory);
    }
    munmap(memory, bytes);
    return NULL;
}

void ps_copy_gate_make(CUstream stream, size_t granularity)
{
    CUdeviceptr on_device = 0;
    uint32_t *words = new_words(&on_device);

    dev->page = granularity;
    for (enum ps_copy_gate_way way = 0; way < PS_COPY_GATE_WAYS; way++)
        dev->looked_at[way] = on_device + way * WORDS_APART * sizeof *words;
    dev->watched = true;
    /* The first look shows whether a stream can wait for a word. */
    if (!words || ps_cu.cuStreamWaitValue32(stream, on_device, 0, CU_STREAM_WAIT_VALUE_EQ) != CUDA_SUCCESS)
        ps_log_info(RESIDENCY,
                    "streams can't wait for a word in host memory on this device: a mapping made during copies "
                    "takes a millisecond, and the program's own copies wait for all queued copies of Penstock");
    else if (!ps_helper_thread_start_apart("penstock-gate", watch))
        dev->words = words;
}

/* Returns the bytes of the least piece. A time slice holds about three that a mapping waits for. */
static size_t least_piece(enum ps_copy_gate_way way)
{
    return (mappings_wait(way) ? PIECE_PAGES : 2 * PIECE_PAGES) * dev->page;
}

static size_t piece_of(enum ps_copy_gate_way way, size_t bytes)
{
    const size_t least = least_piece(way), piece = (bytes / pieces_a_copy[way] + dev->page - 1) / dev->page * dev->page;

    return piece > least ? piece : least;
}

void ps_copy_gate_program_copies_in(size_t bytes)
{
    if (bytes > SENT_ALONG_BYTES)
        atomic_store_explicit(&program_copied_in, ps_now_ns(), memory_order_relaxed);
}

/* Returns whether copies of that direction give other work its turn. */
static bool gives_turns(enum ps_copy_gate_way way)
{
    if (!dev->words)
        return false;
    if (way == PS_COPY_GATE_OUT || mappings_wait(way))
        return true;
    const uint64_t since = atomic_load_explicit(&program_copied_in, memory_order_relaxed);
    return since && ps_now_ns() - since < TURNS_FOR_NS;
}

/*
 * Queues a look ahead of a piece of `bytes`, if enough was queued since the last look. Ignores a
 * driver that refuses.
 */
static void look(CUstream stream, enum ps_copy_gate_way way, size_t bytes)
{
    if (__atomic_add_fetch(&dev->since_look[way], bytes, __ATOMIC_RELAXED) <= least_piece(way))
        return;
    /* Two threads at once may queue one look too many or too few, which does no harm. */
    __atomic_store_n(&dev->since_look[way], bytes, __ATOMIC_RELAXED);
    /*
     * Two clocks: the stream waits here when the device gets here, after the work that was queued
     * before. It waits as long as the gate is shut.
     */
    ps_cu.cuStreamWaitValue32(stream, dev->looked_at[way], 0, CU_STREAM_WAIT_VALUE_EQ);
}

int ps_copy_gate_copy(CUstream stream, enum ps_copy_gate_way way, CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    const bool looks = gives_turns(way);
    const size_t piece = looks ? piece_of(way, bytes) : bytes;
    int r = 0;

    __atomic_store_n(&dev->copies[way], true, __ATOMIC_RELAXED);
    for (size_t at = 0; at < bytes && !r; at += piece) {
        const size_t part = bytes - at < piece ? bytes - at : piece;
        if (looks)
            look(stream, way, part);
        r = ps_cuda_errno(ps_cu.cuMemcpyAsync(to + at, from + at, part, stream));
    }
    return r;
}

/* Returns whether a mapping would wait for copies of that direction. */
static bool is_in_the_way(enum ps_copy_gate_way way)
{
    return mappings_wait(way) && __atomic_load_n(&dev->copies[way], __ATOMIC_RELAXED) &&
           !__atomic_load_n(&dev->stays_open, __ATOMIC_RELAXED);
}

/* Counts a caller that shuts the gate. Returns whether it is the first. [with lock] */
static bool shut(void)
{
    if (dev->shut_by++)
        return false;
    dev->shut_since = ps_now_ns();
    dev->times_shut++;
    if (!dev->watched)
        pthread_cond_signal(&dev->was_shut);
    return true;
}

bool ps_copy_gate_shut(void)
{
    if (!dev->words || (!is_in_the_way(PS_COPY_GATE_OUT) && !is_in_the_way(PS_COPY_GATE_IN)))
        return false;
    pthread_mutex_lock(&dev->lock);
    if (shut())
        for (enum ps_copy_gate_way way = 0; way < PS_COPY_GATE_WAYS; way++)
            set_word(way, is_in_the_way(way));
    pthread_mutex_unlock(&dev->lock);
    return true;
}

void ps_copy_gate_open(void)
{
    pthread_mutex_lock(&dev->lock);
    if (!--dev->shut_by)
        open_all();
    pthread_mutex_unlock(&dev->lock);
}

bool ps_copy_gate_hold(CUstream stream)
{
    if (!dev->words)
        return false;
    pthread_mutex_lock(&dev->lock);
    shut();
    dev->held_by++;
    set_word(PS_COPY_GATE_OUT, 1);
    pthread_mutex_unlock(&dev->lock);
    if (ps_cu.cuStreamWaitValue32(stream, dev->looked_at[PS_COPY_GATE_OUT], 0, CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS)
        return true;
    ps_copy_gate_let_go();
    return false;
}

void ps_copy_gate_let_go(void)
{
    pthread_mutex_lock(&dev->lock);
    dev->held_by--;
    pthread_mutex_unlock(&dev->lock);
    ps_copy_gate_open();
}
