/* What the recorder keeps; recorder.c fills it, recorded_step.c and recorded_times.c read it. For these alone. */
#ifndef PS_RECORDER_RING_H
#define PS_RECORDER_RING_H

#include "policy/hash.h"
#include "policy/recording/recorder.h"

#define LAUNCHES (2 * PS_PATTERN_LAUNCHES_MAX) /* kept */
#define LIVE_MAX 65536u                        /* live spans that are known by name */
#define LIVE_SLOTS (2 * LIVE_MAX)

enum kind { ALLOCATED, FREED, LAUNCHED, ACCESSED };

struct event {
    uint64_t span; /* of LAUNCHED: the launch */
    uint64_t bytes;
    uint64_t birth;   /* the launch that came next when the span was allocated; UINT64_MAX: not known */
    uint32_t ordinal; /* how many were allocated since the launch before that */
    uint8_t kind;
    bool fixed;
};

struct kept_launch {
    uint64_t event;
    uint64_t fingerprint;
    uint64_t duration; /* ns + 1; 0: not known */
    uint64_t host_ns;  /* 0: not known */
    uint32_t stream;
    struct ps_recorded_layer layer;
};

struct live {
    uint64_t span; /* 0: the slot is free */
    uint64_t bytes;
    uint64_t birth;
    uint32_t ordinal;
    bool fixed;
};

struct ps_recorder {
    uint64_t events, launches; /* so far */
    uint32_t ordinal;          /* allocations since the last launch */
    uint32_t live_spans;
    uint64_t unknown; /* times a span found no room among the live ones */
    struct event event[PS_RECORDER_MOMENTS];
    struct kept_launch launch[LAUNCHES];
    struct live live[LIVE_SLOTS];
};

static inline const struct kept_launch *ps_kept_launch(const struct ps_recorder *recorder, uint64_t launch)
{
    return &recorder->launch[launch % LAUNCHES];
}

#endif
