/*
 * Which slots make a row: several that lie behind one another at a span's addresses and add up to exactly its size. Pure arithmetic: no slots, no
 * lock, no driver call.
 */
#ifndef PS_SLAB_ROWS_H
#define PS_SLAB_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each slot of a row is a copy and a mapping of its own. */
#define PS_SLAB_ROW_SLOTS_MAX 24u

struct ps_slab_row_size {
    size_t bytes;
    uint32_t there; /* slots of this size to choose from */
    uint32_t taken; /* of them, in the row */
};

/*
 * Chooses slots that add up to `bytes`, at most PS_SLAB_ROW_SLOTS_MAX: of one size, the largest that will do, or else of several, the largest first.
 * `sizes`: `count` of them, the largest first. Sets `taken` in each. False if no row was found; the search looks at a bounded number of choices, so
 * a row that can hardly be found is not, and the call takes some 10 us at most.
 */
bool ps_slab_row_choose(struct ps_slab_row_size *sizes, unsigned count, size_t bytes);

#endif
