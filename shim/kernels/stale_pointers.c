#include "kernels/stale_pointers.h"

#include <stdatomic.h>

#define PLACES 4096u /* a training has hundreds of kernels and shapes */

static _Atomic uint64_t named_none[PLACES];

static _Atomic uint64_t *place_of(uint64_t fingerprint)
{
    return &named_none[(fingerprint * 0x9E3779B97F4A7C15u >> 32) % PLACES];
}

void ps_stale_pointers_named_none(uint64_t fingerprint)
{
    _Atomic uint64_t *place = place_of(fingerprint);

    if (atomic_load_explicit(place, memory_order_relaxed) != fingerprint)
        atomic_store_explicit(place, fingerprint, memory_order_relaxed);
}

bool ps_stale_pointers_is(uint64_t fingerprint)
{
    return atomic_load_explicit(place_of(fingerprint), memory_order_relaxed) == fingerprint;
}
