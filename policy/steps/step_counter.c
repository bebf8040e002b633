/*
 * A kernel that runs once in every step cuts the stream of launches into steps. One that runs in
 * every layer cuts it into layers and, between two steps, a stretch of another length. A round of a
 * fingerprint is the stretch from one of its launches to the next. For each fingerprint the counter
 * keeps the length of its rounds and whether they repeat. The longest rounds that came twice in a
 * row belong to the outermost loop. The number of times that its kernels ran is the number of
 * steps.
 *
 * Rounds are compared by their length and by the sum of their launches' hashes, which takes one
 * subtraction. Sums of well-mixed 64-bit numbers are not equal by accident. The order within a
 * round is ignored, because streams may interleave.
 *
 * Limits, on purpose: steps that are never alike (another shape each time) are not recognised. A
 * program that evaluates regularly, three times or more, is counted in rounds of training plus
 * evaluation. Proper step detection is the planner's.
 */
#include "policy/steps/step_counter.h"

#include <stdbool.h>
#include <string.h>

#include "policy/base/hash.h"

/* The number of slots searched for a fingerprint; it bounds the work of a launch. */
#define PROBES 8

/*
 * A loop counts as the program's own if it makes up at least two thirds of the launches. Launches
 * of kernels that ran only once don't count. The layers inside a single step fall short: the
 * backward layers, the longer ones, are about six in ten. So do loops in the set-up, and accidents.
 */
#define COVER_OF 3
#define COVER_AT_LEAST 2

/*
 * The number of once-a-step kernels that must agree on a step while no step has come twice in a
 * row.
 */
#define WITNESSES 3

void ps_step_init(struct ps_step_counter *counter)
{
    memset(counter, 0, sizeof *counter);
}

/*
 * Returns the fingerprint's own slot, or a free one. Otherwise it clears the slot of the
 * fingerprint that ran once, longest ago, and returns that one. Returns NULL if there is no such
 * slot.
 */
static struct ps_step_slot *find_slot(struct ps_step_counter *counter, uint64_t fingerprint, uint64_t mixed)
{
    struct ps_step_slot *oldest = NULL;

    for (size_t i = 0; i < PROBES; i++) {
        struct ps_step_slot *slot = &counter->slots[(mixed + i) % PS_STEP_SLOTS];
        if (slot->count == 0 || slot->fingerprint == fingerprint)
            return slot;
        if (slot->count == 1 && (!oldest || slot->last < oldest->last))
            oldest = slot;
    }
    counter->passed++;
    if (oldest)
        memset(oldest, 0, sizeof *oldest);
    return oldest;
}

/*
 * Returns whether `cover` launches are a large enough part of `all` to be the program's own loop.
 */
static bool is_most(uint64_t cover, uint64_t all)
{
    return cover * COVER_OF >= all * COVER_AT_LEAST;
}

/* Returns whether the repeated rounds of this slot are the program's own loop. */
static bool is_loop(const struct ps_step_slot *slot, uint64_t all)
{
    return slot->alike_length != 0 && is_most(slot->alike_cover, all);
}

/* Records the round that has just ended. */
static void end_round(const struct ps_step_counter *counter, struct ps_step_slot *slot, uint64_t length, uint64_t sum)
{
    if (length == slot->round_length && sum == slot->round_sum) {
        if (length == slot->alike_length) {
            slot->alike_cover += length;
        } else if (length > slot->alike_length || !is_loop(slot, counter->launches - counter->passed)) {
            slot->alike_length = length;
            slot->alike_cover = 2 * length;
        }
    }
    slot->round_length = length;
    slot->round_sum = sum;
}

void ps_step_observe(struct ps_step_counter *counter, uint64_t fingerprint)
{
    uint64_t mixed = ps_hash_u64(fingerprint);
    uint64_t now = counter->launches++;

    counter->sum += mixed;
    struct ps_step_slot *slot = find_slot(counter, fingerprint, mixed);
    if (!slot)
        return;
    if (slot->count == 0)
        slot->fingerprint = fingerprint;
    else
        end_round(counter, slot, now - slot->last, counter->sum - slot->last_sum);
    slot->count++;
    slot->last = now;
    slot->last_sum = counter->sum;
}

