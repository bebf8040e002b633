#include "residency/demand_eviction.h"

#include <errno.h>

#include "base/per_device.h"
#include "base/policies.h"
#include "base/state.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "penstock/policy.h"
#include "residency/eviction.h"
#include "residency/eviction_queue.h"
#include "residency/grace.h"
#include "residency/plan_table.h"

/*
 * The largest number of spans looked at for one choice. The list is in the order of idleness, so
 * the policy loses nothing without the others.
 */
#define CANDIDATES_MAX 256

static PS_PER_DEVICE uint32_t first_grace; /* kernel launches; constant once set up */

void ps_demand_eviction_open(uint32_t grace)
{
    PS_HERE(first_grace) = grace;
}

/*
 * Puts the last of `n` candidates in its place; those before it are in order. Of the spans that one
 * call used, the youngest leaves last. Most often that call made it, and it will be read. The spans
 * that it was made from may not be used again.
 */
static void put_in_order(struct ps_span **spans, struct penstock_candidate *candidates, size_t n)
{
    struct ps_span *span = spans[n - 1];
    const struct penstock_candidate candidate = candidates[n - 1];
    size_t i = n - 1;

    for (; i > 0 && spans[i - 1]->access.count == span->access.count && spans[i - 1]->buffer_id > span->buffer_id;
         i--) {
        spans[i] = spans[i - 1];
        candidates[i] = candidates[i - 1];
    }
    spans[i] = span;
    candidates[i] = candidate;
}

static size_t gather(struct ps_span **spans, struct penstock_candidate *candidates, uint32_t grace)
{
    struct ps_span *span;
    size_t n = 0;
    size_t no_slot_for = 0; /* a steady program has few sizes: remembering one saves most queries */

    TAILQ_FOREACH (span, &ps_registry.idle_order, listed) {
        if (n == CANDIDATES_MAX)
            break;
        if (grace && ps_registry.launch_number - span->access.launch <= grace)
            break; /* all further spans were used later still */
        if (!ps_eviction_may_leave(span) || (grace && !ps_grace_is_over(span)))
            continue;
        if (span->bytes == no_slot_for)
            continue;
        if (!ps_eviction_has_place(span->bytes)) {
            no_slot_for = span->bytes;
            continue;
        }
        spans[n] = span;
        candidates[n++] = (struct penstock_candidate){.bytes = span->bytes, .last_access = span->access.launch};
        put_in_order(spans, candidates, n);
    }
    return n;
}

/* Gathers the spans that the plan in force would evict now, but for the grace. */
static size_t gather_planned(struct ps_span **spans, struct penstock_candidate *candidates)
{
    const size_t planned = ps_plan.leaving(spans, CANDIDATES_MAX);
    size_t n = 0;

    for (size_t i = 0; i < planned; i++) {
        struct ps_span *span = spans[i];
        if (!ps_eviction_may_leave(span) || !ps_eviction_has_place(span->bytes))
            continue;
        spans[n] = span;
        candidates[n++] = (struct penstock_candidate){.bytes = span->bytes, .last_access = span->access.launch};
    }
    return n;
}

/*
 * Begins evictions for `need` bytes, and returns the bytes begun. `ahead`: grace does not give way.
 * Sets `refused` if ps_grace_leaves refused a span, as for a launch that may use it and is about to
 * be queued. [locked; releases the lock meanwhile]
 */
