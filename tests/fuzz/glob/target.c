/*
 * A pattern and a text, each a line, given to the matcher of shell patterns. A second matcher, with
 * a table of which part of the pattern matches which part of the text, must say the same.
 */
#include "tests/fuzz/fuzz.h"

#include "policy/glob.h"

#define LENGTH_MAX 200

/* An element of a pattern: the characters that it matches, any number of times or once. */
struct element {
    bool repeats;
    bool matches[256];
};

/* Reads a character of a set, and the place behind it. */
static unsigned char member(const char *pattern, size_t *at)
{
    if (pattern[*at] == '\\' && pattern[*at + 1])
        ++*at;
    return (unsigned char)pattern[(*at)++];
}

/* Reads a set from behind its [. Returns the place behind its ], or 0 if it has none. */
static size_t read_set(const char *pattern, size_t at, struct element *out)
{
    bool inverted = pattern[at] == '!' || pattern[at] == '^';

    at += inverted;
    for (bool first = true; first || pattern[at] != ']'; first = false) {
        if (!pattern[at])
            return 0;
        unsigned low = member(pattern, &at), high = low;
        if (pattern[at] == '-' && pattern[at + 1] && pattern[at + 1] != ']') {
            at++;
            high = member(pattern, &at);
        }
        for (unsigned c = low; c <= high; c++)
            out->matches[c] = true;
    }
    for (unsigned c = 0; inverted && c < 256; c++)
        out->matches[c] = !out->matches[c];
    return at + 1;
}

static size_t read_pattern(const char *pattern, struct element *out)
{
    size_t count = 0, behind;

    for (size_t at = 0; pattern[at]; count++) {
        struct element *e = &out[count];
        *e = (struct element){.repeats = pattern[at] == '*'};
        if (pattern[at] == '*' || pattern[at] == '?') {
            memset(e->matches, true, sizeof e->matches);
            at++;
        } else if (pattern[at] == '[' && (behind = read_set(pattern, at + 1, e))) {
            at = behind;
        } else {
            memset(e->matches, false, sizeof e->matches);
            e->matches[member(pattern, &at)] = true;
        }
    }
    return count;
}

static bool matches(const char *pattern, const char *text)
{
    static struct element element[LENGTH_MAX];
    static bool so_far[LENGTH_MAX + 1], next[LENGTH_MAX + 1]; /* by length of the text's beginning */
    size_t count = read_pattern(pattern, element), length = strlen(text);

    for (size_t i = 0; i <= length; i++)
        so_far[i] = i == 0;
    for (size_t e = 0; e < count; e++) {
        for (size_t i = 0; i <= length; i++) {
            bool one = i > 0 && element[e].matches[(unsigned char)text[i - 1]];
            next[i] = element[e].repeats ? so_far[i] || (i > 0 && next[i - 1]) : one && so_far[i - 1];
        }
        memcpy(so_far, next, sizeof so_far);
    }
    return so_far[length];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_input in = {data, bytes};
    char *pattern = fuzz_text(&in, '\n'), *text = fuzz_text(&in, '\n');

    if (strlen(pattern) < LENGTH_MAX && strlen(text) < LENGTH_MAX) {
        fuzz_require(ps_glob_matches(pattern, text) == matches(pattern, text));
        fuzz_require(ps_glob_matches("*", text));
    } else {
        ps_glob_matches(pattern, text);
    }
    free(pattern);
    free(text);
    return 0;
}