/* Returns the number of launches of kernels that ran more than once. */
static uint64_t count_repeated(const struct ps_step_counter *counter)
{
    uint64_t repeated = counter->launches - counter->passed;

    for (size_t i = 0; i < PS_STEP_SLOTS; i++)
        repeated -= counter->slots[i].count == 1;
    return repeated;
}

/* Returns the length of the outermost loop's rounds, if two of them came in a row; else 0. */
static uint64_t longest_loop(const struct ps_step_counter *counter, uint64_t all)
{
    uint64_t length = 0;

    for (size_t i = 0; i < PS_STEP_SLOTS; i++) {
        const struct ps_step_slot *slot = &counter->slots[i];
        if (slot->alike_length > length && is_loop(slot, all))
            length = slot->alike_length;
    }
    return length;
}

/* Returns the number of kernels with rounds of `length` in the loop that have run `count` times. */
static size_t count_agreeing(const struct ps_step_counter *counter, uint64_t all, uint64_t length, uint64_t count)
{
    size_t agreeing = 0;

    for (size_t i = 0; i < PS_STEP_SLOTS; i++) {
        const struct ps_step_slot *slot = &counter->slots[i];
        agreeing += slot->count == count && slot->alike_length == length && is_loop(slot, all);
    }
    return agreeing;
}

/*
 * Returns the number of runs that most of the loop's kernels share. Some kernels also run in the
 * set-up, and some begin only after the first steps.
 */
static uint64_t count_by_majority(const struct ps_step_counter *counter, uint64_t all, uint64_t length)
{
    uint64_t steps = 0;
    size_t most = 0;

    for (size_t i = 0; i < PS_STEP_SLOTS; i++) {
        const struct ps_step_slot *slot = &counter->slots[i];
        if (slot->alike_length != length || slot->count == steps || !is_loop(slot, all))
            continue;
        size_t agreeing = count_agreeing(counter, all, length, slot->count);
        if (agreeing > most || (agreeing == most && slot->count < steps)) {
            most = agreeing;
            steps = slot->count;
        }
    }
    return steps;
}

/*
 * Returns the number of kernels that ran equally often and whose latest round had the same
 * launches. Each sees that round from its own place in it.
 */
static size_t count_witnesses(const struct ps_step_counter *counter, const struct ps_step_slot *slot)
{
    size_t witnesses = 0;

    for (size_t i = 0; i < PS_STEP_SLOTS; i++) {
        const struct ps_step_slot *other = &counter->slots[i];
        witnesses += other->round_length == slot->round_length && other->round_sum == slot->round_sum &&
                     other->count == slot->count;
    }
    return witnesses;
}

/*
 * Counts the first two or three steps, in which no round has come twice in a row. The rounds of all
 * kernels that run once a step hold the same launches, from different starting points. Several
 * kernels with such rounds are no accident.
 */
static uint64_t count_by_witnesses(const struct ps_step_counter *counter, uint64_t all)
{
    uint64_t length = 0;
    uint64_t steps = 0;

    for (size_t i = 0; i < PS_STEP_SLOTS; i++) {
        const struct ps_step_slot *slot = &counter->slots[i];
        if (slot->round_length > length && is_most(slot->count * slot->round_length, all) &&
            count_witnesses(counter, slot) >= WITNESSES) {
            length = slot->round_length;
            steps = slot->count;
        }
    }
    return steps;
}

uint64_t ps_step_count(const struct ps_step_counter *counter)
{
    uint64_t all = count_repeated(counter);
    uint64_t length = longest_loop(counter, all);

    return length != 0 ? count_by_majority(counter, all, length) : count_by_witnesses(counter, all);
}
