#include "policy/base/lower_bound.h"
#include "policy/planner/page_reuse.h"

#include <stdlib.h>

#include "policy/planner/least_budget.h"

#define NONE UINT32_MAX
#define EMPTY UINT64_MAX

/*
 * A freed span, in the list of its size from the oldest to the youngest. It doesn't matter which of
 * the step's spans it was.
 */
struct freed {
    uint64_t since; /* the number of frees before it */
    uint32_t older, younger;
};

/* The freed spans of one size. */
struct size_class {
    uint64_t bytes;
    uint32_t oldest, youngest;
};

struct ps_page_reuse {
    int64_t budget; /* bytes, with the margin of plans, which freed spans may use */
    int64_t kept;   /* bytes of freed spans */
    uint64_t frees;
    uint32_t classes, leaves, unused; /* `unused` is the first of a list by `younger` */
    struct size_class *class;         /* by size, the smallest first */
    uint32_t *class_of;               /* by span */
    struct freed *freed;
    /*
     * A tree of minima: node i has the children 2i and 2i + 1. The leaves, from `leaves` on, have
     * `since` of each class's oldest freed span, or EMPTY.
     */
    uint64_t *oldest;
};

/* The offset of each array in the memory, in bytes; `end` is their total. */
struct layout {
    size_t class, class_of, freed, oldest, end;
    uint32_t leaves;
};

static size_t take(size_t *at, size_t bytes)
{
    size_t taken = *at;

    *at += (bytes + 15) / 16 * 16;
    return taken;
}

static struct layout layout_of(const struct penstock_step *step)
{
    struct layout l = {.leaves = 1};
    size_t spans = step->spans + (size_t)1;

    while (l.leaves < step->spans)
        l.leaves *= 2;
    take(&l.end, sizeof(struct ps_page_reuse));
    l.class = take(&l.end, spans * sizeof(struct size_class));
    l.class_of = take(&l.end, spans * sizeof(uint32_t));
    l.freed = take(&l.end, spans * sizeof(struct freed));
    l.oldest = take(&l.end, 2 * (size_t)l.leaves * sizeof(uint64_t));
    return l;
}

size_t ps_page_reuse_bytes(const struct penstock_step *step)
{
    return layout_of(step).end;
}

/* Returns the first class of at least `bytes`; the number of classes if all are smaller. */
static uint32_t first_class(const struct ps_page_reuse *r, uint64_t bytes)
{
    return (uint32_t)PS_LOWER_BOUND(r->classes, i, r->class[i].bytes < bytes);
}

static int by_size(const void *one, const void *other)
{
    uint64_t a = ((const struct size_class *)one)->bytes, b = ((const struct size_class *)other)->bytes;

    return (a > b) - (a < b);
}

static void find_classes(struct ps_page_reuse *r, const struct penstock_step *step)
{
    for (uint32_t i = 0; i < step->spans; i++)
        r->class[i] = (struct size_class){step->span[i].bytes, NONE, NONE};
    qsort(r->class, step->spans, sizeof *r->class, by_size);
    for (uint32_t i = 0; i < step->spans; i++)
        if (!i || r->class[i].bytes != r->class[r->classes - 1].bytes)
            r->class[r->classes++] = r->class[i];
    for (uint32_t i = 0; i < step->spans; i++)
        r->class_of[i] = first_class(r, step->span[i].bytes);
}

struct ps_page_reuse *ps_page_reuse_init(const struct penstock_step *step, void *memory)
{
    const struct layout l = layout_of(step);
    struct ps_page_reuse *r = memory;
    char *start = memory;

    *r = (struct ps_page_reuse){
        .leaves = l.leaves,
        .class = (void *)(start + l.class),
        .class_of = (void *)(start + l.class_of),
        .freed = (void *)(start + l.freed),
        .oldest = (void *)(start + l.oldest),
    };
    r->budget = step->budget_bytes < INT64_MAX / 2 ? (int64_t)ps_budget_with_margin(step->budget_bytes) : INT64_MAX;
    find_classes(r, step);
    for (uint32_t i = 0; i < step->spans; i++)
        r->freed[i].younger = i + 1 < step->spans ? i + 1 : NONE;
    r->unused = step->spans ? 0 : NONE;
    for (size_t i = 0; i < 2 * (size_t)r->leaves; i++)
        r->oldest[i] = EMPTY;
    return r;
}

