#include "base/plain_text.h"

#include <stdbool.h>
#include <string.h>

size_t ps_utf8_length(const unsigned char *s)
{
    unsigned char lowest = 0x80, highest = 0xbf; /* bounds for the second byte */
    size_t length;

    if (s[0] < 0x80)
        return 1;
    if (s[0] >= 0xc2 && s[0] <= 0xdf) {
        length = 2;
    } else if (s[0] >= 0xe0 && s[0] <= 0xef) {
        length = 3;
        if (s[0] == 0xe0)
            lowest = 0xa0;
        if (s[0] == 0xed)
            highest = 0x9f;
    } else if (s[0] >= 0xf0 && s[0] <= 0xf4) {
        length = 4;
        if (s[0] == 0xf0)
            lowest = 0x90;
        if (s[0] == 0xf4)
            highest = 0x8f;
    } else {
        return 0;
    }
    if (s[1] < lowest || s[1] > highest)
        return 0;
    for (size_t i = 2; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    return length;
}

/*
 * Returns whether a terminal would obey the character as a command. `length` is its number of
 * bytes; 0: no valid character.
 */
static bool is_obeyed(const unsigned char *s, size_t length)
{
    if (length <= 1)
        return *s < 0x20 || (*s >= 0x7f && *s < 0xa0);
    if (length == 2)
        return *s == 0xc2 && s[1] < 0xa0;
    return s[0] == 0xe2 &&
           ((s[1] == 0x80 && s[2] >= 0xa8 && s[2] <= 0xae) || (s[1] == 0x81 && s[2] >= 0xa6 && s[2] <= 0xa9));
}

size_t ps_plain_text(char *text)
{
    char *to = text;

    for (const char *from = text; *from;) {
        const unsigned char *s = (const unsigned char *)from;
        const size_t valid = ps_utf8_length(s), length = valid ? valid : 1;
        if (is_obeyed(s, valid)) {
            *to++ = '?';
        } else {
            memmove(to, from, length);
            to += length;
        }
        from += length;
    }
    *to = '\0';
    return (size_t)(to - text);
}
