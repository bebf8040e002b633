/*
 * Page retention: Penstock keeps pages that no span of the program has. This module decides when
 * they go back to the driver.
 *
 * A program that only asks how much memory there is (ps_request_told_free) takes all of it and
 * gives it back unused. torch does so once for each convolution that cuDNN's benchmark mode tries,
 * and trims its pool in between. The driver takes 0.2 s to make 130 GiB of pages on an H200, and as
 * long to clear them. A ResNet-50's first step took 20 s longer than without Penstock. So all pages
 * are kept while the program asks. The trim is made once the program has not asked for a while.
 *
 * Threads: any; everything is [locked] with the registry lock.
 */
#ifndef PS_PAGE_RETENTION_H
#define PS_PAGE_RETENTION_H

#include <stdbool.h>
#include <stddef.h>

/* The program makes an allocation that only asks. */
void ps_page_retention_asked(void);

/*
 * Returns whether an allocation of `bytes` should take a larger freed span rather than new pages.
 * Two conditions must hold. The new pages would exceed the program's peak of live bytes, with a
 * margin for its freed spans' sizes. The pages made so far cover a variety of sizes; coming
 * allocations will hardly have one of them.
 */
bool ps_page_retention_prefers_larger(size_t bytes);

/*
 * Pages of `bytes` were just made for an allocation for use. Pages beyond the possible needs of the
 * program's sizes go back to the driver. [locked; releases the lock meanwhile]
 */
void ps_page_retention_made(size_t bytes);

/*
 * The program wants freed memory beyond `keep` bytes given back.
 * [locked; releases the lock meanwhile]
 */
void ps_page_retention_trim_to(size_t keep);

#endif
