/*
 * The detector runs two searches side by side.
 *
 * In history, a cursor walks beside the newest launch at a fixed distance. When a whole distance
 * has been equal, the last launches repeat those before them. The distance is then a step's length
 * unless something else speaks against it.
 *
 * In the known patterns, the detector looks for a few successive launches that fit exactly one
 * place of one pattern.
 *
 * Cursors and places are looked up by the hash of the latest few fingerprints (a gram). A hash only
 * suggests a match; the fingerprints themselves are compared before a match is accepted.
 */
#include "policy/steps/pattern.h"
#include "policy/steps/resync.h"

#include <string.h>

#define LATEST (2 * PS_RING) /* slots of the index from each gram to its last launch */
#define CURSORS 6
#define POWERS 18 /* 2^17 launches is the longest step */

/* The shortest match that is accepted. A kernel that runs a few times in a row is no step. */
#define MATCH_MIN 64

/*
 * A step of at least EARLY_FROM launches is accepted when a quarter of it has come again. Otherwise
 * a training of a few long steps would end before it has a plan. If such a pattern breaks off
 * before one whole round, it is forgotten.
 */
#define EARLY_FROM 1024
#define EARLY_PART 4

/* One launch in this many may use a span (a batch of a data set) last used before the step. */
#define FAR_ONE_IN 64

/* A pattern that was recognised and lost before its end this often supersedes no others. */
#define STRIKES 3

/*
 * Where spans give no evidence, up to this many rounds of a shorter step, and a rest, are a longer
 * step. With more rounds they are a loop with an occasional visitor.
 */
#define ROUNDS_IN_LONGER UINT64_C(16)

#define REACH_MAX UINT32_C(0x7fffffff)
/* A bit beside a launch's reach: the program marked the end of a step before this launch. */
#define MARKED UINT32_C(0x80000000)

/* A place in history that has been equal to the newest launches for some time. */
struct cursor {
    uint64_t distance;
    uint64_t match; /* the number of launches that were equal; 0: the cursor is free */
    uint64_t check; /* not examined again before `count` reaches this */
};

struct ps_steps {
    uint64_t count;         /* launches observed */
    uint64_t hash;          /* of all launches */
    uint64_t power[POWERS]; /* PS_BASE to the power of 2^i */
    bool mark;              /* the next launch is the first one after a mark */
    uint64_t last_mark;     /* `count` at the last mark, + 1; 0: no mark yet */
    bool following;
    uint32_t slot, position; /* of the pattern that is followed */
    uint64_t followed;       /* launches since that pattern was found or recognised */
    uint32_t lost_slot;      /* the pattern that was lost last; PS_NOWHERE: none, or it is forgotten */
    struct ps_resync resync;
    uint64_t foreign; /* the number of successive grams that no pattern has */
    /* `count` when the latest launch that no pattern has was seen. */
    uint64_t last_foreign;
    uint32_t known; /* a bit for each pattern: it has the previous gram */
    struct cursor cursor[CURSORS];
    /* Slot of a pattern that was accepted early and has broken off; PS_NOWHERE: none. */
    uint32_t broken;
    uint32_t broken_at;    /* position of the expected launch that did not come */
    uint64_t broken_count; /* `count` then, with the launch that came instead */
    uint64_t in_pattern, steps, lost, found;
    uint64_t fingerprint[PS_RING];
    uint64_t prefix[PS_RING]; /* hash of all launches up to and with this one */
    uint32_t reach[PS_RING];
    uint32_t latest[LATEST]; /* low half of the number of the gram's last launch */
    struct ps_step_pattern pattern[PS_PATTERNS_MAX];
};

/* ---- hashes ---- */

/*
 * Returns the hash of all launches up to and with number `launch`. UINT64_MAX (-1) stands before
 * the first launch.
 */
static uint64_t prefix_of(const struct ps_steps *steps, uint64_t launch)
{
    return launch == UINT64_MAX ? 0 : steps->prefix[launch % PS_RING];
}

