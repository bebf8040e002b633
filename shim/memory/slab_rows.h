/*
 * Slab rows: chooses the slots of a row. They lie behind one another at a span's addresses and add
 * up to exactly its size. Pure arithmetic: no slots, no lock, no driver call.
 */
#ifndef PS_SLAB_ROWS_H
#define PS_SLAB_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The bound exists because each slot of a row needs a copy and a mapping of its own. */
#define PS_SLAB_ROW_SLOTS_MAX 24u

struct ps_slab_row_size {
    size_t bytes;
    uint32_t there; /* slots of this size to choose from */
    uint32_t taken; /* those of them that the row takes */
};

/*
 * Chooses at most PS_SLAB_ROW_SLOTS_MAX slots that add up to `bytes`. They have one size, the
 * largest that will do, or else several sizes, the largest first. `sizes` has `count` entries, the
 * largest first; the call sets `taken` in each. Returns false if it finds no row. The search tries
 * a bounded number of choices: it may miss a row, and takes some 10 us at most.
 */
bool ps_slab_row_choose(struct ps_slab_row_size *sizes, unsigned count, size_t bytes);

#endif
