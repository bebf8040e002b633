#include "ledger.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../registry.h"
#include "config.h"
#include "entries.h"
#include "kernels.h"
#include "trace.h"

/* A counted name; `name` is a constant of the process. */
struct name_count {
    const char *name;
    unsigned long count;
};

struct name_table {
    struct name_count *entries;
    size_t count, room;
};

#define MAX_FAULT_SITES 16

struct fault_site {
    char name[64];
    uintptr_t address;
};

#define MAX_STRUCK 64

/* Calls that a fault struck, by the code that made them. */
struct struck {
    const char *call;
    char object[64];
    uintptr_t offset;
    unsigned long times;
};

static _Atomic unsigned long calls[CUDASIM_CALL_COUNT];
static atomic_bool disowned;

/* Guards everything below. It is taken after the device lock where both are held. */
static pthread_mutex_t ledger_lock = PTHREAD_MUTEX_INITIALIZER;
static struct name_table runtime_calls, unsupported_calls;
static long objects[CUDASIM_OBJECT_COUNT];
static unsigned long objects_made[CUDASIM_OBJECT_COUNT];
static int64_t held[CUDASIM_ACCOUNT_COUNT], held_peak[CUDASIM_ACCOUNT_COUNT];
static uint64_t bytes_moved[CUDASIM_DIRECTION_COUNT], bytes_moved_async[CUDASIM_DIRECTION_COUNT];
static unsigned long kernels_run, unmapped_accesses, deadlocks, faults_injected, slices;
static uint64_t poison_copied, longest_chain;
static struct fault_site fault_sites[MAX_FAULT_SITES];
static struct struck struck[MAX_STRUCK];
static CUresult sticky_error;

static void lock(void)
{
    pthread_mutex_lock(&ledger_lock);
}

static void unlock(void)
{
    pthread_mutex_unlock(&ledger_lock);
}

static void count_name(struct name_table *table, const char *name)
{
    for (size_t i = 0; i < table->count; i++)
        if (!strcmp(table->entries[i].name, name)) {
            table->entries[i].count++;
            return;
        }
    if (table->count == table->room) {
        size_t room = table->room ? 2 * table->room : 64;
        struct name_count *grown = realloc(table->entries, room * sizeof *grown);
        if (!grown)
            return;
        table->entries = grown;
        table->room = room;
    }
    table->entries[table->count++] = (struct name_count){name, 1};
}

void cudasim_ledger_call(unsigned int entry)
{
    atomic_fetch_add_explicit(&calls[entry], 1, memory_order_relaxed);
}

void cudasim_ledger_unsupported(const char *name)
{
    lock();
    count_name(&unsupported_calls, name);
    unlock();
}

__attribute__((visibility("default"))) void cudasim_count_runtime_call(const char *name, int supported)
{
    lock();
    count_name(supported ? &runtime_calls : &unsupported_calls, name);
    unlock();
}

void cudasim_ledger_object(enum cudasim_object object, int delta)
{
    lock();
    objects[object] += delta;
    if (delta > 0)
        objects_made[object] += (unsigned long)delta;
    unlock();
}

void cudasim_ledger_account(enum cudasim_account account, int64_t delta)
{
    lock();
    held[account] += delta;
    if (held[account] > held_peak[account])
        held_peak[account] = held[account];
    unlock();
}

void cudasim_ledger_bytes(enum cudasim_direction direction, bool asynchronous, uint64_t bytes)
{
    lock();
    bytes_moved[direction] += bytes;
    if (asynchronous)
        bytes_moved_async[direction] += bytes;
    unlock();
}

void cudasim_ledger_kernel_ran(struct cudasim_kernel_entry *entry)
{
    lock();
    kernels_run++;
    (entry->registered ? entry->registered : entry)->runs++;
    unlock();
}

void cudasim_ledger_chain(uint64_t kernels)
{
    lock();
    if (kernels > longest_chain)
        longest_chain = kernels;
    unlock();
}

void cudasim_ledger_unmapped_access(const char *name, uintptr_t address)
{
    lock();
    if (unmapped_accesses < MAX_FAULT_SITES) {
        struct fault_site *site = &fault_sites[unmapped_accesses];
        snprintf(site->name, sizeof site->name, "%s", name ? name : "");
        site->address = address;
    }
    unmapped_accesses++;
    unlock();
}

void cudasim_ledger_poison_copied(uint64_t pages)
{
    if (!pages)
        return;
    lock();
    poison_copied += pages;
    unlock();
}