/* Updates the tree after the class's oldest freed span has changed. */
static void refresh(struct ps_page_reuse *r, uint32_t class)
{
    uint32_t first = r->class[class].oldest;
    size_t node = (size_t)r->leaves + class;

    r->oldest[node] = first == NONE ? EMPTY : r->freed[first].since;
    while ((node /= 2) > 0) {
        uint64_t left = r->oldest[2 * node], right = r->oldest[2 * node + 1];
        r->oldest[node] = left < right ? left : right;
    }
}

/* Returns the leaf below the node that has the node's value. */
static uint32_t leaf_below(const struct ps_page_reuse *r, size_t node)
{
    while (node < r->leaves)
        node = 2 * node + (r->oldest[2 * node] != r->oldest[node]);
    return (uint32_t)(node - r->leaves);
}

/* Returns the class, from this one on, that has the oldest freed span; NONE: all are empty. */
static uint32_t class_of_oldest(const struct ps_page_reuse *r, uint32_t class)
{
    if (class >= r->classes)
        return NONE;
    size_t node = (size_t)r->leaves + class, best = node;
    for (; node > 1; node /= 2)
        if (!(node & 1) && r->oldest[node + 1] < r->oldest[best])
            best = node + 1;
    return r->oldest[best] == EMPTY ? NONE : leaf_below(r, best);
}

/* Returns the largest class that has freed spans. The caller knows that one has. */
static uint32_t largest_class(const struct ps_page_reuse *r)
{
    size_t node = 1;

    while (node < r->leaves)
        node = 2 * node + (r->oldest[2 * node + 1] != EMPTY);
    return (uint32_t)(node - r->leaves);
}

/* Removes the oldest or the youngest freed span of a class that has some. */
static void take_out(struct ps_page_reuse *r, uint32_t class, bool the_oldest)
{
    struct size_class *of = &r->class[class];
    uint32_t which = the_oldest ? of->oldest : of->youngest, older = r->freed[which].older,
             younger = r->freed[which].younger;

    if (older == NONE)
        of->oldest = younger;
    else
        r->freed[older].younger = younger;
    if (younger == NONE)
        of->youngest = older;
    else
        r->freed[younger].older = older;
    r->freed[which].younger = r->unused;
    r->unused = which;
    r->kept -= (int64_t)of->bytes;
    refresh(r, class);
}

static bool has_some(const struct ps_page_reuse *r, uint32_t class)
{
    return r->class[class].oldest != NONE;
}

bool ps_page_reuse_taken(struct ps_page_reuse *r, uint32_t span, bool back, int64_t held)
{
    uint32_t class = r->class_of[span];

    if (!back && has_some(r, class)) {
        take_out(r, class, false);
        return false;
    }
    while (held > r->budget - r->kept && r->kept > 0) {
        uint64_t lack = (uint64_t)(held - (r->budget - r->kept));
        uint32_t goes = has_some(r, class) ? class : class_of_oldest(r, first_class(r, lack));
        take_out(r, goes == NONE ? largest_class(r) : goes, true);
    }
    return true;
}

void ps_page_reuse_freed(struct ps_page_reuse *r, uint32_t span)
{
    struct size_class *of = &r->class[r->class_of[span]];

    /*
     * The list is full, with more freed spans than the step ever has at a time. The oldest of all
     * is long forgotten.
     */
    if (r->unused == NONE)
        take_out(r, class_of_oldest(r, 0), true);
    uint32_t which = r->unused;
    r->unused = r->freed[which].younger;
    r->freed[which] = (struct freed){r->frees++, of->youngest, NONE};
    if (of->youngest == NONE)
        of->oldest = which;
    else
        r->freed[of->youngest].younger = which;
    of->youngest = which;
    r->kept += (int64_t)of->bytes;
    refresh(r, r->class_of[span]);
}
