/*
 * A container of kernel images as nvcc writes it, given to the simulated runtime's reader. The
 * first byte is the device's capability. The image that is found lies inside, is a cubin, and fits
 * the device.
 */
#include "tests/fuzz/fuzz.h"

#include <errno.h>

#include "tests/cudasim/cudart/fatbin.c"

static void check(const uint8_t *container, size_t bytes, unsigned sm)
{
    struct cudasim_image image = {0};
    const int error = cudasim_fatbin_find_cubin(container, bytes, sm, &image);
    const uint8_t *at = image.bytes;

    if (error) {
        fuzz_require(error == -ENOENT || error == -ENOTSUP || error == -EINVAL);
        return;
    }
    fuzz_require(at >= container && image.size <= bytes && at + image.size <= container + bytes);
    fuzz_require(image.sm / 10 == sm / 10 && image.sm <= sm);
    fuzz_require(image.size >= 64 && !memcmp(at, "\177ELF\2", 5) && at[18] == 190 && at[19] == 0);
    /* A device that is newer than the image finds the same one, or a newer one. */
    struct cudasim_image other = {0};
    for (unsigned newer = sm + 1; newer / 10 == sm / 10; newer++)
        if (cudasim_fatbin_find_cubin(container, bytes, newer, &other) == 0)
            fuzz_require(other.sm >= image.sm);
}

static void check_wrapper(const uint8_t *container, size_t bytes)
{
    struct wrapper wrapper = {WRAPPER_MAGIC, 1, container, NULL};
    const void *found = NULL;
    size_t length = 0;

    if (bytes < sizeof(struct container_header) || cudasim_fatbin_container(&wrapper, &found, &length))
        return;
    fuzz_require(found == container && length >= sizeof(struct container_header));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_input in = {data, bytes};
    unsigned sm = fuzz_u8(&in);
    uint8_t *container = fuzz_allocate(in.left);

    if (in.left)
        memcpy(container, in.at, in.left);
    check(container, in.left, sm);
    check_wrapper(container, in.left);
    free(container);
    return 0;
}
