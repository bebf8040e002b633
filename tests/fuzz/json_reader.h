/*
 * A reader of JSON for the fuzz targets, written without the writer: RFC 8259 to the letter, and
 * UTF-8 in its shortest form. For one thread.
 */
#ifndef PENSTOCK_FUZZ_JSON_READER_H
#define PENSTOCK_FUZZ_JSON_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum json_kind {
    JSON_NULL,
    JSON_FALSE,
    JSON_TRUE,
    JSON_NUMBER, /* `text`: as it stands */
    JSON_STRING, /* `text`: decoded */
    JSON_ARRAY,
    JSON_OBJECT,
};

struct json_value {
    enum json_kind kind;
    char *key;  /* in an object, else NULL */
    char *text; /* of numbers and strings, else NULL */
    struct json_value *first, *next;
};

/* Returns the value, for json_free; NULL if the text is not JSON, or nested more than 64 deep. */
struct json_value *json_read(const char *text, size_t bytes);
void json_free(struct json_value *value);

/* Returns the member of that name, which must be there. */
const struct json_value *json_member(const struct json_value *object, const char *key);

/* Returns the number of members of that name, or of elements if `key` is NULL. */
size_t json_count(const struct json_value *value, const char *key);

/*
 * Say whether the value is that number, or that string; the latter with any text that is NULL as
 * null.
 */
bool json_is_u64(const struct json_value *value, uint64_t number);
bool json_is_string(const struct json_value *value, const char *text);

/*
 * Returns a text as JSON should hold it, which the caller frees: each byte that is no part of valid
 * UTF-8 has become U+FFFD.
 */
char *json_expected(const char *text);

#endif
