/*
 * Device pages that stand in for a slot while the driver looks.
 *
 * The driver looks at what kind of memory the addresses of a copy or fill lead to when that becomes a node of a graph, and refuses a node whose memory is not of
 * the kind that it was (host pages for device pages; measured: H100, driver 580). So around such a call what is named is brought to the device if that can be
 * had at once, and else the addresses of what is away are mapped to any device pages. The bytes stay in the slot, to which the mapping goes back.
 *
 * Two clocks: no work is queued by such a call, and none may run on the slot while the mapping is elsewhere. So what was queued to run there is waited for on
 * the host, a launch that is to run there is let by first, and later ones wait until the span is no longer busy. An access that shows in no call is lost
 * meanwhile, as it is while a span is reloaded.
 *
 * The device pages are few, however much is away (2 MiB on today's GPUs), and within the budget, unless nothing else can give way: then they are beside it for the
 * moment of the call.
 */
#ifndef PS_STANDING_IN_H
#define PS_STANDING_IN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/settings.h"
#include "memory/span.h"

/*
 * Before and after the call, on the same thread, with the same spans, which are held by `launching` in between. Those that could be shown neither way are left on
 * their slots, for the driver to refuse. At a kernel's parameters it does not look; its graph's launch brings what they name. [locked; releases the lock meanwhile]
 */
void ps_standing_in_begin(struct ps_span *const *spans, size_t count, bool is_kernel);
void ps_standing_in_end(struct ps_span *const *spans, size_t count, enum ps_guard guard);

#endif
