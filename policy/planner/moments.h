/* Moments of a recorded step (include/penstock/policy.h), and its launches. Pure. Threads: any. */
#ifndef PS_MOMENTS_H
#define PS_MOMENTS_H

#include <stdint.h>

#include "penstock/policy.h"

/*
 * Returns the first launch at or after a moment. Returns step->launches if this round has no such
 * launch; modulo step->launches that is the first launch of the next round.
 */
static inline uint32_t ps_launch_from(const struct penstock_step *step, uint32_t moment)
{
    uint32_t low = 0, high = step->launches;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (step->launch[middle].moment < moment)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

#endif
