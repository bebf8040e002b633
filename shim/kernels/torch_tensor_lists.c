#include "kernels/torch_tensor_lists.h"

#include <stdlib.h>
#include <string.h>

#define LISTS_MAX 5u
#define CHUNK 65536
#define CAT_TENSORS_MAX 1024u /* 128 in torch 2.11 */

enum structure { NO_STRUCTURE, PLAIN, WITH_SCALARS, WITH_STATES };

/*
 * Returns the kernel's structure. `*lists` receives the number of lists, which is the template's
 * int argument.
 */
static enum structure structure_of(const char *name, unsigned *lists)
{
    static const struct {
        const char *text;
        enum structure is;
    } known[] = {
        {"18TensorListMetadataI", PLAIN},
        {"28TensorListScalarListMetadataI", WITH_SCALARS},
        {"32FusedOptimizerTensorListMetadataI", WITH_STATES},
    };

    /* Structures of complex doubles hold fewer tensors, and few programs use them. */
    if (!strstr(name, "25multi_tensor_apply_kernelI") || strstr(name, "MetadataIN3c107complexIdE"))
        return NO_STRUCTURE;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *at = strstr(name, known[i].text);
        at = at ? strstr(at + strlen(known[i].text), "Li") : NULL;
        if (!at)
            continue;
        *lists = (unsigned)strtoul(at + 2, NULL, 10);
        return *lists >= 1 && *lists <= LISTS_MAX ? known[i].is : NO_STRUCTURE;
    }
    return NO_STRUCTURE;
}

static uint32_t aligned(uint32_t bytes, uint32_t to)
{
    return (bytes + to - 1) / to * to;
}

/*
 * Works out the structure's layout. `scalar`: bytes of each tensor's scalar, if the structure has
 * scalars. Returns the structure's bytes.
 */
static uint32_t lay_out(struct ps_torch_tensor_lists *where, enum structure structure, unsigned lists, uint32_t scalar,
                        unsigned times)
{
    static const uint16_t tensors[] = {110, 64, 48, 36, 30}, with_scalars[] = {96, 64, 48, 36, 30};
    const uint32_t capacity = times * (structure == WITH_SCALARS ? with_scalars : tensors)[lists - 1],
                   blocks = times * 320;
    uint32_t end = lists * capacity * 8;

    *where = (struct ps_torch_tensor_lists){.lists = (uint16_t)lists,
                                            .capacity = (uint16_t)capacity,
                                            .blocks = (uint16_t)blocks,
                                            .index_bytes = times > 1 ? 2 : 1,
                                            .elements = end};
    end += capacity * 8;
    if (structure == WITH_STATES) {
        where->states = end;
        end += times * with_scalars[lists - 1] * 8;
    }
    if (structure == WITH_SCALARS)
        end += capacity * scalar;
    where->tensor = end;
    where->chunk = aligned(end + blocks * where->index_bytes, 4);
    end = where->chunk + blocks * 4;
    if (structure != WITH_SCALARS)
        end += 4; /* the number of the launch's first tensor */
    return aligned(end, 8);
}

_Static_assert(sizeof(struct ps_torch_tensor_lists) == 6 * sizeof(uint16_t) + 4 * sizeof(uint32_t), "no padding");

static struct ps_torch_tensor_lists of_multi_tensor_apply(const char *name, uint32_t bytes)
{
    /* With parameters of up to 32 KiB, the structure has 7 times the room. */
    static const unsigned times[] = {1, 7};
    static const uint32_t scalars[] = {1, 2, 4, 8};
    unsigned lists = 0;
    const enum structure structure = structure_of(name, &lists);

    for (size_t i = 0; structure != NO_STRUCTURE && i < sizeof times / sizeof *times; i++)
        for (size_t k = 0; k < (structure == WITH_SCALARS ? sizeof scalars / sizeof *scalars : 1); k++) {
            struct ps_torch_tensor_lists where;
            if (lay_out(&where, structure, lists, scalars[k], times[i]) == bytes)
                return where;
        }
    return (struct ps_torch_tensor_lists){0};
}

/* Returns the template's next int argument, or 0. */
static uint32_t next_int(const char **at)
{
    char *end;

    if (strncmp(*at, "Li", 2) != 0)
        return 0;
    const unsigned long value = strtoul(*at + 2, &end, 10);
    if (*end != 'E' || value > CAT_TENSORS_MAX)
        return 0;
    *at = end + 1;
    return (uint32_t)value;
}

