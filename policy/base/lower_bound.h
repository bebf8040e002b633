/* A search by halving. Pure. Threads: any. */
#ifndef PS_LOWER_BOUND_H
#define PS_LOWER_BOUND_H

#include <stddef.h>

/*
 * Returns the least index below `count` for which `is_below` is false; `count` if there is no such
 * index. `is_below` is an expression of the index `i`. Once it is false it is false for all greater
 * indices.
 *
 *     first = PS_LOWER_BOUND(array->count, i, array->element[i].bytes < bytes);
 */
#define PS_LOWER_BOUND(count, i, is_below)                                                                             \
    (__extension__({                                                                                                   \
        size_t low_ = 0, high_ = (count);                                                                              \
        while (low_ < high_) {                                                                                         \
            const size_t i = low_ + (high_ - low_) / 2;                                                                \
            if (is_below)                                                                                              \
                low_ = i + 1;                                                                                          \
            else                                                                                                       \
                high_ = i;                                                                                             \
        }                                                                                                              \
        low_;                                                                                                          \
    }))

#endif
