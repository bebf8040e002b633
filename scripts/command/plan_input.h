/*
 * The command line that the helpers of `penstock plan` share, and the recording that it names. For
 * one thread. Memory is kept until the program ends. Wrong use and bad input end the program with
 * one line on stderr and status 2.
 */
#ifndef PENSTOCK_SCRIPTS_PLAN_INPUT_H
#define PENSTOCK_SCRIPTS_PLAN_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "penstock/policy.h"

struct plan_input {
    const char *path; /* of the recording, as messages name it */
    struct penstock_step step;
    int64_t *demand; /* bytes, by moment */
    uint64_t peak;   /* bytes */
    struct penstock_policy_options options;
    const char *policy; /* a name */
    bool show_moves;
};

/*
 * Reads the arguments and the recording: RECORDING [--budget B] [--slab B] [--policy NAME]
 * [--prefetch-layers N] [--defer-layers N] [--keep-last N] [--guard G] [--moves] [--name NAME].
 * NAME stands for the recording in messages.
 */
void plan_input_read(struct plan_input *input, int argc, char **argv);

/* Returns memory, or ends the program if memory is short. */
void *plan_allocate(size_t bytes);

/* Prints "penstock: " and the text as one plain line; ends the program with status 2. */
__attribute__((format(printf, 1, 2), noreturn)) void plan_refuse(const char *format, ...);

#endif
