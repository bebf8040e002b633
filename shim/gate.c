#include "gate.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "helper_thread.h"
#include "log.h"
#include "per_device.h"
#include "real_cuda.h"

/* 16 MiB, 0.3 ms of the link, which a mapping may wait for; twice as much where none does. */
static const size_t pages_a_piece[PS_GATE_WAYS] = {[PS_GATE_OUT] = 8, [PS_GATE_IN] = 16};
#define OPEN_WORD 16u    /* the word that is never shut: another cache line's */
#define PIECES_A_COPY 8u /* a stream holds some 1,000 commands, and up to 48 copies (copies.h) */
#define SHUT_AT_MOST_NS 2000000u
#define HELD_AT_MOST_NS 333000000u
#define LOOK_EVERY_NS 1000000
#define QUIET_LOOKS 100u           /* the watcher then sleeps until the gate is shut again */
#define SENT_ALONG_BYTES 4096u     /* to the device: they go along with the command, and no engine copies them (H100) */
#define TURNS_FOR_NS 2000000000ull /* one that comes later waits for what is queued by then, some 10 ms of the link */

static _Atomic uint64_t program_copied_in; /* when; 0: never */

static PS_PER_DEVICE struct {
    uint32_t *word; /* 0: open. NULL: there is no gate */
    CUdeviceptr looked_at[PS_GATE_WAYS];
    size_t page;
    size_t since_look[PS_GATE_WAYS]; /* bytes queued; atomic */
    bool copies;                     /* some have been queued on the way out; atomic */
    pthread_mutex_t lock;
    pthread_cond_t was_shut;
    unsigned shut_by, held_by; /* the latter are among the former */
    uint64_t shut_since, times_shut;
    bool watched;
} of_first = {.lock = PTHREAD_MUTEX_INITIALIZER, .was_shut = PTHREAD_COND_INITIALIZER};
#define here PS_HERE(of_first)

/* [with lock] The device may look at it at any time. */
static void set_word(uint32_t value)
{
    __atomic_store_n(here.word, value, __ATOMIC_SEQ_CST);
}

/*
 * Opens what has been shut for too long; who shut it goes on with its mapping, which then takes its time slice. While mappings come this looks once a
 * millisecond, so that who shuts the gate need not wake it.
 */
static void watch(void)
{
    static const struct timespec pause = {.tv_nsec = LOOK_EVERY_NS};
    uint64_t seen = 0;
    unsigned quiet = 0;

    pthread_mutex_lock(&here.lock);
    for (;;) {
        if (here.shut_by && ps_now_ns() - here.shut_since > (here.held_by ? HELD_AT_MOST_NS : SHUT_AT_MOST_NS))
            set_word(0);
        quiet = here.shut_by || here.times_shut != seen ? 0 : quiet + 1;
        seen = here.times_shut;
        if (quiet > QUIET_LOOKS) {
            here.watched = false;
            while (!here.shut_by)
                pthread_cond_wait(&here.was_shut, &here.lock);
            here.watched = true;
        }
        pthread_mutex_unlock(&here.lock);
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&here.lock);
    }
}

/* The words, in memory of our own, which stays when the context goes: a thread may be opening the gate then. */
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

void ps_gate_make(CUstream stream, size_t granularity)
{
    CUdeviceptr on_device = 0;
    uint32_t *word = new_words(&on_device);

    here.page = granularity;
    here.looked_at[PS_GATE_OUT] = on_device;
    here.looked_at[PS_GATE_IN] = on_device + OPEN_WORD * sizeof *word;
    here.watched = true;
    /* The first look shows whether a stream can wait for a word. */
    if (!word || ps_cu.cuStreamWaitValue32(stream, on_device, 0, CU_STREAM_WAIT_VALUE_EQ) != CUDA_SUCCESS)
        ps_log_info(
            RESIDENCY,
            "no stream can wait for a word in host memory here: making a mapping beside an eviction takes a millisecond, and the program's "
            "own copies wait for all of ours that are queued");
    else if (!ps_helper_thread_start_apart("penstock-gate", watch))
        here.word = word;
}

/* A time slice holds about three of the least pieces on the way out. */
static size_t piece_of(enum ps_gate_way way, size_t bytes)
{
    const size_t least = pages_a_piece[way] * here.page, piece = (bytes / PIECES_A_COPY + here.page - 1) / here.page * here.page;

    return piece > least ? piece : least;
}

void ps_gate_program_copies_in(size_t bytes)
{
    if (bytes > SENT_ALONG_BYTES)
        atomic_store_explicit(&program_copied_in, ps_now_ns(), memory_order_relaxed);
}

/* Whether others are to have their turn. */
static bool gives_turns(enum ps_gate_way way)
{
    if (!here.word)
        return false;
    if (way == PS_GATE_OUT)
        return true;
    const uint64_t since = atomic_load_explicit(&program_copied_in, memory_order_relaxed);
    return since && ps_now_ns() - since < TURNS_FOR_NS;
}

/* Ahead of a piece: a look, if so much has been queued since the last one. One that can't be queued is left out. */
static void look(CUstream stream, enum ps_gate_way way, size_t bytes)
{
    if (__atomic_add_fetch(&here.since_look[way], bytes, __ATOMIC_RELAXED) <= pages_a_piece[way] * here.page)
        return;
    __atomic_store_n(&here.since_look[way], bytes, __ATOMIC_RELAXED); /* of two threads, one look more or less is no matter */
    /* Two clocks: the stream waits here when the device comes to it, after all that was queued on it before, for as long as the gate is shut, if it is its word. */
    ps_cu.cuStreamWaitValue32(stream, here.looked_at[way], 0, CU_STREAM_WAIT_VALUE_EQ);
}

int ps_gate_copy(CUstream stream, enum ps_gate_way way, CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    const bool looks = gives_turns(way);
    const size_t piece = looks ? piece_of(way, bytes) : bytes;
    int r = 0;

    if (way == PS_GATE_OUT)
        __atomic_store_n(&here.copies, true, __ATOMIC_RELAXED);
    for (size_t at = 0; at < bytes && !r; at += piece) {
        const size_t part = bytes - at < piece ? bytes - at : piece;
        if (looks)
            look(stream, way, part);
        r = ps_cuda_errno(ps_cu.cuMemcpyAsync(to + at, from + at, part, stream));
    }
    return r;
}

/* [with lock] */
static void shut(void)
{
    if (here.shut_by++)
        return;
    here.shut_since = ps_now_ns();
    here.times_shut++;
    set_word(1);
    if (!here.watched)
        pthread_cond_signal(&here.was_shut);
}

bool ps_gate_shut(void)
{
    if (!here.word || !__atomic_load_n(&here.copies, __ATOMIC_RELAXED))
        return false;
    pthread_mutex_lock(&here.lock);
    shut();
    pthread_mutex_unlock(&here.lock);
    return true;
}

void ps_gate_open(void)
{
    pthread_mutex_lock(&here.lock);
    if (!--here.shut_by)
        set_word(0);
    pthread_mutex_unlock(&here.lock);
}

bool ps_gate_hold(CUstream stream)
{
    if (!here.word)
        return false;
    pthread_mutex_lock(&here.lock);
    shut();
    here.held_by++;
    pthread_mutex_unlock(&here.lock);
    if (ps_cu.cuStreamWaitValue32(stream, here.looked_at[PS_GATE_OUT], 0, CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS)
        return true;
    ps_gate_let_go();
    return false;
}

void ps_gate_let_go(void)
{
    pthread_mutex_lock(&here.lock);
    here.held_by--;
    pthread_mutex_unlock(&here.lock);
    ps_gate_open();
}