static uint64_t gram_at(const struct ps_steps *steps, uint64_t launch)
{
    return ps_hash_u64(
        ps_pattern_difference(prefix_of(steps, launch), prefix_of(steps, launch - PS_GRAM), steps->power[3]));
}

static bool same_gram(const struct ps_steps *steps, uint64_t a, uint64_t b)
{
    for (uint64_t i = 0; i < PS_GRAM; i++) {
        if (steps->fingerprint[(a - i) % PS_RING] != steps->fingerprint[(b - i) % PS_RING])
            return false;
    }
    return true;
}

/* ---- patterns ---- */

size_t ps_steps_bytes(void)
{
    return sizeof(struct ps_steps);
}

void ps_steps_init(struct ps_steps *steps)
{
    steps->power[0] = PS_BASE;
    for (int i = 1; i < POWERS; i++)
        steps->power[i] = ps_pattern_multiply(steps->power[i - 1], steps->power[i - 1]);
    steps->slot = steps->broken = steps->lost_slot = PS_NOWHERE;
}

/* Returns whether a pattern that contains this one is in force. This one is then not looked for. */
static bool is_superseded(const struct ps_steps *steps, const struct ps_step_pattern *pattern)
{
    if (pattern->superseded_by == PS_NOWHERE)
        return false;
    const struct ps_step_pattern *by = &steps->pattern[pattern->superseded_by];
    return by->serial == pattern->superseder && by->strikes < STRIKES;
}

/*
 * Returns whether enough launches have come again to accept the cursor's distance as a step's
 * length.
 */
static bool is_believed(const struct ps_steps *steps, const struct cursor *cursor)
{
    uint64_t whole = cursor->distance > MATCH_MIN ? cursor->distance : MATCH_MIN;

    if (!steps->following && cursor->distance >= EARLY_FROM)
        return cursor->match >= cursor->distance / EARLY_PART;
    return cursor->match >= whole;
}

static uint64_t weight(const struct ps_step_pattern *pattern)
{
    return pattern->rounds * pattern->length + 1;
}

/* ---- following ---- */

static struct ps_steps_state state_of(const struct ps_steps *steps, enum ps_steps_event event)
{
    struct ps_steps_state state = {.event = event, .following = steps->following};

    if (steps->following) {
        state.pattern = steps->slot;
        state.come_round = steps->pattern[steps->slot].is_whole;
        state.length = steps->pattern[steps->slot].length;
        state.position = steps->position;
    }
    return state;
}

/*
 * Frees the cursors with at most this distance. They can only find the pattern itself, its
 * repetitions, or a part of it.
 */
static void drop_cursors(struct ps_steps *steps, uint64_t distance)
{
    for (int i = 0; i < CURSORS; i++) {
        if (steps->cursor[i].distance <= distance)
            steps->cursor[i].match = 0;
    }
}

static void start_following(struct ps_steps *steps, uint32_t slot, uint32_t position)
{
    steps->following = true;
    steps->slot = slot;
    steps->position = position;
    steps->followed = 0;
    steps->pattern[slot].last_seen = steps->count;
    drop_cursors(steps, steps->pattern[slot].length);
}

/* Marks a pattern that has had one whole round. It supersedes the patterns that it contains. */
static void make_whole(struct ps_steps *steps, uint32_t slot)
{
    struct ps_step_pattern *pattern = &steps->pattern[slot];

    pattern->is_whole = true;
    for (uint32_t i = 0; i < PS_PATTERNS_MAX; i++) {
        struct ps_step_pattern *other = &steps->pattern[i];
        if (other->length != 0 && other->length < pattern->length && ps_step_pattern_contains(pattern, other)) {
            other->superseded_by = slot;
            other->superseder = pattern->serial;
        }
    }
}

static enum ps_steps_event follow(struct ps_steps *steps, uint64_t fingerprint)
{
    struct ps_step_pattern *pattern = &steps->pattern[steps->slot];
    const uint32_t expected = steps->position;
    bool fits = pattern->fingerprint[expected] == fingerprint;

