/*
 * Addresses of one reservation: gives out ranges and takes them back, first fit, joining neighbours. Pure bookkeeping, no driver call.
 *
 * Threads: the caller serialises (the registry lock). All sizes and addresses in bytes, multiples of the unit that the caller keeps to.
 */
#ifndef PS_ADDRESS_SPACE_H
#define PS_ADDRESS_SPACE_H

#include <stddef.h>
#include <stdint.h>

struct ps_address_range {
    uint64_t start;
    uint64_t bytes;
};

struct ps_address_space {
    struct ps_address_range *free; /* sorted by start; no two touch */
    size_t count;
    size_t capacity;
};

/* Starts with [start, start + bytes) free. 0 or -ENOMEM. */
int ps_address_space_init(struct ps_address_space *space, uint64_t start, uint64_t bytes);

/* A range of `bytes`, or 0 when none is left. */
uint64_t ps_address_space_take(struct ps_address_space *space, uint64_t bytes);

/* Takes a range back. 0; -EINVAL if part of it is free already; -ENOMEM: the range is lost (never handed out again), nothing else. */
int ps_address_space_give(struct ps_address_space *space, uint64_t start, uint64_t bytes);

void ps_address_space_destroy(struct ps_address_space *space);

#endif
