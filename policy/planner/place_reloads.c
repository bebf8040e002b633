/*
 * Chooses the times of reloads. Reloads claim room in the order in which they are needed, or in
 * reverse. On a ring neither is surely better. Each begins as early as there is room all the way
 * until its launch, whatever is allocated in between. So no reload takes pages from an allocation,
 * and the link has work as soon as a span fits.
 */
#include "policy/planner/planner.h"

#include <string.h>

/*
 * Sorts the chosen gaps by the launch that needs them, from the origin on: a stable counting sort.
 * Returns the number of gaps with a reload.
 */
static uint32_t sort_by_need(struct ps_planner *p, uint32_t *count, uint32_t first_launch)
{
    uint32_t launches = p->step->launches, sum = 0, with_reload = 0;

    memset(count, 0, ((size_t)launches + 1) * sizeof *count);
    for (uint32_t i = 0; i < p->gaps; i++) {
        if (p->chosen[i] && p->gap[i].needed_by != PENSTOCK_NEVER)
            count[ps_ring_distance(first_launch, p->gap[i].needed_by, launches) + 1]++;
    }
    for (uint32_t l = 0; l <= launches; l++) {
        sum += count[l];
        count[l] = sum;
    }
    for (uint32_t i = 0; i < p->gaps; i++) {
        if (p->chosen[i] && p->gap[i].needed_by != PENSTOCK_NEVER) {
            p->order[count[ps_ring_distance(first_launch, p->gap[i].needed_by, launches)]++] = i;
            with_reload++;
        }
    }
    return with_reload;
}

static uint32_t first_launch_from(const struct ps_planner *p, uint32_t moment)
{
    uint32_t launch = p->launch_at[moment];

    return launch < p->step->launches ? launch : 0;
}

/*
 * Returns the first launch from which there is room for the gap's span until the gap ends. The
 * gap's delay moves it later. Returns the gap's needed_by if there is no room before that.
 */
static uint32_t earliest_reload(struct ps_planner *p, const struct ps_gap *gap, unsigned delay)
{
    const struct penstock_step *step = p->step;
    uint32_t tail = ps_range_max_tail_within(&p->room, gap->cover, -(int64_t)step->span[gap->span].bytes);
    tail -= (uint32_t)((uint64_t)tail * delay / PS_DELAY_MAX);
    uint32_t end = step->launch[gap->needed_by].moment;
    uint32_t from = end >= tail ? end - tail : end + step->moments - tail;

    return first_launch_from(p, from);
}

/* Returns the key by which moves that leave after the same launch are ordered, smallest first. */
static int64_t leaving_key(const struct ps_planner *p, const struct penstock_move *move, enum ps_leaving leaving)
{
    const struct penstock_step *step = p->step;
    uint32_t end =
        move->needed_by == PENSTOCK_NEVER ? step->span[move->span].freed : step->launch[move->needed_by].moment;
    int64_t until_needed = ps_ring_distance(step->launch[move->evict_after].moment, end, step->moments);

    if (leaving == PS_LEAVING_SMALLEST)
        return (int64_t)step->span[move->span].bytes;
    if (until_needed == 0)
        until_needed = step->moments;
    return leaving == PS_LEAVING_SOONEST_NEEDED ? until_needed : -until_needed;
}

static void sort_leaving(struct ps_planner *p, struct penstock_move *move, uint32_t count, enum ps_leaving leaving)
{
    /*
     * A shell sort. Usually the moves are few, but an update of all parameters at once can name
     * thousands.
     */
    for (uint32_t distance = count / 2; distance > 0; distance /= 2) {
        for (uint32_t i = distance; i < count; i++) {
            struct penstock_move moving = move[i];
            int64_t key = leaving_key(p, &moving, leaving);
            uint32_t at = i;
            for (; at >= distance && leaving_key(p, &move[at - distance], leaving) > key; at -= distance)
                move[at] = move[at - distance];
            move[at] = moving;
        }
    }
}

