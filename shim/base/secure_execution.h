/*
 * Whether the program has rights that who started it has not (setuid, file capabilities). The loader then preloads nothing that a user names; but an
 * administrator may preload this library for all programs, and no setting of the user's may be read with such rights, nor a file of his written or loaded.
 *
 * Threads: any; no state.
 */
#ifndef PS_SECURE_EXECUTION_H
#define PS_SECURE_EXECUTION_H

#include <stdbool.h>
#include <sys/auxv.h>

static inline bool ps_is_secure_execution(void)
{
    return getauxval(AT_SECURE) != 0;
}

#endif
