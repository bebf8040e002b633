/*
 * Spare pages: device pages that no span has any more, kept for the next span.
 *
 * The driver clears pages that it gets back, on a copy engine that H2D copies use too. It clears
 * about 210 GB/s, and H2D copies run at half their rate meanwhile (an H200). 6 GiB given back cost
 * 15 ms of the link, in any parts and whichever streams copy; D2H copies and mapping don't show it.
 * A step that moves spans of many sizes gave back three times the bytes that it reloaded. So while
 * memory is short, pages stay with Penstock. A handle can't be cut, so a span's pages are put
 * together from several parts.
 *
 * Two clocks: pages become spare when no address is mapped to them, so nothing uses them. Their
 * next span need not wait for anything.
 *
 * Spare pages count as held (budget.h). Threads: every function is [locked] with the registry lock
 * unless its comment says otherwise.
 */
#ifndef PS_SPARE_PAGES_H
#define PS_SPARE_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/span.h"

/* Returns the bytes of all spare pages. */
uint64_t ps_spare_bytes(void);

/*
 * Collects pages for a span from the spare parts that suit it. Their sum may fall short of `bytes`:
 * ps_pages_make() makes the rest. Returns NULL without memory. The caller owns the structure.
 */
struct ps_pages *ps_spare_gather(size_t bytes);

/* Returns the bytes that the parts fall short of the span's size. Pure. */
size_t ps_pages_lacking(const struct ps_pages *pages);

/*
 * Has the driver make the missing parts. Returns 0, -ENOMEM or another -errno; parts already made
 * stay in the structure. [unlocked]
 */
int ps_pages_make(struct ps_pages *pages);

/*
 * Makes the parts spare, and frees the structure. Returns true if memory to note them ran out: the
 * remaining parts stay in the structure, and the structure stays the caller's.
 */
bool ps_spare_keep(struct ps_pages *pages);

/*
 * Takes out the spare part that is best given back to make room for `bytes`: the smallest part that
 * is large enough, or else the largest. Returns NULL if no part is spare or memory runs out. The
 * caller owns the structure.
 */
struct ps_pages *ps_spare_take_out(uint64_t bytes);

/* Gives the parts back to the driver, and frees the structure. [unlocked] */
void ps_pages_give_back(struct ps_pages *pages);

#endif
