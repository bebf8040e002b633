/*
 * Pointer tables: device memory of the program that holds addresses of spans, copied from the host.
 * Batched and grouped matrix products are used through such tables. So are programs' own structures
 * of pointers and tensor maps in global memory, whose first word is the address. A kernel that is
 * given a table's address uses the spans that the table names.
 *
 * A copy from the host is read when it begins. Every aligned 8-byte word that is an address in a
 * span is kept, with its place on the device. After a copy on the device, the words are kept for
 * both places. Words are forgotten when a later copy or fill writes over them, or their memory is
 * freed. The words around are still used through the table's address. After a free in stream order,
 * words are forgotten at the next allocation there. Writes by kernels are not seen. A table that a
 * kernel overwrote names too much, which costs a reload and no byte. Tables that kernels make are
 * known through made_tables.h alone.
 *
 * A table may lie in a variable of a module (module_variables.h). Which kernels read a variable is
 * unknown: no call tells the module of a variable that the runtime looked up. So each launch of a
 * kernel or a graph is an access to the spans that such tables name, unless the kernel is known to
 * find no spans in memory (known_kernels.h).
 *
 * Of more than PS_POINTER_TABLES_MAX tables, the one that was named or written longest ago is
 * forgotten. Nothing is pinned for it. Mostly it is a table whose end was not seen, and pinned
 * spans would be missing for good. If it is used all the same, its spans are found in their slots
 * under the guard `host`. Under `unmap` the kernel faults.
 *
 * Copies that are captured do nothing yet. The copies of a graph count at each launch of the graph,
 * with what their sources hold then, if these are pinned (tracer/table_copies.h).
 *
 * Two clocks: host order. A launch uses the contents that the tables had when it was issued. A
 * program whose copy overtakes a launch that reads the same table has a race of its own.
 *
 * Any thread, inside Penstock, without the registry lock.
 */
#ifndef PS_POINTER_TABLES_H
#define PS_POINTER_TABLES_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/launch_tables.h"

#define PS_POINTER_TABLES_MAX 4096u

/*
 * Bytes of a copy that are searched, from its beginning; the rest is data. 32,768 words take 9 to
 * 25 us (2 cores, Xeon). FSDP2 puts gradients together with torch's chunk_cat. That copies its
 * pointers ahead of an index for each 2 KiB of them: copies of megabytes.
 */
#define PS_POINTER_TABLE_LOOKED (256u << 10)

/*
 * No allocation begins between two multiples of this (cuMemAlloc; torch's blocks begin at multiples
 * of 512). So words between them belong together.
 */
#define PS_POINTER_TABLE_BLOCK 256u

/*
 * A structure on the device may begin with other words than addresses, and be copied field by
 * field. So a launch is given a table by each earlier address of the table's allocation, if that
 * has at most PS_POINTER_TABLE_SMALL bytes. In a larger one, which may be an arena of the
 * program's, the address may lie at most PS_POINTER_TABLE_AHEAD bytes ahead.
 */
#define PS_POINTER_TABLE_SMALL (64u << 10)
#define PS_POINTER_TABLE_AHEAD 4096u

/*
 * Rows that are looked at, of a copy or fill whose rows lie apart. Tables under further rows are
 * not forgotten, and name too much.
 */
#define PS_POINTER_TABLE_ROWS 1024u

/*
 * `bytes` at `from` in host memory are about to be copied to the device. Words known there are
 * forgotten, and the addresses among the new ones are kept.
 */
void ps_pointer_tables_copied(CUdeviceptr to, const void *from, size_t bytes);

/*
 * The same for a copy in a graph that is about to be launched. Calls `name` for an address in each
 * span that the words name. Without such words it does nothing. `keeps`: the words that are known
 * there stay, too, because the copy may not run.
 */
void ps_pointer_tables_brought(CUdeviceptr to, const void *from, size_t bytes, bool keeps,
                               void (*name)(void *ctx, CUdeviceptr named), void *ctx);

/*
 * Unread bytes are about to be written there, or the memory is freed. Cheap while there are no
 * tables.
 */
void ps_pointer_tables_overwritten(CUdeviceptr to, size_t bytes);

/*
 * `bytes` are about to be copied on the device: the source's tables count at the target, too.
 * `keeps`: as above. Cheap while there are no tables.
 */
void ps_pointer_tables_moved(CUdeviceptr to, CUdeviceptr from, size_t bytes, bool keeps);

/* Returns whether a table begins in, or reaches into, `bytes` from `address`. Cheap. */
bool ps_pointer_tables_near(CUdeviceptr address, size_t bytes);

/*
 * All tables lie in [start, end), and the addresses by which launches are given them; `end` is 0
 * without tables. Launches read it without a lock, since most have nothing to do with tables.
 */
struct ps_pointer_tables_extent {
    _Atomic CUdeviceptr start, end;
};
extern struct ps_pointer_tables_extent ps_pointer_tables_extent;
static inline bool ps_pointer_tables_exist(void)
{
    return atomic_load_explicit(&ps_pointer_tables_extent.end, memory_order_relaxed) != 0;
}

/* Returns the first address there, and sets how many bytes may belong to tables behind it. */
static inline CUdeviceptr ps_pointer_tables_range(uint64_t *bytes)
{
    const CUdeviceptr start = atomic_load_explicit(&ps_pointer_tables_extent.start, memory_order_relaxed);
    const CUdeviceptr end = atomic_load_explicit(&ps_pointer_tables_extent.end, memory_order_relaxed);

    *bytes = end > start ? end - start : 0;
    return start;
}

/* Called when the tables of launches have changed (launch_tables.h). */
void ps_pointer_tables_publish(void);

/* The number of tables in variables of modules. Launches read it without a lock. */
extern atomic_size_t ps_pointer_tables_in_variables;
static inline bool ps_pointer_tables_exist_in_variables(void)
{
    return atomic_load_explicit(&ps_pointer_tables_in_variables, memory_order_relaxed) ||
           atomic_load_explicit(&ps_launch_tables_in_variables, memory_order_relaxed);
}

/* Calls `name` for an address in each span that those tables name. */
void ps_pointer_tables_name_of_variables(void (*name)(void *ctx, CUdeviceptr named), void *ctx);

/*
 * Calls `name` for an address in each span that a table at `address` names, or a table further on
 * in the same structure (PS_POINTER_TABLE_SMALL). So do tables that follow without a gap, and what
 * is left of a table whose beginning or middle was written over. Calls `maybe` for the spans of
 * launches of which it is not known whether they made such a table; NULL: they don't matter. A
 * launch that another thread decides about meanwhile counts as the one or the other, or as both.
 */
void ps_pointer_tables_name(CUdeviceptr address, void (*name)(void *ctx, CUdeviceptr named),
                            void (*maybe)(void *ctx, CUdeviceptr named), void *ctx);

/* Calls `name` for all tables that begin in `bytes` from `address`, or reach into them. */
void ps_pointer_tables_name_between(CUdeviceptr address, size_t bytes, void (*name)(void *ctx, CUdeviceptr named),
                                    void *ctx);

#endif