    if (++steps->position == pattern->length)
        steps->position = 0;
    if (!fits) {
        steps->following = false;
        steps->lost++;
        steps->lost_slot = steps->slot;
        ps_resync_begin(&steps->resync, pattern, expected, fingerprint);
        /* if this launch has a place in a pattern after all, the run counts one launch too many */
        steps->foreign = 1;
        steps->known = UINT32_MAX;
        /*
         * A good step may be up to a gram short of a round between being recognised and being lost.
         */
        pattern->strikes = steps->followed + PS_GRAM < pattern->length ? pattern->strikes + 1 : 0;
        if (!pattern->is_whole) {
            steps->broken = steps->slot;
            steps->broken_at = (steps->position ? steps->position : pattern->length) - 1;
            steps->broken_count = steps->count;
            steps->slot = PS_NOWHERE;
        }
        return PS_STEPS_LOST;
    }
    steps->followed++;
    steps->in_pattern++;
    pattern->last_seen = steps->count;
    if (steps->position != 0)
        return PS_STEPS_NOTHING;
    steps->steps++;
    drop_cursors(steps, steps->followed);
    if (steps->followed >= pattern->length) {
        pattern->rounds++;
        pattern->last_wrap = steps->count;
        pattern->strikes = 0;
        if (!pattern->is_whole)
            make_whole(steps, steps->slot);
    }
    return PS_STEPS_WRAPPED;
}

/* ---- recognising ---- */

/*
 * Recognises a pattern by the newest gram. A gram with a single place in a pattern tells where the
 * program is. A gram with several places does so too if the program has only just entered the
 * pattern. It is then at the first of them, because a loop over layers is entered at its first
 * layer.
 */
static bool recognise(struct ps_steps *steps, uint64_t fingerprint, uint64_t gram)
{
    uint32_t best = PS_NOWHERE, place = PS_NOWHERE, known = 0;
    bool best_unique = false;

    if (steps->lost_slot != PS_NOWHERE)
        place = ps_resync_look(&steps->resync, &steps->pattern[steps->lost_slot], fingerprint);
    if (place != PS_NOWHERE && !is_superseded(steps, &steps->pattern[steps->lost_slot])) {
        if (steps->broken == steps->lost_slot)
            steps->broken = PS_NOWHERE;
        start_following(steps, steps->lost_slot, place);
        return true;
    }
    for (uint32_t slot = 0; slot < PS_PATTERNS_MAX; slot++) {
        const struct ps_step_pattern *pattern = &steps->pattern[slot];
        uint32_t at = pattern->length != 0 && pattern->is_whole
                          ? ps_step_pattern_find(pattern, gram, steps->fingerprint, steps->count - 1)
                          : PS_NOWHERE;
        if (at == PS_NOWHERE)
            continue;
        known |= 1u << slot;
        if (is_superseded(steps, pattern))
            continue;
        bool unique = !(at & PS_AMBIGUOUS);
        if (!unique && (steps->known >> slot & 1))
            continue;
        if (best == PS_NOWHERE || unique > best_unique ||
            (unique == best_unique && weight(pattern) > weight(&steps->pattern[best]))) {
            best = slot;
            best_unique = unique;
            place = at & ~PS_AMBIGUOUS;
        }
    }
    steps->known = known;
    steps->foreign = known == 0 ? steps->foreign + 1 : 0;
    if (steps->foreign >= PS_GRAM)
        steps->last_foreign = steps->count;
    if (best == PS_NOWHERE)
        return false;
    start_following(steps, best, place);
    return true;
}

/* ---- finding ---- */

