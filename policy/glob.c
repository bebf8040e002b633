#include "policy/glob.h"

#include <stddef.h>

/*
 * Sets *holds to whether the set that begins at `glob` ("[...]") holds c. Returns the text
 * behind the set, or NULL if the set never ends; then [ is a plain character.
 */
static const char *match_set(const char *glob, unsigned char c, bool *holds)
{
    const char *at = glob + 1;
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
 * Returns whether the first element of `glob` (not a *) matches c; *rest is the glob behind
 * it.
 */
static bool match_one(const char *glob, char c, const char **rest)
{
    bool holds = false;

    if (*glob == '[') {
        *rest = match_set(glob, (unsigned char)c, &holds);
        if (*rest)
            return holds;
    }
    if (*glob == '\\' && glob[1])
        glob++;
    else if (*glob == '?') {
        *rest = glob + 1;
        return true;
    }
    *rest = glob + 1;
    return *glob == c;
}

bool ps_glob_matches(const char *glob, const char *text)
{
    /* The place behind the last *, to continue from after giving that * one more character. */
    const char *after_star = NULL;
    const char *star_text = NULL;
    const char *rest;

    while (*text) {
        if (*glob == '*') {
            after_star = ++glob;
            star_text = text;
        } else if (*glob && match_one(glob, *text, &rest)) {
            glob = rest;
            text++;
        } else if (after_star) {
            glob = after_star;
            text = ++star_text;
        } else {
            return false;
        }
    }
    while (*glob == '*')
        glob++;
    return !*glob;
}
