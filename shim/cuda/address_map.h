/*
 * These functions look an address up without a lock. They tell whether it lies in the reservation,
 * its device, and the span there. All spans get their addresses from the reservation.
 *
 * Threads: any. The registry (memory/registry.h) reserves the addresses and writes the map.
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
 * The addresses of all spans, and the spans there. Each device has an area of them, so an address
 * tells its device. The range and its units are set once, with the first device, and then constant.
 */
struct ps_reservation {
    CUdeviceptr base;
    _Atomic uint64_t reserved;    /* bytes; 0 until the other fields are set */
    size_t granularity;           /* unit of spans in bytes, a power of two */
    unsigned unit_shift;          /* log2 of granularity */
    unsigned area_shift;          /* log2 of an area's bytes; the first device has the first area */
    struct ps_span *_Atomic *map; /* one entry per unit; NULL where no span is */
    _Atomic uint32_t blocks;      /* live blocks on all devices; launches read it unlocked */
};
extern struct ps_reservation ps_reservation;

/* Returns the bytes of a span that is made for a request of `requested` bytes. */
static inline size_t ps_address_rounded(size_t requested)
{
    return (requested + ps_reservation.granularity - 1) & ~(ps_reservation.granularity - 1);
}

/* Returns whether the address lies in the reservation. Any thread, no lock. */
static inline bool ps_address_is_a_spans(CUdeviceptr address)
{
    uint64_t reserved = atomic_load_explicit(&ps_reservation.reserved, memory_order_acquire);

    return reserved && address - ps_reservation.base < reserved; /* 0 until the set-up ends */
}

/*
 * Returns the span structure at an address, or NULL if no span is there. Any thread, no lock. The
 * caller takes the registry lock and checks `life` before it relies on the span.
 */
static inline struct ps_span *ps_address_span(CUdeviceptr address)
{
    if (!ps_address_is_a_spans(address))
        return NULL;
    return atomic_load_explicit(&ps_reservation.map[(address - ps_reservation.base) >> ps_reservation.unit_shift],
                                memory_order_acquire);
}

/*
 * Returns an address in the span that a program means by `address`: itself, or its last byte where
 * a span ends. Reverse iterators and loops that count down are given the end of their memory. While
 * there are enough addresses, the unit behind a span belongs to no span. Any thread, no lock.
 */
static inline CUdeviceptr ps_address_meant(CUdeviceptr address)
{
    const bool may_be_end = !(address & (ps_reservation.granularity - 1)) && ps_address_is_a_spans(address);

    return may_be_end && !ps_address_span(address) && ps_address_span(address - 1) ? address - 1 : address;
}

/*
 * Returns the number of the device that an address of the reservation belongs to. Devices are
 * numbered from 0, in the order in which they became managed. Any thread, no lock.
 */
static inline unsigned ps_address_device(CUdeviceptr address)
{
    return (unsigned)((address - ps_reservation.base) >> ps_reservation.area_shift);
}

#endif
