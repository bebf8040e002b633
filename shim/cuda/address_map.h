/*
 * What an address tells without a lock: whether it lies in the reservation that all spans get their addresses from, in whose area, and which structure is there.
 *
 * Threads: any. The registry (memory/registry.h) reserves the addresses, and writes the map.
 */
#ifndef PS_ADDRESS_MAP_H
#define PS_ADDRESS_MAP_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ps_span;

/*
 * The addresses of all spans, and what lies where. Each device has its area of them, so that an address tells its device. Set once, with the first
 * device, then constant.
 */
struct ps_reservation {
    CUdeviceptr base;
    _Atomic uint64_t reserved;    /* bytes; 0 until the rest is there */
    size_t granularity;           /* unit of spans, a power of two */
    unsigned unit_shift;          /* log2 of granularity */
    unsigned area_shift;          /* log2 of an area's bytes; the first device's is the first one */
    struct ps_span *_Atomic *map; /* one entry a unit, NULL where no span is */
    _Atomic uint32_t blocks;      /* that live, on all devices: a glance for those who launch */
};
extern struct ps_reservation ps_reservation;

/* The bytes of a span that is made for a request of so many. */
static inline size_t ps_address_rounded(size_t requested)
{
    return (requested + ps_reservation.granularity - 1) & ~(ps_reservation.granularity - 1);
}

/* Whether the address lies in the span reservation. Any thread, no lock. */
static inline bool ps_address_is_a_spans(CUdeviceptr address)
{
    uint64_t reserved = atomic_load_explicit(&ps_reservation.reserved, memory_order_acquire);

    return reserved && address - ps_reservation.base < reserved; /* another thread may be setting up */
}

/* The structure at an address of the reservation, or NULL. Any thread, no lock: take the lock and look at `life` before believing it. */
static inline struct ps_span *ps_address_span(CUdeviceptr address)
{
    if (!ps_address_is_a_spans(address))
        return NULL;
    return atomic_load_explicit(&ps_reservation.map[(address - ps_reservation.base) >> ps_reservation.unit_shift], memory_order_acquire);
}

/* Which of the devices, counted from 0 as they came to be managed, an address of the reservation belongs to. Any thread, no lock. */
static inline unsigned ps_address_device(CUdeviceptr address)
{
    return (unsigned)((address - ps_reservation.base) >> ps_reservation.area_shift);
}

#endif