/* Starts a cursor at the place where the newest gram was seen last. */
static void add_cursor(struct ps_steps *steps, uint64_t gram)
{
    uint64_t now = steps->count - 1;
    uint64_t distance = (uint32_t)(now - steps->latest[gram % LATEST]);
    struct cursor *worst = &steps->cursor[0];

    if (distance == 0 || distance > PS_PATTERN_LAUNCHES_MAX || distance + PS_GRAM > steps->count ||
        !same_gram(steps, now, now - distance))
        return;
    for (int i = 0; i < CURSORS; i++) {
        struct cursor *cursor = &steps->cursor[i];
        if (cursor->match != 0 && cursor->distance == distance)
            return;
        if (cursor->match < worst->match)
            worst = cursor;
    }
    /*
     * Count how long the two places have been equal already. The largest power of two that is equal
     * comes first, then the next smaller ones before it.
     */
    uint64_t match = 0;
    uint64_t limit = (steps->count < PS_RING ? steps->count : PS_RING - 1) - distance;
    for (int i = POWERS - 1; i >= 0; i--) {
        uint64_t more = UINT64_C(1) << i;
        if (match + more > limit)
            continue;
        uint64_t newer =
            ps_pattern_difference(prefix_of(steps, now - match), prefix_of(steps, now - match - more), steps->power[i]);
        uint64_t older = ps_pattern_difference(prefix_of(steps, now - distance - match),
                                               prefix_of(steps, now - distance - match - more), steps->power[i]);
        if (newer == older)
            match += more;
    }
    if (match > worst->match)
        *worst = (struct cursor){.distance = distance, .match = match};
}

static void walk_cursors(struct ps_steps *steps, uint64_t fingerprint)
{
    uint64_t now = steps->count - 1;

    for (int i = 0; i < CURSORS; i++) {
        struct cursor *cursor = &steps->cursor[i];
        if (cursor->match != 0)
            cursor->match =
                steps->fingerprint[(now - cursor->distance) % PS_RING] == fingerprint ? cursor->match + 1 : 0;
    }
}

/* What the launches of one distance tell about it as a step's length. */
struct evidence {
    uint64_t sum;
    uint64_t farthest; /* the longest reach that is within `reach_max` */
    /*
     * A span is used that was used before the distance began. Spans that are never used again
     * belong to a set-up, not to a step.
     */
    bool carried;
    /*
     * 0: reaches don't speak against the distance. Otherwise `count` at which that may have
     * changed.
     */
    uint64_t retry;
};

/*
 * Examines the reaches of the last launches. `reach_max` is the longest reach allowed in a step:
 * the distance, or that of the round before. Only the last `looked_at` launches, which have come
 * again, can speak against the distance. A launch that came once, in a program's first step, may
 * reach back to the set-up before it.
 */
static struct evidence look_back(const struct ps_steps *steps, uint64_t distance, uint64_t looked_at,
                                 uint64_t reach_max)
{
    struct evidence evidence = {0};
    uint64_t far = 0;

    for (uint64_t i = 1; i <= distance || i <= looked_at; i++) {
        uint64_t launch = steps->count - i;
        uint32_t reach = steps->reach[launch % PS_RING] & REACH_MAX;
        if (i <= distance)
            evidence.sum += ps_hash_u64(steps->fingerprint[launch % PS_RING]);
        if (reach <= reach_max) {
            evidence.carried |= i <= distance && reach + i > distance;
            if (reach > evidence.farthest)
                evidence.farthest = reach;
        } else if (i <= looked_at && ++far == looked_at / FAR_ONE_IN + 1) {
            evidence.retry = launch + distance + 1;
        }
    }
    return evidence;
}

/*
 * Returns whether at least half of the last `distance` launches belong to the pattern. An inner
 * loop is no step, however often it runs.
 */
static bool covers(const struct ps_steps *steps, const struct ps_step_pattern *pattern, uint64_t distance)
{
    uint64_t in = 0;

    for (uint64_t i = 0; i < distance; i++) {
        uint64_t launch = steps->count - 1 - i;
        in += launch + 1 >= PS_GRAM &&
              ps_step_pattern_find(pattern, gram_at(steps, launch), steps->fingerprint, launch) != PS_NOWHERE;
    }
    return 2 * in >= distance;
}

/*
 * Returns whether a shorter step that came round inside this distance is the better one.
 *
 * It is if all launches in between belong to a known step too: the program then runs steps in
 * changing order. Otherwise the longer step is needed if a span is idle for all of it but less than
 * a shorter round. Accumulated gradients leave such spans for the update; an occasional evaluation
 * doesn't. Where spans give no evidence, a short rest beside a few shorter rounds counts as an
 * update too.
 */
