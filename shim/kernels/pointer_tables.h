/*
 * Pointer tables: memory of the program's on the device that holds addresses of spans, because it was copied there from the host. Batched and
 * grouped matrix products, tensor maps in global memory (their first word is the address) and programs' own structures of pointers are used through
 * such tables; a kernel that is given one's address uses what it names.
 *
 * A copy from the host is read where it begins: every aligned 8-byte word that lies in a span is kept, with its place on the device; what a
 * copy on the device takes along is kept for both places. What is written over it by a later copy or fill is forgotten, and so is what is
 * freed, or if that was in stream order what is allocated there again. What kernels write is not seen: a table that was overwritten by one
 * names too much, which costs a reload and no byte; one that a kernel made is not known. Of more tables than PS_POINTER_TABLES_MAX the one
 * that was named or written longest ago is forgotten, and nothing is pinned for it: mostly it is one whose end was not seen, and pinned
 * spans would be missing for good. Used all the same, what it names is found in its slots under the host guard, and faults under unmap.
 *
 * Two clocks: host order. A launch is told what the tables held when it was issued; a program that lets a copy overtake a launch that reads the same
 * table has a race of its own.
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

#define PS_POINTER_TABLES_MAX 4096u

/*
 * So much of a copy is looked through, from its beginning; what lies behind is data. 32,768 words take 9 to 25 us (2 cores, Xeon). torch's chunk_cat, with
 * which FSDP2 puts gradients together, copies its pointers ahead of an index for each 2 KiB of them: copies of megabytes.
 */
#define PS_POINTER_TABLE_LOOKED (256u << 10)

/* A table that a kernel makes, at most; and the launches with spans between two that make one together. */
#define PS_POINTER_TABLE_MADE 4096u
#define PS_POINTER_TABLE_MADE_TOGETHER 4u

/* So many rows of a copy or fill whose rows lie apart; what the others write over is not forgotten, and names too much. */
#define PS_POINTER_TABLE_ROWS 1024u

/* `bytes` at `from` in host memory are about to be copied to the device; what was there is forgotten, what they name is kept. */
void ps_pointer_tables_copied(CUdeviceptr to, const void *from, size_t bytes);

/*
 * A kernel makes a table there, of so many bytes (SIZE_MAX: of a page), of the spans at these addresses (made_tables.h). A word of the kernel's parameters may
 * be NULL in one launch and lead to a tensor in the next, so that a table is made by several launches: what one of other words made lately is kept.
 */
struct ps_made_word {
    CUdeviceptr named;
    unsigned place; /* of the word among the kernel's parameters */
};
void ps_pointer_tables_made(CUdeviceptr to, size_t bytes, const struct ps_made_word *made, size_t n, uint64_t launch);

/* Something that is not looked at is about to be written there, or the memory is freed. Cheap while there are no tables. */
void ps_pointer_tables_overwritten(CUdeviceptr to, size_t bytes);

/* `bytes` are about to be copied on the device: what is known of the source is known of the target, too. Cheap while there are no tables. */
void ps_pointer_tables_moved(CUdeviceptr to, CUdeviceptr from, size_t bytes);

/* Whether a table begins in, or reaches into, so many bytes from there. Cheap. */
bool ps_pointer_tables_near(CUdeviceptr address, size_t bytes);

/* All tables lie in [start, start + bytes); 0 bytes while there are none. A glance without a lock, for launches: most have nothing to do with any. */
struct ps_pointer_tables_extent {
    _Atomic CUdeviceptr start;
    _Atomic uint64_t bytes;
};
extern struct ps_pointer_tables_extent ps_pointer_tables_extent;
static inline bool ps_pointer_tables_exist(void)
{
    return atomic_load_explicit(&ps_pointer_tables_extent.bytes, memory_order_relaxed) != 0;
}

/* Calls `name` for an address in each span that the table at `address` names, and those that follow it without a gap. None: not called. */
void ps_pointer_tables_name(CUdeviceptr address, void (*name)(void *ctx, CUdeviceptr named), void *ctx);

#endif
