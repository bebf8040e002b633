#include "kernels/made_tables.h"

#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/counters.h"
#include "base/ordering_rules.h"
#include "cuda/driver.h"
#include "cuda/green_contexts.h"
#include "cuda/managed_context.h"
#include "cuda/streams.h"
#include "cuda/uses.h"
#include "kernels/given_memory.h"
#include "kernels/launch_tables.h"
#include "kernels/pointer_tables.h"
#include "memory/registry.h"

#define KERNELS 8192u       /* a power of two; at most half of the places are taken, then all are given up */
#define LOOKS 32u           /* the most looks under way */
#define LOOKS_MAX 4u        /* looks in vain, after which a kernel is no maker; also those at tables of a maker */
#define SURE 2u             /* looks at tables of a maker, after which its next table replaces what was there */
#define BEGINS_NS 20000000u /* a free waits at most this long for copies that are about to be queued */
#define ASKED_MAX 64u       /* launches without memory to look at, after which a kernel is no maker */

enum state { UNKNOWN, MAKES_NONE, MAKER };

/* Where a table has the address that a word of the parameters gives. */
struct entry {
    unsigned place; /* 1 + that of the word; 0: none */
    size_t at;      /* bytes from the table's beginning */
};

/* Guarded by `lock`, except the atomic fields. */
struct kernel {
    _Atomic uint64_t key; /* 0: none */
    _Atomic int state;
    unsigned in_vain, asked; /* looks in vain, and launches without memory to look at */
    /* Of a maker: */
    uint64_t places;       /* a bit for each word of the parameters that leads to a table (ps_given_bit) */
    size_t bytes;          /* the size of its tables; SIZE_MAX: as long as the memory */
    unsigned found;        /* looks that showed a table */
    bool in_pieces;        /* it writes to other places of the table at each launch */
    struct entry *entries; /* PS_MADE_SPANS of them, in the order in which they were found; NULL: none yet */
};

struct look {
    bool taken;  /* a launch queues this look, or reads its result */
    bool queued; /* its copies are queued; `done` is the event behind them */
    CUevent done;
    CUcontext context; /* of `done`, which only streams of this context can record; NULL without it */
    CUstream stream;   /* where its copies are queued */
    struct kernel *kernel;
    struct ps_made_launch launch;
    uint64_t number; /* of the launch in launch_tables.h; 0: it is not there */
};

/*
 * The locks of pointer_tables.c and launch_tables.c are taken with it held. Driver calls are made
 * with it held to register the copies' memory, for looks' events, and to let a free come behind a
 * look.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kernel kernels[KERNELS];
static unsigned kernel_count;
static struct look looks[LOOKS];
atomic_uint ps_made_looks;
static unsigned char *copied; /* LOOKS * PS_MADE_MEMORY pieces, pinned */
static bool has_failed;       /* `copied` could not be made, so no look is taken */

/* ---- kernels ---- */

static uint64_t key_of(CUfunction function)
{
    return ((uint64_t)(uintptr_t)function ^ (uint64_t)ps_layouts_generation() << 52) | 1;
}

/*
 * Returns the kernel's place, or NULL if it has none. Needs no lock: a place that is given up
 * meanwhile has no key, or another one (state_of).
 */
static struct kernel *find(uint64_t key)
{
    for (uint64_t i = key * 0x9E3779B97F4A7C15u >> 40;; i++) {
        struct kernel *k = &kernels[i % KERNELS];
        const uint64_t there = atomic_load_explicit(&k->key, memory_order_acquire);
        if (there == key)
            return k;
        if (!there)
            return NULL;
    }
}

/*
 * Gives up all that is known of kernels. They are examined again. A module that is loaded again has
 * new kernels, so a long run may have any number of them. [lock]
 */
static void forget_kernels(void)
{
    for (size_t i = 0; i < KERNELS; i++) {
        atomic_store_explicit(&kernels[i].key, 0, memory_order_relaxed);
        atomic_store_explicit(&kernels[i].state, UNKNOWN, memory_order_relaxed);
        free(kernels[i].entries);
        memset(&kernels[i].in_vain, 0, sizeof kernels[i] - offsetof(struct kernel, in_vain));
    }
    kernel_count = 0;
}

