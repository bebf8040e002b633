/*
 * Where a step goes on that has just been left: a launch was another one, a few came in between, or a few did not come, and then everything is as before.
 * Grams (pattern.h) don't tell that in the midst of layers that are all alike; that the place is near does.
 *
 * Pure. Threads: the caller serialises calls.
 */
#ifndef PS_RESYNC_H
#define PS_RESYNC_H

#include <stdint.h>

struct pattern;

/* So many launches too many, or too few, are looked past. Layers are longer: what fits so near is not the next layer. */
#define PS_RESYNC_SHIFTS 4

struct ps_resync {
    uint32_t position;                       /* where it would be now had one launch been another */
    uint32_t looked;                         /* launches since */
    uint32_t ahead;                          /* bit for each shift: the launch at the loss was the one so far ahead */
    uint32_t fits[2 * PS_RESYNC_SHIFTS + 1]; /* launches running that fitted that place, or one so far behind or ahead of it */
};

/* At place `expected` of the pattern this launch has come instead. */
void ps_resync_begin(struct ps_resync *lost, const struct pattern *pattern, uint32_t expected, uint64_t fingerprint);

/*
 * The next launch has come: what place of the pattern is expected after it, or NOWHERE. Of several the nearest; of two as near that ahead, if the launch at
 * the loss was already the one that is there. What was believed in early (`is_whole` is not set) and lacks launches is not taken up: they came once, and are
 * no part of the step.
 */
uint32_t ps_resync_look(struct ps_resync *lost, const struct pattern *pattern, uint64_t fingerprint);

#endif