static void sort_moves(struct ps_planner *p, uint32_t *count, enum ps_leaving leaving)
{
    uint32_t launches = p->step->launches, sum = 0;

    memset(count, 0, ((size_t)launches + 1) * sizeof *count);
    for (uint32_t i = 0; i < p->moves; i++)
        count[p->move[i].evict_after + 1]++;
    for (uint32_t l = 0; l <= launches; l++) {
        sum += count[l];
        count[l] = sum;
    }
    /* First find the place of each move; then put each move there, in place. */
    for (uint32_t i = 0; i < p->moves; i++)
        p->order[i] = count[p->move[i].evict_after]++;
    for (uint32_t i = 0; i < p->moves; i++) {
        while (p->order[i] != i) {
            uint32_t to = p->order[i];
            struct penstock_move held = p->move[to];
            p->move[to] = p->move[i];
            p->move[i] = held;
            p->order[i] = p->order[to];
            p->order[to] = to;
        }
    }
    for (uint32_t i = 0, end; i < p->moves; i = end) {
        for (end = i + 1; end < p->moves && p->move[end].evict_after == p->move[i].evict_after; end++)
            ;
        sort_leaving(p, p->move + i, end - i, leaving);
    }
}

void ps_schedule(struct ps_planner *p, struct ps_way way)
{
    const struct penstock_step *step = p->step;
    uint32_t first = first_launch_from(p, p->origin);
    /* Launches are fewer than moments, and `closing` is free now. */
    uint32_t *count = (uint32_t *)(void *)p->closing;
    uint32_t reloads = sort_by_need(p, count, first);
    uint32_t latest = 0;

    ps_choice_to_room(p);
    p->moves = 0;
    for (uint32_t i = 0; i < reloads; i++) {
        uint32_t number = p->order[way.claiming == PS_CLAIMING_REVERSED ? reloads - 1 - i : i];
        const struct ps_gap *gap = &p->gap[number];
        uint32_t reload_from = earliest_reload(p, gap, p->delay[number]);
        uint32_t length = ps_ring_distance(gap->opened_by, gap->needed_by, step->launches);
        uint32_t place = ps_ring_distance(first, reload_from, step->launches);
        if (way.claiming == PS_CLAIMING_IN_ORDER) {
            /*
             * `latest` counts from the origin. A gap that reaches over the origin may begin its
             * reload before the origin, in the round before.
             */
            bool over = ps_ring_distance(first, gap->needed_by, step->launches) < place;
            if (!over && place < latest && latest <= ps_ring_distance(first, gap->needed_by, step->launches)) {
                place = latest;
                reload_from = first + latest < step->launches ? first + latest : first + latest - step->launches;
            }
            if (!over && place > latest)
                latest = place;
        }
        if (length != 0 && ps_ring_distance(gap->opened_by, reload_from, step->launches) > length)
            reload_from = gap->needed_by;
        if (reload_from == gap->opened_by && length != 0)
            reload_from = gap->opened_by + 1 < step->launches ? gap->opened_by + 1 : 0;
        p->move[p->moves++] = (struct penstock_move){gap->span, gap->opened_by, reload_from, gap->needed_by, 0};
        if (reload_from != gap->needed_by) {
            struct ps_stretch held = {step->launch[reload_from].moment, 0};
            held.count = ps_ring_distance(held.from, step->launch[gap->needed_by].moment, step->moments);
            ps_range_max_add(&p->room, held, (int64_t)step->span[gap->span].bytes);
        }
    }
    for (uint32_t i = 0; i < p->gaps; i++) {
        if (p->chosen[i] && p->gap[i].needed_by == PENSTOCK_NEVER)
            p->move[p->moves++] =
                (struct penstock_move){p->gap[i].span, p->gap[i].opened_by, PENSTOCK_NEVER, PENSTOCK_NEVER, 0};
    }
    sort_moves(p, count, way.leaving);
    p->work += step->moments + 8 * (uint64_t)p->moves;
}
