#include "tracer/table_copies.h"

#include "cuda/copy_gate.h"
#include "cuda/driver.h"
#include "cuda/questions.h"
#include "kernels/pointer_tables.h"
#include "memory/registry.h"

/* Returns whether the processor may read there. */
static bool is_on_the_host(CUdeviceptr address, bool unknown_is)
{
    unsigned int type;

    if (!address || ps_address_is_a_spans(address))
        return false;
    if (!PS_TOLD(ps_cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)))
        return unknown_is;
    return type == CU_MEMORYTYPE_HOST;
}

/*
 * Returns whether a copy may bring pointers from the host. Its rows must have room for a pointer,
 * and the host must be able to read its source. Such a copy needs the copy engine for all of its
 * bytes, so the copy gate notes it.
 */
static bool begins_upload(CUdeviceptr from, size_t row, size_t bytes, bool unknown_is)
{
    if (row < sizeof(void *) || !is_on_the_host(from, unknown_is))
        return false;
    ps_copy_gate_program_copies_in(bytes);
    return true;
}

/*
 * Bytes are about to be copied. Notes the pointer tables that they bring from the host or take
 * along on the device.
 */
static void bring(CUdeviceptr to, CUdeviceptr from, size_t bytes, bool is_upload, bool unknown_is)
{
    if (is_upload)
        ps_pointer_tables_copied(to, (const void *)from, bytes);
    else if (ps_pointer_tables_near(from, bytes) && !is_on_the_host(to, unknown_is))
        ps_pointer_tables_moved(to, from, bytes, false);
    else
        ps_pointer_tables_overwritten(to, bytes);
}

void ps_table_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, bool unknown_is)
{
    bring(to, from, bytes, begins_upload(from, bytes, bytes, unknown_is), unknown_is);
}

struct ps_copy_side ps_copy_side_at(CUdeviceptr start, size_t pitch, size_t rows, struct ps_copy_box box)
{
    struct ps_copy_side side = {.start = start, .pitch = pitch ? pitch : box.width, .said = CU_MEMORYTYPE_UNIFIED};

    side.slice = side.pitch * (rows ? rows : box.height);
    side.is_wrong = (box.height > 1 || box.depth > 1) && (side.pitch < box.width || (rows && rows < box.height));
    return side;
}

struct ps_copy_side ps_copy_side_of(CUmemorytype type, const void *host, CUdeviceptr device, size_t x, size_t y,
                                    size_t z, size_t pitch, size_t rows, struct ps_copy_box box)
{
    if (type == CU_MEMORYTYPE_ARRAY)
        return ps_copy_side_at(0, 0, 0, box);
    struct ps_copy_side side =
        ps_copy_side_at(type == CU_MEMORYTYPE_HOST ? (CUdeviceptr)host : device, pitch, rows, box);

    side.said = type;
    side.is_wrong |= (box.height > 1 || box.depth > 1) && x > side.pitch - box.width;
    side.start += z * side.slice + y * side.pitch + x;
    return side;
}

size_t ps_copy_extent(struct ps_copy_side side, struct ps_copy_box box)
{
    return (box.depth - 1) * side.slice + (box.height - 1) * side.pitch + box.width;
}

/* Joins rows without gaps to one row, if neither side has gaps. Slices then become rows. */
static void join_rows(struct ps_copy_side *to, struct ps_copy_side *from, struct ps_copy_box *box)
{
    if (box->height != 1 && (to->pitch != box->width || from->pitch != box->width))
        return;
    *box = (struct ps_copy_box){box->width * box->height, box->depth, 1};
    to->pitch = to->slice;
    from->pitch = from->slice;
}

/* The rows of a copy, one after the other. All zero but the copy: before the first row. */
struct rows {
    struct ps_copy_side to, from;
    struct ps_copy_box box;
    size_t begun;
};

