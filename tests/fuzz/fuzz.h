/*
 * What the fuzz targets share: requirements, inputs that are taken apart, and a decoder of UTF-8.
 * Everything here is written without the code under test. For one thread.
 */
#ifndef PENSTOCK_FUZZ_H
#define PENSTOCK_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Ends the process with a report if the condition does not hold. */
#define fuzz_require(condition) ((condition) ? (void)0 : fuzz_fail(#condition, __FILE__, __LINE__))

__attribute__((noreturn, unused)) static void fuzz_fail(const char *condition, const char *file, int line)
{
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
    abort();
}

/* Returns memory, which the caller frees. Its end is where the sanitizer wants it to be. */
__attribute__((unused)) static void *fuzz_allocate(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);

    fuzz_require(memory);
    return memory;
}

/* ---- an input, taken from its beginning; what is missing reads as zeros ---- */

struct fuzz_input {
    const uint8_t *at;
    size_t left;
};

__attribute__((unused)) static uint8_t fuzz_u8(struct fuzz_input *in)
{
    if (!in->left)
        return 0;
    in->left--;
    return *in->at++;
}

__attribute__((unused)) static uint64_t fuzz_u64(struct fuzz_input *in)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < 8; i++)
        value |= (uint64_t)fuzz_u8(in) << 8 * i;
    return value;
}

/*
 * Returns the bytes up to the separator or the first NUL as a text, which the caller frees. Takes
 * the separator too.
 */
__attribute__((unused)) static char *fuzz_text(struct fuzz_input *in, char separator)
{
    size_t bytes = 0;

    while (bytes < in->left && in->at[bytes] != (uint8_t)separator && in->at[bytes])
        bytes++;
    char *text = fuzz_allocate(bytes + 1);
    if (bytes)
        memcpy(text, in->at, bytes);
    text[bytes] = '\0';
    bytes += bytes < in->left;
    in->at += bytes;
    in->left -= bytes;
    return text;
}

/* ---- UTF-8 ---- */

/*
 * Decodes the code point at `s`, of which `left` bytes may be read. Returns its length, or 0 if the
 * bytes are not the shortest form of a code point that is no surrogate.
 */
__attribute__((unused)) static size_t fuzz_code_point(const uint8_t *s, size_t left, uint32_t *out)
{
    size_t length = !left ? 0 : *s < 0x80 ? 1 : *s >> 5 == 6 ? 2 : *s >> 4 == 14 ? 3 : *s >> 3 == 30 ? 4 : 0;

    if (!length || length > left)
        return 0;
    *out = length == 1 ? *s : *s & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if (s[i] >> 6 != 2)
            return 0;
        *out = *out << 6 | (s[i] & 0x3fu);
    }
    bool shortest = *out >= (length == 1 ? 0u : length == 2 ? 0x80u : length == 3 ? 0x800u : 0x10000u);
    return shortest && *out <= 0x10ffff && (*out < 0xd800 || *out > 0xdfff) ? length : 0;
}

/* Returns whether a terminal obeys the character instead of showing it. */
__attribute__((unused)) static bool fuzz_is_obeyed(uint32_t point)
{
    return point < 0x20 || (point >= 0x7f && point <= 0x9f) || (point >= 0x2028 && point <= 0x202e) ||
           (point >= 0x2066 && point <= 0x2069);
}

/* Returns whether a terminal shows all of these bytes: lone bytes are read as Latin-1. */
__attribute__((unused)) static bool fuzz_is_plain(const char *text, size_t bytes)
{
    const uint8_t *s = (const uint8_t *)text;

    for (size_t i = 0; i < bytes;) {
        uint32_t point = s[i];
        size_t length = fuzz_code_point(s + i, bytes - i, &point);
        if (fuzz_is_obeyed(length ? point : s[i]))
            return false;
        i += length ? length : 1;
    }
    return true;
}

#endif
