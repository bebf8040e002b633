#include "residency/freed_spans.h"

#include <errno.h>

#include "base/clock.h"
#include "base/ordering_rules.h"
#include "base/state.h"
#include "base/waits.h"
#include "cuda/device_memory.h"
#include "cuda/driver.h"
#include "cuda/helper_thread.h"
#include "cuda/managed_context.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "memory/size_classes.h"
#include "residency/plan_table.h"

/*
 * For so long a thread of the program waits for the last use of one freed span; then it looks at
 * all of them again.
 */
#define ONE_USE_NS 20000000u

/*
 * 1 when nothing uses the freed span any more, 0 when something does; that is noted. [unlocked; the
 * span is busy]
 */
static int uses_are_over(const struct ps_span *span, struct ps_late_uses *late)
{
    if (!ps_ordering_rule(RELEASE_WAITS_FOR_USES))
        return 1;
    int over = ps_uses_query_noting(&span->order.uses, late);
    const CUresult filled = over == 1 && span->order.fence_set ? ps_cu.cuEventQuery(span->order.fence) : CUDA_SUCCESS;
    if (filled != CUDA_SUCCESS)
        over = filled == CUDA_ERROR_NOT_READY ? 0 : -EIO;
    /*
     * Two clocks: where events can't be asked no stream can be made to wait either, so the host
     * waits for the device. Not while somebody captures.
     */
    if (over < 0 && over != -EBUSY && over != -EXDEV)
        over = !ps_managed_context_wait();
    return over == 1;
}

/* What begins with this ends with end_cached. [locked] */
static void begin_to_end_cached(struct ps_span *span)
{
    span->busy = true;
    ps_budget.ending++;
}

/*
 * The cached span is busy; if its uses are `over`, it is unmapped and released. Its bytes, or 0.
 * [locked; releases the lock meanwhile]
 */
static uint64_t end_cached(struct ps_span *span, bool over)
{
    uint64_t bytes = span->bytes;
    int r = 0;

    if (over) {
        ps_registry_unlock();
        /*
         * Under a running kernel it would fault: the driver does not wait
         * (shim/README.md#mapping-memory).
         */
        r = ps_pages_unmap(span->address, span->bytes);
        ps_registry_lock();
    }
    span->busy = false;
    ps_budget.ending--;
    ps_registry_changed();
    if (!over || r)
        return 0;
    struct ps_pages *pages = span->pages;
    const bool only_asked = !span->freed.period; /* who asks how much there is asks again, of most of the same pages */
    ps_registry_cached_remove(span);
    span->has_pages = false;
    span->pages = NULL;
    span->backing = PS_BACKING_NONE;
    ps_registry_delete(span);
    if (only_asked)
        ps_budget_let_go_as_spare(pages);
    else
        ps_budget_let_go(pages, true);
    return bytes;
}

/* Questions for one allocation: each is a call of the driver's. */
#define ASKED 4

struct ps_span *ps_freed_take_over(size_t bytes, size_t at_most, const struct ps_stream *stream)
{
    struct ps_span *span[ASKED];
    struct ps_late_uses late = {.count = 0};
    const unsigned n = ps_size_class_oldest(bytes, at_most, stream, span, ASKED);
    unsigned over = 0;

    if (!n)
        return NULL;
    for (unsigned i = 0; i < n; i++)
        begin_to_end_cached(span[i]);
    ps_registry_unlock();
    while (over < n && (ps_uses_are_late(&span[over]->order.uses, &late) || !uses_are_over(span[over], &late)))
        over++;
    ps_registry_lock();
    for (unsigned i = 0; i < n; i++) {
        span[i]->busy = false;
        ps_budget.ending--;
    }
    ps_registry_changed();
    if (over == n)
        return NULL;
    ps_registry_cached_remove(span[over]);
    ps_uses_clear(&span[over]->order.uses);
    span[over]->order.fence_set = false;
    return span[over];
}

