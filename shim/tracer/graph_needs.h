/*
 * What a graph's nodes need: the memory that they touch, the words of their kernels that may lead
 * to pointer tables, and the copies and kernels that may write such tables (table_copies.h).
 *
 * A graph uses the span that lies at an address when it runs, and the table that lies there then.
 * So addresses are kept, not spans, and tables are looked up at each launch.
 *
 * A value belongs to its holder, whose lock guards it. Without memory `unknown` becomes true.
 */
#ifndef PS_GRAPH_NEEDS_H
#define PS_GRAPH_NEEDS_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ps_graph_copy;
struct ps_made_launch;

/* What a copy or a fill touches, which is known to the byte. */
struct ps_graph_range {
    CUdeviceptr start;
    size_t bytes;
};

/* All zero: nothing is needed. */
struct ps_graph_needs {
    bool unknown; /* a node can't be read, or its memory can change unseen */
    size_t count, room;
    CUdeviceptr *address; /* one for each unit of the reservation */
    size_t ranges, ranges_room;
    struct ps_graph_range *range; /* they may lie in several pieces of a block */
    size_t words, words_room;
    CUdeviceptr *word;
    size_t copies, copies_room;
    struct ps_graph_copy *copy;
    size_t makers, makers_room;
    struct ps_made_launch *maker; /* kernels that may write tables (made_tables.h) */
};

/* Add what a node needs. An address outside the reservation adds nothing. */
void ps_graph_needs_address(struct ps_graph_needs *needs, CUdeviceptr address);
void ps_graph_needs_bytes(struct ps_graph_needs *needs, CUdeviceptr start, size_t bytes);
void ps_graph_needs_kernel(struct ps_graph_needs *needs, const CUDA_KERNEL_NODE_PARAMS *kernel);
void ps_graph_needs_values(struct ps_graph_needs *needs, const CUDA_BATCH_MEM_OP_NODE_PARAMS *values);
/* `is_sometimes`: the copy is in a body of a conditional node. A launch may leave it out. */
void ps_graph_needs_copy(struct ps_graph_needs *needs, const CUDA_MEMCPY3D *copy, bool is_sometimes);

/* Returns the first of `count` new places in the order of copies, behind all given out so far. */
uint64_t ps_graph_needs_places(uint64_t count);

/*
 * Returns the bytes from the first byte of a fill to the end of its last one. `row`: the bytes of a
 * row.
 */
static inline size_t ps_graph_fill_extent(size_t row, size_t height, size_t pitch)
{
    return height > 1 ? (height - 1) * pitch + row : row;
}

/* The structures of cuda.h have these fields by the same names. */
#define PS_GRAPH_FILL_EXTENT(p) ps_graph_fill_extent((p)->width *(p)->elementSize, (p)->height, (p)->pitch)

/* Forgets all needs, and keeps the memory for others. */
void ps_graph_needs_empty(struct ps_graph_needs *needs);

/* Adds all of `more` but its makers. */
void ps_graph_needs_add(struct ps_graph_needs *needs, const struct ps_graph_needs *more);

/*
 * Keeps one of each address, range and word. Puts all but the words into their order.
 */
void ps_graph_needs_sort(struct ps_graph_needs *needs);

/*
 * Calls `note_bytes` for each range and `note` for each address, then for spans of the pointer
 * tables that lie at the words now. It is called after ps_graph_needs_sort.
 */
void ps_graph_needs_name(const struct ps_graph_needs *needs, void (*note_bytes)(CUdeviceptr start, size_t bytes),
                         void (*note)(void *ctx, CUdeviceptr unit), void *ctx);

/*
 * Adds the spans of the tables that lie at the words now, for a graph whose launches are not seen.
 */
void ps_graph_needs_add_tables(struct ps_graph_needs *needs);

/*
 * Returns whether the copies have to run at a launch. Copies on the device matter only if one reads
 * where tables lie now, or behind an upload.
 */
bool ps_graph_needs_bring(const struct ps_graph_needs *needs);

/* Returns whether memory in the range is needed. Unknown needs touch every range. */
bool ps_graph_needs_touch(const struct ps_graph_needs *needs, CUdeviceptr start, size_t bytes);

/* Adds an address in each piece in which a range lies. [unlocked] */
void ps_graph_needs_add_pieces(struct ps_graph_needs *needs);

/* Frees what the structure holds, which is then all zero. */
void ps_graph_needs_free(struct ps_graph_needs *needs);

#endif
