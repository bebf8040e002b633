#include "extents.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory.h"

/* Offsets are never used twice (a file has 2^46 bytes of them), so a mapping that outlives its extent can't see another's bytes. */
#define FILE_BYTES ((off_t)1 << 46)
#define POISON_BLOCK ((size_t)1 << 20)

struct memory_file {
    const char *name;
    int descriptor; /* 0: not made yet */
    off_t next;
};

static struct memory_file files[2] = {{.name = "cudasim-device"}, {.name = "cudasim-host"}};
static unsigned char *poison_block;

static bool open_file(struct memory_file *file)
{
    if (file->descriptor)
        return true;
    int descriptor = memfd_create(file->name, MFD_CLOEXEC);
    if (descriptor < 0)
        return false;
    if (descriptor == 0 || ftruncate(descriptor, FILE_BYTES)) {
        close(descriptor);
        return false;
    }
    file->descriptor = descriptor;
    return true;
}

static bool make_poison_block(void)
{
    if (poison_block)
        return true;
    void *block = mmap(NULL, POISON_BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED)
        return false;
    cudasim_poison(block, POISON_BLOCK);
    poison_block = block;
    return true;
}

/* Writing through the descriptor costs no page faults, which writing through a mapping would. */
static bool poison_extent(int descriptor, off_t offset, size_t bytes)
{
    while (bytes) {
        ssize_t written = pwrite(descriptor, poison_block, bytes < POISON_BLOCK ? bytes : POISON_BLOCK, offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        offset += written;
        bytes -= (size_t)written;
    }
    return true;
}

off_t cudasim_extent_take(bool host, size_t bytes)
{
    struct memory_file *file = &files[host];
    if (!open_file(file) || !make_poison_block() || bytes > (size_t)(FILE_BYTES - file->next))
        return -1;
    off_t offset = file->next;
    if (!poison_extent(file->descriptor, offset, bytes)) {
        cudasim_extent_give(host, offset, bytes);
        return -1;
    }
    file->next += (off_t)bytes;
    return offset;
}

void cudasim_extent_give(bool host, off_t offset, size_t bytes)
{
    fallocate(files[host].descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, (off_t)bytes);
}

bool cudasim_extent_map(bool host, off_t offset, uintptr_t base, size_t bytes)
{
    return mmap((void *)base, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, files[host].descriptor, offset) != MAP_FAILED;
}