void cudasim_ledger_sticky(CUresult error)
{
    lock();
    sticky_error = error;
    unlock();
}

void cudasim_ledger_deadlock(void)
{
    lock();
    deadlocks++;
    unlock();
}

void cudasim_ledger_slice(void)
{
    lock();
    slices++;
    unlock();
}

void cudasim_ledger_fault_injected(const char *call, const char *object, uintptr_t offset)
{
    size_t i = 0;
    lock();
    faults_injected++;
    while (i < MAX_STRUCK && struck[i].times &&
           (struck[i].call != call || strcmp(struck[i].object, object) || struck[i].offset != offset))
        i++;
    if (i < MAX_STRUCK && !struck[i].times++) {
        struck[i].call = call;
        struck[i].offset = offset;
        snprintf(struck[i].object, sizeof struck[i].object, "%s", object);
    }
    unlock();
}

void cudasim_ledger_before_fork(void)
{
    lock();
}

void cudasim_ledger_after_fork(bool in_child)
{
    if (!in_child) {
        unlock();
        return;
    }
    atomic_store(&disowned, true);
    pthread_mutex_init(&ledger_lock, NULL);
}

/* ---- writing ---- */

static void write_counts(FILE *file, const char *title, const struct name_table *table)
{
    fprintf(file, "  \"%s\": {", title);
    for (size_t i = 0; i < table->count; i++)
        fprintf(file, "%s\n    \"%s\": %lu", i ? "," : "", table->entries[i].name, table->entries[i].count);
    fprintf(file, "%s},\n", table->count ? "\n  " : "");
}

static void write_calls(FILE *file)
{
    bool first = true;
    fputs("  \"calls\": {", file);
    for (unsigned int entry = 0; entry < CUDASIM_CALL_COUNT; entry++) {
        unsigned long count = atomic_load_explicit(&calls[entry], memory_order_relaxed);
        if (!count)
            continue;
        fprintf(file, "%s\n    \"%s\": %lu", first ? "" : ",", cudasim_entry_name(entry), count);
        first = false;
    }
    fputs("\n  },\n", file);
}

static void write_accounts(FILE *file, const char *title, const int64_t *values)
{
    fprintf(
        file,
        "  \"%s\": {\"vmm\": %lld, \"plain\": %lld, \"pool\": %lld, \"device\": %lld, \"host_handles\": %lld, \"pinned\": %lld, \"managed\": %lld},\n",
        title, (long long)values[CUDASIM_ACCOUNT_VMM], (long long)values[CUDASIM_ACCOUNT_PLAIN],
        (long long)values[CUDASIM_ACCOUNT_POOL], (long long)values[CUDASIM_ACCOUNT_DEVICE],
        (long long)values[CUDASIM_ACCOUNT_HOST_HANDLE], (long long)values[CUDASIM_ACCOUNT_PINNED],
        (long long)values[CUDASIM_ACCOUNT_MANAGED]);
}

static void write_bytes(FILE *file, const char *title, const uint64_t *values)
{
    fprintf(file, "  \"%s\": {\"h2d\": %llu, \"d2h\": %llu, \"d2d\": %llu, \"h2h\": %llu},\n", title,
            (unsigned long long)values[CUDASIM_DIRECTION_H2D], (unsigned long long)values[CUDASIM_DIRECTION_D2H],
            (unsigned long long)values[CUDASIM_DIRECTION_D2D], (unsigned long long)values[CUDASIM_DIRECTION_H2H]);
}

static void write_objects(FILE *file, const char *title, const long *left, const unsigned long *made)
{
    static const char *const names[] = {"handles", "mappings", "reservations", "events",     "streams",
                                        "plain",   "pooled",   "pinned",       "registered", "managed"};
    fprintf(file, "  \"%s\": {", title);
    for (size_t i = 0; i < CUDASIM_OBJECT_COUNT; i++)
        fprintf(file, "%s\"%s\": %ld", i ? ", " : "", names[i], left ? left[i] : (long)made[i]);
    fputs("},\n", file);
}

static void write_kernels(FILE *file)
{
    bool first = true;
    fprintf(file, "  \"kernels_run\": %lu,\n  \"longest_chain\": %llu,\n  \"kernels\": {", kernels_run,
            (unsigned long long)longest_chain);
    for (const struct cudasim_kernel_entry *entry = cudasim_kernels(); entry; entry = entry->next) {
        if (!entry->runs)
            continue;
        fprintf(file, "%s\n    \"%s\": %llu", first ? "" : ",", entry->name, (unsigned long long)entry->runs);
        first = false;
    }
    fprintf(file, "%s},\n", first ? "" : "\n  ");
}