static bool has_shorter(const struct ps_steps *steps, uint64_t distance, uint64_t farthest)
{
    for (uint32_t slot = 0; slot < PS_PATTERNS_MAX; slot++) {
        const struct ps_step_pattern *pattern = &steps->pattern[slot];
        uint64_t length = pattern->length;
        if (length == 0 || !pattern->is_whole || length >= distance || !covers(steps, pattern, distance))
            continue;
        if (pattern->last_seen + distance > steps->count && steps->last_foreign + distance <= steps->count)
            return true;
        if (pattern->last_wrap + distance < steps->count + length)
            continue;
        uint64_t rest = distance % length;
        if (farthest > length ? farthest + length <= distance
                              : rest == 0 || rest > length / 2 || distance > ROUNDS_IN_LONGER * length)
            return true;
    }
    return false;
}

/*
 * Returns the slot of the known pattern of which the last launches are one round, in any rotation.
 * Returns PS_NOWHERE if no pattern fits. *position is then the place of the next launch in
 * it, or PS_NOWHERE if unclear.
 */
static uint32_t find_known(const struct ps_steps *steps, uint64_t distance, uint64_t sum, uint32_t *position)
{
    *position = PS_NOWHERE;
    for (uint32_t slot = 0; slot < PS_PATTERNS_MAX; slot++) {
        const struct ps_step_pattern *pattern = &steps->pattern[slot];
        if (pattern->length != distance || pattern->sum != sum || !pattern->is_whole)
            continue;
        for (uint64_t back = 0; back < distance && *position == PS_NOWHERE; back++) {
            uint64_t launch = steps->count - 1 - back;
            uint32_t at = ps_step_pattern_find(pattern, gram_at(steps, launch), steps->fingerprint, launch);
            if (at != PS_NOWHERE && !(at & PS_AMBIGUOUS))
                *position = (uint32_t)((at + back) % distance);
        }
        return slot;
    }
    return PS_NOWHERE;
}

/* Returns the slot for a new pattern: a free one, or that of the pattern seen longest ago. */
static uint32_t take_slot(const struct ps_steps *steps)
{
    uint32_t slot = 0;

    for (uint32_t i = 0; i < PS_PATTERNS_MAX && steps->pattern[slot].length != 0; i++) {
        if (steps->pattern[i].length == 0 || steps->pattern[i].last_seen < steps->pattern[slot].last_seen)
            slot = i;
    }
    return slot;
}

/*
 * Compares the last two rounds launch by launch, as far back as they are equal. Returns the number
 * of launches at their ends that are equal.
 */
static uint64_t compare_rounds(const struct ps_steps *steps, uint64_t distance)
{
    uint64_t same = 0;

    while (same < distance && steps->fingerprint[(steps->count - 1 - same) % PS_RING] ==
                                  steps->fingerprint[(steps->count - 1 - same - distance) % PS_RING])
        same++;
    return same;
}

/* Forgets the pattern that broke off, unless its slot is `but`, which already has a new pattern. */
static void forget_broken(struct ps_steps *steps, uint32_t but)
{
    if (steps->broken != PS_NOWHERE && steps->broken != but) {
        steps->pattern[steps->broken].length = 0;
        if (steps->lost_slot == steps->broken)
            steps->lost_slot = PS_NOWHERE;
    }
    steps->broken = PS_NOWHERE;
}

static void learn(struct ps_steps *steps, uint64_t distance, uint64_t sum, bool is_whole)
{
    uint32_t slot = take_slot(steps);
    struct ps_step_pattern *pattern = &steps->pattern[slot];
    uint64_t first = steps->count - distance;

    pattern->length = (uint32_t)distance;
    pattern->is_whole = false;
    pattern->strikes = 0;
    pattern->superseded_by = PS_NOWHERE;
    pattern->serial = ++steps->found;
    pattern->rounds = 0;
    pattern->last_wrap = 0;
    pattern->sum = sum;
    for (uint64_t i = 0; i < distance; i++)
        pattern->fingerprint[i] = steps->fingerprint[(first + i) % PS_RING];
    ps_step_pattern_index(pattern);
    forget_broken(steps, slot);
    if (steps->following && steps->slot != slot && !steps->pattern[steps->slot].is_whole)
        steps->pattern[steps->slot].length = 0;
    if (is_whole)
        make_whole(steps, slot);
    start_following(steps, slot, 0);
}

