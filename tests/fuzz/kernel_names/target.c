/*
 * A kernel's mangled name up to a NUL, and behind it the sizes of its first two parameters, a grid,
 * and the bytes of its structure of tensors. What a name and a structure tell is checked against a
 * second reading of both.
 */
#include "tests/fuzz/fuzz.h"

#include "kernels/known_kernels.h"
#include "kernels/torch_tensor_lists.h"

#define CHUNK 65536
#define BYTES_MAX 32764u

/* ---- known kernels ---- */

/*
 * Reads the nested name of _ZN...: returns the number of its parts, and the last one, which the
 * caller frees.
 */
static unsigned read_nested(const char *name, char **last, bool *is_of_at_native)
{
    unsigned parts = 0;

    *last = NULL;
    *is_of_at_native = true;
    for (const char *at = name + 3; *at >= '1' && *at <= '9'; parts++) {
        size_t bytes = 0;
        for (; *at >= '0' && *at <= '9' && bytes < 100000; at++)
            bytes = bytes * 10 + (size_t)(*at - '0');
        if (strlen(at) < bytes)
            break;
        free(*last);
        *last = strndup(at, bytes);
        *is_of_at_native &= parts > 1 || !strcmp(*last, parts ? "native" : "at");
        at += bytes;
    }
    return parts;
}

static void check_known(const char *name)
{
    enum ps_known_kernel known = ps_kernel_known(name);
    const char *behind = strncmp(name, "_Z", 2) ? name : name + 2;
    char *last = NULL;
    bool is_of_at_native;

    while (behind > name && *behind >= '0' && *behind <= '9')
        behind++;
    if (known == PS_KERNEL_KEEPS_NO_ADDRESS) {
        fuzz_require(!strncmp(name, "_ZN", 3));
        fuzz_require(read_nested(name, &last, &is_of_at_native) >= 3 && is_of_at_native);
        fuzz_require(strstr(last, "kernel") || strstr(last, "CatArrayBatchedCopy") || !strcmp(last, "lpnorm_cleanup"));
        fuzz_require(!strstr(name, "15arange_cuda_out"));
    } else {
        bool nccl = !strncmp(behind, "ncclDevKernel", 13) || !strncmp(behind, "ncclKernel", 10);
        fuzz_require((known == PS_KERNEL_NCCL) == nccl);
    }
    free(last);
}

/* ---- lists of tensors ---- */

/* Where a block works: a chunk of a tensor. */
struct place {
    uint32_t tensor;
    int32_t chunk;
};

static struct place place_of(const struct ps_torch_tensor_lists *where, const unsigned char *bytes, uint64_t block)
{
    struct place place = {0};

    memcpy(&place.tensor, bytes + where->tensor + block * where->index_bytes, where->index_bytes);
    memcpy(&place.chunk, bytes + where->chunk + block * sizeof place.chunk, sizeof place.chunk);
    return place;
}

static bool has_chunk(const struct ps_torch_tensor_lists *where, const unsigned char *bytes, struct place place)
{
    int64_t elements;

    if (place.tensor >= where->capacity || place.chunk < 0)
        return false;
    memcpy(&elements, bytes + where->elements + place.tensor * sizeof elements, sizeof elements);
    return (__int128)place.chunk * CHUNK < elements;
}

/* Returns whether torch's next block after `a` works at `b`. */
static bool is_next(const struct ps_torch_tensor_lists *where, const unsigned char *bytes, struct place a,
                    struct place b)
{
    struct place same = {a.tensor, a.chunk + 1};

    if (a.chunk < INT32_MAX && has_chunk(where, bytes, same))
        return b.tensor == same.tensor && b.chunk == same.chunk;
    return b.tensor == a.tensor + 1 && b.chunk == 0;
}

static uint32_t used_by_blocks(const struct ps_torch_tensor_lists *where, const unsigned char *bytes, uint64_t blocks)
{
    if (!blocks || blocks > where->blocks)
        return 0;
    struct place at = place_of(where, bytes, 0);
    if (at.tensor)
        return 0;
    for (uint64_t b = 0;; b++) {
        at = place_of(where, bytes, b);
        if (!has_chunk(where, bytes, at))
            return 0;
        if (b + 1 == blocks)
            return at.tensor + 1;
        if (!is_next(where, bytes, at, place_of(where, bytes, b + 1)))
            return 0;
    }
}

/* All that the layout names lies within the structure, one part behind the other. */
static void check_layout(const struct ps_torch_tensor_lists *where, uint32_t bytes)
{
    uint64_t addresses = (uint64_t)where->lists * where->capacity * 8, blocks = where->blocks;

    fuzz_require(where->parameter == 0 && where->lists <= 5);
    fuzz_require(where->index_bytes == 1 || where->index_bytes == 2);
    fuzz_require(where->elements == addresses);
    fuzz_require(!where->states || where->states >= where->elements + where->capacity * 8u);
    fuzz_require(where->tensor >= where->elements + where->capacity * 8u && where->tensor > where->states);
    fuzz_require(where->chunk % 4 == 0 && where->chunk >= where->tensor + blocks * where->index_bytes);
    fuzz_require(where->chunk + blocks * 4 <= bytes);
    fuzz_require(where->index_bytes == 2 || where->capacity <= 256);
}

static void check_lists(const char *name, const uint32_t *sizes, struct ps_grid grid, struct fuzz_input *in)
{
    const struct ps_torch_tensor_lists where = ps_torch_tensor_lists_of(name, sizes, 2);

    fuzz_require(!ps_torch_tensor_lists_of(NULL, sizes, 2).lists && !ps_torch_tensor_lists_of(name, sizes, 0).lists);
    if (!where.lists)
        return;
    const uint32_t bytes = sizes[where.parameter];
    unsigned char *structure = fuzz_allocate(bytes);
    memset(structure, 0, bytes);
    if (in->left)
        memcpy(structure, in->at, in->left < bytes ? in->left : bytes);
    const uint32_t used = ps_torch_tensor_lists_used(&where, structure, grid);
    fuzz_require(used <= where.capacity);
    if (where.by_row) {
        fuzz_require(where.parameter == 1 && where.lists == 1 && where.capacity * 21u <= bytes);
        fuzz_require(used == (grid.z == 1 && grid.y <= where.capacity ? grid.y : 0));
    } else {
        check_layout(&where, bytes);
        fuzz_require(used == used_by_blocks(&where, structure, (uint64_t)grid.x * grid.y * grid.z));
    }
    free(structure);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_input in = {data, bytes};
    char *name = fuzz_text(&in, '\0');
    uint32_t sizes[2];
    struct ps_grid grid;

    check_known(name);
    for (int i = 0; i < 2; i++) {
        sizes[i] = fuzz_u8(&in);
        sizes[i] = (sizes[i] | (uint32_t)fuzz_u8(&in) << 8) % (BYTES_MAX + 1);
    }
    grid.x = fuzz_u8(&in);
    grid.x |= (uint32_t)fuzz_u8(&in) << 8;
    grid.y = fuzz_u8(&in);
    grid.z = fuzz_u8(&in);
    check_lists(name, sizes, grid, &in);
    free(name);
    return 0;
}
