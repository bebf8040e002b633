/*
 * Finds a kernel image in the data that nvcc puts into a program. A wrapper structure points at a
 * container ("fatbinary"). It holds one or more images (cubins, PTX), each with a header of its
 * own.
 *
 * Pure: no CUDA, no allocation; any thread. Never reads past the bytes that the caller allows.
 */
#ifndef CUDASIM_CUDART_FATBIN_H
#define CUDASIM_CUDART_FATBIN_H

#include <stddef.h>

struct cudasim_image {
    const void *bytes; /* inside the container */
    size_t size;       /* of the image as stored: its ELF structures end at or before this */
    unsigned sm;       /* the architecture that it was compiled for, 10 * major + minor */
};

/*
 * Stores the container behind the wrapper that __cudaRegisterFatBinary is given, and its length in
 * bytes from its header. Returns -EINVAL if either has a wrong start.
 */
int cudasim_fatbin_container(const void *wrapper, const void **container, size_t *bytes);

/*
 * Finds the uncompressed cubin of a container that fits a device of capability `sm` (10 * major +
 * minor) best. That is one of the same major number, with the highest minor number not above the
 * device's. Returns -ENOENT if no cubin fits, -ENOTSUP if one fits but is compressed, -EINVAL if
 * the container is damaged.
 */
int cudasim_fatbin_find_cubin(const void *container, size_t bytes, unsigned sm, struct cudasim_image *image);

#endif
