/*
 * If layers have directions, a launch belongs to one of four phases:
 * - forward, with the launches ahead of its first layer;
 * - the turn between forward and backward;
 * - backward;
 * - the update, which is all behind backward's last layer, the rest of backward included.
 *
 * Without directions, only lives and gaps decide.
 */
#include "policy/recording/classes.h"

const char *const ps_class_names[PENSTOCK_CLASSES] = {
    [PENSTOCK_CLASS_UNKNOWN] = "unknown",           [PENSTOCK_CLASS_ACTIVATION] = "activation",
    [PENSTOCK_CLASS_GRADIENT] = "gradient",         [PENSTOCK_CLASS_PARAMETER] = "parameter",
    [PENSTOCK_CLASS_OPTIMIZER_STATE] = "optimizer", [PENSTOCK_CLASS_WORKSPACE] = "workspace",
};

#define BRIEF 8         /* the most launches that a workspace lives */
#define APART_ONE_IN 16 /* uses are far apart if this part of the step lies between them */

enum phase { FORWARD = 1, TURN = 2, BACKWARD = 4, UPDATE = 8 };

/*
 * Returns the phase of a layer between the directions `last` and `next`. Launches without a
 * direction may lie between two layers of one direction (the next stage's first ones); the next
 * layer tells.
 */
static enum phase phase_between(enum penstock_direction last, enum penstock_direction next)
{
    if (last == next)
        return next == PENSTOCK_DIRECTION_FORWARD ? FORWARD : BACKWARD;
    return last == PENSTOCK_DIRECTION_FORWARD ? TURN : UPDATE;
}

/* Finds the phase of each layer. Returns false if the layers don't have both directions. */
static bool find_phases(const struct penstock_step *step, uint8_t *phase)
{
    enum penstock_direction last = PENSTOCK_DIRECTION_NONE, next = PENSTOCK_DIRECTION_NONE;
    unsigned seen = 0;

    /*
     * Go round twice, so that layers before the first one with a direction know the last direction.
     * The same is done backwards.
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

/* Returns the span's i-th use in the order of the step's launches, wherever its life begins. */
static uint32_t use_of(const struct penstock_step *step, const struct penstock_step_span *span, uint32_t i)
{
    return step->use[span->first_use + i];
}

/*
 * Returns the number of the span's first use in its life. A span may be born in the round before.
 * Its uses before its free then come first in the step, but last in its life.
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
 * The phases of launches, by layer. The `entry` launches from `start` on come ahead of forward's
 * first layer.
 */
struct phases {
    const uint8_t *of_layer; /* NULL: the phases are unknown */
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

/*
 * Returns the number of launches from `start` to the next layer with a direction. Returns 0 if that
 * is not a forward layer.
 */
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
    unsigned phases; /* all phases that use the span, or-ed */
    enum phase first, last;
    /*
     * The launches from the first use in the span's life to the last. For a span that outlives the
     * step: the launches of the ring without its longest gap.
     */
    uint32_t stretch;
    uint32_t gap; /* the longest gap between two uses in life, or around the ring, in launches */
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
