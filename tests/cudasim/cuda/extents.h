/*
 * The two memory files behind the handles of cuMemCreate: extents of device pages and of host
 * pages. Under the device lock.
 */
#ifndef CUDASIM_EXTENTS_H
#define CUDASIM_EXTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The offset of a new, poisoned extent; -1 without memory. */
off_t cudasim_extent_take(bool host, size_t bytes);
/* Gives it back. Its last mapping must be gone: another extent may get the same pages. */
void cudasim_extent_give(bool host, off_t offset, size_t bytes);
/*
 * A descriptor of the file whose position is the offset; -1 without one. It shows the pages,
 * whoever has them.
 */
int cudasim_extent_descriptor(bool host, off_t offset);
/*
 * While the descriptor, or a duplicate of it, is open anywhere, the extent is held. False: it can't
 * be.
 */
bool cudasim_extent_hold(int descriptor, off_t offset, size_t bytes);
bool cudasim_extent_is_held(bool host, off_t offset, size_t bytes);
/* The offset that a descriptor was made for; -1 when it is not of this file. */
off_t cudasim_extent_behind(bool host, int descriptor);
/* Maps it at the address, inaccessible until mprotect says otherwise. */
bool cudasim_extent_map(bool host, off_t offset, uintptr_t base, size_t bytes);

#endif
