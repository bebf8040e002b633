#include "core/access.h"

#include "base/clock.h"
#include "base/ordering_rules.h"
#include "base/waits.h"
#include "memory/blocks.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "plan/following.h"
#include "plan/learning.h"
#include "residency/block_order.h"
#include "residency/events.h"
#include "residency/grace.h"
#include "residency/residency.h"
#include "residency/run_ahead.h"
#include "residency/sole_stream.h"
#include "residency/standing_in.h"
#include "residency/stopwatch.h"

static void hold(struct ps_span *span, const struct ps_access_kind *kind)
{
    if (kind->capturing)
        ps_residency_hold_idly(span);
    else
        ps_residency_hold_one(span);
}

static void let_go(struct ps_span *span, const struct ps_access_kind *kind)
{
    if (kind->capturing)
        ps_residency_let_go_idly(span);
    else
        ps_residency_let_go_one(span);
}

/*
 * The way of a launch, or of another call that names spans:
 *
 *   1. Hold the spans.
 *   2. Tell the learner, which tells the follower the launch's place in the step.
 *   3. Bring the spans that are away (here ends ps_access_begin).
 *   4. The driver queues the launch.
 *   5. Note the launch's uses, and let the spans go.
 *   6. Tell the follower, which opens gaps (here ends ps_access_end).
 */
uint64_t ps_access_begin(struct ps_span **spans, size_t *count, struct ps_stream *stream,
                         const struct ps_access_kind *kind)
{
    struct ps_grace_naming naming;
    size_t n = 0, freed;
    bool work = false;

    ps_registry_lock();
    ps_registry.access_number++;
    /* A captured launch runs later, or never. It does not count as a launch of a grace. */
    if (kind->is_kernel && !kind->capturing)
        ps_grace_numbers_launch();
    ps_sole_stream_works(kind->capturing ? NULL : stream, kind->is_kernel);
    ps_grace_begin_naming(&naming, stream, kind->capturing);
    const bool shares = ps_sole_stream_shares(stream);
    /*
     * All spans are held before any is brought: one must not push out another of the same launch.
     */
    for (size_t i = 0; i < *count; i++) {
        struct ps_span *span = spans[i];
        if (span->life != PS_LIFE_LIVE)
            continue;
        hold(span, kind);
        ps_grace_begins_anew(span, &naming);
        if (!kind->keeps_no_address)
            atomic_store_explicit(&span->grace.known, true, memory_order_relaxed);
        if (!kind->only_maybe)
            ps_registry_touch(span);
        span->access.is_shared |= shares;
        work |= ps_residency_needs_work(span, stream);
        spans[i] = spans[n];
        spans[n++] = span;
    }
    /*
     * Freed spans that the program uses all the same come last. Two clocks: the uses that the next
     * owner comes after were noted at the free, before this launch. This launch's use is noted with
     * the others when it is queued.
     */
    for (size_t i = freed = n; i < *count; i++)
        if (spans[i]->life != PS_LIFE_LIVE && spans[i]->freed.awaited_on == stream) {
            hold(spans[i], kind);
            spans[freed++] = spans[i];
        }
    *count = freed;
    uint64_t launch = PS_LAUNCH_NOT_LEARNT;
    if (kind->may_be_stale)
        ps_learning_stale_launch(spans, n);
    else if ((n || kind->block_count) && !kind->only_looked && !kind->only_maybe)
        launch = ps_learning_launch(spans, n, kind->fingerprint, stream->index, kind->layer);
    if (ps_events_is_tracing() && !kind->only_looked && !kind->only_maybe)
        ps_events_launch(&kind->layer);
    const uint64_t began = work ? ps_now_ns() : 0;
    if (work && kind->capturing)
        ps_standing_in_begin(spans, n, kind->is_kernel);
    for (size_t i = 0; work && !kind->capturing && i < n; i++)
        if (ps_residency_needs_work(spans[i], stream))
            ps_residency_make_ready(spans[i], stream);
    if (work)
        ps_waits_kept_since(began);
    if (kind->block_count && !kind->capturing)
        ps_block_order_begin_launch(kind->blocks, kind->block_count, stream);
    ps_registry_unlock();
    if (kind->block_count && !ps_ordering_rule(PIECE_STAYS_WHILE_LAUNCHING)) {
        ps_ordering_rule_widen_window();
    }
    if (ps_learning_is_on() && !kind->capturing && launch != PS_LAUNCH_NOT_LEARNT)
        ps_stopwatch_launch_begins(stream, launch);
    return launch;
}

void ps_access_end(struct ps_span *const *spans, size_t count, struct ps_stream *stream,
                   const struct ps_access_kind *kind, uint64_t launch)
{
    bool gaps_open = false;

    if (!count && !kind->block_count)
        return;
    if (!kind->capturing)
        ps_stream_settle(stream);
    ps_registry_lock();
    /*
     * A captured call did not run, and no event may be recorded on a stream that is being captured.
     * The launch of the graph will be seen.
     */
    const struct ps_use use = ps_use_of(stream);
    for (size_t i = 0; i < count && !kind->capturing; i++) {
        ps_uses_add(&spans[i]->order.uses, use);
        spans[i]->access.stream = stream;
    }
    if (kind->capturing && !kind->is_kernel)
        ps_standing_in_end(spans, count, ps_residency_guard());
    for (size_t i = 0; i < count; i++)
        let_go(spans[i], kind);
    if (kind->is_kernel && !kind->capturing)
        ps_registry_launched(stream);
    if (kind->block_count && !kind->capturing)
        ps_block_order_end_launch(kind->blocks, kind->block_count, stream);
    if (!kind->capturing)
        gaps_open = ps_following_launched(launch, spans, count, stream);
    const uint64_t work = ps_following_work(), lead = ps_following_run_ahead();
    ps_registry_unlock();
    if (kind->capturing)
        return;
    if (ps_learning_is_on() && launch != PS_LAUNCH_NOT_LEARNT)
        ps_stopwatch_launch_ends(stream, launch);
    if (!stream->per_thread && ps_budget_is_tight())
        ps_run_ahead_launched(stream, gaps_open, lead, work);
}
