#include "tests/fuzz/json_reader.h"

#include "tests/fuzz/fuzz.h"

#define DEPTH_MAX 64

struct reader {
    const uint8_t *at, *end;
    unsigned depth;
};

static void skip_blanks(struct reader *r)
{
    while (r->at < r->end && memchr(" \t\n\r", *r->at, 4))
        r->at++;
}

static bool take(struct reader *r, char c)
{
    if (r->at == r->end || *r->at != (uint8_t)c)
        return false;
    r->at++;
    return true;
}

static bool take_word(struct reader *r, const char *word)
{
    size_t length = strlen(word);

    if ((size_t)(r->end - r->at) < length || memcmp(r->at, word, length) != 0)
        return false;
    r->at += length;
    return true;
}

static bool take_digits(struct reader *r)
{
    const uint8_t *from = r->at;

    while (r->at < r->end && *r->at >= '0' && *r->at <= '9')
        r->at++;
    return r->at > from;
}

/* Reads a number. Returns its text, or NULL. */
static char *take_number(struct reader *r)
{
    const uint8_t *from = r->at;

    take(r, '-');
    if (!take(r, '0') && !take_digits(r))
        return NULL;
    if (take(r, '.') && !take_digits(r))
        return NULL;
    if (take(r, 'e') || take(r, 'E')) {
        if (!take(r, '+'))
            take(r, '-');
        if (!take_digits(r))
            return NULL;
    }
    return strndup((const char *)from, (size_t)(r->at - from));
}

static bool take_hex(struct reader *r, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++) {
        const char *digit = r->at < r->end && *r->at ? strchr("0123456789abcdef0123456789ABCDEF", *r->at) : NULL;
        if (!digit)
            return false;
        *out = *out << 4 | ((uint32_t)(digit - "0123456789abcdef0123456789ABCDEF") & 15);
        r->at++;
    }
    return true;
}

static char *put_point(char *to, uint32_t point)
{
    if (point >= 0x800)
        *to++ = (char)(0xe0 | point >> 12);
    if (point >= 0x80)
        *to++ = (char)(point >= 0x800 ? 0x80 | (point >> 6 & 63) : 0xc0 | point >> 6);
    *to++ = (char)(point >= 0x80 ? 0x80 | (point & 63) : point);
    return to;
}

/*
 * Reads what stands behind a backslash. Penstock escapes no character above U+FFFF. Returns the
 * place behind the decoded character, or NULL.
 */
static char *take_escape(struct reader *r, char *to)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    uint32_t point;

    if (take(r, 'u'))
        return take_hex(r, &point) && point && (point < 0xd800 || point > 0xdfff) ? put_point(to, point) : NULL;
    const char *letter = r->at < r->end && *r->at ? strchr(letters, *r->at) : NULL;
    if (!letter)
        return NULL;
    *to = meant[letter - letters];
    r->at++;
    return to + 1;
}

static bool take_characters(struct reader *r, char *to)
{
    uint32_t point;

    while (!take(r, '"')) {
        if (take(r, '\\')) {
            to = take_escape(r, to);
            if (!to)
                return false;
            continue;
        }
        size_t length = fuzz_code_point(r->at, (size_t)(r->end - r->at), &point);
        if (!length || point < 0x20)
            return false;
        memcpy(to, r->at, length);
        to += length;
        r->at += length;
    }
    *to = '\0';
    return true;
}

/* Reads a string. Returns its text decoded, which is no longer than it stands there, or NULL. */
static char *take_string(struct reader *r)
{
    if (!take(r, '"'))
        return NULL;
    const uint8_t *end = r->at;
    while (end < r->end && *end != '"')
        end += 1 + (*end == '\\');
    char *text = fuzz_allocate((size_t)(end - r->at) + 1);
    if (take_characters(r, text))
        return text;
    free(text);
    return NULL;
}

static struct json_value *take_value(struct reader *r);

