/*
 * The steps of a device as they end, for who looks on: when each ended, how long it took, and how long the stream stood still in it. For PENSTOCK_METRICS
 * all figures at that moment as well, in a bounded ring, from which a thread of ours writes them.
 *
 * Two clocks: a step ends where the host has launched its last kernel. What the device waited for in it is told later, by launch number.
 *
 * The lock is the registry's: [locked].
 */
#ifndef PS_STEP_LOG_H
#define PS_STEP_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/live_page.h"

/* A step that has ended. */
struct ps_live_step {
    uint64_t t_ns; /* when, by ps_now_ns() */
    uint64_t last_launch;
    bool planned; /* it followed a plan from begin to end */
    struct ps_live_process_figures process;
    struct ps_live_device_figures device; /* with its own exposed_ns */
};

/* From now on all figures of each step are kept until they are taken. Before any launch of the device. 0 or -ENOMEM. [locked or in the set-up] */
int ps_step_log_keep(void);

/* A step has been found that ends with the launch of that number; the next one begins. / One ended with it. [locked] */
void ps_step_log_begin(uint64_t launch);
void ps_step_log_ended(uint64_t launch);

/* The stream stood still before that launch. [locked] */
void ps_step_log_waited(uint64_t launch, uint64_t ns);

/* All waits before launches up to that number, exclusively, have been told. [locked] */
void ps_step_log_told(uint64_t launch);

/* For live.def. [locked] */
uint64_t ps_step_log_count(void);
uint64_t ps_step_log_last_ns(void);
uint64_t ps_step_log_exposed_ns(void);
void ps_step_log_recent(uint64_t ns[PS_LIVE_RECENT]);

/*
 * Takes the oldest steps that are kept and whose waits have been told, `capacity` at most; `all`: whether they have or not. Returns how many. Adds to
 * *lost how many there was no room to keep since the last call. [locked]
 */
size_t ps_step_log_take(struct ps_live_step *out, size_t capacity, bool all, uint64_t *lost);

/* How many that would take, or add to *lost. [locked; at the end of the process also where the lock is not to be had] */
uint64_t ps_step_log_left(void);

#endif
