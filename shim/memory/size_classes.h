/*
 * Size classes: which freed spans there are for an allocation of so many bytes.
 *
 * A class is made when its size is first seen, and stays. They are found by size, and each leads to the next larger one.
 *
 * Threads: any; everything is [locked] with the registry lock.
 */
#ifndef PS_SIZE_CLASSES_H
#define PS_SIZE_CLASSES_H

#include <stddef.h>
#include <stdint.h>

#include "memory/span.h"

/* The freed span is there for allocations, unless there is no room for a class of its size. / No more. */
void ps_size_class_offer(struct ps_span *span);
void ps_size_class_withdraw(struct ps_span *span);

/* How many are offered of exactly that size. */
uint32_t ps_size_class_count(size_t bytes);

/*
 * A freed span of the size, or of the least size above it up to `at_most` bytes, whose uses `stream` comes after by itself: a late one that was used there
 * alone, or one without uses. `stream` NULL: one without uses. `for_any`: other streams will use it, too, and none is made to wait: not one that was freed in
 * stream order. NULL: there is none. The caller withdraws it.
 */
struct ps_span *ps_size_class_find_ordered(size_t bytes, size_t at_most, const struct ps_stream *stream, bool for_any);

/* The oldest of exactly that size that cudaFree gave back, whatever it waits for. NULL: there is none. The caller withdraws it. */
struct ps_span *ps_size_class_find_freed_at_once(size_t bytes);

/* As find_ordered, else the oldest of them, whatever it waits for. */
struct ps_span *ps_size_class_find(size_t bytes, size_t at_most, const struct ps_stream *stream);

/* Up to `room` of those sizes that an allocation on `stream` (NULL: on any) may be given, the oldest first of each size. Returns their number. */
unsigned ps_size_class_oldest(size_t bytes, size_t at_most, const struct ps_stream *stream, struct ps_span **spans, unsigned room);

/* How many births of that size were counted before this one; PS_SPAN_UNKNOWN_NTH: there is no room for a class of its size. */
uint64_t ps_size_class_count_birth(size_t bytes);

#endif