static void write_unmapped(FILE *file)
{
    fprintf(file, "  \"unmapped_accesses\": %lu,\n  \"unmapped_sites\": [", unmapped_accesses);
    for (unsigned long i = 0; i < unmapped_accesses && i < MAX_FAULT_SITES; i++)
        fprintf(file, "%s{\"in\": \"%s\", \"address\": \"%#lx\"}", i ? ", " : "", fault_sites[i].name,
                (unsigned long)fault_sites[i].address);
    fputs("],\n", file);
}

static void write_struck(FILE *file)
{
    fprintf(file, "  \"faults_injected\": %lu,\n  \"struck\": [", faults_injected);
    for (size_t i = 0; i < MAX_STRUCK && struck[i].times; i++)
        fprintf(file, "%s\n    {\"call\": \"%s\", \"object\": \"%s\", \"offset\": %lu, \"times\": %lu}", i ? "," : "",
                struck[i].call, struck[i].object, (unsigned long)struck[i].offset, struck[i].times);
    fputs("],\n", file);
}

static unsigned long total(const struct name_table *table)
{
    unsigned long sum = 0;
    for (size_t i = 0; i < table->count; i++)
        sum += table->entries[i].count;
    return sum;
}

static void write_json(FILE *file)
{
    const struct cudasim_config *config = cudasim_config();
    const char *error = "CUDA_SUCCESS";
    cudasim_cuGetErrorName(sticky_error, &error);
    fprintf(file, "{\n  \"scheduler\": \"%s\",\n  \"seed\": %llu,\n  \"device_bytes\": %zu,\n",
            config->scheduler == CUDASIM_SCHEDULER_SEEDED ? "seeded" : "threads", (unsigned long long)config->seed,
            config->device_bytes);
    write_calls(file);
    write_counts(file, "runtime_calls", &runtime_calls);
    write_counts(file, "not_supported", &unsupported_calls);
    fprintf(file, "  \"not_supported_calls\": %lu,\n", total(&unsupported_calls));
    write_bytes(file, "bytes", bytes_moved);
    write_bytes(file, "bytes_async", bytes_moved_async);
    write_kernels(file);
    write_accounts(file, "held", held);
    write_accounts(file, "peak", held_peak);
    write_objects(file, "made", NULL, objects_made);
    write_objects(file, "leaks", objects, NULL);
    write_unmapped(file);
    write_struck(file);
    fprintf(file,
            "  \"poison_copied\": %llu,\n  \"deadlocks\": %lu,\n  \"slices\": %lu,\n  \"sticky_error\": \"%s\"\n}\n",
            (unsigned long long)poison_copied, deadlocks, slices, error);
}

static bool any_call(void)
{
    for (unsigned int entry = 0; entry < CUDASIM_CALL_COUNT; entry++)
        if (atomic_load_explicit(&calls[entry], memory_order_relaxed))
            return true;
    return false;
}

/*
 * A program may end inside a signal handler that interrupted a call. Its lock is then never given
 * back, so the ledger is written without the lock after a second.
 */
static bool lock_for_a_second(pthread_mutex_t *mutex)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    return pthread_mutex_timedlock(mutex, &until) == 0;
}

/*
 * A process that never called the driver writes nothing. It may be a child that only inherited the
 * environment.
 */
__attribute__((destructor)) static void write_at_exit(void)
{
    if (atomic_load(&disowned))
        return;
    cudasim_trace_flush();
    const char *path = cudasim_config()->ledger;
    if (!path || !any_call())
        return;
    char temporary[4096];
    if (snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid()) >= (int)sizeof temporary)
        return;
    FILE *file = fopen(temporary, "we");
    if (!file) {
        fprintf(stderr, "cudasim: CUDASIM_LEDGER=%s can't be written\n", path);
        return;
    }
    bool device_locked = lock_for_a_second(&cudasim_device_lock); /* the kernel list; workers may still run */
    bool ledger_locked = lock_for_a_second(&ledger_lock);
    write_json(file);
    if (ledger_locked)
        unlock();
    if (device_locked)
        cudasim_unlock();
    if (fclose(file) || rename(temporary, path))
        fprintf(stderr, "cudasim: CUDASIM_LEDGER=%s can't be written\n", path);
}
