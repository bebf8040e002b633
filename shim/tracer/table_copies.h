/*
 * What copies do to pointer tables (kernels/pointer_tables.h): a copy from the host brings one, a
 * copy on the device takes one along. A call's copies count when the call is made. Copies in graphs
 * count at each launch of the graph, with what their sources hold then.
 *
 * Any thread, inside Penstock, without the registry lock.
 */
#ifndef PS_TABLE_COPIES_H
#define PS_TABLE_COPIES_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ps_copy_box {
    size_t width, height, depth; /* bytes, rows, slices */
};

/* One side of a copy in rows. */
struct ps_copy_side {
    CUdeviceptr start;   /* the first byte; 0: an array, or a fill's source */
    size_t pitch, slice; /* bytes from row to row and from slice to slice */
    bool is_wrong;       /* rows overlap, so the driver will refuse the copy */
    CUmemorytype said;   /* the kind of memory that the call says it is */
};

struct ps_copy_side ps_copy_side_at(CUdeviceptr start, size_t pitch, size_t rows, struct ps_copy_box box);
struct ps_copy_side ps_copy_side_of(CUmemorytype type, const void *host, CUdeviceptr device, size_t x, size_t y,
                                    size_t z, size_t pitch, size_t rows, struct ps_copy_box box);

/* The structures of cuda.h have these fields by the same names. */
#define PS_COPY_SIDE(p, side, z, rows, box)                                                                            \
    ps_copy_side_of((p)->side##MemoryType, (p)->side##Host, (p)->side##Device, (p)->side##XInBytes, (p)->side##Y, z,   \
                    (p)->side##Pitch, rows, box)

/* Returns the bytes from the first byte to the end of the last one. */
size_t ps_copy_extent(struct ps_copy_side side, struct ps_copy_box box);

/*
 * Bytes are about to be copied. Notes the pointer tables that they bring from the host or take
 * along on the device. `unknown_is`: memory that the driver does not know is ordinary host memory.
 */
void ps_table_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, bool unknown_is);

/*
 * Notes the tables of each row as if it were a copy of its own. Stops after PS_POINTER_TABLE_ROWS
 * rows. Of rows from the host only the first PS_POINTER_TABLE_LOOKED bytes are searched.
 */
void ps_table_copy_rows(struct ps_copy_side to, struct ps_copy_side from, struct ps_copy_box box, bool unknown_is);

/* A copy in a graph. */
struct ps_graph_copy {
    struct ps_copy_side to, from;
    struct ps_copy_box box;
    uint64_t order;   /* among the copies of its graph */
    bool is_upload;   /* its source was host memory when the graph was made */
    bool is_disabled; /* its node is disabled: the copy does not run */
    /* It may not run: it is in a body of a conditional node, or may be disabled, or gone. */
    bool is_sometimes;
};

/* Returns whether the copy may write a table. If so, fills *out, except its order. */
bool ps_graph_copy_of(const CUDA_MEMCPY3D *copy, bool is_sometimes, struct ps_graph_copy *out);

/*
 * A graph that has the copy is about to be launched. Calls `name` for an address in each span that
 * the copied tables name, and keeps these tables for launches to come. A copy without addresses
 * makes no table forgotten, and a table that is kept for nothing names too much. A source in
 * ordinary host memory is not read: it may be gone by now.
 */
void ps_graph_copy_runs(const struct ps_graph_copy *copy, void (*name)(void *ctx, CUdeviceptr named), void *ctx);

#endif
