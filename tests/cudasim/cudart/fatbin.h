/*
 * Finds a kernel image in what nvcc puts into a program: a wrapper structure that points at a
 * container ("fatbinary"), which holds one or more images (cubins, PTX), each with a header of its
 * own.
 *
 * Pure: no CUDA, no allocation; any thread. Never reads past the bytes it is told it may read.
 */
#ifndef CUDASIM_CUDART_FATBIN_H
#define CUDASIM_CUDART_FATBIN_H

#include <stddef.h>

struct cudasim_image {
    const void *bytes; /* inside the container */
    size_t size;       /* of the image as stored: its ELF structures end at or before this */
    unsigned sm;       /* what it was compiled for, 10 * major + minor */
};

/*
 * The container behind the wrapper that __cudaRegisterFatBinary is given, and its length in bytes
 * as its header says. -EINVAL if either does not start as it should.
 */
int cudasim_fatbin_container(const void *wrapper, const void **container, size_t *bytes);

/*
 * The uncompressed cubin of a container that fits a device of capability `sm` (10 * major + minor)
 * best: same major number, highest minor number not above the device's. -ENOENT: no cubin fits;
 * -ENOTSUP: one fits, but it is compressed; -EINVAL: the container is damaged.
 */
int cudasim_fatbin_find_cubin(const void *container, size_t bytes, unsigned sm, struct cudasim_image *image);

#endif
