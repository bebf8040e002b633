#include "kernels/kernel_params.h"

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cubin.h"

#define SECTION_TYPE_NV_INFO (SHT_LOPROC + 0)
#define SECTION_PREFIX ".nv.info."
#define SECTION_PREFIX_BYTES (sizeof SECTION_PREFIX - 1)

/*
 * A record of .nv.info starts with two bytes: format and attribute. The format tells the bytes that
 * follow.
 */
enum record_format {
    FORMAT_NOTHING = 1, /* two bytes of padding */
    FORMAT_BYTE = 2,    /* one byte and one of padding */
    FORMAT_HALF = 3,    /* two bytes */
    FORMAT_SIZED = 4,   /* two bytes with a size, then bytes of that size */
};

enum attribute {
    /* Sized, 8 bytes: symbol, u16 start of the parameters in the constant bank, u16 their bytes. */
    ATTRIBUTE_PARAM_CBANK = 0x0a,
    ATTRIBUTE_KPARAM_INFO = 0x17,      /* sized, 12 bytes: see take_param */
    ATTRIBUTE_CBANK_PARAM_SIZE = 0x19, /* half: bytes of all parameters */
    ATTRIBUTE_KPARAM_INFO_V2 = 0x45,   /* sized, 12 bytes: see take_param */
};

struct record {
    enum record_format format;
    unsigned attribute;
    const unsigned char *value;
    size_t bytes;
};

/* The rest of a section. */
struct cursor {
    const unsigned char *at;
    size_t left;
};

/* The facts gathered about one kernel. The array is reused from kernel to kernel. */
struct gathering {
    struct ps_kernel_param *params;
    size_t room;
    uint32_t count;
    uint32_t cbank_size;       /* from CBANK_PARAM_SIZE */
    uint32_t param_cbank_size; /* from PARAM_CBANK */
    bool has_cbank_size;
    bool has_param_cbank;
};

#define SIZE_UNSEEN UINT32_MAX

struct parse {
    struct gathering g;
    ps_kernel_params_fn each;
    void *ctx;
};

/* Steps over one record. Returns 1; 0 at the end; -EINVAL if no whole record is left. */
static int next_record(struct cursor *cursor, struct record *out)
{
    if (cursor->left == 0)
        return 0;
    if (cursor->left < 4)
        return -EINVAL;

    size_t taken = 4;
    out->format = cursor->at[0];
    out->attribute = cursor->at[1];
    out->value = cursor->at + 2;
    switch (out->format) {
    case FORMAT_NOTHING:
        out->bytes = 0;
        break;
    case FORMAT_BYTE:
        out->bytes = 1;
        break;
    case FORMAT_HALF:
        out->bytes = 2;
        break;
    case FORMAT_SIZED:
        out->value = cursor->at + 4;
        out->bytes = ps_cubin_u16(cursor->at + 2);
        taken += out->bytes;
        break;
    default:
        return -EINVAL;
    }
    if (taken > cursor->left)
        return -EINVAL;
    cursor->at += taken;
    cursor->left -= taken;
    return 1;
}

static bool is_param(const struct record *record)
{
    return record->format == FORMAT_SIZED &&
           (record->attribute == ATTRIBUTE_KPARAM_INFO || record->attribute == ATTRIBUTE_KPARAM_INFO_V2);
}

/*
 * Returns the number of parameters that the section describes, or -EINVAL. Checks the shape of
 * every record.
 */
static int count_params(struct cursor cursor)
{
    struct record record;
    int count = 0;
    int rc;

    while ((rc = next_record(&cursor, &record)) > 0) {
        if (is_param(&record) && ++count > PS_KERNEL_PARAMS_COUNT_MAX)
            return -EINVAL;
    }
    return rc < 0 ? rc : count;
}

/*
 * Takes one parameter. Both versions begin with u32 index, u16 ordinal, u16 offset. KPARAM_INFO
 * goes on with a u32: size in bits 18 to 31, spaces and alignment below. KPARAM_INFO_V2 goes on
 * with a u16 size and another u16.
 */