/* [lock] */
static struct kernel *find_or_add(uint64_t key)
{
    struct kernel *k = find(key);

    if (k)
        return k;
    if (kernel_count == KERNELS / 2)
        forget_kernels();
    for (uint64_t i = key * 0x9E3779B97F4A7C15u >> 40; !k; i++)
        if (!atomic_load_explicit(&kernels[i % KERNELS].key, memory_order_relaxed))
            k = &kernels[i % KERNELS];
    kernel_count++;
    atomic_store_explicit(&k->key, key, memory_order_release);
    return k;
}

static enum state state_of(const struct kernel *k, uint64_t key)
{
    const enum state state = k ? (enum state)atomic_load_explicit(&k->state, memory_order_acquire) : UNKNOWN;

    return k && atomic_load_explicit(&k->key, memory_order_acquire) == key ? state : UNKNOWN;
}

/* ---- tables of a launch ---- */

static uint64_t launch_number(void)
{
    return atomic_load_explicit(&ps_registry.launch_number, memory_order_relaxed);
}

/*
 * Keeps the memory that holds the kernel's tables. A graph's launch adds to what was there, because
 * its place among the graph's copies is not known. So does a maker that fills its table in pieces,
 * or may do so. Returns whether it made tables. [lock]
 */
static bool choose_tables(const struct kernel *k, struct ps_made_launch *l)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < l->memories; i++) {
        struct ps_made_memory memory = l->memory[i];
        if (!(k->places & ps_given_bit(memory.place)))
            continue;
        memory.bytes = memory.bytes < k->bytes ? memory.bytes : k->bytes;
        l->memory[kept++] = memory;
    }
    l->memories = kept;
    l->is_known = true;
    l->adds = k->in_pieces || k->found < SURE;
    return kept;
}

/*
 * The launch of a maker made tables. `number`: the launch was undecided, and has that number there;
 * or 0. [lock]
 */
static void make_tables(const struct kernel *k, const struct ps_made_launch *launch, uint64_t number)
{
    struct ps_made_launch l = *launch;

    if (choose_tables(k, &l)) {
        if (!l.in_graph)
            ps_count_by(made_tables, l.memories);
        ps_launch_tables_add(&l, number);
    } else if (number) {
        ps_launch_tables_forget(number);
    }
    ps_pointer_tables_publish();
}

/*
 * Decides about the kernel. If it is a maker, its undecided launches made tables, except that of
 * the number. [lock]
 */
static void decide(struct kernel *k, enum state state, uint64_t except)
{
    const uint64_t key = atomic_load_explicit(&k->key, memory_order_relaxed);
    struct ps_made_launch launch;
    uint64_t number;

    atomic_store_explicit(&k->state, state, memory_order_release);
    while ((number = ps_launch_tables_undecided(key, except, &launch))) {
        if (state == MAKER)
            make_tables(k, &launch, number);
        else
            ps_launch_tables_forget(number);
    }
    ps_pointer_tables_publish();
}

/* ---- looking ---- */

/*
 * The memory is registered in the managed context, since it is no longer when that context ends.
 * Penstock stands aside then. The launch's context may be another one, which ends earlier. [lock]
 */
