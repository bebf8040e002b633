/*
 * The simulated runtime's fatbinary reader: the cubin that it picks, and that it refuses damaged
 * containers without a read outside them. The containers are made here by the layout that nvcc 13.0
 * writes. tests/bats/device/cudart.bats shows that nvcc's own containers are read.
 */
#include <elf.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The reader is no entry point of the library, so its source is part of this program. */
#include "tests/cudasim/cudart/fatbin.c"

#include "expect.h"

enum { KIND_PTX = 1, KIND_CUBIN = 2, CAPACITY = 8192, CUBIN_BYTES = 256 };

struct builder {
    uint8_t bytes[CAPACITY];
    size_t size;
};

static void append(struct builder *builder, const void *bytes, size_t size)
{
    memcpy(builder->bytes + builder->size, bytes, size);
    builder->size += size;
    struct container_header header = {CONTAINER_MAGIC, 1, sizeof header, builder->size - sizeof header};
    memcpy(builder->bytes, &header, sizeof header);
}

static void start(struct builder *builder)
{
    struct container_header header = {CONTAINER_MAGIC, 1, sizeof header, 0};
    memset(builder, 0, sizeof *builder);
    memcpy(builder->bytes, &header, sizeof header);
    builder->size = sizeof header;
}

static void add_image(struct builder *builder, unsigned kind, unsigned sm, const void *payload, size_t size,
                      size_t compressed_size)
{
    struct image_header header = {
        .kind = (uint16_t)kind,
        .version = 0x101,
        .header_bytes = sizeof header,
        .payload_bytes = size,
        .compressed_bytes = (uint32_t)compressed_size,
        .sm = sm,
    };
    append(builder, &header, sizeof header);
    append(builder, payload, size);
}

/*
 * A cubin as far as the reader looks: an ELF header whose tables lie inside. Byte `mark` tells
 * cubins apart.
 */
static void make_cubin(uint8_t cubin[CUBIN_BYTES], uint8_t mark)
{
    Elf64_Ehdr header = {
        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
        .e_machine = ELF_MACHINE_CUDA,
        .e_shoff = 128,
        .e_shentsize = sizeof(Elf64_Shdr),
        .e_shnum = 2,
    };
    memset(cubin, mark, CUBIN_BYTES);
    memcpy(cubin, &header, sizeof header);
}

static void add_cubin(struct builder *builder, unsigned sm, uint8_t mark)
{
    uint8_t cubin[CUBIN_BYTES];
    make_cubin(cubin, mark);
    add_image(builder, KIND_CUBIN, sm, cubin, sizeof cubin, 0);
}

/*
 * Runs the reader on a heap copy of exactly `size` bytes. The address sanitizer then sees a read
 * past the end.
 */
static int find(const uint8_t *bytes, size_t size, unsigned sm, struct cudasim_image *image, uint8_t *mark)
{
    uint8_t *copy = malloc(size != 0 ? size : 1);
    if (copy == NULL)
        exit(1);
    memcpy(copy, bytes, size);
    int result = cudasim_fatbin_find_cubin(copy, size, sm, image);
    if (result == 0) {
        const uint8_t *at = image->bytes;
        EXPECT(at >= copy && image->size <= size - (size_t)(at - copy));
        *mark = at[image->size - 1];
    }
    free(copy);
    return result;
}

static void picks_the_best_fit(void)
{
    static struct builder builder;
    struct cudasim_image image;
    uint8_t mark = 0;

    start(&builder);
    EXPECT(find(builder.bytes, builder.size, 90, &image, &mark) == -ENOENT);
    add_cubin(&builder, 80, 1);
    add_image(&builder, KIND_PTX, 90, "// ptx\n", 8, 0);
    EXPECT(find(builder.bytes, builder.size, 90, &image, &mark) == -ENOENT);
    add_cubin(&builder, 90, 2);
    add_cubin(&builder, 100, 3);
    add_cubin(&builder, 103, 4);
    EXPECT(find(builder.bytes, builder.size, 90, &image, &mark) == 0 && image.sm == 90 && mark == 2 &&
           image.size == CUBIN_BYTES);
    EXPECT(find(builder.bytes, builder.size, 103, &image, &mark) == 0 && image.sm == 103 && mark == 4);
    EXPECT(find(builder.bytes, builder.size, 102, &image, &mark) == 0 && image.sm == 100 && mark == 3);
    EXPECT(find(builder.bytes, builder.size, 75, &image, &mark) == -ENOENT);
    EXPECT(find(builder.bytes, builder.size, 86, &image, &mark) == 0 && mark == 1);
}

