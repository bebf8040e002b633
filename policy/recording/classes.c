/*
 * Where layers have directions, a launch belongs to forward (with what comes ahead of its first
 * layer), to the turn between forward and backward, to backward, or to what comes behind its last
 * layer: the rest of backward and the update. Without directions only what lives and gaps alone say
 * is said.
 */
#include "policy/recording/classes.h"

const char *const ps_class_names[PENSTOCK_CLASSES] = {
    [PENSTOCK_CLASS_UNKNOWN] = "unknown",           [PENSTOCK_CLASS_ACTIVATION] = "activation",
    [PENSTOCK_CLASS_GRADIENT] = "gradient",         [PENSTOCK_CLASS_PARAMETER] = "parameter",
    [PENSTOCK_CLASS_OPTIMIZER_STATE] = "optimizer", [PENSTOCK_CLASS_WORKSPACE] = "workspace",
};

#define BRIEF 8         /* launches that a workspace lives, at most */
#define APART_ONE_IN 16 /* uses so large a part of the step apart are far apart */

enum phase { FORWARD = 1, TURN = 2, BACKWARD = 4, UPDATE = 8 };

/*
 * Between two layers of one direction there may be launches of none (the next stage's first); the
 * next layer tells.
 */
static enum phase phase_between(enum penstock_direction last, enum penstock_direction next)
{
    if (last == next)
        return next == PENSTOCK_DIRECTION_FORWARD ? FORWARD : BACKWARD;
    return last == PENSTOCK_DIRECTION_FORWARD ? TURN : UPDATE;
}

/* The phase of each layer; false when the layers don't have both directions. */
static bool find_phases(const struct penstock_step *step, uint8_t *phase)
{
    enum penstock_direction last = PENSTOCK_DIRECTION_NONE, next = PENSTOCK_DIRECTION_NONE;
    unsigned seen = 0;

    /*
     * Twice around, so that what stands before the first layer with a direction knows the last one;
     * the same backwards.
     */
    for (uint32_t i = 0; i < 2 * step->layers; i++) {
        enum penstock_direction direction = step->layer[i % step->layers].direction;
        last = direction != PENSTOCK_DIRECTION_NONE ? direction : last;
        phase[i % step->layers] = (uint8_t)last;
        seen |= 1u << direction;
    }
    if (!(seen >> PENSTOCK_DIRECTION_FORWARD & 1) || !(seen >> PENSTOCK_DIRECTION_BACKWARD & 1))
        return false;
    for (uint32_t i = step->layers; i-- > 0;)
        next = step->layer[i].direction != PENSTOCK_DIRECTION_NONE ? step->layer[i].direction : next;
    for (uint32_t i = step->layers; i-- > 0;) {
        enum penstock_direction direction = step->layer[i].direction;
        next = direction != PENSTOCK_DIRECTION_NONE ? direction : next;
        phase[i] = (uint8_t)phase_between((enum penstock_direction)phase[i], next);
    }
    return true;
}

/* The span's i-th use in the order of the step's launches, wherever its life begins. */
static uint32_t use_of(const struct penstock_step *step, const struct penstock_step_span *span, uint32_t i)
{
    return step->use[span->first_use + i];
}

/*
 * Where in the order of the span's uses its life begins: behind the uses of the half that was born
 * in the round before.
 */
static uint32_t first_in_life(const struct penstock_step *step, const struct penstock_step_span *span)
{
    uint32_t i = 0;

    if (span->born == PENSTOCK_NEVER || span->born < span->freed)
        return 0;
    while (i < span->uses && step->launch[use_of(step, span, i)].moment < span->born)
        i++;
    return i % span->uses;
}

/*
 * Where launches belong: by layer; `entry` launches from `start` on are those ahead of forward's
 * first layer.
 */
struct phases {
    const uint8_t *of_layer; /* NULL: not known */
    uint32_t start, entry;
};

static enum phase phase_of(const struct penstock_step *step, const struct phases *phases, uint32_t launch)
{
    if (!phases->of_layer)
        return 0;
    if ((launch + step->launches - phases->start) % step->launches < phases->entry)
        return FORWARD;
    return (enum phase)phases->of_layer[step->launch[launch].layer];
}