/* Returns whether the program marked the begin of a step `distance` launches ago. */
static bool begins_at_mark(const struct ps_steps *steps, uint64_t distance)
{
    return steps->reach[(steps->count - distance) % PS_RING] & MARKED;
}

/* Returns whether the program's own marks, if it makes them, agree that a step has just ended. */
static bool ends_at_mark(const struct ps_steps *steps, uint64_t distance)
{
    return steps->last_mark == 0 || steps->last_mark - 1 < steps->count - distance || begins_at_mark(steps, distance);
}

static enum ps_steps_event try_cursor(struct ps_steps *steps, struct cursor *cursor)
{
    uint64_t distance = cursor->distance;
    uint32_t position;

    if (!ends_at_mark(steps, distance))
        return PS_STEPS_NOTHING;
    /* Looking back costs a round's length, so it is done at most about eight times a round. */
    cursor->check = steps->count + distance / 8 + 1;
    /*
     * At a short distance, all launches that had to match are examined. An optimizer that updates
     * large tensors in pieces launches the same kernel repeatedly. Now and then it goes on to the
     * next tensors.
     */
    uint64_t looked_at = distance > MATCH_MIN ? distance : MATCH_MIN;
    struct evidence evidence =
        look_back(steps, distance, cursor->match < looked_at ? cursor->match : looked_at, distance);
    if (evidence.retry != 0) {
        if (evidence.retry > cursor->check)
            cursor->check = evidence.retry;
        return PS_STEPS_NOTHING;
    }
    /*
     * The spans that outlive a small model's steps may all be too small to be managed. A program
     * that marks its steps knows that they are steps.
     */
    if (!evidence.carried && !begins_at_mark(steps, distance))
        return PS_STEPS_NOTHING;
    cursor->check = steps->count + distance;
    uint32_t slot = find_known(steps, distance, evidence.sum, &position);
    if (slot != PS_NOWHERE) {
        if (position == PS_NOWHERE || is_superseded(steps, &steps->pattern[slot]) ||
            (steps->following && steps->slot == slot))
            return PS_STEPS_NOTHING;
        start_following(steps, slot, position);
        return PS_STEPS_RECOGNISED;
    }
    if (has_shorter(steps, distance, evidence.farthest))
        return PS_STEPS_NOTHING;
    uint64_t same = compare_rounds(steps, distance);
    if (same < cursor->match && same < distance) { /* the hashes had claimed a longer match */
        cursor->match = same;
        if (!is_believed(steps, cursor))
            return PS_STEPS_NOTHING;
    }
    learn(steps, distance, evidence.sum, same == distance);
    return PS_STEPS_FOUND;
}

/*
 * Tries the cursors from the shortest distance up. While a pattern is followed, only distances
 * longer than the pattern and than the launches that followed it are tried.
 */
static enum ps_steps_event try_cursors(struct ps_steps *steps)
{
    uint64_t above = steps->following ? steps->pattern[steps->slot].length : 0;

    if (steps->following && steps->followed > above)
        above = steps->followed;
    for (;;) {
        struct cursor *best = NULL;
        for (int i = 0; i < CURSORS; i++) {
            struct cursor *cursor = &steps->cursor[i];
            if (is_believed(steps, cursor) && cursor->check <= steps->count && cursor->distance > above &&
                (!best || cursor->distance < best->distance))
                best = cursor;
        }
        if (!best)
            return PS_STEPS_NOTHING;
        above = best->distance;
        enum ps_steps_event event = try_cursor(steps, best);
        if (event != PS_STEPS_NOTHING)
            return event;
    }
}

