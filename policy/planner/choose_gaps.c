/*
 * Chooses the gaps to evict in. One sweep goes over the moments, from the least demand on. While
 * the demand is over the budget, the open gap with the largest key is chosen. Then gaps that the
 * others make superfluous are dropped.
 */
#include "policy/planner/planner.h"

#include <string.h>

static bool goes_before(const struct ps_planner *p, uint32_t a, uint32_t b)
{
    if (p->key[a] != p->key[b])
        return p->key[a] > p->key[b];
    return a < b;
}

static void heap_push(struct ps_planner *p, uint32_t *count, uint32_t gap)
{
    uint32_t at = (*count)++;

    while (at > 0 && goes_before(p, gap, p->heap[(at - 1) / 2])) {
        p->heap[at] = p->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    p->heap[at] = gap;
}

static uint32_t heap_pop(struct ps_planner *p, uint32_t *count)
{
    uint32_t top = p->heap[0], last = p->heap[--*count], at = 0;

    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child + 1 < *count && goes_before(p, p->heap[child + 1], p->heap[child]))
            child++;
        if (child >= *count || !goes_before(p, p->heap[child], last))
            break;
        p->heap[at] = p->heap[child];
        at = child;
    }
    p->heap[at] = last;
    return top;
}

static int64_t bytes_of(const struct ps_planner *p, uint32_t gap)
{
    return (int64_t)p->step->span[p->gap[gap].span].bytes;
}

/* Returns the number of moments since the sweep began. */
static uint32_t since_origin(const struct ps_planner *p, uint32_t moment)
{
    return ps_ring_distance(p->origin, moment, p->step->moments);
}

static bool slab_has_room(const struct ps_planner *p, uint32_t gap)
{
    return !p->slab_binds || ps_range_max_most(&p->slab, ps_slab_stretch(p->gap[gap].cover)) + bytes_of(p, gap) <=
                                 (int64_t)p->step->slab_bytes;
}

struct sweep {
    int64_t evicted;   /* bytes evicted in the chosen gaps that are open */
    uint32_t waiting;  /* gaps in the heap */
    uint32_t next_gap; /* the first gap that has not opened */
};

/* A gap that is open at the origin opens again towards the end of the sweep. */
static void take_gap(struct ps_planner *p, struct sweep *s, uint32_t gap)
{
    struct ps_stretch cover = p->gap[gap].cover;
    uint64_t end = (uint64_t)cover.from + cover.count;

    p->chosen[gap] = 1;
    s->evicted += bytes_of(p, gap);
    p->closing[end % p->step->moments] += bytes_of(p, gap);
    if (p->slab_binds)
        ps_range_max_add(&p->slab, ps_slab_stretch(cover), bytes_of(p, gap));
}

static void open_gap(struct ps_planner *p, struct sweep *s, uint32_t gap)
{
    if (p->key[gap] < PS_KEY_CHOSEN)
        heap_push(p, &s->waiting, gap);
    else if (slab_has_room(p, gap))
        take_gap(p, s, gap);
}

static bool sweep(struct ps_planner *p)
{
    uint32_t moments = p->step->moments;
    struct sweep s = {0};
    bool met = true;

    memset(p->closing, 0, moments * sizeof *p->closing);
    memset(p->chosen, 0, p->gaps);
    if (p->slab_binds) {
        memset(p->room_memory, 0, moments * sizeof(int64_t));
        ps_range_max_init(&p->slab, moments, p->room_memory, p->slab_memory);
    }
    for (uint32_t i = 0; i < p->gaps; i++) {
        struct ps_stretch cover = p->gap[i].cover;
        if (since_origin(p, cover.from) + (uint64_t)cover.count > moments)
            open_gap(p, &s, i);
    }
    for (uint32_t n = 0; n < moments; n++) {
        uint32_t m = n < moments - p->origin ? p->origin + n : n - (moments - p->origin);
        s.evicted -= n > 0 ? p->closing[m] : 0;
        for (; s.next_gap < p->gaps && p->gap[s.next_gap].cover.from == m; s.next_gap++) {
            if (p->chosen[s.next_gap])
                s.evicted += bytes_of(p, s.next_gap);
            else
                open_gap(p, &s, s.next_gap);
        }
        while (p->excess[m] > s.evicted) {
            if (s.waiting == 0) {
                met = false;
                break;
            }
            uint32_t gap = heap_pop(p, &s.waiting);
            if (p->chosen[gap] || ps_ring_distance(p->gap[gap].cover.from, m, moments) >= p->gap[gap].cover.count)
                continue;
            if (slab_has_room(p, gap))
                take_gap(p, &s, gap);
        }
    }
    return met;
}

void ps_choice_to_room(struct ps_planner *p)
{
    ps_range_max_init(&p->room, p->step->moments, p->excess, p->room_memory);
    for (uint32_t i = 0; i < p->gaps; i++) {
        if (p->chosen[i])
            ps_range_max_add(&p->room, p->gap[i].cover, -bytes_of(p, i));
    }
}

/* Drops the gaps that aren't needed, the smallest keys first. */
static void prune(struct ps_planner *p)
{
    uint32_t count = 0;

    ps_choice_to_room(p);
    for (uint32_t i = 0; i < p->gaps; i++) {
        if (p->chosen[i])
            heap_push(p, &count, i);
    }
    uint32_t chosen = count;
    for (uint32_t i = 0; i < chosen; i++)
        p->order[i] = heap_pop(p, &count);
    for (uint32_t i = chosen; i-- > 0;) {
        uint32_t gap = p->order[i];
        if (p->key[gap] < PS_KEY_CHOSEN && ps_range_max_most(&p->room, p->gap[gap].cover) + bytes_of(p, gap) <= 0) {
            ps_range_max_add(&p->room, p->gap[gap].cover, bytes_of(p, gap));
            p->chosen[gap] = 0;
        }
    }
}

bool ps_choose(struct ps_planner *p)
{
    bool met = sweep(p);

    prune(p);
    p->work += 2 * (uint64_t)p->step->moments + 8 * (uint64_t)p->gaps;
    return met;
}
