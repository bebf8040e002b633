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

/* Returns the offset of a new, poisoned extent; -1 without memory. */
off_t cudasim_extent_take(bool host, size_t bytes);
/* Gives an extent back. Its last mapping must be gone, because another extent may get the pages. */
void cudasim_extent_give(bool host, off_t offset, size_t bytes);
/*
 * Returns a descriptor of the file, with the offset as its position; -1 on failure. It still shows
 * the pages when another extent has them.
 */
int cudasim_extent_descriptor(bool host, off_t offset);
/*
 * Holds the extent while the descriptor, or a duplicate of it, is open anywhere. Returns false when
 * that fails.
 */
bool cudasim_extent_hold(int descriptor, off_t offset, size_t bytes);
bool cudasim_extent_is_held(bool host, off_t offset, size_t bytes);
/* Returns the offset that a descriptor was made for; -1 when it belongs to another file. */
off_t cudasim_extent_behind(bool host, int descriptor);
/* Maps an extent at the address, inaccessible until mprotect allows access. */
bool cudasim_extent_map(bool host, off_t offset, uintptr_t base, size_t bytes);

#endif
