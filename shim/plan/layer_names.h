/*
 * The names of layers, each with the number and direction that it states; and the names of kernels.
 * Names are kept as long as the process lives.
 *
 * Threads: any. Looking up a known name takes no lock.
 */
#ifndef PS_LAYER_NAMES_H
#define PS_LAYER_NAMES_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdint.h>

#include "penstock/policy.h"

/*
 * The number of names that are kept. A program that puts a running number into its ranges makes
 * names without end.
 */
#define PS_LAYER_NAMES_MAX 4096u

struct ps_layer_name {
    const char *text;
    uint64_t hash;
    /* never PENSTOCK_NEVER: names without a number get one from PS_LAYERS_UNNUMBERED on */
    uint32_t number;
    enum penstock_direction direction; /* PENSTOCK_DIRECTION_NONE: the name states none */
    /* step << 32 | times in that step, for names that state no direction */
    _Atomic uint64_t seen;
};

/* Returns the kept name, or NULL if there is no room, which is logged once. */
struct ps_layer_name *ps_layer_name_keep(const char *text);

/*
 * Returns the direction of the next range of a name that states none, and counts the range. In each
 * step the first range is forward, the second backward, and so on in turn.
 */
enum penstock_direction ps_layer_name_next_direction(struct ps_layer_name *name);

/* A step is over: the turns begin again. */
void ps_layer_names_step(void);

/* Resets the locks in a forked child. */
void ps_layer_names_in_child(void);

/*
 * Returns the kernel's name if it matches the pattern (always the same one), else NULL. A handle is
 * looked up once, until a module is unloaded.
 */
const struct ps_layer_name *ps_layer_name_of_kernel(CUfunction function, const char *pattern);

/*
 * Reads direction and number from a range's name. The direction is a word: forward, backward, fwd
 * or bwd, in any case. The number is the last whole number that does not belong to such a word.
 * Gives PENSTOCK_NEVER and PENSTOCK_DIRECTION_NONE where the name has none. Pure.
 */
void ps_layer_names_read(const char *name, uint32_t *number, enum penstock_direction *direction);

#endif
