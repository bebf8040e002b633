/*
 * Bytes by moment of a ring. Three operations take log n each: adding to a stretch, finding its
 * most, and finding its last moment above a bound. Stretches go round the ring's end.
 *
 * Pure: memory from the caller. Threads: the caller serialises calls on one tree.
 */
#ifndef PS_RANGE_MAX_H
#define PS_RANGE_MAX_H

#include <stddef.h>
#include <stdint.h>

/* A stretch of `count` moments, the first of which is `from`. It is never longer than the ring. */
struct ps_stretch {
    uint32_t from, count;
};

/*
 * A tree of maxima: node i has the children 2i and 2i + 1, and the leaves begin at `leaves`. Bytes
 * that were added to a whole node stay there.
 */
struct ps_range_max {
    uint32_t moments, leaves;
    /*
     * 2 * leaves: the most below a node, with the node's own `added`, without that of nodes above.
     */
    int64_t *most;
    int64_t *added; /* leaves: bytes added to the node as a whole */
};

/* Returns the bytes of memory that ps_range_max_init wants for this number of moments. */
size_t ps_range_max_bytes(uint32_t moments);

/*
 * Prepares `memory`, aligned for int64_t, with bytes[0..moments) as the first values. `bytes` NULL:
 * all are 0.
 */
void ps_range_max_init(struct ps_range_max *tree, uint32_t moments, const int64_t *bytes, void *memory);

/* Adds `bytes` to each moment of the stretch. */
void ps_range_max_add(struct ps_range_max *tree, struct ps_stretch stretch, int64_t bytes);

/* Returns the most bytes of a moment in the stretch; INT64_MIN if the stretch is empty. */
int64_t ps_range_max_most(const struct ps_range_max *tree, struct ps_stretch stretch);

/*
 * Returns the number of the stretch's moments after the last one above `bound`; all if none is
 * above.
 */
uint32_t ps_range_max_tail_within(const struct ps_range_max *tree, struct ps_stretch stretch, int64_t bound);

#endif