/* Launches from `start` to the next layer with a direction. */
static uint32_t count_entry(const struct penstock_step *step, uint32_t start)
{
    uint32_t first = step->launch[start].layer;

    if (step->layer[first].direction != PENSTOCK_DIRECTION_NONE)
        return 0;
    for (uint32_t i = 1; i <= step->layers; i++) {
        const struct penstock_layer *layer = &step->layer[(first + i) % step->layers];
        if (layer->direction != PENSTOCK_DIRECTION_NONE)
            return layer->direction == PENSTOCK_DIRECTION_FORWARD
                       ? (layer->first_launch + step->launches - start) % step->launches
                       : 0;
    }
    return 0;
}

struct usage {
    unsigned phases; /* that use it, or-ed */
    enum phase first, last;
    uint32_t
        /*
         * launches from the first use to the last, in life; of what outlives the step: of the ring
         * without its longest gap
         */
        stretch;
    uint32_t gap; /* the longest between two uses in life, or around the ring */
};

static struct usage look_at(const struct penstock_step *step, const struct penstock_step_span *span,
                            const struct phases *phases)
{
    struct usage usage = {0};
    uint32_t first = first_in_life(step, span), n = span->uses, length = step->launches;
    bool outlives = span->born == PENSTOCK_NEVER;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t use = use_of(step, span, (first + i) % n);
        enum phase phase = phase_of(step, phases, use);
        usage.phases |= phase;
        usage.first = i == 0 ? phase : usage.first;
        usage.last = phase;
        if (i + 1 == n && !outlives)
            break;
        uint32_t next = use_of(step, span, (first + i + 1) % n);
        uint32_t gap = n == 1 ? length : (next + length - use) % length;
        usage.gap = gap > usage.gap ? gap : usage.gap;
        usage.stretch += gap;
    }
    if (outlives)
        usage.stretch -= usage.gap;
    return usage;
}

static enum penstock_class class_of(const struct penstock_step *step, const struct penstock_step_span *span,
                                    const struct phases *phases)
{
    if (span->uses == 0)
        return PENSTOCK_CLASS_UNKNOWN;
    struct usage usage = look_at(step, span, phases);
    uint32_t apart = step->launches / APART_ONE_IN + BRIEF;

    if (span->born == PENSTOCK_NEVER) {
        if (!phases->of_layer)
            return usage.stretch >= apart ? PENSTOCK_CLASS_PARAMETER : PENSTOCK_CLASS_UNKNOWN;
        if (usage.phases == UPDATE)
            return PENSTOCK_CLASS_OPTIMIZER_STATE;
        if (usage.phases == (BACKWARD | UPDATE))
            return PENSTOCK_CLASS_GRADIENT;
        if (usage.phases & (FORWARD | TURN) && usage.phases & (BACKWARD | UPDATE))
            return PENSTOCK_CLASS_PARAMETER;
        return PENSTOCK_CLASS_UNKNOWN;
    }
    if (usage.stretch <= BRIEF)
        return PENSTOCK_CLASS_WORKSPACE;
    if (!phases->of_layer)
        return usage.gap >= apart ? PENSTOCK_CLASS_ACTIVATION : PENSTOCK_CLASS_UNKNOWN;
    if (usage.first & (FORWARD | TURN) && usage.last & (BACKWARD | UPDATE) && usage.gap >= BRIEF)
        return PENSTOCK_CLASS_ACTIVATION;
    if (usage.first & (TURN | BACKWARD) && usage.last == UPDATE)
        return PENSTOCK_CLASS_GRADIENT;
    return PENSTOCK_CLASS_UNKNOWN;
}

void ps_classes_assign(const struct penstock_step *step, struct penstock_step_span *span, uint32_t start,
                       uint8_t *scratch)
{
    struct phases phases = {.start = start};

    if (find_phases(step, scratch)) {
        phases.of_layer = scratch;
        phases.entry = count_entry(step, start);
    }
    for (uint32_t i = 0; i < step->spans; i++)
        span[i].class_ = class_of(step, &span[i], &phases);
}
