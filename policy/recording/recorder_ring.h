/*
 * The data that the recorder keeps. recorder.c fills it; recorded_step.c and recorded_times.c read
 * it. No other file uses this header. Threads: the caller serialises (recorder.h).
 */
#ifndef PS_RECORDER_RING_H
#define PS_RECORDER_RING_H

#include "policy/hash.h"
#include "policy/recording/recorder.h"

#define LAUNCHES (2 * PS_PATTERN_LAUNCHES_MAX) /* launches kept */
#define LIVE_MAX 65536u                        /* live spans that are known by number */
#define LIVE_SLOTS (2 * LIVE_MAX)

enum kind { ALLOCATED, FREED, LAUNCHED, ACCESSED };

struct event {
    uint64_t span; /* for LAUNCHED: the launch */
    uint64_t bytes;
    uint64_t birth;   /* the first launch after the span's allocation; UINT64_MAX: not known */
    uint32_t ordinal; /* the number of spans allocated before it since the previous launch */
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
    uint64_t unknown; /* times that a span found no room in `live` */
    struct event event[PS_RECORDER_MOMENTS];
    struct kept_launch launch[LAUNCHES];
    struct live live[LIVE_SLOTS];
};

static inline const struct kept_launch *ps_kept_launch(const struct ps_recorder *recorder, uint64_t launch)
{
    return &recorder->launch[launch % LAUNCHES];
}

#endif
