#include "memory/address_space.h"
#include "policy/base/lower_bound.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int ps_address_space_init(struct ps_address_space *space, uint64_t start, uint64_t bytes)
{
    space->capacity = 64;
    space->count = 1;
    space->free = malloc(space->capacity * sizeof *space->free);
    if (!space->free)
        return -ENOMEM;
    space->free[0] = (struct ps_address_range){start, bytes};
    return 0;
}

static void remove_at(struct ps_address_space *space, size_t i)
{
    memmove(&space->free[i], &space->free[i + 1], (space->count - i - 1) * sizeof *space->free);
    space->count--;
}

uint64_t ps_address_space_take(struct ps_address_space *space, uint64_t bytes)
{
    for (size_t i = 0; i < space->count; i++) {
        struct ps_address_range *r = &space->free[i];
        if (r->bytes < bytes)
            continue;
        uint64_t start = r->start;
        r->start += bytes;
        r->bytes -= bytes;
        if (!r->bytes)
            remove_at(space, i);
        return start;
    }
    return 0;
}

/* Returns the first free range that starts at or after `start`. */
static size_t lower_bound(const struct ps_address_space *space, uint64_t start)
{
    return PS_LOWER_BOUND(space->count, i, space->free[i].start < start);
}

int ps_address_space_give(struct ps_address_space *space, uint64_t start, uint64_t bytes)
{
    size_t i = lower_bound(space, start);
    struct ps_address_range *before = i ? &space->free[i - 1] : NULL;
    struct ps_address_range *after = i < space->count ? &space->free[i] : NULL;

    if (!bytes || (before && before->start + before->bytes > start) || (after && start + bytes > after->start))
        return -EINVAL;
    bool joins_before = before && before->start + before->bytes == start;
    bool joins_after = after && start + bytes == after->start;
    if (joins_before && joins_after) {
        before->bytes += bytes + after->bytes;
        remove_at(space, i);
    } else if (joins_before) {
        before->bytes += bytes;
    } else if (joins_after) {
        after->start = start;
        after->bytes += bytes;
    } else {
        if (space->count == space->capacity) {
            struct ps_address_range *more = realloc(space->free, 2 * space->capacity * sizeof *more);
            if (!more)
                return -ENOMEM;
            space->free = more;
            space->capacity *= 2;
        }
        memmove(&space->free[i + 1], &space->free[i], (space->count - i) * sizeof *space->free);
        space->free[i] = (struct ps_address_range){start, bytes};
        space->count++;
    }
    return 0;
}

void ps_address_space_destroy(struct ps_address_space *space)
{
    free(space->free);
    *space = (struct ps_address_space){0};
}
