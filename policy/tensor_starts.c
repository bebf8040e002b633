#include "policy/base/lower_bound.h"
#include "policy/tensor_starts.h"

#include <string.h>

/*
 * A long time is RETURN_TIMES return times, but at least YOUNG accesses. YOUNG alone counts until
 * enough starts have come back to know the return time.
 */
#define YOUNG 1024u
#define RETURN_TIMES 2u
/* A return time counts once this many starts came back within it. */
#define SEVERAL 4u
/* The counts of returns are halved after this many return times and this many accesses. */
#define FADES_AFTER 16u
#define FADES_AFTER_LEAST 65536u
/*
 * Forgotten starts are kept for this many long times. They are searched for each time after this
 * many accesses.
 */
#define CLEARED_AFTER 64u
#define CLEARED_EVERY 1024u

/*
 * If the list is full, this part of the starts is dropped. It is the oldest part of the time since
 * the oldest use.
 */
#define GIVE_WAY 4u

/*
 * The most accesses between two starts of one run. The accesses for which a start is young. The
 * number of strides that the head's tensor is believed to reach.
 */
#define RUN_WITHIN 128u
#define YOUNG_START 512u
#define RUN_STRIDES 4u
/*
 * Strides shorter than this part of the least bytes that an access is taken to touch don't count.
 */
#define RUN_STRIDES_OF_LEAST 16u

void ps_tensor_starts_init(struct ps_tensor_starts *starts, struct ps_tensor_start *memory, uint32_t room)
{
    *starts = (struct ps_tensor_starts){.start = memory, .room = room};
}

static uint64_t long_time(const struct ps_tensor_starts *starts)
{
    return RETURN_TIMES * starts->return_time > YOUNG ? RETURN_TIMES * starts->return_time : YOUNG;
}

static bool is_late(const struct ps_tensor_starts *starts, uint64_t when)
{
    return starts->now - when > long_time(starts);
}

/* Returns the first start at the address or above. */
static uint32_t first_from(const struct ps_tensor_starts *starts, uint64_t at)
{
    return (uint32_t)PS_LOWER_BOUND(starts->count, i, starts->start[i].at < at);
}

/*
 * Drops starts that were forgotten long ago. A late start may still come back before that, and so
 * show how long returning takes. The first step may have 64 times YOUNG accesses.
 */
static void clear_forgotten(struct ps_tensor_starts *starts)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < starts->count; i++)
        if (starts->now - starts->start[i].used <= CLEARED_AFTER * long_time(starts))
            starts->start[kept++] = starts->start[i];
    starts->count = kept;
}

/*
 * Drops the starts used longest ago: about a quarter, if uses were spread evenly. So dropping costs
 * little time for each start.
 */
static void make_room(struct ps_tensor_starts *starts)
{
    uint64_t oldest = starts->now;
    uint32_t kept = 0;

    clear_forgotten(starts);
    if (starts->count < starts->room)
        return;
    for (uint32_t i = 0; i < starts->count; i++)
        if (starts->start[i].used < oldest)
            oldest = starts->start[i].used;
    const uint64_t before = oldest + (starts->now - oldest) / GIVE_WAY;
    for (uint32_t i = 0; i < starts->count; i++)
        if (starts->start[i].used > before)
            starts->start[kept++] = starts->start[i];
    starts->count = kept;
}

/* Finds the largest power of two within which several starts came back, and not within its half. */
static void find_return_time(struct ps_tensor_starts *starts)
{
    unsigned i = 63;

    while (i && starts->returned[i] < SEVERAL)
        i--;
    starts->return_time = i ? UINT64_C(1) << i : 0;
}

static void fade(struct ps_tensor_starts *starts)
{
    for (unsigned i = 0; i < 64; i++)
        starts->returned[i] /= 2;
    starts->faded = starts->now;
    find_return_time(starts);
}

void ps_tensor_starts_begin(struct ps_tensor_starts *starts)
{
    if (starts->now - starts->faded > FADES_AFTER_LEAST &&
        starts->now - starts->faded > FADES_AFTER * starts->return_time)
        fade(starts);
    if (++starts->now % CLEARED_EVERY == 0)
        clear_forgotten(starts);
}

static void came_back(struct ps_tensor_starts *starts, struct ps_tensor_start *start)
{
    uint64_t took = starts->now - start->used;
    unsigned i = took > 1 ? 64 - (unsigned)__builtin_clzll(took - 1) : 0;

    if (i < 64 && ++starts->returned[i] == SEVERAL)
        find_return_time(starts);
    start->used = starts->now;
}

/* Returns the likely end of a tensor at the new start if a run has come to it; else 0. */
static uint64_t end_in_run(const struct ps_tensor_starts *starts, uint32_t i)
{
    const struct ps_tensor_start *start = &starts->start[i];

    if (i < 2 || start->made - start[-1].made > RUN_WITHIN || start[-1].made - start[-2].made > RUN_WITHIN)
        return 0;
    uint64_t stride = start->at - start[-1].at, before = start[-1].at - start[-2].at;

    if (stride > RUN_STRIDES * before)
        return 0;
    return start->at + RUN_STRIDES * (stride > before ? stride : before);
}

void ps_tensor_starts_note(struct ps_tensor_starts *starts, uint64_t at, uint64_t end)
{
    uint32_t i = first_from(starts, at);

    if (i < starts->count && starts->start[i].at == at) {
        const bool was_forgotten = is_late(starts, starts->start[i].used);
        came_back(starts, &starts->start[i]);
        if (was_forgotten) {
            starts->start[i].made = starts->now;
            starts->start[i].until = end_in_run(starts, i);
        }
    } else {
        if (starts->count == starts->room) {
            make_room(starts);
            i = first_from(starts, at);
        }
        memmove(&starts->start[i + 1], &starts->start[i], (starts->count - i) * sizeof *starts->start);
        starts->start[i] = (struct ps_tensor_start){.at = at, .made = starts->now, .used = starts->now};
        starts->count++;
        starts->start[i].until = end_in_run(starts, i);
    }
    struct ps_tensor_start *start = &starts->start[i];
    /* A shorter copy or fill may have touched only part of the tensor. */
    if (end && (end >= start->end || is_late(starts, start->ended))) {
        start->end = end;
        start->ended = starts->now;
    }
}

/*
 * Returns the likely end of an access at the head of a run. Short strides may be those of
 * interleaved views and prove nothing. `end` is the end by the starts above; 0: there is no start
 * above.
 */
static uint64_t end_at_head(const struct ps_tensor_starts *starts, const struct ps_tensor_start *start, uint64_t end,
                            uint64_t least)
{
    if (!start->until || starts->now - start->made > YOUNG_START ||
        start->until - start->at < RUN_STRIDES * (least / RUN_STRIDES_OF_LEAST))
        return end;
    uint64_t until = start->until < start->at + least ? start->at + least : start->until;

    return end && end < until ? end : until;
}

uint64_t ps_tensor_starts_end_of(const struct ps_tensor_starts *starts, uint64_t at, uint64_t least)
{
    uint32_t own = first_from(starts, at), i = first_from(starts, at + least);
    uint64_t end = 0;

    while (i < starts->count && is_late(starts, starts->start[i].used))
        i++;
    if (i < starts->count)
        end = starts->start[i].at;
    if (own == starts->count || starts->start[own].at != at)
        return end;
    const struct ps_tensor_start *start = &starts->start[own];
    if (!start->end)
        end = end_at_head(starts, start, end, least);
    return start->end > end && !is_late(starts, start->ended) ? start->end : end;
}
