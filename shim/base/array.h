/*
 * Arrays that grow by doubling. Who owns one keeps its room beside it, in elements, and calls with the lock that goes with it, if any.
 */
#ifndef PS_ARRAY_H
#define PS_ARRAY_H

#include <stddef.h>
#include <stdlib.h>

/* The array with room for one more than `count`; at first for `first`. NULL: no memory, and the array is what it was. */
static inline void *ps_grown_array(void *array, size_t count, size_t *room, size_t first, size_t element_bytes)
{
    if (count < *room)
        return array;
    size_t more = *room ? 2 * *room : first;
    void *grown = realloc(array, more * element_bytes);
    if (grown)
        *room = more;
    return grown;
}

#endif
