/*
 * Text from outside (a command line, a layer's name, a file's name), made safe for a terminal. The
 * terminal then shows the text and does not obey it.
 *
 * Threads: any; no state. Async-signal-safe.
 */
#ifndef PS_PLAIN_TEXT_H
#define PS_PLAIN_TEXT_H

#include <stddef.h>

/*
 * Returns the length of the valid UTF-8 sequence at `s`, or 0. Overlong forms, surrogates and code
 * points above U+10FFFF are not valid. A NUL ends every check.
 */
size_t ps_utf8_length(const unsigned char *s);

/*
 * Replaces each control character by '?': U+0001 to U+001F and U+007F to U+009F. The latter range
 * is also replaced as single bytes that are not UTF-8. Characters that turn the direction or end a
 * line (U+2028 to U+202E, U+2066 to U+2069) are replaced too. Returns the length, which may be
 * shorter than before.
 */
size_t ps_plain_text(char *text);

#endif
