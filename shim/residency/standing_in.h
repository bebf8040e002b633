/*
 * Device pages that stand in for a slot while the driver looks at its addresses.
 *
 * When a copy or fill becomes a node of a graph, the driver looks at the kind of its memory. It
 * refuses a node whose memory is not of its former kind (host pages for device pages; measured:
 * H100, driver 580). So before such a call the named spans are brought to the device, if that is
 * possible at once. The addresses of spans that are still away are mapped to any device pages.
 * Their bytes stay in the slot, and the mapping goes back to it.
 *
 * Two clocks: such a call queues no work. No work may run on the slot while the mapping is
 * elsewhere. So the host waits for work that was queued to run on the slot. A launch that is about
 * to run there goes first. Later launches wait until the span is no longer busy. An access that no
 * call shows is lost meanwhile, as it is while a span is reloaded.
 *
 * The stand-ins are few (2 MiB on today's GPUs), however many bytes are away. They are within the
 * budget, unless nothing else can give way. Then they are beside it during the call.
 */
#ifndef PS_STANDING_IN_H
#define PS_STANDING_IN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/settings.h"
#include "memory/span.h"

/*
 * The first function runs before the call and the second after it, on the same thread, with the
 * same spans. The caller holds the spans by `launching` in between. Spans that could be neither
 * brought nor stood in for stay on their slots. The driver may refuse those.
 *
 * `is_kernel`: the node is a kernel. The driver does not look at a kernel's parameters. The launch
 * of the graph brings the spans that they name. [locked; releases the lock meanwhile]
 */
void ps_standing_in_begin(struct ps_span *const *spans, size_t count, bool is_kernel);
void ps_standing_in_end(struct ps_span *const *spans, size_t count, enum ps_guard guard);

#endif
