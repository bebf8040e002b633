/*
 * Any bytes at all, given to the readers of cubins: of parameters and of code. It is a target of
 * its own, and included by tests/unit/kernels/test_kernel_params.c, which replays the seeds and a
 * fixed series of spoilt copies of them. The kernels of an image that is accepted are those that a
 * second reader finds. One that is proved has no atomic operation.
 *
 * The image lies at the end of its pages with nothing mapped behind it, and is not writable: libelf
 * is not built with a sanitizer, and so a read past the end or a write faults all the same.
 */
#include <elf.h>
#include <errno.h>
#include <sys/mman.h>

#include "kernels/kernel_params.h"
#include "kernels/kernel_scan.h"
#include "tests/fuzz/fuzz.h"

#define TARGET_BYTES_MAX ((size_t)1 << 20)
#define TARGET_PAGE ((size_t)4096)
#define TARGET_GUARD_BYTES ((size_t)1 << 20) /* more than a record can claim to have */

/* An image, and the section that the second reader looks at next. */
struct target_image {
    const uint8_t *bytes;
    size_t size;
    unsigned section;
    bool is_compared;
};

/* ---- the second reader ---- */

static uint32_t target_read(const uint8_t *at, unsigned bytes)
{
    uint32_t value = 0;

    memcpy(&value, at, bytes);
    return value;
}

static Elf64_Shdr target_section(const struct target_image *image, const Elf64_Ehdr *elf, unsigned number)
{
    Elf64_Shdr section;

    memcpy(&section, image->bytes + elf->e_shoff + number * sizeof section, sizeof section);
    return section;
}

/* Finds the parameter's record in the section. Returns its 12 bytes, or NULL. */
static const uint8_t *target_find_param(const uint8_t *at, const uint8_t *end, uint32_t ordinal)
{
    while (at < end) {
        bool is_param = at[0] == 4 && (at[1] == 0x17 || at[1] == 0x45);
        if (is_param && target_read(at + 4 + 4, 2) == ordinal)
            return at;
        at += at[0] == 4 ? 4 + target_read(at + 2, 2) : 4;
    }
    return NULL;
}

/* Compares the layout with the next section that describes a kernel. */
static void target_compare(struct target_image *image, const struct ps_kernel_layout *layout)
{
    Elf64_Ehdr elf;
    Elf64_Shdr names, section = {0};
    const char *name = "";

    memcpy(&elf, image->bytes, sizeof elf);
    names = target_section(image, &elf, elf.e_shstrndx);
    while (section.sh_type != 0x70000000 || strncmp(name, ".nv.info.", 9) != 0) {
        fuzz_require(image->section < elf.e_shnum);
        section = target_section(image, &elf, image->section++);
        name = section.sh_type == 0x70000000 ? (const char *)image->bytes + names.sh_offset + section.sh_name : "";
    }
    fuzz_require(!strcmp(name + 9, layout->name));
    /* An empty section may be anywhere. */
    const uint8_t *at = image->bytes + (section.sh_size ? section.sh_offset : 0), *end = at + section.sh_size;
    fuzz_require(!target_find_param(at, end, layout->count));
    for (uint32_t i = 0; i < layout->count; i++) {
        const uint8_t *param = target_find_param(at, end, i);
        fuzz_require(param && target_read(param + 4 + 6, 2) == layout->params[i].offset);
        uint32_t size = param[1] == 0x45 ? target_read(param + 4 + 8, 2) : target_read(param + 4 + 8, 4) >> 18;
        fuzz_require(size == layout->params[i].size);
    }
}

/* ---- the target ---- */

