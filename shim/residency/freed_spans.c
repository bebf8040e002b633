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
 * A thread of the program waits at most this long for the last use of one freed span. Then it looks
 * at all freed spans again.
 */
#define ONE_USE_NS 20000000u

/*
 * Returns 1 if the freed span's uses are over. Else returns 0, and notes an unfinished use in
 * `late`. [unlocked; the span is busy]
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
     * Two clocks: if events can't be queried, no stream can be made to wait for them either. So the
     * host waits for the device, except during a capture (-EBUSY) or for another thread's
     * per-thread stream (-EXDEV).
     */
    if (over < 0 && over != -EBUSY && over != -EXDEV)
        over = !ps_managed_context_wait();
    return over == 1;
}

/* Makes a cached span busy, until end_cached. [locked] */
static void begin_to_end_cached(struct ps_span *span)
{
    span->busy = true;
    ps_budget.ending++;
}

/*
 * Ends begin_to_end_cached. If the span's uses are `over`, unmaps and releases it. Returns its
 * bytes, or 0 if it stays. [locked; releases the lock meanwhile]
 */
static uint64_t end_cached(struct ps_span *span, bool over)
{
    uint64_t bytes = span->bytes;
    int r = 0;

    if (over) {
        ps_registry_unlock();
        /*
         * The driver does not wait for a running kernel, which would fault
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
    /* A program that asks how much memory there is asks again, for most of the same pages. */
    const bool only_asked = !span->freed.period;
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

/* The number of spans queried for one allocation: each query is a driver call. */
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
 * Releases one cached span if its uses are over; else notes an unfinished use in `late`. Returns
 * its bytes, or 0 if it stays. [locked; releases the lock meanwhile]
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

/* Whether no thread works on the freed span, no D2H reads it, and it is one of `whose`. [locked] */
static bool is_left_alone(const struct ps_span *span, enum ps_freed whose)
{
    return !span->busy && (!span->order.readers || !ps_ordering_rule(FREE_WAITS_FOR_COPY)) && is_among(span, whose);
}

/* The same, and no launch to come may use the span. [locked] */
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
 * Spans are freed in about the order in which their uses end. So a few spans at the head that are
 * still in use end the search. Spans with uses behind a known unfinished use don't count. On the
 * device, all spans freed on one stream may wait for work that this thread is yet to queue.
 */
#define STILL_IN_USE_MAX 4

/*
 * Returns the freed span to give up for `lack` bytes, or NULL. Of the spans that alone are enough,
 * it is the one freed longest ago; else it is the largest. Sizes come again, so each span that goes
 * is made again in the next step, which takes the driver's time. By this choice fewer spans go: in
 * ResNet-50 in 60 % of its memory, 172 a step instead of 250. A model of its recorded step says so;
 * steps of larger spans are the same. [locked]
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
 * Two clocks: the host waits until the device has reached the span's last use. On the device, that
 * use may wait for work that a thread of the program is yet to queue. So such a thread waits for a
 * moment only (ONE_USE_NS); a helper thread waits as long as it takes. Returns 0, -ETIMEDOUT or
 * another -errno. [unlocked; the span is busy]
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
     * A program may need the pages of spans that it has freed before it launches anything. If it
     * waited for those launches, it would wait for itself. So these spans are free, as the program
     * said, except spans that it is launching with.
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
 * Takes out a freed span of the size, or of up to `at_most` bytes, or returns NULL. Prefers a span
 * whose uses `orders_itself` comes after by itself, then one whose uses are over.
 *
 * Two clocks: a use of the span on another stream may wait for work that the program is yet to
 * queue. That work may be for the very stream that would get the span. Even if it is not, two
 * streams that share a span for ever run one after the other. So `stream` is made to wait for
 * another only for lack of room for pages, and under a plan. The plan counts on it: else a span
 * would leave. CUDA's own pool does so for lack of room, too
 * (cudaMemPoolReuseAllowInternalDependencies). cudaMalloc makes streams wait only for work that
 * cudaFree would have waited for. [locked; may release it]
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
 * Takes out a freed span that is up to twice as large, or returns NULL. If sizes hardly come again
 * (each batch has a length of its own), each allocation would make pages. Freed spans would fill
 * the device. The driver clears pages that it gets back before it can give any (7.5 ms an
 * allocation, an H100). [locked; may release it]
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
