/*
 * Tables of addresses that launches of kernels have made, or may have made (made_tables.h). Each
 * launch has its memory on the device, and the spans that it was given. A launch that is given that
 * memory uses these spans. Functions of pointer_tables.h name them with the tables that copies
 * bring.
 *
 * A launch is *known* to have made tables, or *undecided*. Nothing that is known of copied tables
 * is forgotten for it. Of a kernel's known launches with the same memory, the latest replaces those
 * before. But a word of the parameters may be NULL in one launch and lead to a tensor in the next.
 * So spans that other words gave within PS_LAUNCH_TABLE_TOGETHER launches are kept.
 *
 * If a copy or a fill writes over the whole of a table, or its memory is freed, it is forgotten.
 * After a write to a part of it, it still counts. It then names too much, which costs a reload and
 * no byte. Of more than PS_LAUNCH_TABLES_MAX launches the oldest is forgotten.
 *
 * Any thread, with the registry lock or without; a leaf lock, under which no driver call is made.
 */
#ifndef PS_LAUNCH_TABLES_H
#define PS_LAUNCH_TABLES_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PS_LAUNCH_TABLES_MAX 2048u
#define PS_LAUNCH_TABLE_TOGETHER 4u /* launches with spans */
#define PS_MADE_MEMORY 12u          /* memories of a launch; further ones are ignored */
#define PS_MADE_SPANS 24u           /* a launch's parameters to spans; its table names no further ones */

/* A launch that may make tables. Places are those of words among all words of the parameters. */
struct ps_made_launch {
    uint64_t key;      /* of the kernel; not 0 */
    uint64_t number;   /* of the launch, among those that were given spans */
    bool is_known;     /* its memory holds tables */
    bool in_graph;     /* it runs with its graph, maybe often, and adds to what is known */
    bool adds;         /* as a kernel's does that writes a table in pieces */
    uint64_t added_in; /* a graph's: ps_launch_tables_gone, plus 1, when it was added; 0: never */
    unsigned memories, spans;
    struct ps_made_memory {
        CUdeviceptr address;
        CUdeviceptr from; /* it is given by addresses from here on, since it may lie in a structure */
        size_t bytes;
        unsigned place;
        bool in_span;
    } memory[PS_MADE_MEMORY];
    struct ps_made_span {
        CUdeviceptr address;
        uint64_t launch; /* the number of the launch that was given it */
        unsigned place;
    } span[PS_MADE_SPANS];
};

/*
 * Adds the launch, unless it adds and is there. Returns its number here, which is not 0.
 * `undecided`: the number of the same launch, which made tables and is known now; it goes. Other
 * threads' launches find the one or the other. 0: the launch was not undecided.
 */
uint64_t ps_launch_tables_add(const struct ps_made_launch *launch, uint64_t undecided);

/* Forgets the launch of that number, if it is there. */
void ps_launch_tables_forget(uint64_t number);

/* Returns whether the launch of that number is there: some of its memory was not overwritten. */
bool ps_launch_tables_is_there(uint64_t number);

/*
 * Copies the oldest undecided launch of the kernel, other than that of number `except`. Returns its
 * number here, or 0 without one.
 */
uint64_t ps_launch_tables_undecided(uint64_t key, uint64_t except, struct ps_made_launch *launch);

/* The memory is overwritten or freed. */
void ps_launch_tables_overwritten(CUdeviceptr to, size_t bytes);

/*
 * `bytes` are copied on the device: what counts at the source counts at the target, too, from the
 * address `given` on. `keeps`: the copy may not run, so that what is known of the target stays.
 */
void ps_launch_tables_moved(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUdeviceptr given, bool keeps);

/*
 * Calls `name` for the addresses in spans of launches whose memory is given by that address, or
 * lies within `bytes` from there: of the known ones, or of the undecided ones. Holds nothing but a
 * leaf around `name`.
 */
void ps_launch_tables_name(bool known, CUdeviceptr address, void (*name)(void *ctx, CUdeviceptr named), void *ctx);
void ps_launch_tables_name_between(CUdeviceptr address, size_t bytes, void (*name)(void *ctx, CUdeviceptr named),
                                   void *ctx);

/* The same for all launches whose memory lies in a variable of a module. */
void ps_launch_tables_name_of_variables(void (*name)(void *ctx, CUdeviceptr named), void *ctx);

/* Returns whether such memory reaches into `bytes` from the address. */
bool ps_launch_tables_near(CUdeviceptr address, size_t bytes);

/*
 * All such memory, and the addresses by which it is given, lie in [*start, *end), which may be
 * larger. Returns false without such memory.
 */
bool ps_launch_tables_extent(CUdeviceptr *start, CUdeviceptr *end);

/* The numbers of launches, and of those with memory in variables, read without the lock. */
extern atomic_size_t ps_launch_tables, ps_launch_tables_in_variables;

/*
 * Counts memories that were forgotten, at the addresses of the launch's memory or near them. While
 * it stays the same, what such a launch has added is there.
 */
uint64_t ps_launch_tables_gone(const struct ps_made_launch *launch);

static inline bool ps_launch_tables_exist(void)
{
    return atomic_load_explicit(&ps_launch_tables, memory_order_relaxed) != 0;
}

#endif
