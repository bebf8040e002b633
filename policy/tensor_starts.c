#include "policy/lower_bound.h"
#include "policy/tensor_starts.h"

#include <string.h>

/*
 * A long time is RETURN_TIMES return times, but at least YOUNG accesses. YOUNG alone counts until
 * enough cuts have come back to know the return time.
 */
#define YOUNG 1024u
#define RETURN_TIMES 2u
/* A return time counts once this many cuts came back within it. */
#define SEVERAL 4u
/* The counts of returns are halved after this many return times and this many accesses. */
#define FADES_AFTER 16u
#define FADES_AFTER_LEAST 65536u
/*
 * Forgotten cuts are kept for this many long times. They are searched for each time after this many
 * accesses.
 */
#define CLEARED_AFTER 64u
#define CLEARED_EVERY 1024u

/*
 * If the list is full, this part of the cuts is dropped. It is the oldest part of the time since
 * the oldest use.
 */
#define GIVE_WAY 4u

/*
 * The most accesses between two cuts of one run. The accesses for which a cut is young. The number
 * of strides that the head's tensor is believed to reach.
 */
#define RUN_WITHIN 128u
#define YOUNG_CUT 512u
#define RUN_STRIDES 4u
/*
 * Strides shorter than this part of the least bytes that an access is taken to touch don't count.
 */
#define RUN_STRIDES_OF_LEAST 16u

void ps_tensor_starts_init(struct ps_tensor_starts *cuts, struct ps_tensor_start *memory, uint32_t room)
{
    *cuts = (struct ps_tensor_starts){.cut = memory, .room = room};
}

static uint64_t long_time(const struct ps_tensor_starts *cuts)
{
    return RETURN_TIMES * cuts->return_time > YOUNG ? RETURN_TIMES * cuts->return_time : YOUNG;
}

static bool is_late(const struct ps_tensor_starts *cuts, uint64_t when)
{
    return cuts->now - when > long_time(cuts);
}

/* Returns the first cut at the address or above. */
static uint32_t first_from(const struct ps_tensor_starts *cuts, uint64_t at)
{
    return (uint32_t)PS_LOWER_BOUND(cuts->count, i, cuts->cut[i].at < at);
}

/*
 * Drops cuts that were forgotten long ago. A late cut may still come back before that, and so show
 * how long returning takes. The first step may have 64 times YOUNG accesses.
 */
static void clear_forgotten(struct ps_tensor_starts *cuts)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < cuts->count; i++)
        if (cuts->now - cuts->cut[i].used <= CLEARED_AFTER * long_time(cuts))
            cuts->cut[kept++] = cuts->cut[i];
    cuts->count = kept;
}

/*
 * Drops the cuts used longest ago: about a quarter, if uses were spread evenly. So dropping costs
 * little time for each cut.
 */
static void make_room(struct ps_tensor_starts *cuts)
{
    uint64_t oldest = cuts->now;
    uint32_t kept = 0;

    clear_forgotten(cuts);
    if (cuts->count < cuts->room)
        return;
    for (uint32_t i = 0; i < cuts->count; i++)
        if (cuts->cut[i].used < oldest)
            oldest = cuts->cut[i].used;
    const uint64_t before = oldest + (cuts->now - oldest) / GIVE_WAY;
    for (uint32_t i = 0; i < cuts->count; i++)
        if (cuts->cut[i].used > before)
            cuts->cut[kept++] = cuts->cut[i];
    cuts->count = kept;
}

/* Finds the largest power of two within which several cuts came back, and not within its half. */
static void find_return_time(struct ps_tensor_starts *cuts)
{
    unsigned i = 63;

    while (i && cuts->returned[i] < SEVERAL)
        i--;
    cuts->return_time = i ? UINT64_C(1) << i : 0;
}

static void fade(struct ps_tensor_starts *cuts)
{
    for (unsigned i = 0; i < 64; i++)
        cuts->returned[i] /= 2;
    cuts->faded = cuts->now;
    find_return_time(cuts);
}