/*
 * Releases one cached span if its uses are over; else notes the one that is not. Returns its bytes
 * or 0. [locked; releases the lock meanwhile]
 */
static uint64_t release_cached(struct ps_span *span, struct ps_late_uses *late)
{
    begin_to_end_cached(span);
    ps_registry_unlock();
    bool over = uses_are_over(span, late);
    ps_registry_lock();
    return end_cached(span, over);
}

static bool is_among(const struct ps_span *span, enum ps_freed whose)
{
    switch (whose) {
    case PS_FREED_NOT_DUE:
        return ps_plan.can_spare(span);
    case PS_FREED_UNWANTED:
        return ps_registry_is_unwanted(span);
    default:
        return true;
    }
}

/* A freed span that nobody works on and no D2H reads. [locked] */
static bool is_left_alone(const struct ps_span *span, enum ps_freed whose)
{
    return !span->busy && (!span->order.readers || !ps_ordering_rule(FREE_WAITS_FOR_COPY)) && is_among(span, whose);
}

/* The same, and no launch may use it yet. [locked] */
static bool may_be_unmapped(const struct ps_span *span, enum ps_freed whose)
{
    return !ps_registry_is_awaited(span) && is_left_alone(span, whose);
}

bool ps_freed_end(struct ps_span *span)
{
    struct ps_late_uses late = {.count = 0};

    return may_be_unmapped(span, PS_FREED_ANY) && release_cached(span, &late);
}

/*
 * Freed spans are freed in about the order in which their uses end: a few at the head that are
 * still in use end the search. Those whose stream has not come to where another is in use count for
 * nothing: all that one stream has freed may wait, on the device, for what this thread is yet to
 * queue.
 */
#define STILL_IN_USE_MAX 4

/*
 * The freed span to give up for the pages that lack: the one freed longest ago of those that alone
 * are enough, or the largest. Sizes come again, so each that goes is made anew in the next step,
 * and what a step makes and unmaps is what the driver has time for (ResNet-50 in 60 % of its
 * memory: 172 times a step instead of 250, by a model of its recorded step; steps of larger spans
 * are the same). [locked]
 */
static struct ps_span *worth_ending(uint64_t lack, enum ps_freed whose, struct ps_span *const *in_use, int count,
                                    const struct ps_late_uses *late)
{
    struct ps_span *span, *largest = NULL;

    TAILQ_FOREACH (span, &ps_registry.cached, listed) {
        bool enough = span->bytes >= lack, tried = false;
        if (!enough && largest && span->bytes <= largest->bytes)
            continue;
        for (int i = 0; i < count; i++)
            tried |= in_use[i] == span;
        if (tried || !may_be_unmapped(span, whose) || ps_uses_are_late(&span->order.uses, late))
            continue;
        if (enough)
            return span;
        largest = span;
    }
    return largest;
}

uint64_t ps_freed_release(uint64_t least, size_t room, enum ps_freed whose)
{
    struct ps_span *in_use[STILL_IN_USE_MAX];
    struct ps_late_uses late = {.count = 0};
    uint64_t released = 0;

    for (int count = 0; count < STILL_IN_USE_MAX;) {
        uint64_t lack = room ? ps_budget_lacking(room) : 0;
        if (released >= least && !lack)
            break;
        struct ps_span *span = worth_ending(lack, whose, in_use, count, &late);
        if (!span)
            break;
        uint64_t one = release_cached(span, &late);
        released += one;
        if (!one)
            in_use[count++] = span;
    }
    return released;
}

/*
 * Two clocks: the host waits until the device has come to the span's last use, and that may wait,
 * on the device, for what a thread of the program is yet to queue. Such a thread waits for a
 * moment; others may be as long as it takes. 0; -ETIMEDOUT; other -errno. [unlocked; the span is
 * busy]
 */
