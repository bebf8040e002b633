/*
 * Spare pages: device pages that no span has any more, kept for the next span.
 *
 * The driver clears what it is given back, on a copy engine that H2D copies use too: while it does, at about 210 GB/s, they run at half their rate (an H200;
 * 6 GiB given back cost 15 ms of the link, whatever they are given back as, and whichever streams copy. D2H copies and mapping don't show it). A step that
 * moves spans of many sizes gave back three times the bytes that it reloaded. So while memory is short pages stay with Penstock, and a span's are put together
 * of what there is, for a handle can't be cut.
 *
 * Two clocks: pages become spare when nothing is mapped to them, and so nothing uses them: who takes them has nothing to come after.
 *
 * What is spare counts as held (budget.h). Threads: everything is [locked] with the registry lock, but for what says otherwise.
 */
#ifndef PS_SPARE_PAGES_H
#define PS_SPARE_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/span.h"

/* Bytes that are spare. */
uint64_t ps_spare_bytes(void);

/*
 * Pages for a span, of those spare parts that suit it. Their sum may fall short of its bytes: ps_pages_make makes the rest. NULL: no memory.
 * The caller owns the structure.
 */
struct ps_page_block *ps_spare_gather(size_t bytes);

/* Bytes that its parts fall short of. Pure. */
size_t ps_pages_lacking(const struct ps_page_block *pages);

/* Has the driver make the parts that lack. 0, -ENOMEM, or another -errno; those that were made are there. [unlocked] */
int ps_pages_make(struct ps_page_block *pages);

/* The parts become spare, and the structure goes. Those that there is no memory to note stay in it: true, and it stays the caller's. */
bool ps_spare_keep(struct ps_page_block *pages);

/* Takes out what is best given back for so many bytes of room: of the parts that are enough the smallest, or the largest. NULL: none. As ps_spare_gather. */
struct ps_page_block *ps_spare_take_out(uint64_t bytes);

/* Gives the parts back to the driver; the structure goes. [unlocked] */
void ps_pages_give_back(struct ps_page_block *pages);

#endif
