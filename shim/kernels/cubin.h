/*
 * The sections of a cubin, read with libelf. A cubin is a 64-bit little-endian ELF image for
 * machine 190.
 *
 * Threads: no state of its own; any thread, also inside a CUPTI callback. The image is only read,
 * and not trusted: a malformed image gives -EINVAL, never a read outside it.
 */
#ifndef PS_CUBIN_H
#define PS_CUBIN_H

#include <gelf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A section. All that it points to is the image's or libelf's, and lives until the walk ends. */
struct ps_cubin_section {
    const char *name; /* NULL: it can't be read */
    size_t index;
    GElf_Shdr header;
    unsigned arch; /* of the image: 80 for sm_80, 90 for sm_90a; 0: unknown */
    Elf_Scn *handle;
};

/*
 * Receives each section, and NULL behind the last. A value other than 0 ends the walk, which
 * returns that value.
 */
typedef int (*ps_cubin_section_fn)(const struct ps_cubin_section *section, void *ctx);

/*
 * Calls `each` for every section of the cubin at `image`, `bytes` long. Nothing has to be aligned.
 * Returns 0, -errno, or the value that `each` returned. -EINVAL: the image is malformed or no
 * cubin; `each` has received the sections before the fault. -ENOTSUP: libelf is missing.
 */
int ps_cubin_each_section(const void *image, size_t bytes, ps_cubin_section_fn each, void *ctx);

/* Sets a section's bytes in the image. Returns 0, or -EINVAL if they lie outside it. */
int ps_cubin_section_bytes(const struct ps_cubin_section *section, const unsigned char **bytes, size_t *size);

/* The image comes from the same little-endian machine. Nothing in it need be aligned. */
static inline uint16_t ps_cubin_u16(const unsigned char *p)
{
    uint16_t value;

    memcpy(&value, p, sizeof value);
    return value;
}

static inline uint32_t ps_cubin_u32(const unsigned char *p)
{
    uint32_t value;

    memcpy(&value, p, sizeof value);
    return value;
}

#endif
