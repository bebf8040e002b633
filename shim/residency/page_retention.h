/*
 * The hoard: pages that Penstock keeps though no span of the program's has them, and when they go back to the driver.
 *
 * A program that only asks how much memory there is (ps_request_told_free) takes all of it and gives it back unused, and torch does so once for each
 * convolution that cuDNN's benchmark mode tries, with a trim of its pool in between. To make 130 GiB of pages takes the driver 0.2 s on an H200, and clearing them
 * as long: a ResNet-50's first step took 20 s longer than without Penstock. So as long as it asks all is kept, and the trim is done when it has asked no more for a while.
 *
 * Threads: any; everything is [locked] with the registry lock.
 */
#ifndef PS_PAGE_RETENTION_H
#define PS_PAGE_RETENTION_H

#include <stdbool.h>
#include <stddef.h>

/* An allocation is made that only asks. */
void ps_page_retention_asked(void);

/*
 * Whether an allocation of so many bytes had better have a larger freed span than pages of its own: they would be more than what the program has wanted at once,
 * and the sizes of its freed spans, account for, and it has had pages made for so many sizes that those to come will hardly be among them.
 */
bool ps_page_retention_prefers_larger(size_t bytes);

/* Pages of so many bytes were just made for an allocation for use: what is more than the program's sizes may want goes back. [releases the lock meanwhile] */
void ps_page_retention_made(size_t bytes);

/* The program wants freed memory beyond `keep` bytes given back. [releases the lock meanwhile] */
void ps_page_retention_trim_to(size_t keep);

#endif
