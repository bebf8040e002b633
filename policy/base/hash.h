/* A hash of a number. Pure. Threads: any. */
#ifndef PS_HASH_H
#define PS_HASH_H

#include <stdint.h>

/*
 * Spreads the number over all 64 bits. So sums of hashes of different numbers differ, and the
 * lowest bits serve as an index.
 */
static inline uint64_t ps_hash_u64(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

#endif
