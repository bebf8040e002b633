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

/* Inserts a free range as the ith. Returns whether there was memory for it. */
static bool insert_at(struct ps_address_space *space, size_t i, struct ps_address_range range)
{
    if (space->count == space->capacity) {
        struct ps_address_range *more = realloc(space->free, 2 * space->capacity * sizeof *more);
        if (!more)
            return false;
        space->free = more;
        space->capacity *= 2;
    }
    memmove(&space->free[i + 1], &space->free[i], (space->count - i) * sizeof *space->free);
    space->free[i] = range;
    space->count++;
    return true;
}

uint64_t ps_address_space_take_apart(struct ps_address_space *space, uint64_t bytes, uint64_t gap)
{
    for (size_t i = 0; i < space->count; i++) {
        const struct ps_address_range r = space->free[i];
        if (r.bytes < bytes + 2 * gap)
            continue;
        const uint64_t start = r.start + gap, behind = start + bytes;
        if (!insert_at(space, i + 1, (struct ps_address_range){behind, r.start + r.bytes - behind}))
            return 0;
        space->free[i].bytes = gap;
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
    } else if (!insert_at(space, i, (struct ps_address_range){start, bytes})) {
        return -ENOMEM;
    }
    return 0;
}

void ps_address_space_destroy(struct ps_address_space *space)
{
    free(space->free);
    *space = (struct ps_address_space){0};
}
