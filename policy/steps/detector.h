/*
 * The detector: finds the step that repeats in the program's launches, as they come. It recognises
 * steps that it has found before.
 *
 * Pure: memory from the caller, a bounded number of operations for each launch, no clock. Threads:
 * the caller serialises calls on one detector.
 */
#ifndef PS_DETECTOR_H
#define PS_DETECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PS_PATTERNS_MAX 8              /* patterns kept; the one unused longest gives way */
#define PS_PATTERN_LAUNCHES_MAX 131072 /* launches of the longest step that can be found */

/* One launch (kernel, copy or memset that names spans), as the detector sees it. */
struct ps_step_launch {
    /*
     * Of the kernel and its shape, not of the spans that it names: the same launch of the next step
     * has the same fingerprint.
     */
    uint64_t fingerprint;
    /*
     * The number of launches since the span was last named or born; the largest such number of all
     * spans of the launch. A loop over layers looks like a step, but each round uses weights that
     * the round before did not. In a true step of P launches no span was last used more than P
     * launches ago. (One launch in 64 may: it takes a batch from a data set on the device.)
     */
    uint64_t reach;
};

enum ps_steps_event {
    PS_STEPS_NOTHING, /* no pattern; or inside one, as before */
    /*
     * The last `length` launches and the `length` before them are the same step. Pattern `pattern`
     * is new; its slot may have held another. `position` is 0: the next launch should be its first.
     * A pattern shorter than 64 launches has to come round until 64 launches have been repeated. A
     * pattern of 1,024 or more counts as found when a quarter of it has been repeated. A longer
     * pattern may also be found inside a shorter one.
     */
    PS_STEPS_FOUND,
    /*
     * A known pattern: this launch is its launch `position` - 1, and `position` should come next.
     */
    PS_STEPS_RECOGNISED,
    PS_STEPS_WRAPPED, /* this launch was the pattern's last: a step is complete; position is 0 */
    PS_STEPS_LOST,    /* the pattern expected another launch: no pattern from here on */
};

struct ps_steps_state {
    enum ps_steps_event event; /* of the last launch */
    bool following;            /* inside a pattern */
    /* The pattern has been seen twice whole. If it breaks off before that, it is forgotten. */
    bool come_round;
    uint32_t pattern;  /* its slot, 0 .. PS_PATTERNS_MAX - 1 */
    uint32_t length;   /* its launches */
    uint32_t position; /* the launch of the pattern that is expected next */
};

struct ps_steps;

/* Returns the bytes that a detector takes; a constant. */
size_t ps_steps_bytes(void);

/* Prepares zeroed memory of that size. */
void ps_steps_init(struct ps_steps *steps);

/* Takes in the next launch, and returns the state after it. */
struct ps_steps_state ps_steps_observe(struct ps_steps *steps, struct ps_step_launch launch);

/*
 * Notes that the program itself has marked the end of a step. A pattern found from here on begins
 * at such a mark, if one lies in it (the ring is turned).
 */
void ps_steps_mark(struct ps_steps *steps);

/* Figures for the report. */
struct ps_steps_summary {
    uint64_t launches;   /* observed */
    uint64_t in_pattern; /* of these, the launches that came inside a pattern */
    uint64_t steps;      /* complete rounds of any pattern */
    uint64_t lost;       /* times a pattern was left */
    uint32_t patterns;   /* known now */
    uint64_t found;      /* ever found */
    uint64_t rounds[PS_PATTERNS_MAX];
    uint32_t length[PS_PATTERNS_MAX];
};

/* Fills *out. */
void ps_steps_summary(const struct ps_steps *steps, struct ps_steps_summary *out);

#endif
