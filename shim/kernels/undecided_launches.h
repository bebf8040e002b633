/*
 * Launches that may have written tables of addresses, while it is not known whether their kernel
 * does (made_tables.h). Until that is decided, the memory of such a launch counts as a table of all
 * spans that the launch was given. Functions of pointer_tables.h name them with the tables.
 *
 * If a copy or a fill writes over the whole of that memory, or it is freed, the launch is
 * forgotten. After a write to a part of it, it still counts. It then names too much, which costs a
 * reload and no byte. Of more than PS_UNDECIDED_MAX launches the oldest is forgotten.
 *
 * Any thread, with the registry lock or without; a leaf lock, under which no driver call is made.
 */
#ifndef PS_UNDECIDED_LAUNCHES_H
#define PS_UNDECIDED_LAUNCHES_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/span.h"

#define PS_UNDECIDED_MAX 1024u
#define PS_MADE_MEMORY 6u /* a launch's parameters to other memory; further ones are ignored */
#define PS_MADE_SPANS 12u /* a launch's parameters to spans; its table names no further ones */

/* A launch that may make tables. Places are those of words among all words of the parameters. */
struct ps_made_launch {
    CUfunction function;
    uint64_t key;    /* of the kernel; 0: the launch's end has nothing to do */
    uint64_t number; /* of the launch, among those that were given spans */
    bool in_graph;   /* it runs with its graph, maybe often */
    bool is_known;   /* its tables are known */
    unsigned memories, spans;
    struct ps_made_memory {
        CUdeviceptr address;
        CUdeviceptr from; /* it is given by addresses from here on, since it may lie in a structure */
        size_t bytes;     /* those that are looked at; 0: not known yet */
        unsigned place;
    } memory[PS_MADE_MEMORY];
    struct {
        CUdeviceptr address;
        unsigned place;
    } span[PS_MADE_SPANS];
};

/*
 * Adds the launch, whose memories have `from` and `bytes`. A graph's launch that is there stays as
 * it is. Returns its number, which is not 0.
 */
uint64_t ps_undecided_add(const struct ps_made_launch *launch);

/* Forgets the launch of that number, if it is still there. */
void ps_undecided_forget(uint64_t number);

/* Takes out the oldest launch of the kernel. Returns false if it has no launch here. */
bool ps_undecided_take(uint64_t key, struct ps_made_launch *launch);

/* The memory is overwritten or freed. */
void ps_undecided_overwritten(CUdeviceptr to, size_t bytes);

/*
 * `bytes` are copied on the device: what counts at the source counts at the target, too. `keeps`:
 * the copy may not run, so that what is known of the target stays known.
 */
void ps_undecided_moved(CUdeviceptr to, CUdeviceptr from, size_t bytes, bool keeps);

/*
 * Calls `name` for the spans' addresses of launches whose memory is given by that address, or
 * reaches into `bytes` from there. Locks nothing but a leaf around `name`.
 */
void ps_undecided_name(CUdeviceptr address, void (*name)(void *ctx, CUdeviceptr named), void *ctx);
void ps_undecided_name_between(CUdeviceptr address, size_t bytes, void (*name)(void *ctx, CUdeviceptr named),
                               void *ctx);

/* The same for launches whose memory lies in a variable of a module. */
void ps_undecided_name_of_variables(void (*name)(void *ctx, CUdeviceptr named), void *ctx);

/* Returns whether such memory reaches into `bytes` from the address. */
bool ps_undecided_near(CUdeviceptr address, size_t bytes);

/* Returns whether such a launch was given the span. */
bool ps_undecided_has(const struct ps_span *span);

/*
 * All such memory, and the addresses by which it is given, lie in [*start, *end). Returns false
 * without such memory.
 */
bool ps_undecided_extent(CUdeviceptr *start, CUdeviceptr *end);

/* The numbers of launches, and of those with memory in variables, read without the lock. */
extern atomic_size_t ps_undecided_launches, ps_undecided_in_variables;
static inline bool ps_undecided_exist(void)
{
    return atomic_load_explicit(&ps_undecided_launches, memory_order_relaxed) != 0;
}

#endif
