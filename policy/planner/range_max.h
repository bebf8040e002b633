/*
 * Bytes over the moments of a ring: what is held at each. Adding over a stretch, the most in a stretch, and the last moment above a bound
 * take log n each. Stretches go round the ring's end.
 *
 * Pure: memory from the caller. Threads: the caller serialises calls on one room.
 */
#ifndef PS_RANGE_MAX_H
#define PS_RANGE_MAX_H

#include <stddef.h>
#include <stdint.h>

/* A stretch of moments: `count` of them, the first one `from`. Never longer than the ring. */
struct ps_stretch {
    uint32_t from, count;
};

/* A tree of maxima: node i has the children 2i and 2i + 1, the leaves begin at `leaves`. What was added to a whole node stays there. */
struct ps_range_max {
    uint32_t moments, leaves;
    int64_t *most;  /* 2 * leaves: the most below a node, what was added to the node itself included, to those above it not */
    int64_t *added; /* leaves: to the node as a whole */
};

/* Bytes of memory that ps_range_max_init wants for so many moments. */
size_t ps_range_max_bytes(uint32_t moments);
/* `memory` is aligned for int64_t; `bytes[0..moments)` are the first values. */
void ps_range_max_init(struct ps_range_max *room, uint32_t moments, const int64_t *bytes, void *memory);

void ps_range_max_add(struct ps_range_max *room, struct ps_stretch stretch, int64_t bytes);
/* INT64_MIN of an empty stretch. */
int64_t ps_range_max_most(const struct ps_range_max *room, struct ps_stretch stretch);
/* How many of the stretch's moments come after the last one that holds more than `bound`; all of them when none does. */
uint32_t ps_range_max_tail_within(const struct ps_range_max *room, struct ps_stretch stretch, int64_t bound);

#endif
