#include "memory/slab_rows.h"

/* Number of choices that the search for a row of several sizes tries. */
#define CHOICES_MAX 1000u

struct search {
    struct ps_slab_row_size *sizes;
    unsigned count;
    unsigned choices_left;
};

/*
 * Chooses at most `slots` slots of size `i` and smaller that add up to `missing`. Returns whether
 * it found some.
 */
static bool choose_from(struct search *s, unsigned i, size_t missing, uint32_t slots)
{
    if (!missing)
        return true;
    while (i < s->count && s->sizes[i].bytes > missing)
        i++;
    /* Even `slots` slots of the largest size left are too few. */
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
            break; /* smaller sizes need too many slots as well */
        if (bytes % sizes[i].bytes || n > sizes[i].there || !n)
            continue;
        sizes[i].taken = (uint32_t)n;
        return true;
    }
    return choose_from(&search, 0, bytes, PS_SLAB_ROW_SLOTS_MAX);
}