/* Finds the next row. Returns false behind the last one, or behind PS_POINTER_TABLE_ROWS rows. */
static bool next_row(struct rows *rows, CUdeviceptr *to, CUdeviceptr *from)
{
    const size_t z = rows->begun / rows->box.height, y = rows->begun % rows->box.height;

    if (rows->begun == rows->box.depth * rows->box.height || rows->begun == PS_POINTER_TABLE_ROWS)
        return false;
    *to = rows->to.start + z * rows->to.slice + y * rows->to.pitch;
    *from = rows->from.start + z * rows->from.slice + y * rows->from.pitch;
    rows->begun++;
    return true;
}

/* Returns whether the row lies behind the bytes of an upload that are searched. */
static bool is_beyond_search(const struct rows *rows)
{
    return (rows->begun - 1) * rows->box.width >= PS_POINTER_TABLE_LOOKED;
}

static bool begins_upload_of(const struct rows *rows, bool unknown_is)
{
    const struct ps_copy_box box = rows->box;

    return begins_upload(rows->from.start, box.width, box.width * box.height * box.depth, unknown_is);
}

void ps_table_copy_rows(struct ps_copy_side to, struct ps_copy_side from, struct ps_copy_box box, bool unknown_is)
{
    join_rows(&to, &from, &box);
    join_rows(&to, &from, &box);
    struct rows rows = {to, from, box, 0};
    const bool is_upload = begins_upload_of(&rows, unknown_is);
    CUdeviceptr row, source;

    while (next_row(&rows, &row, &source)) {
        if (!from.start || (is_upload && is_beyond_search(&rows)))
            ps_pointer_tables_overwritten(row, box.width);
        else
            bring(row, source, box.width, is_upload, unknown_is);
    }
}

/* ---- in graphs ---- */

bool ps_graph_copy_of(const CUDA_MEMCPY3D *copy, bool is_sometimes, struct ps_graph_copy *out)
{
    const struct ps_copy_box box = {copy->WidthInBytes, copy->Height, copy->Depth};

    if (!box.width || !box.height || !box.depth || copy->dstMemoryType == CU_MEMORYTYPE_HOST)
        return false;
    *out = (struct ps_graph_copy){.to = PS_COPY_SIDE(copy, dst, copy->dstZ, copy->dstHeight, box),
                                  .from = PS_COPY_SIDE(copy, src, copy->srcZ, copy->srcHeight, box),
                                  .box = box,
                                  .is_sometimes = is_sometimes};
    if (!out->to.start || !out->from.start || out->to.is_wrong || out->from.is_wrong)
        return false;
    join_rows(&out->to, &out->from, &out->box);
    join_rows(&out->to, &out->from, &out->box);
    out->is_upload = out->box.width >= sizeof(void *) && is_on_the_host(out->from.start, true);
    return true;
}

/* One row of the copy, which comes from the host or from the device. */
static void run_row(const struct ps_graph_copy *copy, CUdeviceptr to, CUdeviceptr from, bool is_upload,
                    void (*name)(void *ctx, CUdeviceptr named), void *ctx)
{
    const size_t bytes = copy->box.width;

    if (is_upload) {
        ps_pointer_tables_brought(to, (const void *)from, bytes, copy->is_sometimes, name, ctx);
    } else if (ps_pointer_tables_near(from, bytes)) {
        ps_pointer_tables_name_between(from, bytes, name, ctx);
        ps_pointer_tables_moved(to, from, bytes, copy->is_sometimes);
    }
}

void ps_graph_copy_runs(const struct ps_graph_copy *copy, void (*name)(void *ctx, CUdeviceptr named), void *ctx)
{
    struct rows rows = {copy->to, copy->from, copy->box, 0};
    const bool is_upload = copy->is_upload && !copy->is_disabled && begins_upload_of(&rows, false);
    CUdeviceptr row, source;

    while (!copy->is_disabled && next_row(&rows, &row, &source) && !(is_upload && is_beyond_search(&rows)))
        run_row(copy, row, source, is_upload, name, ctx);
}
