/* Waits, in unit tests, for the work of another thread. */
#ifndef PENSTOCK_TESTS_UNIT_COMES_TO_H
#define PENSTOCK_TESTS_UNIT_COMES_TO_H

#include <stdint.h>
#include <unistd.h>

#include "base/clock.h"

/* The longest wait, in ns. */
#define PATIENCE_NS 20000000000u

/* Waits until the condition holds. Returns false if it doesn't within PATIENCE_NS. */
#define COMES_TO(condition)                                                                                            \
    ({                                                                                                                 \
        uint64_t until_ns = ps_now_ns() + PATIENCE_NS;                                                                 \
        while (!(condition) && ps_now_ns() < until_ns)                                                                 \
            usleep(200);                                                                                               \
        (condition);                                                                                                   \
    })

#endif