/*
 * Handles a pattern that was accepted early and broke off, when the launches now continue further
 * along in it. The launches in between came once and are no part of the step. Most optimizers make
 * their state this way, in the first step.
 */
static enum ps_steps_event go_on_without(struct ps_steps *steps, uint64_t gram)
{
    struct ps_step_pattern *pattern = &steps->pattern[steps->broken];
    uint64_t since = steps->count - steps->broken_count + 1; /* with the launch that differed */
    uint64_t now = steps->count - 1;

    if (since > pattern->length / EARLY_PART) {
        forget_broken(steps, PS_NOWHERE);
        return PS_STEPS_NOTHING;
    }
    if (since < PS_GRAM)
        return PS_STEPS_NOTHING;
    uint32_t place = ps_step_pattern_find(pattern, gram, steps->fingerprint, now);
    /* After one replaced launch, recognise() has gone on already. */
    if (place == PS_NOWHERE || (place & ~PS_AMBIGUOUS) <= steps->broken_at + since)
        return PS_STEPS_NOTHING;
    place &= ~PS_AMBIGUOUS; /* of several places the first: a loop is entered at its beginning */
    uint64_t left_out = place - steps->broken_at - since, distance = pattern->length - left_out;
    if (distance < EARLY_FROM || distance + PS_GRAM > steps->count || !same_gram(steps, now, now - distance) ||
        !ends_at_mark(steps, distance))
        return PS_STEPS_NOTHING;
    struct evidence evidence = look_back(steps, distance, distance, pattern->length);
    if (evidence.retry != 0 || !evidence.carried) { /* looking back costs a round's length: it is done once */
        forget_broken(steps, PS_NOWHERE);
        return PS_STEPS_NOTHING;
    }
    learn(steps, distance, evidence.sum, false);
    return PS_STEPS_FOUND;
}

/* ---- interface ---- */

struct ps_steps_state ps_steps_observe(struct ps_steps *steps, struct ps_step_launch launch)
{
    uint64_t fingerprint = launch.fingerprint;
    uint64_t now = steps->count++;
    enum ps_steps_event event = PS_STEPS_NOTHING;

    steps->fingerprint[now % PS_RING] = fingerprint;
    steps->reach[now % PS_RING] =
        (uint32_t)(launch.reach < REACH_MAX ? launch.reach : REACH_MAX) | (steps->mark ? MARKED : 0);
    steps->hash = ps_pattern_append(steps->hash, fingerprint);
    steps->prefix[now % PS_RING] = steps->hash;
    steps->mark = false;
    walk_cursors(steps, fingerprint);

    uint64_t gram = now + 1 >= PS_GRAM ? gram_at(steps, now) : 0;
    if (steps->following)
        event = follow(steps, fingerprint);
    else if (now + 1 >= PS_GRAM && recognise(steps, fingerprint, gram))
        event = PS_STEPS_RECOGNISED;
    else if (steps->broken != PS_NOWHERE)
        event = go_on_without(steps, gram);
    if (now + 1 >= PS_GRAM) {
        if (!steps->following)
            add_cursor(steps, gram);
        steps->latest[gram % LATEST] = (uint32_t)now;
    }
    enum ps_steps_event found = try_cursors(steps);
    return state_of(steps, found != PS_STEPS_NOTHING ? found : event);
}

void ps_steps_mark(struct ps_steps *steps)
{
    steps->mark = true;
    steps->last_mark = steps->count + 1;
}

void ps_steps_summary(const struct ps_steps *steps, struct ps_steps_summary *out)
{
    memset(out, 0, sizeof *out);
    out->launches = steps->count;
    out->in_pattern = steps->in_pattern;
    out->steps = steps->steps;
    out->lost = steps->lost;
    out->found = steps->found;
    for (uint32_t i = 0; i < PS_PATTERNS_MAX; i++) {
        out->patterns += steps->pattern[i].length != 0;
        out->rounds[i] = steps->pattern[i].rounds;
        out->length[i] = steps->pattern[i].length;
    }
}
