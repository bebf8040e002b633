/*
 * The addresses of one reservation: hands out ranges, first fit, takes them back, and joins
 * neighbours. Pure bookkeeping, no driver call.
 *
 * Threads: the caller serialises (the registry lock). All sizes and addresses are in bytes, and
 * multiples of the unit that the caller keeps to.
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

/* Starts with [start, start + bytes) free. Returns 0 or -ENOMEM. */
int ps_address_space_init(struct ps_address_space *space, uint64_t start, uint64_t bytes);

/* Returns the start of a range of `bytes`, or 0 if no free range is large enough. */
uint64_t ps_address_space_take(struct ps_address_space *space, uint64_t bytes);

/*
 * As ps_address_space_take, with at least `gap` free bytes (not 0) before the range and behind it.
 * Returns 0 without memory to note that, too.
 */
uint64_t ps_address_space_take_apart(struct ps_address_space *space, uint64_t bytes, uint64_t gap);

/*
 * Takes a range back. Returns 0; -EINVAL if part of the range is free already; -ENOMEM if the range
 * is lost: it is never handed out again, and nothing else is harmed.
 */
int ps_address_space_give(struct ps_address_space *space, uint64_t start, uint64_t bytes);

void ps_address_space_destroy(struct ps_address_space *space);

#endif