static int take_param(struct gathering *g, const struct record *record)
{
    if (record->bytes != 12)
        return -EINVAL;
    uint32_t ordinal = ps_cubin_u16(record->value + 4);
    if (ordinal >= g->count || g->params[ordinal].size != SIZE_UNSEEN)
        return -EINVAL;
    g->params[ordinal].offset = ps_cubin_u16(record->value + 6);
    g->params[ordinal].size = record->attribute == ATTRIBUTE_KPARAM_INFO ? ps_cubin_u32(record->value + 8) >> 18
                                                                         : ps_cubin_u16(record->value + 8);
    return 0;
}

static int take_record(struct gathering *g, const struct record *record)
{
    if (is_param(record))
        return take_param(g, record);
    if (record->format == FORMAT_SIZED && record->attribute == ATTRIBUTE_PARAM_CBANK) {
        if (record->bytes != 8)
            return -EINVAL;
        g->param_cbank_size = ps_cubin_u16(record->value + 6);
        g->has_param_cbank = true;
    } else if (record->format == FORMAT_HALF && record->attribute == ATTRIBUTE_CBANK_PARAM_SIZE) {
        g->cbank_size = ps_cubin_u16(record->value);
        g->has_cbank_size = true;
    }
    return 0;
}

/*
 * Checks that the parameters lie one behind another, within the bytes that the cubin says they
 * take. `*bytes` receives these bytes. Returns 0 or -EINVAL.
 */
static int check_layout(const struct gathering *g, uint32_t *bytes)
{
    uint32_t end = 0;

    for (uint32_t i = 0; i < g->count; i++) {
        if (g->params[i].size == 0 || g->params[i].offset < end)
            return -EINVAL;
        end = g->params[i].offset + g->params[i].size;
    }
    if (g->has_cbank_size && g->has_param_cbank && g->cbank_size != g->param_cbank_size)
        return -EINVAL;
    *bytes = end;
    if (g->has_cbank_size)
        *bytes = g->cbank_size;
    else if (g->has_param_cbank)
        *bytes = g->param_cbank_size;
    return end <= *bytes && *bytes <= PS_KERNEL_PARAMS_BYTES_MAX ? 0 : -EINVAL;
}

static int make_room(struct gathering *g, uint32_t count)
{
    if (count <= g->room)
        return 0;
    struct ps_kernel_param *grown = realloc(g->params, count * sizeof *grown);
    if (!grown)
        return -ENOMEM;
    g->params = grown;
    g->room = count;
    return 0;
}

static int parse_section(struct gathering *g, const char *kernel, struct cursor cursor, ps_kernel_params_fn each,
                         void *ctx)
{
    struct record record;
    int count = count_params(cursor);

    if (count < 0)
        return count;
    int rc = make_room(g, (uint32_t)count);
    if (rc != 0)
        return rc;
    g->count = (uint32_t)count;
    g->has_cbank_size = false;
    g->has_param_cbank = false;
    for (uint32_t i = 0; i < g->count; i++)
        g->params[i].size = SIZE_UNSEEN;

    /*
     * There are `count` records, with different ordinals below `count`. So each parameter is seen.
     */
    while (next_record(&cursor, &record) > 0) {
        rc = take_record(g, &record);
        if (rc != 0)
            return rc;
    }
    struct ps_kernel_layout layout = {.name = kernel, .count = g->count, .params = g->params};
    rc = check_layout(g, &layout.bytes);
    return rc != 0 ? rc : each(&layout, ctx);
}

static int parse_cubin_section(const struct ps_cubin_section *section, void *ctx)
{
    struct parse *parse = ctx;
    struct cursor cursor;

    if (!section || section->header.sh_type != SECTION_TYPE_NV_INFO)
        return 0;
    if (!section->name)
        return -EINVAL;
    /* The section .nv.info itself is about the module. */
    if (strncmp(section->name, SECTION_PREFIX, SECTION_PREFIX_BYTES) != 0)
        return 0;
    if (section->name[SECTION_PREFIX_BYTES] == '\0')
        return -EINVAL;
    const int rc = ps_cubin_section_bytes(section, &cursor.at, &cursor.left);
    return rc ? rc : parse_section(&parse->g, section->name + SECTION_PREFIX_BYTES, cursor, parse->each, parse->ctx);
}

int ps_kernel_params_parse(const void *image, size_t bytes, ps_kernel_params_fn each, void *ctx)
{
    struct parse parse = {.each = each, .ctx = ctx};
    const int rc = ps_cubin_each_section(image, bytes, parse_cubin_section, &parse);

    free(parse.g.params);
    return rc;
}