static void says_what_it_cant_read(void)
{
    static struct builder builder;
    struct cudasim_image image;
    uint8_t mark = 0;

    start(&builder);
    add_image(&builder, KIND_CUBIN, 90, "\x28\xb5\x2f\xfd 0123456789", 16, 15);
    EXPECT(find(builder.bytes, builder.size, 90, &image, &mark) == -ENOTSUP);
    add_cubin(&builder, 90, 5);
    EXPECT(find(builder.bytes, builder.size, 90, &image, &mark) == 0 && mark == 5);

    start(&builder);
    add_image(&builder, KIND_CUBIN, 90,
              "not an ELF image at all, but long enough to hold the header of one, which takes 64 bytes", 88, 0);
    EXPECT(find(builder.bytes, builder.size, 90, &image, &mark) == -EINVAL);

    start(&builder);
    add_image(&builder, KIND_CUBIN, 90,
              "\x7f"
              "ELF",
              4, 0); /* ends inside its own header, and with it the container */
    EXPECT(find(builder.bytes, builder.size, 90, &image, &mark) == -EINVAL);
}

/* A cubin with one header field made wrong is not handed on. */
static void checks_the_cubin(void)
{
    static struct builder builder;
    struct cudasim_image image;
    uint8_t mark = 0;
    enum { SECTIONS_END_OUTSIDE, SEGMENTS_END_OUTSIDE, OTHER_MACHINE, OTHER_CLASS, WRONGS };

    for (int wrong = 0; wrong < WRONGS; wrong++) {
        uint8_t cubin[CUBIN_BYTES];
        Elf64_Ehdr header;
        make_cubin(cubin, 6);
        memcpy(&header, cubin, sizeof header);
        if (wrong == SECTIONS_END_OUTSIDE)
            header.e_shoff = CUBIN_BYTES - 8;
        else if (wrong == SEGMENTS_END_OUTSIDE)
            header.e_phoff = CUBIN_BYTES - 8, header.e_phnum = 1, header.e_phentsize = sizeof(Elf64_Phdr);
        else if (wrong == OTHER_MACHINE)
            header.e_machine = EM_X86_64;
        else
            header.e_ident[EI_CLASS] = ELFCLASS32;
        memcpy(cubin, &header, sizeof header);
        start(&builder);
        add_image(&builder, KIND_CUBIN, 90, cubin, sizeof cubin, 0);
        EXPECT_INT(-EINVAL, find(builder.bytes, builder.size, 90, &image, &mark));
    }
}

static void reads_wrappers(void)
{
    static struct builder builder;
    const void *container = NULL;
    size_t bytes = 0;

    start(&builder);
    add_cubin(&builder, 90, 1);
    struct wrapper wrapper = {WRAPPER_MAGIC, 1, builder.bytes, NULL};
    EXPECT(cudasim_fatbin_container(&wrapper, &container, &bytes) == 0 && container == builder.bytes &&
           bytes == builder.size);
    wrapper.version = 2;
    EXPECT(cudasim_fatbin_container(&wrapper, &container, &bytes) == 0 && bytes == builder.size);
    wrapper.version = 3;
    EXPECT(cudasim_fatbin_container(&wrapper, &container, &bytes) == -EINVAL);
    wrapper = (struct wrapper){WRAPPER_MAGIC, 1, NULL, NULL};
    EXPECT(cudasim_fatbin_container(&wrapper, &container, &bytes) == -EINVAL);
    wrapper = (struct wrapper){0, 1, builder.bytes, NULL};
    EXPECT(cudasim_fatbin_container(&wrapper, &container, &bytes) == -EINVAL);
    EXPECT(cudasim_fatbin_container(NULL, &container, &bytes) == -EINVAL);
    wrapper.magic = WRAPPER_MAGIC;
    builder.bytes[0] ^= 1;
    EXPECT(cudasim_fatbin_container(&wrapper, &container, &bytes) == -EINVAL);
}

/* A container cut short anywhere is damaged, whatever precedes the cut. */
static void refuses_every_cut(void)
{
    static struct builder builder;
    struct cudasim_image image;
    uint8_t mark = 0;

    start(&builder);
    add_cubin(&builder, 80, 1);
    add_cubin(&builder, 90, 2);
    for (size_t size = 0; size < builder.size; size++)
        EXPECT(find(builder.bytes, size, 90, &image, &mark) == -EINVAL);
}

/*
 * Random bytes: the answer may be anything, but reads stay inside (find and the sanitizers check
 * it).
 */
static void survives_any_damage(void)
{
    static struct builder builder;
    struct cudasim_image image;
    uint8_t mark = 0;
    uint64_t random = 88172645463325252u;

    for (int round = 0; round < 20000; round++) {
        start(&builder);
        add_cubin(&builder, 80, 1);
        add_cubin(&builder, 90, 2);
        for (int hit = 0; hit < 3; hit++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            builder.bytes[random % builder.size] = (uint8_t)(random >> 32);
        }
        int result = find(builder.bytes, builder.size, 90, &image, &mark);
        EXPECT(result == 0 || result == -EINVAL || result == -ENOENT || result == -ENOTSUP);
    }
}

int main(void)
{
    picks_the_best_fit();
    says_what_it_cant_read();
    checks_the_cubin();
    reads_wrappers();
    refuses_every_cut();
    survives_any_damage();
    return expect_status();
}
