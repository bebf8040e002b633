/* One sorted table of all address ranges that hold simulated or pinned memory. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "guard.h"
#include "memory.h"

static struct cudasim_range *table;
static size_t count, room;
static uint64_t next_id = 1;

/* Returns the index of the first range that ends above the address. */
static size_t first_above(uintptr_t address)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table[middle].base + table[middle].size > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

int cudasim_range_add(struct cudasim_range range)
{
    if (count == room) {
        size_t grown_room = room ? 2 * room : 64;
        struct cudasim_range *grown = realloc(table, grown_room * sizeof *grown);
        if (!grown)
            return -ENOMEM;
        table = grown;
        room = grown_room;
    }
    size_t at = first_above(range.base);
    memmove(&table[at + 1], &table[at], (count - at) * sizeof *table);
    range.id = next_id++;
    table[at] = range;
    count++;
    return 0;
}

struct cudasim_range *cudasim_range_above(uintptr_t address)
{
    size_t at = first_above(address);
    return at < count ? &table[at] : NULL;
}

struct cudasim_range *cudasim_range_find(uintptr_t address)
{
    struct cudasim_range *range = cudasim_range_above(address);
    return range && range->base <= address ? range : NULL;
}

void cudasim_range_remove(uintptr_t base)
{
    size_t at = first_above(base);
    if (at == count || table[at].base != base)
        return;
    count--;
    memmove(&table[at], &table[at + 1], (count - at) * sizeof *table);
}

bool cudasim_is_device(uintptr_t address)
{
    const struct cudasim_range *range = cudasim_range_find(address);
    return range ? !range->host : cudasim_guard_covers(address);
}

bool cudasim_is_pageable(uintptr_t address)
{
    return !cudasim_range_find(address) && !cudasim_guard_covers(address);
}

enum cudasim_direction cudasim_direction_of(uintptr_t to, uintptr_t from)
{
    if (cudasim_is_device(to))
        return cudasim_is_device(from) ? CUDASIM_DIRECTION_D2D : CUDASIM_DIRECTION_H2D;
    return cudasim_is_device(from) ? CUDASIM_DIRECTION_D2H : CUDASIM_DIRECTION_H2H;
}
