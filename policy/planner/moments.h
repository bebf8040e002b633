/*
 * Moments of a recorded step (include/penstock/policy.h) and the launches among them. Pure.
 */
#ifndef PS_MOMENTS_H
#define PS_MOMENTS_H

#include <stdint.h>

#include "penstock/policy.h"

/* The first launch at or behind a moment; step->launches: there is none in this round (modulo that it is the next one's first). */
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
