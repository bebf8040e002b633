/*
 * Text of others' (a command line, a layer's name, a file's name) as a terminal may be given it: shown and not obeyed.
 *
 * Threads: any; no state. Async-signal-safe.
 */
#ifndef PS_PLAIN_TEXT_H
#define PS_PLAIN_TEXT_H

#include <stddef.h>

/* The length of the valid UTF-8 sequence at `s` (no overlong form, no surrogate, nothing above U+10FFFF), or 0. A NUL ends every check. */
size_t ps_utf8_length(const unsigned char *s);

/*
 * Puts a '?' in the place of each control character (U+0001 to U+001F and U+007F to U+009F, also where the latter stand as single bytes that are no UTF-8), and
 * of those that turn the direction or end a line (U+2028 to U+202E, U+2066 to U+2069). Returns the length, which may have become shorter.
 */
size_t ps_plain_text(char *text);

#endif
