#include "policy/glob.h"

#include <stddef.h>

/*
 * Sets *holds to whether the set that begins at `pattern` ("[...]") holds c. Returns the text
 * behind the set, or NULL if the set never ends; then [ is a plain character.
 */
static const char *match_set(const char *pattern, unsigned char c, bool *holds)
{
    const char *at = pattern + 1;
    bool inverted = *at == '!' || *at == '^';
    bool found = false;

    at += inverted;
    for (const char *first = at; *at && (*at != ']' || at == first); at++) {
        unsigned char low, high;
        if (*at == '\\' && at[1])
            at++;
        low = high = (unsigned char)*at;
        if (at[1] == '-' && at[2] && at[2] != ']') {
            at += 2;
            if (*at == '\\' && at[1])
                at++;
            high = (unsigned char)*at;
        }
        found |= low <= c && c <= high;
    }
    if (*at != ']')
        return NULL;
    *holds = found != inverted;
    return at + 1;
}

/*
 * Returns whether the first element of `pattern` (not a *) matches c; *rest is the pattern behind
 * it.
 */
static bool match_one(const char *pattern, char c, const char **rest)
{
    bool holds = false;

    if (*pattern == '[') {
        *rest = match_set(pattern, (unsigned char)c, &holds);
        if (*rest)
            return holds;
    }
    if (*pattern == '\\' && pattern[1])
        pattern++;
    else if (*pattern == '?') {
        *rest = pattern + 1;
        return true;
    }
    *rest = pattern + 1;
    return *pattern == c;
}

bool ps_glob_matches(const char *pattern, const char *text)
{
    /* The place behind the last *, to continue from after giving that * one more character. */
    const char *after_star = NULL;
    const char *star_text = NULL;
    const char *rest;

    while (*text) {
        if (*pattern == '*') {
            after_star = ++pattern;
            star_text = text;
        } else if (*pattern && match_one(pattern, *text, &rest)) {
            pattern = rest;
            text++;
        } else if (after_star) {
            pattern = after_star;
            text = ++star_text;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}
