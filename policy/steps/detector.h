/*
 * Step detection: finds the repeating step in the program's stream of launches, online, and recognises steps that it has found before.
 *
 * Pure: memory from the caller, a bounded number of operations per launch, no clock. Threads: the caller serialises calls on one detector.
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
    uint64_t fingerprint; /* of the kernel and its shape, not of the spans it names: the same launch of the next step has the same */
    /*
     * How many launches ago the span was last named or born, for the one of the launch's spans for which that is longest ago. A loop over
     * layers looks like a step until one sees that each round uses weights that the round before did not: in a true step of P
     * launches no span was last used more than P launches ago. (One launch in 64 may: it takes a batch from a data set on the device.)
     */
    uint64_t reach;
};

enum ps_steps_event {
    PS_STEPS_NOTHING, /* no pattern; or inside one, as before */
    PS_STEPS_FOUND,   /* the last `length` launches and the `length` before them are the same step: pattern `pattern` is new (its slot may
                            have held another); position is 0: the next launch is expected to be its first. A pattern shorter than 64
                            launches has to come round until 64 have been repeated; one of 1,024 and more is believed in when a quarter of it
                            has. It may also come inside a shorter pattern */
    PS_STEPS_RECOGNISED, /* a pattern known from before: this launch is its launch `position` - 1 (so `position` is expected next) */
    PS_STEPS_WRAPPED,    /* this launch was the pattern's last: a step is complete; position is 0 */
    PS_STEPS_LOST,       /* this launch is not what the pattern expected: no pattern from here on */
};

struct ps_steps_state {
    enum ps_steps_event event; /* what the last launch brought */
    bool following;            /* inside a pattern */
    bool come_round;           /* that has been seen twice whole; if not, and it breaks off before, it is forgotten */
    uint32_t pattern;          /* its slot, 0 .. PS_PATTERNS_MAX - 1 */
    uint32_t length;           /* its launches */
    uint32_t position;         /* the launch of the pattern that is expected next */
};

struct ps_steps;

/* Bytes that a detector takes; a constant. */
size_t ps_steps_bytes(void);
/* Prepares zeroed memory of that many bytes. */
void ps_steps_init(struct ps_steps *steps);

/* Takes in the next launch. */
struct ps_steps_state ps_steps_observe(struct ps_steps *steps, struct ps_step_launch launch);

/* The program marked the end of a step itself: a pattern found from here on begins at such a mark if one lies in it (the ring is turned). */
void ps_steps_mark(struct ps_steps *steps);

/* For the report. */
struct ps_steps_summary {
    uint64_t launches;   /* observed */
    uint64_t in_pattern; /* of them, inside a pattern when they came */
    uint64_t steps;      /* complete rounds of any pattern */
    uint64_t lost;       /* times a pattern was left */
    uint32_t patterns;   /* known now */
    uint64_t found;      /* ever found */
    uint64_t rounds[PS_PATTERNS_MAX];
    uint32_t length[PS_PATTERNS_MAX];
};
void ps_steps_summary(const struct ps_steps *steps, struct ps_steps_summary *out);

#endif