/* Reads the members up to the closing bracket, behind the opening one. */
static bool take_members(struct reader *r, struct json_value *of)
{
    const char close = of->kind == JSON_OBJECT ? '}' : ']';
    struct json_value **last = &of->first;

    skip_blanks(r);
    if (take(r, close))
        return true;
    for (;;) {
        char *key = NULL;
        skip_blanks(r);
        if (of->kind == JSON_OBJECT) {
            key = take_string(r);
            skip_blanks(r);
            if (!key || !take(r, ':')) {
                free(key);
                return false;
            }
        }
        *last = take_value(r);
        if (!*last) {
            free(key);
            return false;
        }
        (*last)->key = key;
        last = &(*last)->next;
        skip_blanks(r);
        if (take(r, close))
            return true;
        if (!take(r, ','))
            return false;
    }
}

static bool fill(struct reader *r, struct json_value *value)
{
    if (r->at == r->end || r->depth > DEPTH_MAX)
        return false;
    switch (*r->at) {
    case '{':
    case '[':
        value->kind = *r->at++ == '{' ? JSON_OBJECT : JSON_ARRAY;
        return take_members(r, value);
    case '"':
        value->kind = JSON_STRING;
        return (value->text = take_string(r)) != NULL;
    case 'n':
        value->kind = JSON_NULL;
        return take_word(r, "null");
    case 't':
        value->kind = JSON_TRUE;
        return take_word(r, "true");
    case 'f':
        value->kind = JSON_FALSE;
        return take_word(r, "false");
    default:
        value->kind = JSON_NUMBER;
        return (value->text = take_number(r)) != NULL;
    }
}

static struct json_value *take_value(struct reader *r)
{
    struct json_value *value = calloc(1, sizeof *value);

    fuzz_require(value);
    r->depth++;
    skip_blanks(r);
    bool whole = fill(r, value);
    r->depth--;
    if (whole)
        return value;
    json_free(value);
    return NULL;
}

struct json_value *json_read(const char *text, size_t bytes)
{
    struct reader r = {(const uint8_t *)text, (const uint8_t *)text + bytes, 0};
    struct json_value *value = take_value(&r);

    skip_blanks(&r);
    if (value && r.at == r.end)
        return value;
    json_free(value);
    return NULL;
}

void json_free(struct json_value *value)
{
    while (value) {
        struct json_value *next = value->next;
        json_free(value->first);
        free(value->key);
        free(value->text);
        free(value);
        value = next;
    }
}

const struct json_value *json_member(const struct json_value *object, const char *key)
{
    fuzz_require(object && object->kind == JSON_OBJECT && json_count(object, key) == 1);
    const struct json_value *at = object->first;
    while (strcmp(at->key, key) != 0)
        at = at->next;
    return at;
}

size_t json_count(const struct json_value *value, const char *key)
{
    size_t count = 0;

    for (const struct json_value *at = value->first; at; at = at->next)
        count += !key || (at->key && !strcmp(at->key, key));
    return count;
}

bool json_is_u64(const struct json_value *value, uint64_t number)
{
    char text[24];

    snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    return value->kind == JSON_NUMBER && !strcmp(value->text, text);
}

bool json_is_string(const struct json_value *value, const char *text)
{
    if (!text)
        return value->kind == JSON_NULL;
    char *expected = json_expected(text);
    bool is = value->kind == JSON_STRING && !strcmp(value->text, expected);
    free(expected);
    return is;
}

char *json_expected(const char *text)
{
    size_t left = strlen(text), used = 0;
    char *out = fuzz_allocate(3 * left + 1);
    uint32_t point;

    for (const uint8_t *s = (const uint8_t *)text; left;) {
        size_t length = fuzz_code_point(s, left, &point);
        memcpy(out + used, length ? (const char *)s : "\xef\xbf\xbd", length ? length : 3);
        used += length ? length : 3;
        length = length ? length : 1;
        s += length;
        left -= length;
    }
    out[used] = '\0';
    return out;
}
