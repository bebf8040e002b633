/*
 * Shell patterns, for names of layers and kernels: * any characters, ? any one, [a-z] and [!a-z] a set, \ takes the next one as it is.
 * Everything else stands for itself; there is nothing special about / or a leading dot. Pure; linear in the text for each *.
 */
#ifndef PS_GLOB_H
#define PS_GLOB_H

#include <stdbool.h>

bool ps_glob_matches(const char *pattern, const char *text);

#endif
