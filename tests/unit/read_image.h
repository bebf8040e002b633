/* Reads a file into memory, for tests of what reads cubins. */
#ifndef PS_UNIT_READ_IMAGE_H
#define PS_UNIT_READ_IMAGE_H

#include <stdio.h>
#include <stdlib.h>

#include "expect.h"

#define CUBINS "tests/unit/kernels/cubins/" /* the tests run in the tree's top */

struct image {
    unsigned char *bytes;
    size_t size;
};

/* Reads the file. The caller frees the bytes; NULL, and the test fails, if it can't be read. */
static inline struct image read_image(const char *path)
{
    struct image image = {0};
    FILE *file = fopen(path, "rb");

    if (!EXPECT(file != NULL)) {
        fprintf(stderr, "  %s\n", path);
        return image;
    }
    fseek(file, 0, SEEK_END);
    image.size = (size_t)ftell(file);
    rewind(file);
    image.bytes = malloc(image.size + 16);
    if (EXPECT(image.bytes != NULL))
        EXPECT_U64(image.size, fread(image.bytes, 1, image.size, file));
    fclose(file);
    return image;
}

#endif