void ps_tensor_starts_begin(struct ps_tensor_starts *cuts)
{
    if (cuts->now - cuts->faded > FADES_AFTER_LEAST && cuts->now - cuts->faded > FADES_AFTER * cuts->return_time)
        fade(cuts);
    if (++cuts->now % CLEARED_EVERY == 0)
        clear_forgotten(cuts);
}

static void came_back(struct ps_tensor_starts *cuts, struct ps_tensor_start *cut)
{
    uint64_t took = cuts->now - cut->used;
    unsigned i = took > 1 ? 64 - (unsigned)__builtin_clzll(took - 1) : 0;

    if (i < 64 && ++cuts->returned[i] == SEVERAL)
        find_return_time(cuts);
    cut->used = cuts->now;
}

/* Returns the likely end of a tensor at the new cut if a run has come to it; else 0. */
static uint64_t end_in_run(const struct ps_tensor_starts *cuts, uint32_t i)
{
    const struct ps_tensor_start *cut = &cuts->cut[i];

    if (i < 2 || cut->made - cut[-1].made > RUN_WITHIN || cut[-1].made - cut[-2].made > RUN_WITHIN)
        return 0;
    uint64_t stride = cut->at - cut[-1].at, before = cut[-1].at - cut[-2].at;

    if (stride > RUN_STRIDES * before)
        return 0;
    return cut->at + RUN_STRIDES * (stride > before ? stride : before);
}

void ps_tensor_starts_note(struct ps_tensor_starts *cuts, uint64_t at, uint64_t end)
{
    uint32_t i = first_from(cuts, at);

    if (i < cuts->count && cuts->cut[i].at == at) {
        const bool was_forgotten = is_late(cuts, cuts->cut[i].used);
        came_back(cuts, &cuts->cut[i]);
        if (was_forgotten) {
            cuts->cut[i].made = cuts->now;
            cuts->cut[i].until = end_in_run(cuts, i);
        }
    } else {
        if (cuts->count == cuts->room) {
            make_room(cuts);
            i = first_from(cuts, at);
        }
        memmove(&cuts->cut[i + 1], &cuts->cut[i], (cuts->count - i) * sizeof *cuts->cut);
        cuts->cut[i] = (struct ps_tensor_start){.at = at, .made = cuts->now, .used = cuts->now};
        cuts->count++;
        cuts->cut[i].until = end_in_run(cuts, i);
    }
    struct ps_tensor_start *cut = &cuts->cut[i];
    /* A shorter copy or fill may have touched only part of the tensor. */
    if (end && (end >= cut->end || is_late(cuts, cut->ended))) {
        cut->end = end;
        cut->ended = cuts->now;
    }
}

/*
 * Returns the likely end of an access at the head of a run. Short strides may be those of
 * interleaved views and prove nothing. `end` is the end by the cuts above; 0: there is no cut
 * above.
 */
static uint64_t end_at_head(const struct ps_tensor_starts *cuts, const struct ps_tensor_start *cut, uint64_t end,
                            uint64_t least)
{
    if (!cut->until || cuts->now - cut->made > YOUNG_CUT ||
        cut->until - cut->at < RUN_STRIDES * (least / RUN_STRIDES_OF_LEAST))
        return end;
    uint64_t until = cut->until < cut->at + least ? cut->at + least : cut->until;

    return end && end < until ? end : until;
}

uint64_t ps_tensor_starts_end_of(const struct ps_tensor_starts *cuts, uint64_t at, uint64_t least)
{
    uint32_t own = first_from(cuts, at), i = first_from(cuts, at + least);
    uint64_t end = 0;

    while (i < cuts->count && is_late(cuts, cuts->cut[i].used))
        i++;
    if (i < cuts->count)
        end = cuts->cut[i].at;
    if (own == cuts->count || cuts->cut[own].at != at)
        return end;
    const struct ps_tensor_start *cut = &cuts->cut[own];
    if (!cut->end)
        end = end_at_head(cuts, cut, end, least);
    return cut->end > end && !is_late(cuts, cut->ended) ? cut->end : end;
}
