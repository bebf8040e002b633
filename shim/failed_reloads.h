/*
 * What becomes of a span whose reload came to nothing. For residency.c.
 */
#ifndef PS_FAILED_RELOADS_H
#define PS_FAILED_RELOADS_H

#include "budget.h"
#include "span.h"

/*
 * The span stays on its slot, and the pages that it was to have are given back. Where nobody can tell whether the copy is over (`error` -EINPROGRESS, copies.h)
 * it stays on the pages for good, and the slot is never used again. Returns what the caller is to return, which is not -EBUSY: that means that somebody works on
 * the span. [locked; may release the lock meanwhile]
 */
int ps_reload_failed(struct ps_span *span, struct ps_pages *pages, int error);

#endif