/* What holds of every layout that is told, whatever the image was. */
static int target_check_layout(const struct ps_kernel_layout *layout, void *ctx)
{
    struct target_image *image = ctx;
    uint32_t end = 0;

    fuzz_require(strlen(layout->name) > 0 && layout->bytes <= PS_KERNEL_PARAMS_BYTES_MAX);
    fuzz_require(layout->count <= PS_KERNEL_PARAMS_COUNT_MAX);
    for (uint32_t i = 0; i < layout->count; i++) {
        fuzz_require(layout->params[i].offset >= end && layout->params[i].size > 0);
        end = layout->params[i].offset + layout->params[i].size;
    }
    fuzz_require(end <= layout->bytes);
    if (image->is_compared)
        target_compare(image, layout);
    return 0;
}

/* Looks at each section of that name: several kernels of a spoilt image may have one name. */
static bool target_some_code_is_harmless(const struct target_image *image, const char *kernel)
{
    Elf64_Ehdr elf;

    memcpy(&elf, image->bytes, sizeof elf);
    const Elf64_Shdr names = target_section(image, &elf, elf.e_shstrndx);
    for (unsigned i = 1; i < elf.e_shnum; i++) {
        const Elf64_Shdr section = target_section(image, &elf, i);
        const uint64_t left = names.sh_offset < image->size ? image->size - names.sh_offset : 0;
        const char *name = (const char *)image->bytes + names.sh_offset + section.sh_name;
        bool has_atomics = false;
        if (section.sh_type != SHT_PROGBITS || (uint64_t)section.sh_name + 6 + strlen(kernel) >= left ||
            strncmp(name, ".text.", 6) != 0 || strcmp(name + 6, kernel) != 0)
            continue;
        for (uint64_t at = 0; at < section.sh_size; at += 16) {
            const uint32_t operation = target_read(image->bytes + section.sh_offset + at, 2) & 0x1ff;
            has_atomics |= operation >= 0x18a && operation <= 0x18e;
        }
        if (!has_atomics)
            return true;
    }
    return false;
}

static int target_check_scan(const struct ps_kernel_scan *scan, void *ctx)
{
    const struct target_image *image = ctx;

    fuzz_require(scan->name && scan->doubt < PS_DOUBTS && *ps_kernel_doubt_text(scan->doubt) != '?');
    fuzz_require(scan->doubt != PS_DOUBT_NONE || (scan->at == 0 && scan->instruction == 0));
    if (image->is_compared && scan->doubt == PS_DOUBT_NONE)
        fuzz_require(target_some_code_is_harmless(image, scan->name));
    return 0;
}

/* The second reader knows no image with more sections than the header can say. */
static bool target_is_plain(const uint8_t *image, size_t bytes)
{
    Elf64_Ehdr elf;

    if (bytes < sizeof elf)
        return false;
    memcpy(&elf, image, sizeof elf);
    return elf.e_shnum && elf.e_shstrndx < elf.e_shnum && elf.e_shentsize == sizeof(Elf64_Shdr);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static uint8_t *pages;

    if (bytes > TARGET_BYTES_MAX)
        return 0;
    if (!pages)
        pages = mmap(NULL, TARGET_BYTES_MAX + TARGET_GUARD_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fuzz_require(pages != MAP_FAILED);
    uint8_t *image = pages + TARGET_BYTES_MAX - bytes;
    /* Only the pages of this image: the rest is never touched. */
    uint8_t *first = pages + (TARGET_BYTES_MAX - bytes) / TARGET_PAGE * TARGET_PAGE;
    const size_t length = (size_t)(pages + TARGET_BYTES_MAX - first);
    fuzz_require(mprotect(first, length, PROT_READ | PROT_WRITE) == 0);
    if (bytes > 0)
        memcpy(image, data, bytes);
    fuzz_require(mprotect(first, length, PROT_READ) == 0);

    struct target_image told = {image, bytes, 1, target_is_plain(image, bytes)};
    int rc = ps_kernel_params_parse(image, bytes, target_check_layout, &told);
    fuzz_require(rc == 0 || rc == -EINVAL);
    rc = ps_kernel_scan(image, bytes, target_check_scan, &told);
    fuzz_require(rc == 0 || rc == -EINVAL);
    fuzz_require(mprotect(first, length, PROT_NONE) == 0);
    return 0;
}
