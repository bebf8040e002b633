/*
 * Size classes: the freed spans that an allocation of a size may take.
 *
 * A class is made when its size is first seen, and stays. A class is found by its size, and links
 * to the next larger one.
 *
 * Threads: any; every function is [locked] with the registry lock.
 */
#ifndef PS_SIZE_CLASSES_H
#define PS_SIZE_CLASSES_H

#include <stddef.h>
#include <stdint.h>

#include "memory/span.h"

/* Offers the freed span to allocations, unless there is no room for a class of its size. */
void ps_size_class_offer(struct ps_span *span);

/* Withdraws the span's offer. Does nothing for a span that is not offered. */
void ps_size_class_withdraw(struct ps_span *span);

/* Returns the number of offered spans of exactly that size. */
uint32_t ps_size_class_count(size_t bytes);

/*
 * Returns a freed span whose uses `stream` comes after by itself, or NULL. The span has the size,
 * or the least size above it up to `at_most` bytes. It was used on `stream` alone, or it has no
 * uses; among several, one freed late is returned. `stream` NULL: only a span without uses.
 * `for_any`: other streams will use the span too, and none is made to wait; then a span freed in
 * stream order must have no uses. The caller withdraws the span.
 */
struct ps_span *ps_size_class_find_ordered(size_t bytes, size_t at_most, const struct ps_stream *stream, bool for_any);

/*
 * Returns the oldest span of exactly that size that this thread gave back by cudaFree, or NULL. Its
 * uses may not be over, but a wait for them waits for no later work. The caller withdraws the span.
 */
struct ps_span *ps_size_class_find_freed_at_once(size_t bytes);

/*
 * As ps_size_class_find_ordered() without `for_any`. A size without such a span gives its oldest
 * span, whatever that waits for.
 */
struct ps_span *ps_size_class_find(size_t bytes, size_t at_most, const struct ps_stream *stream);

/*
 * Lists up to `room` spans of those sizes that an allocation on `stream` (NULL: on any stream) may
 * take, the oldest first of each size. Returns their number.
 */
unsigned ps_size_class_oldest(size_t bytes, size_t at_most, const struct ps_stream *stream, struct ps_span **spans,
                              unsigned room);

/*
 * Counts a birth of that size, and returns the number of births before it. Returns
 * PS_SPAN_UNKNOWN_NTH if there is no room for a class of the size.
 */
uint64_t ps_size_class_count_birth(size_t bytes);

#endif
