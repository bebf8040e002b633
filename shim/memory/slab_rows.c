#include "memory/slab_rows.h"

/* Choices looked at for a row of several sizes. */
#define CHOICES_MAX 1000u

struct search {
    struct ps_slab_row_size *sizes;
    unsigned count;
    unsigned choices_left;
};

/* Slots of size `i` and below that add up to `missing`, `slots` of them at most. */
static bool choose_from(struct search *s, unsigned i, size_t missing, uint32_t slots)
{
    if (!missing)
        return true;
    while (i < s->count && s->sizes[i].bytes > missing)
        i++;
    /* The largest that is left, as often as may be, falls short. */
    if (i == s->count || (missing - 1) / s->sizes[i].bytes >= slots)
        return false;
    struct ps_slab_row_size *size = &s->sizes[i];
    uint32_t n = size->there < slots ? size->there : slots;
    if (n > missing / size->bytes)
        n = (uint32_t)(missing / size->bytes);
    for (;; n--) {
        if (!s->choices_left)
            break;
        s->choices_left--;
        size->taken = n;
        if (choose_from(s, i + 1, missing - n * size->bytes, slots - n))
            return true;
        if (!n)
            break;
    }
    size->taken = 0;
    return false;
}

bool ps_slab_row_choose(struct ps_slab_row_size *sizes, unsigned count, size_t bytes)
{
    struct search search = {.sizes = sizes, .count = count, .choices_left = CHOICES_MAX};

    if (!bytes)
        return false;
    for (unsigned i = 0; i < count; i++)
        sizes[i].taken = 0;
    for (unsigned i = 0; i < count; i++) {
        size_t n = bytes / sizes[i].bytes;
        if (n > PS_SLAB_ROW_SLOTS_MAX)
            break; /* smaller ones are too many as well */
        if (bytes % sizes[i].bytes || n > sizes[i].there || !n)
            continue;
        sizes[i].taken = (uint32_t)n;
        return true;
    }
    return choose_from(&search, 0, bytes, PS_SLAB_ROW_SLOTS_MAX);
}