static bool have_memory(void)
{
    const size_t bytes = (size_t)LOOKS * PS_MADE_MEMORY * PS_GIVEN_LOOKED;

    if (copied || has_failed)
        return copied;
    struct ps_managed_context managed = ps_managed_context_enter();
    unsigned char *memory = ps_cu.cuMemHostRegister ? aligned_alloc(4096, bytes) : NULL;
    if (memory && ps_cu.cuMemHostRegister(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS)
        copied = memory;
    else
        free(memory);
    ps_managed_context_leave(managed);
    has_failed = !copied;
    return copied;
}

static unsigned char *piece_of(const struct look *look, unsigned memory)
{
    return copied + ((size_t)(look - looks) * PS_MADE_MEMORY + memory) * PS_GIVEN_LOOKED;
}

/* Takes a free look, or returns NULL. [lock] */
static struct look *take_look(void)
{
    for (unsigned i = 0; i < LOOKS; i++)
        if (!looks[i].taken && !looks[i].queued) {
            looks[i].taken = true;
            return &looks[i];
        }
    return NULL;
}

/*
 * Returns the place of the word by which the launch was given the span of that address; -1: it was
 * not, or that is the span around the memory. A span that several words give has any of their
 * places.
 */
static int place_given(const struct ps_made_launch *l, const struct ps_span *around, CUdeviceptr address, bool *several)
{
    const struct ps_span *span = ps_address_span(ps_address_meant(address));
    int place = -1;

    *several = false;
    for (unsigned i = 0; span && span != around && i < l->spans; i++)
        if (ps_address_span(l->span[i].address) == span) {
            *several = place >= 0;
            place = (int)l->span[i].place;
        }
    return place;
}

/* A maker in pieces has the address of one word elsewhere in each table. [lock] */
static void note_entry(struct kernel *k, unsigned place, size_t at)
{
    if (!k->entries && !(k->entries = calloc(PS_MADE_SPANS, sizeof *k->entries))) {
        k->in_pieces = true; /* it may be */
        return;
    }
    struct entry *entry = k->entries;
    while (entry < k->entries + PS_MADE_SPANS && entry->place && entry->place != place + 1)
        entry++;
    if (entry == k->entries + PS_MADE_SPANS)
        return;
    k->in_pieces |= entry->place && entry->at != at;
    *entry = (struct entry){place + 1, at};
}

/*
 * Returns the size of the table in a copied piece, or 0. Notes the first address of each word that
 * is not among the noted ones. [lock]
 */
static size_t find_table(struct kernel *k, const struct ps_made_launch *l, const struct ps_made_memory *memory,
                         const unsigned char *piece, uint64_t *noted)
{
    const struct ps_span *around = memory->in_span ? ps_address_span(memory->address) : NULL;
    size_t end = 0;

    for (size_t at = 0; at + 8 <= memory->bytes; at += 8) {
        CUdeviceptr word;
        bool several;
        memcpy(&word, piece + at, sizeof word);
        const int place = place_given(l, around, word, &several);
        if (place < 0)
            continue;
        end = at + 8;
        if (!several && !(*noted & ps_given_bit((unsigned)place)))
            note_entry(k, (unsigned)place, at);
        *noted |= ps_given_bit((unsigned)place);
    }
    return end;
}

/* Returns the size of the longest table in a look, or 0. Adds the tables' places. [lock] */
static size_t find_tables(const struct look *look, uint64_t *places)
{
    const struct ps_made_launch *l = &look->launch;
    uint64_t noted = 0;
    size_t longest = 0;

    for (unsigned i = 0; i < l->memories; i++) {
        const size_t end = find_table(look->kernel, l, &l->memory[i], piece_of(look, i), &noted);
        if (!end)
            continue;
        *places |= ps_given_bit(l->memory[i].place);
        longest = end == PS_GIVEN_LOOKED ? SIZE_MAX : end > longest ? end : longest;
    }
    return longest;
}

/* A maker that makes no table at some launches is not looked at for ever. [lock] */
static bool has_enough_looks(const struct kernel *k)
{
    return k->found >= LOOKS_MAX || (k->found && k->found + k->in_vain >= 2 * LOOKS_MAX);
}

/* [lock] */
static void looked_in_vain(struct kernel *k)
{
    if (++k->in_vain >= LOOKS_MAX && !k->found)
        decide(k, MAKES_NONE, 0);
}

/* Returns whether the kernel was not given up since the look began. [lock] */
static bool is_still_of(const struct look *look)
{
    return atomic_load_explicit(&look->kernel->key, memory_order_relaxed) == look->launch.key;
}

/* Reads a look whose copies are over. [lock] */
static void read_look(struct look *look)
{
    struct kernel *k = look->kernel;
    uint64_t places = 0;

    look->queued = look->taken = false;
    atomic_fetch_sub_explicit(&ps_made_looks, 1, memory_order_relaxed);
    if (!is_still_of(look))
        return;
    const size_t bytes = find_tables(look, &places);
    if (bytes) {
        k->found++;
        k->places |= places;
        k->bytes = bytes > k->bytes ? bytes : k->bytes;
        if (!ps_launch_tables_is_there(look->number)) /* other memory than spans is overwritten meanwhile */
            ps_given_keep_memory(&look->launch, true);
        decide(k, MAKER, look->number);
        if (!look->launch.is_known)
            make_tables(k, &look->launch, look->number);
    } else {
        ps_launch_tables_forget(look->number); /* this launch made no table */
        looked_in_vain(k);
        ps_pointer_tables_publish();
    }
}

void ps_made_tables_read_looks(void)
{
    for (unsigned i = 0; i < LOOKS; i++) {
        struct look *look = &looks[i];
        pthread_mutex_lock(&lock);
        const bool is = look->queued && !look->taken;
        look->taken |= is;
        pthread_mutex_unlock(&lock);
        if (!is)
            continue;
        const CUresult result = ps_cu.cuEventQuery(look->done);
        pthread_mutex_lock(&lock);
        look->taken = false;
        if (result == CUDA_SUCCESS) {
            read_look(look);
        } else if (result != CUDA_ERROR_NOT_READY) {
            look->queued = false; /* the device is broken */
            atomic_fetch_sub_explicit(&ps_made_looks, 1, memory_order_relaxed);
        }
        pthread_mutex_unlock(&lock);
    }
}

/* The context is a green one's primary, too: the green one ends with it. */
static bool ends_with(const struct look *look, CUcontext context)
{
    return look->context == context || (look->context && ps_green_contexts_primary(look->context) == context);
}

/*
 * Forgets the event of a look, and the look if it is under way. Returns false while another thread
 * asks for the event. A launch under way in a context that ends is the program's own fault. [lock]
 */
static bool forget_event(struct look *look)
{
    if (look->taken)
        return !look->queued;
    atomic_fetch_sub_explicit(&ps_made_looks, look->queued, memory_order_relaxed);
    look->queued = false;
    look->done = NULL;
    look->context = NULL;
    return true;
}

void ps_made_tables_context_ends(CUcontext context)
{
    for (unsigned i = 0; context && i < LOOKS; i++) {
        pthread_mutex_lock(&lock);
        while (looks[i].context && ends_with(&looks[i], context) && !forget_event(&looks[i])) {
            pthread_mutex_unlock(&lock);
            sched_yield();
            pthread_mutex_lock(&lock);
        }
        pthread_mutex_unlock(&lock);
    }
}

/*
 * Makes the look an event of the current context, which is the launch's. NULL: an error. The event
 * that it had goes here, while its context can't end. [lock]
 */
static void make_event(struct look *look)
{
    CUcontext now = NULL;

    if (ps_cu.cuCtxGetCurrent(&now) == CUDA_SUCCESS && look->done && look->context != now) {
        ps_cu.cuEventDestroy(look->done);
        look->done = NULL;
    }
    look->context = now;
    if (!look->done && ps_cu.cuEventCreate(&look->done, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        look->done = NULL;
}

/* Queues the copies of a look and its event. Returns false on an error. */
static bool queue_look(struct look *look, CUstream stream)
{
    const struct ps_made_launch *l = &look->launch;
    CUresult r = look->done ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

    for (unsigned i = 0; r == CUDA_SUCCESS && i < l->memories; i++) {
        r = ps_cu.cuMemcpyAsync((CUdeviceptr)(uintptr_t)piece_of(look, i), l->memory[i].address, l->memory[i].bytes,
                                stream);
        if (r == CUDA_SUCCESS)
            ps_count_by(looked_through_bytes, l->memory[i].bytes);
    }
    if (r == CUDA_SUCCESS)
        r = ps_cu.cuEventRecord(look->done, stream);
    return r == CUDA_SUCCESS;
}

/* ---- memory that is freed while it is looked at ---- */

/* Returns whether a launch is about to queue the look's copies, or has queued some. [lock] */
static bool begins(const struct look *look)
{
    return look->taken && !look->queued;
}

/* Returns whether the look reads the memory, elsewhere than on that stream. [lock] */
static bool reads(const struct look *look, CUdeviceptr start, size_t bytes, CUstream stream)
{
    bool is = false;

    if ((!look->queued && !begins(look)) || (look->stream == stream && stream && stream != CU_STREAM_PER_THREAD))
        return false;
    for (unsigned i = 0; i < look->launch.memories; i++)
        is |= look->launch.memory[i].address - start < bytes;
    return is;
}

bool ps_made_tables_are_read(CUdeviceptr address, CUstream stream)
{
    CUdeviceptr start = 0;
    size_t bytes = 0;
    bool are = false;

    if (ps_cu.cuMemGetAddressRange(&start, &bytes, address) != CUDA_SUCCESS || start != address)
        return false;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < LOOKS; i++)
        are |= reads(&looks[i], start, bytes, stream);
    pthread_mutex_unlock(&lock);
    return are;
}

/* Waits until the look's event is recorded. Returns false if that takes long. [locked] */
static bool has_begun(const struct look *look)
{
    const uint64_t since = ps_now_ns();

    while (begins(look) && ps_now_ns() - since < BEGINS_NS) {
        pthread_mutex_unlock(&lock);
        sched_yield();
        pthread_mutex_lock(&lock);
    }
    return !begins(look);
}

/* Makes the stream wait for the looks under way. Returns false on an error. */
static bool comes_after_looks(CUstream stream)
{
    CUresult result = CUDA_SUCCESS;

    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < LOOKS && result == CUDA_SUCCESS; i++) {
        if (!has_begun(&looks[i]))
            result = CUDA_ERROR_NOT_READY;
        else if (looks[i].queued)
            result = ps_cu.cuStreamWaitEvent(stream, looks[i].done, 0);
    }
    pthread_mutex_unlock(&lock);
    return result == CUDA_SUCCESS;
}

bool ps_made_tables_free(CUdeviceptr address, struct ps_stream *stream)
{
    struct ps_managed_context managed = ps_managed_context_enter();
    struct ps_uses before = {.count = 0};
    CUstream own = NULL;
    bool is_freed = false;

    if (stream) {
        ps_stream_settle(stream);
        ps_uses_note(&before, stream);
    }
    if (ps_cu.cuMemFreeAsync && ps_cu.cuStreamCreateWithPriority(&own, CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS) {
        is_freed = !ps_uses_stream_wait(&before, own) && comes_after_looks(own) &&
                   ps_cu.cuMemFreeAsync(address, own) == CUDA_SUCCESS;
        ps_cu.cuStreamDestroy(own);
    }
    ps_managed_context_leave(managed);
    return is_freed;
}

/* ---- launches ---- */

/*
 * Gathers what the launch is given. Returns whether that is spans and other memory, while the
 * kernel may be a maker. `state`: the kernel's.
 */
static bool gather(struct ps_made_call *call, CUfunction function, const struct ps_layout *layout, void **parameters,
                   void **extra, enum state *state)
{
    struct ps_made_launch *l = &call->launch;

    l->key = key_of(function);
    *state = state_of(find(l->key), l->key);
    if (*state == MAKES_NONE || !ps_ordering_rule(MADE_TABLE_NAMES_SPANS))
        return false;
    l->number = launch_number();
    l->in_graph = l->is_known = l->adds = false;
    l->added_in = 0;
    return ps_given_gather(call, layout, parameters, extra);
}

/* Returns the words that lead to the kernel's tables, of which it has some if it is a maker. */
static uint64_t places_of(uint64_t key)
{
    pthread_mutex_lock(&lock);
    const struct kernel *k = find(key);
    const uint64_t places = k ? k->places : 0;
    pthread_mutex_unlock(&lock);
    return places;
}

/*
 * The launch of a maker makes tables. Returns false if the kernel was given up meanwhile.
 * `is_over`: it needs no further look.
 */
static bool made(struct ps_made_call *call, bool *is_over)
{
    const uint64_t places = places_of(call->launch.key);

    if (!places)
        return false;
    ps_given_choose_memory(call, places, false);
    pthread_mutex_lock(&lock);
    const struct kernel *k = find(call->launch.key);
    const bool is_maker = state_of(k, call->launch.key) == MAKER; /* it may have been given up, and be new */
    if (is_maker)
        make_tables(k, &call->launch, 0);
    *is_over = is_maker && has_enough_looks(k);
    pthread_mutex_unlock(&lock);
    return is_maker;
}

void ps_made_tables_begin(struct ps_made_call *call, CUfunction function, const struct ps_layout *layout,
                          void **parameters, void **extra)
{
    enum state state;
    bool is_over = !gather(call, function, layout, parameters, extra, &state);

    call->is_made = !is_over && state == MAKER && made(call, &is_over);
    call->looks = !is_over;
}

bool ps_made_tables_in_graph(struct ps_made_launch *launch, CUfunction function, const struct ps_layout *layout,
                             void **parameters, void **extra)
{
    struct ps_made_call call;
    enum state state;

    if (!gather(&call, function, layout, parameters, extra, &state))
        return false;
    ps_given_choose_memory(&call, state == MAKER ? places_of(call.launch.key) : 0, state != MAKER);
    call.launch.in_graph = true;
    *launch = call.launch;
    return launch->memories;
}

void ps_made_tables_run(struct ps_made_launch *launch)
{
    const uint64_t gone = ps_launch_tables_gone(launch);

    if (launch->added_in == gone + 1) /* what it adds is there */
        return;
    launch->added_in = gone + 1;
    struct ps_made_launch now = *launch;
    now.number = launch_number();
    for (unsigned i = 0; i < now.spans; i++)
        now.span[i].launch = now.number;
    pthread_mutex_lock(&lock);
    const struct kernel *k = find(now.key);
    const enum state state = state_of(k, now.key);
    if (state == MAKER)
        make_tables(k, &now, 0);
    if (state == UNKNOWN) {
        ps_launch_tables_add(&now, 0);
        ps_pointer_tables_publish();
    }
    pthread_mutex_unlock(&lock);
}

/*
 * Lets the launch count as one that made tables, unless its tables are known. Returns a look to be
 * queued, or NULL. [lock]
 */
static struct look *begin_look(struct kernel *k, const struct ps_made_call *call, CUstream stream)
{
    struct look *look = have_memory() ? take_look() : NULL;
    struct ps_made_launch undecided = call->launch;
    uint64_t number = 0;

    ps_given_keep_memory(&undecided, false); /* kernels write most memory in spans: it is only looked at */
    if (!call->is_made && undecided.memories) {
        number = ps_launch_tables_add(&undecided, 0);
        ps_pointer_tables_publish();
    }
    if (look) {
        make_event(look);
        look->kernel = k;
        look->launch = call->launch;
        look->launch.is_known = call->is_made;
        look->number = number;
        look->stream = stream;
        /* From here on a free of the memory comes behind the look. */
        atomic_fetch_add_explicit(&ps_made_looks, 1, memory_order_relaxed);
    }
    return look;
}

void ps_made_tables_end(struct ps_made_call *call, CUstream stream, bool per_thread)
{
    const CUstream queue = !stream && per_thread ? CU_STREAM_PER_THREAD : stream;
    struct look *look = NULL;

    call->looks = false; /* the thread's end has nothing to do with it, when the stream may be gone */
    ps_given_choose_memory(call, 0, false);
    call->launch.number = launch_number();
    pthread_mutex_lock(&lock);
    struct kernel *k = find_or_add(call->launch.key);
    const enum state state = state_of(k, call->launch.key);
    if (state == UNKNOWN && !call->launch.memories && ++k->asked >= ASKED_MAX && !k->in_vain)
        decide(k, MAKES_NONE, 0);
    if (state == MAKER && !call->is_made) {
        make_tables(k, &call->launch, 0);
        call->is_made = true;
    }
    if (state != MAKES_NONE && call->launch.memories && !has_enough_looks(k))
        look = begin_look(k, call, queue);
    pthread_mutex_unlock(&lock);
    if (!look)
        return;
    const bool queued = queue_look(look, queue);
    pthread_mutex_lock(&lock);
    look->queued = queued;
    look->taken = false;
    if (!queued && is_still_of(look)) /* a kernel whose looks the driver refuses must be decided, too */
        looked_in_vain(look->kernel);
    atomic_fetch_sub_explicit(&ps_made_looks, !queued, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
}
