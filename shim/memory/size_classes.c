#include "memory/size_classes.h"

#include <stdlib.h>

#include "base/per_device.h"
#include "cuda/streams.h"
#include "memory/registry.h"
#include "policy/span_rules.h"

struct size_class {
    size_t bytes;
    struct ps_span_list offered; /* spans, oldest first */
    uint32_t count;              /* number of spans in `offered` */
    uint64_t births;             /* number of spans born in this size, if births are counted */
    struct size_class *larger;   /* the next size; NULL: this is the largest */
};

#define CLASSES 4096u

static PS_PER_DEVICE struct {
    struct size_class *classes[CLASSES]; /* open addressing; an entry stays for good */
    struct size_class *smallest;
} first_dev;
#define dev (&PS_HERE(first_dev))

static void put_in_order(struct size_class *class)
{
    struct size_class **link = &dev->smallest;

    while (*link && (*link)->bytes < class->bytes)
        link = &(*link)->larger;
    class->larger = *link;
    *link = class;
}

/*
 * Returns the class of a size, which is made at need. Returns NULL when the table is full or memory
 * is missing.
 */
static struct size_class *class_of(size_t bytes, bool make)
{
    struct size_class **classes = dev->classes;
    uint32_t h = (uint32_t)((bytes >> ps_reservation.unit_shift) * 2654435761u) % CLASSES;

    for (uint32_t probes = 0; probes < CLASSES; probes++, h = (h + 1) % CLASSES) {
        if (classes[h] && classes[h]->bytes == bytes)
            return classes[h];
        if (classes[h])
            continue;
        if (!make || !(classes[h] = calloc(1, sizeof *classes[h])))
            return NULL;
        classes[h]->bytes = bytes;
        TAILQ_INIT(&classes[h]->offered);
        put_in_order(classes[h]);
        return classes[h];
    }
    return NULL;
}

void ps_size_class_offer(struct ps_span *span)
{
    struct size_class *class = class_of(span->bytes, true);

    span->has_class = class != NULL;
    if (!class)
        return;
    TAILQ_INSERT_TAIL(&class->offered, span, sized);
    class->count++;
}

void ps_size_class_withdraw(struct ps_span *span)
{
    struct size_class *class = span->has_class ? class_of(span->bytes, false) : NULL;

    if (!class)
        return;
    TAILQ_REMOVE(&class->offered, span, sized);
    class->count--;
    span->has_class = false;
}

uint32_t ps_size_class_count(size_t bytes)
{
    const struct size_class *class = class_of(bytes, false);

    return class ? class->count : 0;
}

static bool may_be_taken(const struct ps_span *span, const struct ps_stream *stream)
{
    return !span->busy && (!ps_registry_is_awaited(span) || span->freed.awaited_on == stream);
}

static bool used_on_alone(const struct ps_span *span, const struct ps_stream *stream)
{
    return !span->order.uses.everywhere &&
           (span->order.uses.count == 0 || (span->order.uses.count == 1 && span->order.uses.use[0].stream == stream));
}

/*
 * Whether the span's fence stands for work that the requester's stream need not wait for. The real
 * cudaFree makes the calling thread wait for all of that work. Another thread goes on, and that
 * work may wait for what this other thread queues next.
 */
static bool is_behind_others(const struct ps_span *span, const struct ps_stream *stream)
{
    if (!span->freed.behind_everything)
        return false;
    if (span->freed.in_order) /* on the legacy stream */
        return !stream || !ps_stream_orders_others(stream);
    return span->freed.by != ps_thread_number();
}

/*
 * Spans of a size that the search for one without a wait considers. A steady program finds it among
 * the first.
 */
#define LOOK_AT 32

static struct ps_span *ordered_in(const struct size_class *class, const struct ps_stream *stream, bool for_any)
{
    struct ps_span *span;
    int looked = 0;

    TAILQ_FOREACH_REVERSE(span, &class->offered, ps_span_list, sized)
    {
        if (looked++ == LOOK_AT)
            break;
        if (may_be_taken(span, stream) && used_on_alone(span, stream) && !is_behind_others(span, stream) &&
            !(for_any && span->freed.in_order && span->order.uses.count))
            return span;
    }
    return NULL;
}

static struct ps_span *oldest_in(const struct size_class *class, const struct ps_stream *stream)
{
    struct ps_span *span;

    TAILQ_FOREACH (span, &class->offered, sized) /* the oldest span: its last use is the likeliest to be over */
        if (may_be_taken(span, stream))
            return span;
    return NULL;
}

/*
 * Returns the class to begin with. It is made only if larger classes are wanted, too. After that
 * the larger ones need no search.
 */
static const struct size_class *first_class(size_t bytes, size_t at_most)
{
    return class_of(bytes, at_most > bytes);
}

struct ps_span *ps_size_class_find_ordered(size_t bytes, size_t at_most, const struct ps_stream *stream, bool for_any)
{
    const struct size_class *class = first_class(bytes, at_most);
    struct ps_span *span = NULL;

    for (; !span && class && class->bytes <= at_most; class = class->larger)
        span = ordered_in(class, stream, for_any);
    return span;
}

struct ps_span *ps_size_class_find(size_t bytes, size_t at_most, const struct ps_stream *stream)
{
    const struct size_class *class = first_class(bytes, at_most);
    struct ps_span *span = NULL;

    for (; !span && class && class->bytes <= at_most; class = class->larger)
        if (!(span = ordered_in(class, stream, false)))
            span = oldest_in(class, stream);
    return span;
}

struct ps_span *ps_size_class_find_freed_at_once(size_t bytes)
{
    const struct size_class *class = class_of(bytes, false);
    struct ps_span *span = NULL;

    if (class)
        TAILQ_FOREACH (span, &class->offered, sized)
            if (may_be_taken(span, NULL) && !span->freed.in_order && ps_uses_are_marked(&span->order.uses) &&
                (!span->freed.by || span->freed.by == ps_thread_number()))
                break;
    return span;
}

unsigned ps_size_class_oldest(size_t bytes, size_t at_most, const struct ps_stream *stream, struct ps_span **spans,
                              unsigned room)
{
    const struct size_class *class = first_class(bytes, at_most);
    struct ps_span *span;
    unsigned n = 0;

    for (; n < room && class && class->bytes <= at_most; class = class->larger)
        TAILQ_FOREACH (span, &class->offered, sized) {
            if (n == room)
                break;
            if (may_be_taken(span, stream))
                spans[n++] = span;
        }
    return n;
}

uint64_t ps_size_class_count_birth(size_t bytes)
{
    struct size_class *class = class_of(bytes, true);

    return class ? class->births++ : PS_SPAN_UNKNOWN_NTH;
}
