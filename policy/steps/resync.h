/*
 * Resync: finds the place where a pattern goes on that was just lost. One launch was different, a
 * few came in between, or a few did not come; after that the program follows the pattern again.
 * Among layers that are all alike, grams (pattern.h) don't show the place. The search here uses
 * that the place is near.
 *
 * Pure. Threads: the caller serialises calls.
 */
#ifndef PS_RESYNC_H
#define PS_RESYNC_H

#include <stdint.h>

struct ps_step_pattern;

/*
 * The most extra or missing launches that resync bridges. Layers are longer, so a place that fits
 * this near is not in the next layer.
 */
#define PS_RESYNC_SHIFTS 4

struct ps_resync {
    uint32_t position; /* the place now, if only one launch was different */
    uint32_t looked;   /* launches since the loss */
    uint32_t ahead;    /* bit i: the launch at the loss was the pattern's launch i places ahead */
    /* By shift, from behind to ahead: the launches in a row that fitted the shifted place. */
    uint32_t fits[2 * PS_RESYNC_SHIFTS + 1];
};

/*
 * Begins the search: at place `expected` of the pattern, another launch came, with `fingerprint`.
 */
void ps_resync_begin(struct ps_resync *lost, const struct ps_step_pattern *pattern, uint32_t expected,
                     uint64_t fingerprint);

/*
 * Takes in the next launch. Returns the place of the pattern that is expected after it, or
 * PS_NOWHERE. Of several places the nearest is taken. Of two equally near places the one
 * behind is taken. The one ahead is taken if the launch at the loss was already the launch there.
 *
 * A pattern found early (`is_whole` is not set) is not taken up at a place ahead. The launches that
 * did not come this time came only once, and are no part of the step.
 */
uint32_t ps_resync_look(struct ps_resync *lost, const struct ps_step_pattern *pattern, uint64_t fingerprint);

#endif
