/*
 * The steps of a device as they end, for observers: when each ended, how long it took, and how long
 * the stream waited in it. For PENSTOCK_METRICS a bounded ring keeps all figures of that moment as
 * well. A thread of ours writes them from the ring.
 *
 * Two clocks: a step ends where the host has launched its last kernel. The device's waits in it are
 * reported later, by launch number.
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
    uint64_t t_ns; /* when it ended, by ps_now_ns() */
    uint64_t last_launch;
    bool planned; /* it followed a plan from begin to end */
    struct ps_live_process_figures process;
    struct ps_live_device_figures device; /* with its own exposed_ns */
};

/*
 * From now on all figures of each step are kept until they are taken. Call it before any launch of
 * the device. Returns 0 or -ENOMEM. [locked or in the set-up]
 */
int ps_step_log_keep(void);

/* A step has been found that ends with launch `launch`; the next step begins. [locked] */
void ps_step_log_begin(uint64_t launch);
/* A step ended with launch `launch`. [locked] */
void ps_step_log_ended(uint64_t launch);

/* The stream waited `ns` before launch `launch`. [locked] */
void ps_step_log_waited(uint64_t launch, uint64_t ns);

/* All waits before launches of a lower number have been reported. [locked] */
void ps_step_log_told(uint64_t launch);

/* For live.def. [locked] */
uint64_t ps_step_log_count(void);
uint64_t ps_step_log_last_ns(void);
uint64_t ps_step_log_exposed_ns(void);
void ps_step_log_recent(uint64_t ns[PS_LIVE_RECENT]);

/*
 * Takes at most `capacity` of the oldest kept steps and returns their number. It takes steps whose
 * waits have been reported, and others if `all` is set or the ring is half full. Adds to `*lost`
 * the number of steps dropped for want of room since the last call. [locked]
 */
size_t ps_step_log_take(struct ps_live_step *out, size_t capacity, bool all, uint64_t *lost);

/*
 * Returns the number of steps that ps_step_log_take() would take with `all`, or add to `*lost`.
 * [locked; at the end of the process also without the lock]
 */
uint64_t ps_step_log_left(void);

#endif
