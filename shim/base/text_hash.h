/* A hash of names. Threads: no state of its own; any thread, also in a signal handler. */
#ifndef PS_TEXT_HASH_H
#define PS_TEXT_HASH_H

#include <stdint.h>

/* Returns the 64-bit FNV-1a hash of the text, which is no protection against chosen names. */
static inline uint64_t ps_text_hash(const char *text)
{
    uint64_t hash = 14695981039346656037u;

    while (*text)
        hash = (hash ^ (unsigned char)*text++) * 1099511628211u;
    return hash;
}

#endif
