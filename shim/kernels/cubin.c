#include "kernels/cubin.h"

#include <elf.h>
#include <errno.h>

#include "cuda/libelf.h"

#define MACHINE_CUDA 190
#define ABI_OF_CUDA_12 0x33 /* and before: the architecture is in the flags' lowest byte */
#define ABI_OF_CUDA_13 0x41 /* the architecture is in the byte above */

/* Returns whether the image is a cubin. libelf takes any ELF file, of either byte order. */
static bool is_cubin(const unsigned char *image, size_t bytes)
{
    return bytes >= sizeof(Elf64_Ehdr) && memcmp(image, ELFMAG, SELFMAG) == 0 && image[EI_CLASS] == ELFCLASS64 &&
           image[EI_DATA] == ELFDATA2LSB && ps_cubin_u16(image + offsetof(Elf64_Ehdr, e_machine)) == MACHINE_CUDA &&
           ps_cubin_u16(image + offsetof(Elf64_Ehdr, e_shentsize)) == sizeof(Elf64_Shdr);
}

static unsigned arch_of(const unsigned char *image)
{
    const uint32_t flags = ps_cubin_u32(image + offsetof(Elf64_Ehdr, e_flags));

    return image[EI_OSABI] == ABI_OF_CUDA_13 ? flags >> 8 & 0xff : image[EI_OSABI] == ABI_OF_CUDA_12 ? flags & 0xff : 0;
}

static int walk(const struct ps_libelf *libelf, Elf *elf, unsigned arch, ps_cubin_section_fn each, void *ctx)
{
    struct ps_cubin_section section = {.arch = arch};
    size_t sections, names;
    int rc = 0;

    /* For libelf, an image whose section headers lie outside it has no sections. */
    if (libelf->elf_kind(elf) != ELF_K_ELF || libelf->elf_getshdrnum(elf, &sections) != 0 || sections == 0 ||
        libelf->elf_getshdrstrndx(elf, &names) != 0)
        return -EINVAL;
    while (rc == 0 && (section.handle = libelf->elf_nextscn(elf, section.handle)) != NULL) {
        section.index++; /* libelf begins behind section 0, which is none */
        if (!libelf->gelf_getshdr(section.handle, &section.header))
            return -EINVAL;
        section.name = libelf->elf_strptr(elf, names, section.header.sh_name);
        rc = each(&section, ctx);
    }
    return rc ? rc : each(NULL, ctx);
}

int ps_cubin_each_section(const void *image, size_t bytes, ps_cubin_section_fn each, void *ctx)
{
    if (!image || !is_cubin(image, bytes))
        return -EINVAL;
    const struct ps_libelf *libelf = ps_real_libelf();
    if (!libelf)
        return -ENOTSUP;

    /* The cast is safe: for an image opened for reading, libelf writes only to its own copies. */
    Elf *elf = libelf->elf_memory((char *)(uintptr_t)image, bytes);
    if (!elf)
        return -EINVAL;
    int rc = walk(libelf, elf, arch_of(image), each, ctx);
    libelf->elf_end(elf);
    return rc;
}

int ps_cubin_section_bytes(const struct ps_cubin_section *section, const unsigned char **bytes, size_t *size)
{
    const struct ps_libelf *libelf = ps_real_libelf();
    const Elf_Data *data = libelf ? libelf->elf_rawdata(section->handle, NULL) : NULL;

    if (!data || (!data->d_buf && data->d_size != 0))
        return -EINVAL;
    *bytes = data->d_buf;
    *size = data->d_size;
    return 0;
}
