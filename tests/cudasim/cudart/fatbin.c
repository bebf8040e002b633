#include "fatbin.h"

#include <elf.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

/*
 * The layouts below were read from output of nvcc 13.0. Fields that are not needed here have no
 * name.
 */
struct wrapper {
    uint32_t magic;
    uint32_t version; /* 1: one container; 2: relocatable code, linked into one container at build time */
    const void *container;
    const void *prelinked_or_filename;
};

struct container_header {
    uint32_t magic;
    uint16_t version;
    uint16_t header_bytes;
    uint64_t images_bytes; /* everything after this header */
};

struct image_header {
    uint16_t kind;
    uint16_t version;
    uint32_t header_bytes;  /* this header with what follows it: names and options */
    uint64_t payload_bytes; /* padded; the next image's header follows */
    uint32_t compressed_bytes;
    uint32_t options_offset;
    uint16_t elf_minor;
    uint16_t elf_major;
    uint32_t sm;
    uint32_t name_offset;
    uint32_t name_bytes;
    uint64_t flags;
    uint64_t reserved;
    uint64_t uncompressed_bytes;
};

enum {
    WRAPPER_MAGIC = 0x466243b1,
    IMAGE_KIND_CUBIN = 2,
    ELF_MACHINE_CUDA = 190,
};

static const uint32_t CONTAINER_MAGIC = 0xba55ed50;

int cudasim_fatbin_container(const void *wrapper, const void **container, size_t *bytes)
{
    struct wrapper outer;
    struct container_header header;

    if (wrapper == NULL)
        return -EINVAL;
    memcpy(&outer, wrapper, sizeof outer);
    if (outer.magic != WRAPPER_MAGIC || (outer.version != 1 && outer.version != 2) || outer.container == NULL)
        return -EINVAL;
    memcpy(&header, outer.container, sizeof header);
    if (header.magic != CONTAINER_MAGIC || header.header_bytes < sizeof header ||
        header.images_bytes > SIZE_MAX - header.header_bytes)
        return -EINVAL;
    *container = outer.container;
    *bytes = (size_t)header.images_bytes + header.header_bytes;
    return 0;
}

/*
 * Returns whether `size` bytes are a cubin whose section and program header tables lie inside. Its
 * section contents are not checked.
 */
static int is_whole_cubin(const uint8_t *bytes, size_t size)
{
    Elf64_Ehdr elf;

    if (size < sizeof elf)
        return 0;
    memcpy(&elf, bytes, sizeof elf);
    if (memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0 || elf.e_ident[EI_CLASS] != ELFCLASS64 ||
        elf.e_machine != ELF_MACHINE_CUDA)
        return 0;
    uint64_t sections = (uint64_t)elf.e_shnum * elf.e_shentsize;
    uint64_t segments = (uint64_t)elf.e_phnum * elf.e_phentsize;
    return elf.e_shoff <= size && sections <= size - elf.e_shoff && elf.e_phoff <= size &&
           segments <= size - elf.e_phoff;
}

int cudasim_fatbin_find_cubin(const void *container, size_t bytes, unsigned sm, struct cudasim_image *image)
{
    const uint8_t *base = container;
    struct container_header header;
    int found = -ENOENT;

    if (bytes < sizeof header)
        return -EINVAL;
    memcpy(&header, base, sizeof header);
    if (header.magic != CONTAINER_MAGIC || header.header_bytes < sizeof header || header.header_bytes > bytes ||
        header.images_bytes > bytes - header.header_bytes)
        return -EINVAL;

    size_t at = header.header_bytes;
    const size_t end = header.header_bytes + (size_t)header.images_bytes;
    while (at < end) {
        struct image_header entry;
        if (end - at < sizeof entry)
            return -EINVAL;
        memcpy(&entry, base + at, sizeof entry);
        if (entry.header_bytes < sizeof entry || entry.header_bytes > end - at ||
            entry.payload_bytes > end - at - entry.header_bytes)
            return -EINVAL;

        const uint8_t *payload = base + at + entry.header_bytes;
        const size_t payload_bytes = (size_t)entry.payload_bytes;
        at += entry.header_bytes + payload_bytes;
        if (entry.kind != IMAGE_KIND_CUBIN || entry.sm / 10 != sm / 10 || entry.sm > sm)
            continue;
        if (entry.compressed_bytes != 0) {
            if (found == -ENOENT)
                found = -ENOTSUP;
            continue;
        }
        if (!is_whole_cubin(payload, payload_bytes))
            return -EINVAL;
        if (found != 0 || entry.sm > image->sm) {
            *image = (struct cudasim_image){.bytes = payload, .size = payload_bytes, .sm = entry.sm};
            found = 0;
        }
    }
    return found;
}
