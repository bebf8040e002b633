/*
 * The data that the recorder keeps. recorder.c fills it; recorded_step.c and recorded_times.c read
 * it. No other file uses this header. Threads: the caller serialises (recorder.h).
 */
#ifndef PS_RECORDER_RING_H
#define PS_RECORDER_RING_H

#include "policy/base/hash.h"
#include "policy/recording/recorder.h"

#define PS_RECORDER_LAUNCHES (2 * PS_PATTERN_LAUNCHES_MAX) /* launches kept */
#define PS_RECORDER_LIVE_MAX 65536u                        /* live spans that are known by number */
#define PS_RECORDER_LIVE_SLOTS (2 * PS_RECORDER_LIVE_MAX)

enum ps_recorded_kind { PS_RECORDED_ALLOCATED, PS_RECORDED_FREED, PS_RECORDED_LAUNCHED, PS_RECORDED_ACCESSED };

struct ps_recorded_event {
    uint64_t span; /* for PS_RECORDED_LAUNCHED: the launch */
    uint64_t bytes;
    uint64_t birth;   /* the first launch after the span's allocation; UINT64_MAX: not known */
    uint32_t ordinal; /* the number of spans allocated before it since the previous launch */
    uint8_t kind;
    bool fixed;
};

struct ps_recorded_launch {
    uint64_t event;
    uint64_t fingerprint;
    uint64_t duration; /* ns + 1; 0: not known */
    uint64_t host_ns;  /* 0: not known */
    uint32_t stream;
    struct ps_recorded_layer layer;
};

struct ps_recorded_live {
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
    struct ps_recorded_event event[PS_RECORDER_MOMENTS];
    struct ps_recorded_launch launch[PS_RECORDER_LAUNCHES];
    struct ps_recorded_live live[PS_RECORDER_LIVE_SLOTS];
};

static inline const struct ps_recorded_launch *ps_kept_launch(const struct ps_recorder *recorder, uint64_t launch)
{
    return &recorder->launch[launch % PS_RECORDER_LAUNCHES];
}

#endif