static int wait_for_uses(const struct ps_span *span)
{
    const bool helper = ps_helper_thread_is_one();
    int r = helper ? ps_uses_host_wait(&span->order.uses) : ps_uses_host_wait_at_most(&span->order.uses, ONE_USE_NS);

    if (r || !span->order.fence_set)
        return r;
    return helper ? ps_event_host_wait(span->order.fence) : ps_event_host_wait_at_most(span->order.fence, ONE_USE_NS);
}

int ps_freed_wait_for_oldest(enum ps_freed whose)
{
    struct ps_span *span;

    TAILQ_FOREACH (span, &ps_registry.cached, listed)
        if (may_be_unmapped(span, whose))
            break;
    /*
     * A program that needs the pages of what it has freed before it launches anything would wait
     * for itself: they are free, as it said. What it is launching is not.
     */
    if (!span && whose == PS_FREED_EVEN_AWAITED && !ps_helper_thread_is_one())
        TAILQ_FOREACH (span, &ps_registry.cached, listed)
            if (is_left_alone(span, whose) && !span->holds.launching)
                break;
    if (!span)
        return -ENOENT;
    begin_to_end_cached(span);
    ps_registry_unlock();
    int r = wait_for_uses(span);
    ps_registry_lock();
    if (end_cached(span, !r))
        return 0;
    return r ? r : -EIO;
}

/* ---- for an allocation ---- */

/*
 * A freed span of the size, or up to `at_most` bytes: one that `orders_itself` comes after by
 * itself, or one whose uses are over. NULL: there is none.
 *
 * Two clocks: what still uses one on another stream may wait for what the program is yet to queue,
 * on the very stream that is to have it; and if not, two streams that share a span for ever run one
 * after the other. So `stream` is made to wait for another only where there is no room for pages,
 * as CUDA's own pool does it (cudaMemPoolReuseAllowInternalDependencies), and a plan counts on it:
 * else something leaves. cudaMalloc makes streams wait for what cudaFree would have waited for
 * alone. [locked; may release it]
 */
static struct ps_span *take_freed(size_t bytes, size_t at_most, const struct ps_stream *stream,
                                  const struct ps_stream *orders_itself)
{
    struct ps_span *span = ps_registry_cached_take_ordered(bytes, at_most, orders_itself, !stream);

    if (!span)
        span = ps_freed_take_over(bytes, at_most, orders_itself);
    if (!span && !stream && ps_tracing_notes())
        span = ps_registry_cached_take_at_once(bytes);
    if (!span && ((stream && ps_plan.is_on() && ps_budget_lacking(bytes)) || !ps_ordering_rule(REUSE_WAITS_FOR_FREE)))
        span = ps_registry_cached_take(bytes, stream);
    return span;
}

/*
 * One that is up to twice as large, or NULL. Sizes that hardly come again (batches of lengths of
 * their own) would have each allocation make pages, and fill the device with freed ones: then what
 * the driver is given back it clears before it has any to give (7.5 ms an allocation, an H100).
 * [locked; may release it]
 */
static struct ps_span *take_larger(size_t bytes, const struct ps_stream *stream, const struct ps_stream *orders_itself)
{
    const uint64_t room = ps_budget_to_spare();

    return room ? take_freed(bytes, bytes + (room < bytes ? room : bytes), stream, orders_itself) : NULL;
}

struct ps_span *ps_freed_choose(size_t bytes, const struct ps_stream *stream, const struct ps_stream *orders_itself,
                                bool may_be_larger)
{
    struct ps_span *span = take_freed(bytes, bytes, stream, orders_itself);

    if (!span && may_be_larger && !ps_plan.is_making(bytes))
        span = take_larger(bytes, stream, orders_itself);
    ps_plan.allocated(bytes, span != NULL);
    if (span || !ps_plan.is_making(bytes))
        return span;
    const uint64_t began = ps_now_ns();
    while (!span && ps_plan.is_making(bytes)) {
        ps_registry_wait_changed(1000000u);
        span = take_freed(bytes, bytes, stream, orders_itself);
    }
    ps_waits_kept_since(began);
    return span;
}
