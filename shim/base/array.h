/*
 * Arrays that grow by doubling. The owner of an array keeps its room beside it, in elements. The
 * owner calls with the lock that guards the array, if it has one.
 */
#ifndef PS_ARRAY_H
#define PS_ARRAY_H

#include <stddef.h>
#include <stdlib.h>

/*
 * Returns the array with room for one more than `count`; the first room is `first`. Returns NULL
 * when there is no memory; the array is then unchanged.
 */
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
