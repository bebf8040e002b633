/* Waiting, in unit tests, for what another thread is to bring about. */
#ifndef PENSTOCK_TESTS_UNIT_COMES_TO_H
#define PENSTOCK_TESTS_UNIT_COMES_TO_H

#include <stdint.h>
#include <unistd.h>

#include "base/clock.h"

/* For so long at most. */
#define PATIENCE_NS 20000000000u

/* Until the condition holds; false when it doesn't come to. */
#define COMES_TO(condition)                                                                                            \
    ({                                                                                                                 \
        uint64_t until_ns = ps_now_ns() + PATIENCE_NS;                                                                 \
        while (!(condition) && ps_now_ns() < until_ns)                                                                 \
            usleep(200);                                                                                               \
        (condition);                                                                                                   \
    })

#endif