static uint64_t evict(uint64_t need, bool ahead, bool *refused)
{
    struct ps_span *spans[CANDIDATES_MAX];
    struct penstock_candidate candidates[CANDIDATES_MAX];
    size_t chosen[CANDIDATES_MAX];
    uint64_t begun = 0;

    /* Spans whose uses were not seen can't leave. */
    if (!ps_tracing_is_on() || !ps_eviction_start_helpers())
        return 0;
    size_t n = gather_planned(spans, candidates);
    if (!n)
        n = gather(spans, candidates, PS_HERE(first_grace));
    /*
     * Grace is for accesses that are not seen. If no other span can leave, grace gives way before
     * the program runs out of memory.
     */
    if (!n && !ahead && PS_HERE(first_grace))
        n = gather(spans, candidates, 0);
    if (ps_budget.evictions_fail)
        need = 1; /* the driver refused the last ones: one shows whether it still does */
    size_t k = ps_policies_choose(candidates, n, need, chosen);
    for (size_t i = 0; i < k; i++) {
        struct ps_span *span = spans[chosen[i]];
        uint64_t bytes = candidates[chosen[i]].bytes;
        /* The lock was released for the span before this one, so the span may have changed. */
        if (span->bytes != bytes || !ps_eviction_may_leave(span))
            continue;
        if (!ps_grace_is_over(span) && !ps_grace_leaves(span)) {
            *refused = true;
            continue;
        }
        if (!ps_eviction_start(span))
            begun += bytes;
    }
    if (begun)
        ps_eviction_look_ahead(); /* for the spans that are next to leave now */
    return begun;
}

uint64_t ps_demand_eviction_evict(uint64_t need)
{
    bool refused = false;
    uint64_t begun = evict(need, false, &refused);

    if (begun || !refused)
        return begun;
    ps_grace_hold_launches();
    begun = evict(need, false, &refused);
    ps_grace_let_launch();
    return begun;
}

uint64_t ps_demand_eviction_evict_ahead(uint64_t need)
{
    bool refused = false;

    return evict(need, true, &refused);
}

/* At most this many spans are queried: each takes several driver calls. */
#define ASKED 16

static uint64_t evict_at_once(uint64_t need, uint32_t grace)
{
    struct ps_span *spans[CANDIDATES_MAX];
    struct penstock_candidate candidates[CANDIDATES_MAX];
    const size_t n = gather(spans, candidates, grace);
    struct ps_late_uses late = {.count = 0};
    uint64_t begun = 0;

    for (size_t i = 0, asked = 0; i < n && asked < ASKED && begun < need; i++) {
        if (spans[i]->bytes != candidates[i].bytes || !ps_eviction_may_leave(spans[i]))
            continue;
        struct ps_uses uses = spans[i]->order.uses;
        ps_grace_add_uses(spans[i], &uses);
        if (ps_uses_are_late(&uses, &late))
            continue;
        if (!ps_grace_is_over(spans[i]) && !ps_grace_leaves(spans[i]))
            continue;
        asked++;
        if (!ps_eviction_start_at_once(spans[i], &late))
            begun += candidates[i].bytes;
    }
    return begun;
}

uint64_t ps_demand_eviction_evict_at_once(uint64_t need)
{
    if (!ps_tracing_is_on() || ps_budget.evictions_fail || !ps_eviction_start_helpers())
        return 0;
    const uint64_t begun = evict_at_once(need, PS_HERE(first_grace));
    /* Grace gives way as above: the spans idle for longer may be those that can't leave yet. */
    return begun || !PS_HERE(first_grace) ? begun : evict_at_once(need, 0);
}

/*
 * Whether the span may leave once it is not busy and no other thread's launch holds its block.
 * [locked]
 */
static bool could_leave(const struct ps_span *span)
{
    return span->life == PS_LIFE_LIVE && span->has_pages && !span->holds.launching && !span->holds.pinned &&
           !span->holds.user_pins && !span->holds.excluded &&
           (span->residency == PS_RESIDENT || span->residency == PS_RELOADING);
}

bool ps_demand_eviction_could_free(uint64_t need)
{
    const struct ps_span *span;
    uint64_t bytes = 0;

    if (ps_registry.blind_launches || !ps_tracing_is_on())
        return true; /* this can't be told yet */
    TAILQ_FOREACH (span, &ps_registry.idle_order, listed) {
        if (bytes >= need)
            break;
        if (could_leave(span))
            bytes += span->bytes;
    }
    return bytes >= need;
}
