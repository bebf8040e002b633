/*
 * Programs with more rights than the user that started them (setuid, file capabilities). The loader
 * then preloads no library that a user names. But an administrator may preload this library for all
 * programs. With such rights Penstock may not read settings of the user, nor write or load files
 * that the user names.
 *
 * Threads: any; no state.
 */
#ifndef PS_SECURE_EXECUTION_H
#define PS_SECURE_EXECUTION_H

#include <stdbool.h>
#include <sys/auxv.h>

/* Says whether the program has such rights. */
static inline bool ps_is_secure_execution(void)
{
    return getauxval(AT_SECURE) != 0;
}

#endif
