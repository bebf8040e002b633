/*
 * What a launch is given that may make tables (made_tables.h): spans, and words that may lead to
 * memory where it makes them. Most such words are numbers. The driver tells which are memory.
 *
 * Any thread, inside Penstock, without the registry lock.
 */
#ifndef PS_GIVEN_MEMORY_H
#define PS_GIVEN_MEMORY_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/launch_tables.h"
#include "kernels/layouts.h"

#define PS_GIVEN_LOOKED 4096u /* bytes of each memory that are looked at, from its address on */
#define PS_MADE_CANDIDATES 32u

/* A call that launches a kernel, from before the launch to behind it. */
struct ps_made_call {
    bool looks;   /* the launch's end is to be told of */
    bool is_made; /* its tables are known */
    unsigned candidates;
    struct ps_made_memory candidate[PS_MADE_CANDIDATES]; /* words that may be addresses of its memory */
    struct ps_made_launch launch;
};

/*
 * The bit of a word of the parameters. Words far apart share one. Then more memory than its tables
 * counts.
 */
static inline uint64_t ps_given_bit(unsigned place)
{
    return 1ull << place % 64;
}

/*
 * Gathers spans and candidates, and sets `memories` to 0. Returns whether the launch is given spans
 * and other memory.
 */
bool ps_given_gather(struct ps_made_call *call, const struct ps_layout *layout, void **parameters, void **extra);

/*
 * Of the candidates, keeps memory: of a maker (`places`, the bits of its tables, is not 0) that of
 * its tables, else what can be copied. Memory in spans comes last, unless `outside`: then it is
 * left out.
 */
void ps_given_choose_memory(struct ps_made_call *call, uint64_t places, bool outside);

/* Keeps only the memory in spans, or only the other memory. */
void ps_given_keep_memory(struct ps_made_launch *l, bool in_spans);

#endif
