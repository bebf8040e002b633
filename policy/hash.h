/* A hash of a number. Pure. */
#ifndef PS_HASH_H
#define PS_HASH_H

#include <stdint.h>

/* Spreads it over all 64 bits, so that sums of these tell apart what they are sums of, and the lowest bits do for an index. */
static inline uint64_t ps_hash_u64(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

#endif