/*
 * Returns the layout for CatArrayBatchedCopy. The template's arguments are a type and the type of
 * indexes (unsigned int). The numbers of dimensions, of tensors and of tensors with strides follow.
 * Each tensor has an address, three indexes and a bool; its strides are eight indexes.
 */
static struct ps_torch_tensor_lists of_concatenation(const char *name, const uint32_t *bytes, uint32_t count)
{
    const char *at = strstr(name, "CatArrayBatchedCopy");

    at = at ? strstr(at, "jLi") : NULL;
    if (!at || count < 2)
        return (struct ps_torch_tensor_lists){0};
    at++;
    const bool has_dimensions = next_int(&at) != 0;
    const uint32_t tensors = next_int(&at), strides = next_int(&at);
    if (!has_dimensions || !tensors || !strides || aligned(aligned(tensors * 21, 4) + strides * 32, 8) != bytes[1])
        return (struct ps_torch_tensor_lists){0};
    return (struct ps_torch_tensor_lists){.parameter = 1, .lists = 1, .capacity = (uint16_t)tensors, .by_row = 1};
}

struct ps_torch_tensor_lists ps_torch_tensor_lists_of(const char *name, const uint32_t *bytes, uint32_t count)
{
    if (!name || !count)
        return (struct ps_torch_tensor_lists){0};
    const struct ps_torch_tensor_lists where = of_multi_tensor_apply(name, bytes[0]);
    return where.lists ? where : of_concatenation(name, bytes, count);
}

static uint32_t tensor_of(const struct ps_torch_tensor_lists *where, const unsigned char *bytes, uint32_t block)
{
    uint16_t tensor;

    if (where->index_bytes == 1)
        return bytes[where->tensor + block];
    memcpy(&tensor, bytes + where->tensor + 2 * block, sizeof tensor);
    return tensor;
}

static int32_t chunk_of(const struct ps_torch_tensor_lists *where, const unsigned char *bytes, uint32_t block)
{
    int32_t chunk;

    memcpy(&chunk, bytes + where->chunk + 4 * block, sizeof chunk);
    return chunk;
}

static int64_t elements_of(const struct ps_torch_tensor_lists *where, const unsigned char *bytes, uint32_t tensor)
{
    int64_t elements;

    memcpy(&elements, bytes + where->elements + 8 * tensor, sizeof elements);
    return elements;
}

/*
 * Returns the number of tensors that the grid's blocks use, or 0 if the structure is filled in
 * differently. Blocks go through a tensor chunk by chunk, and then on to the next tensor. The first
 * block goes on where the launch before ended.
 */
static uint32_t used_by_blocks(const struct ps_torch_tensor_lists *where, const unsigned char *bytes, uint64_t blocks)
{
    uint32_t tensor = 0;
    int64_t chunk = -1, chunks = 0; /* of the tensor */

    if (blocks < 1 || blocks > where->blocks)
        return 0;
    for (uint32_t b = 0; b < blocks; b++) {
        const uint32_t of = tensor_of(where, bytes, b);
        const int64_t next = chunk_of(where, bytes, b);
        const bool goes_on = b > 0 && of == tensor;
        if (!goes_on) {
            if (b > 0 && (chunk != chunks - 1 || next != 0))
                return 0;
            if (of != (b > 0 ? tensor + 1 : 0) || of >= where->capacity)
                return 0;
            tensor = of;
            const int64_t elements = elements_of(where, bytes, tensor);
            chunks = elements > 0 ? (elements - 1) / CHUNK + 1 : 0;
        } else if (next != chunk + 1) {
            return 0;
        }
        chunk = next;
        if (chunk < 0 || chunk >= chunks)
            return 0;
    }
    return tensor + 1;
}

uint32_t ps_torch_tensor_lists_used(const struct ps_torch_tensor_lists *where, const void *structure,
                                    struct ps_grid grid)
{
    if (!where->lists)
        return 0;
    if (where->by_row)
        return grid.z == 1 && grid.y <= where->capacity ? grid.y : 0;
    return used_by_blocks(where, structure, ps_grid_blocks(grid));
}
