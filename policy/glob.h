/*
 * Shell patterns, for names of layers and kernels. * matches any characters, ? any one character,
 * [a-z] and [!a-z] a set; \ takes the next character literally. Every other character matches
 * itself; / and a leading dot are not special.
 *
 * Pure; the time is linear in the text for each *. Threads: any.
 */
#ifndef PS_GLOB_H
#define PS_GLOB_H

#include <stdbool.h>

/* Returns whether the glob matches the whole text. */
bool ps_glob_matches(const char *glob, const char *text);

#endif
