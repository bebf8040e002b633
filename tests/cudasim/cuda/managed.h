/*
 * Managed memory. Its bytes stay where they are, in host memory, and every device and thread reads
 * and writes them at all times. What moves is where each page counts: on the host, or on a device,
 * of whose bytes it then takes its own.
 *
 * Pages come to a device by a prefetch, and when a kernel that names their allocation in a
 * parameter starts there, or a fill of them. They come as far as there is room, for which pages of
 * allocations that were used longer ago leave. They go back to the host by a prefetch, for another
 * request of the device's memory, and when they are freed.
 *
 * All functions: under the device lock.
 */
#ifndef CUDASIM_MANAGED_H
#define CUDASIM_MANAGED_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

struct cudasim_operation;
struct cudasim_managed; /* one allocation */

/* Frees the allocation. No work may use it. */
void cudasim_managed_free(struct cudasim_managed *managed);

/*
 * Moves managed pages from the device to the host until it has that many bytes free. Moves none and
 * returns false if that can't be reached.
 */
bool cudasim_managed_make_room(int device, size_t bytes);

/* Moves the pages that the operation uses. Called when it starts. */
void cudasim_managed_operation_starts(const struct cudasim_operation *operation);

#endif
