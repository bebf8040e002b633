/*
 * The task of a run that `penstock verify` makes: a file of lines, written by
 * scripts/command/penstock-verify.
 *
 *     guard unmap|host       the backing of evicted spans; host: each leads to its slot before any
 *                            launch
 *     steps N                the run is over when N steps have ended under a plan (and the watched
 *                            launch has passed), ...
 *     launches N             ... or when this many kernels were launched
 *     watch FIRST LAST NAME  report when launch LAST of the kernel has passed, and which of its
 *                            launches lie in a recorded step
 *     bare FIRST LAST NAME   the same; at its launches from FIRST to LAST idle spans lead nowhere
 *     strip FIRST LAST       idle spans lead nowhere at every launch, from when FIRST rounds of a
 *                            learnt step have ended until LAST have; then the run is over
 *     only BYTES NTH         these spans alone become bare (any number of lines)
 *     spare BYTES NTH        all spans but these
 *     spare-each BYTES BORN PERIOD   and except the spans born at this place of each step; place
 *                            and step length are counted in launches that are learnt from
 *     heed                   and except the spans that rules keep, by what is known at their birth
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
    bool only; /* `span` are the spans to make bare; false: the spans to spare */
    struct ps_verify_span *span;
    size_t spans;
};

/*
 * Reads the file. Returns 0 or -errno; -EINVAL: a line is none of the above. The result is never
 * freed.
 */
int ps_verify_task_read(const char *path, struct ps_verify_task *out);

/* Returns whether the task lets the span be made bare. */
bool ps_verify_task_wants(const struct ps_verify_task *task, const struct ps_span *span);

#endif
