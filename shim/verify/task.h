/*
 * The task of a run that `penstock verify` makes: a file of lines, written by scripts/penstock-verify.
 *
 *     guard unmap|host       what evicted spans lead to; host: each is led to its slot before anything is launched
 *     steps N                the run is over when N steps have ended under a plan (and what is watched has passed), ...
 *     launches N             ... or this many kernels were launched
 *     watch FIRST LAST NAME  it is told when launch LAST of the kernel has passed, and which of its launches lie in a step that is recorded
 *     bare FIRST LAST NAME   the same, and at its launches from FIRST to LAST all spans that are idle lead nowhere
 *     strip FIRST LAST       that at every launch, from when FIRST rounds of a learnt step have ended until LAST have; then the run is over
 *     only BYTES NTH         of all spans these alone (any number of lines)
 *     spare BYTES NTH        all but these
 *     spare-each BYTES BORN PERIOD   and but those that are born at this place of each step: launches that are learnt from, and how many a step has
 *     heed                   and but those that rules keep, by what is known of them at their birth
 *
 * Threads: read once; constant afterwards.
 */
#ifndef PS_TASK_H
#define PS_TASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/settings.h"
#include "memory/span.h"

struct ps_verify_span {
    uint64_t bytes;
    uint64_t nth;
    uint64_t born, period; /* period 0: known by `nth` */
};

struct ps_verify_task {
    enum ps_guard guard; /* PS_GUARD_UNMAP or PS_GUARD_HOST */
    uint64_t steps;
    uint64_t launches;
    char *kernel; /* NULL: none is watched */
    uint64_t first, last;
    bool bare;
    bool strips; /* at every launch; first and last are rounds */
    bool heeds;
    bool only; /* `span` are the ones to be made bare; false: those to be spared */
    struct ps_verify_span *span;
    size_t spans;
};

/* Reads the file. 0 or -errno; -EINVAL: a line is none of the above. What was read stays for ever. */
int ps_verify_task_read(const char *path, struct ps_verify_task *out);

/* Whether the task lets the span be made bare. */
bool ps_verify_task_wants(const struct ps_verify_task *task, const struct ps_span *span);

#endif
