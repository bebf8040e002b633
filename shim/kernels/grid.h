/*
 * The grid of a kernel launch.
 */
#ifndef PS_GRID_H
#define PS_GRID_H

#include <stdint.h>

struct ps_grid {
    unsigned x, y, z; /* blocks in each dimension */
};

static inline uint64_t ps_grid_blocks(struct ps_grid grid)
{
    return (uint64_t)grid.x * grid.y * grid.z;
}

#endif
