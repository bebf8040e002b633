/*
 * A kernel that runs once in every step cuts the stream of launches into steps; one that runs in
 * every layer cuts it into layers and, where one step ends and the next begins, into a piece of
 * another length. So each fingerprint is asked how long its rounds are and whether they repeat: the
 * longest rounds that came twice running belong to the outermost loop, and how often its kernels
 * ran is how many steps there were.
 *
 * Rounds are compared by length and by the sum of what they hold, which takes one subtraction, and
 * not launch by launch; a sum of well-mixed 64-bit numbers does not come out the same by accident.
 * The order within a round is not looked at: streams may interleave.
 *
 * Limits, on purpose: steps that are never alike (another shape each time) are not recognised, and
 * a program whose evaluation comes round regularly, three times or more, is counted in rounds of
 * training plus evaluation. Proper step detection is the planner's.
 */
#include "policy/steps/counter.h"

#include <stdbool.h>
#include <string.h>

#include "policy/hash.h"

/* How many slots are looked at for a fingerprint: bounds the work of a launch. */
#define PROBES 8

/*
 * A loop counts as the program's own when it makes up at least two thirds of the launches, those of
 * kernels that ran but once left aside: the layers inside a single step do not (backward ones, the
 * longer, are about six in ten), nor does a loop in setting up, nor an accident.
 */
#define COVER_OF 3
#define COVER_AT_LEAST 2

/*
 * So many kernels that run once in a step, agreeing about it, are believed when no step has come
 * twice running yet.
 */
#define WITNESSES 3

void ps_step_init(struct ps_step_counter *counter)
{
    memset(counter, 0, sizeof *counter);
}

/*
 * The fingerprint's slot: its own, a free one, or that of one that never came again and is the
 * longest gone; NULL when there is none.
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
 * Whether so many launches make up enough of the `all` that count for being the program's own loop.
 */
static bool is_most(uint64_t cover, uint64_t all)
{
    return cover * COVER_OF >= all * COVER_AT_LEAST;
}

/* Whether the repeats of this slot's rounds do. */
static bool is_loop(const struct ps_step_slot *slot, uint64_t all)
{
    return slot->alike_length != 0 && is_most(slot->alike_cover, all);
}

/* Takes in the round that has just ended. */
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

/* How many launches there were of kernels that ran more than once. */
static uint64_t count_repeated(const struct ps_step_counter *counter)
{
    uint64_t repeated = counter->launches - counter->passed;

    for (size_t i = 0; i < PS_STEP_SLOTS; i++)
        repeated -= counter->slots[i].count == 1;
    return repeated;
}

/* The rounds of the outermost loop of which some came twice running; 0 when there is none. */
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

/* How many of the kernels of the loop with rounds of this length have run `count` times. */
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
 * Some kernels run in setting up too, some only once the first steps are over: the count that most
 * of them share is the steps'.
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
 * How many kernels had the same latest round as this one, seen from their own place in it, and ran
 * as often.
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
 * The first two or three steps have no round that came twice running. But the rounds of all kernels
 * that run once a step hold the same launches, from different starting points, and several kernels
 * whose rounds do are no accident.
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
