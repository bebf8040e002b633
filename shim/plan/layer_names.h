/*
 * The names of layers: kept as long as the process lives, each with what it says about number and direction; and the names of kernels.
 *
 * Threads: any. Looking up a name that is known takes no lock.
 */
#ifndef PS_LAYER_NAMES_H
#define PS_LAYER_NAMES_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdint.h>

#include "penstock/policy.h"

/* Names that are kept; a program that puts a running number into its ranges has no end of them. */
#define PS_LAYER_NAMES_MAX 4096u

struct ps_layer_name {
    const char *text;
    uint64_t hash;
    uint32_t number;                   /* never PENSTOCK_NEVER: a name without one has one from PS_LAYERS_UNNUMBERED on */
    enum penstock_direction direction; /* PENSTOCK_DIRECTION_NONE: the name does not say */
    _Atomic uint64_t seen;             /* step << 32 | times in that step, for names that don't say */
};

/* NULL: no room, said once. */
struct ps_layer_name *ps_layer_name_keep(const char *text);

/*
 * The direction of the next range of this name, which does not say: in each step it is forward the first time and backward the second, and
 * so on in turn. Counts it.
 */
enum penstock_direction ps_layer_name_next_direction(struct ps_layer_name *name);

/* A step is over: the turns begin again. */
void ps_layer_names_step(void);

/* For a forked child: the locks are nobody's. */
void ps_layer_names_in_child(void);

/* The kernel's name if it matches the pattern (always the same one), or NULL. A handle is asked about once, until a module is unloaded. */
const struct ps_layer_name *ps_layer_name_of_kernel(CUfunction function, const char *pattern);

#endif
