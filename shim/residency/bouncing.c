#include "residency/bouncing.h"

#include "memory/blocks.h"
#include "memory/budget.h"
#include "memory/registry.h"

/*
 * A span that takes more than 1/LARGE_PART of the budget is large. A span of up to 1/LEAST_PART is
 * copied in little time: it comes and goes.
 */
#define LARGE_PART 4u
#define LEAST_PART 32u

/*
 * A span comes back soon if it is demanded within SOON kernel launches after it left. After TIMES
 * such returns in a row it stays on its slot.
 */
#define SOON 16u
#define TIMES 3u
/* The launches for which it stays at first, and how often that may double. */
#define STAYS_FOR 256u
#define DOUBLES_MAX 12u

void ps_bouncing_leaves(struct ps_span *span)
{
    span->returns.left = ps_registry.launch_number + 1;
}

/*
 * In short steps a span that is not large comes back soon, too. If launches use all bytes of it,
 * each would take as long over the link as a copy. So such a span stays only where launches are
 * known to use a part.
 */
static bool may_stay(const struct ps_span *span)
{
    if (span->bytes > ps_budget.limit / LARGE_PART)
        return true;
    return span->bytes > ps_budget.limit / LEAST_PART && !ps_block_of(span) && ps_block_parts_are_used();
}

bool ps_bouncing_stays(struct ps_span *span)
{
    const uint64_t now = ps_registry.launch_number;

    if (!may_stay(span))
        return false;
    if (now < span->returns.stays_until)
        return true;
    if (span->returns.stays_until) { /* it is tried again */
        span->returns.stays_until = 0;
        return false;
    }
    if (!span->returns.left)
        return false; /* it has not left since the last look */
    const bool was_soon = now - (span->returns.left - 1) <= SOON;
    span->returns.left = 0;
    if (!was_soon) {
        span->returns.bounces = span->returns.stays = 0;
        return false;
    }
    if (++span->returns.bounces < TIMES)
        return false;
    span->returns.stays_until =
        now + ((uint64_t)STAYS_FOR << (span->returns.stays < DOUBLES_MAX ? span->returns.stays : DOUBLES_MAX));
    span->returns.stays++;
    return true;
}
