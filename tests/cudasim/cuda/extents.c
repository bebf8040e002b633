#include "extents.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory.h"

/*
 * New extents take new offsets, of which a file has 2^46 bytes. Only a kept extent's offset is
 * reused.
 */
#define FILE_BYTES ((off_t)1 << 46)
#define POISON_BLOCK ((size_t)256 << 10)
/*
 * At most these bytes of returned extents keep their pages for the next extent of the same size.
 * Poisoning them again costs a third of the time that the kernel takes for new ones.
 */
#define KEPT_BYTES ((size_t)512 << 20)
#define KEPT_EXTENTS 256

struct kept_extent {
    off_t offset;
    size_t bytes;
};

struct memory_file {
    const char *name;
    int descriptor; /* 0: not made yet */
    off_t next;
    struct kept_extent kept[KEPT_EXTENTS];
    size_t kept_count, kept_bytes;
};

static struct memory_file files[2] = {{.name = "cudasim-device"}, {.name = "cudasim-host"}};
static unsigned char *poison_block;

/*
 * A device's memory is not a file of the program, so the program's limit on file sizes must not
 * apply.
 */
static struct rlimit lift_file_limit(void)
{
    struct rlimit before = {RLIM_INFINITY, RLIM_INFINITY}, lifted;

    getrlimit(RLIMIT_FSIZE, &before);
    lifted = before;
    lifted.rlim_cur = lifted.rlim_max;
    if (lifted.rlim_cur != before.rlim_cur)
        setrlimit(RLIMIT_FSIZE, &lifted);
    return before;
}

static void restore_file_limit(const struct rlimit *before)
{
    if (before->rlim_cur != before->rlim_max)
        setrlimit(RLIMIT_FSIZE, before);
}

static bool open_file(struct memory_file *file)
{
    if (file->descriptor)
        return true;
    int descriptor = memfd_create(file->name, MFD_CLOEXEC);
    if (descriptor < 0)
        return false;
    const struct rlimit limit = lift_file_limit();
    const bool sized = descriptor > 0 && !ftruncate(descriptor, FILE_BYTES);
    restore_file_limit(&limit);
    if (!sized) {
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

/* Writes through the descriptor, which costs no page faults. A write through a mapping would. */
static bool poison_extent(int descriptor, off_t offset, size_t bytes)
{
    const struct rlimit limit = lift_file_limit();

    while (bytes) {
        ssize_t written = pwrite(descriptor, poison_block, bytes < POISON_BLOCK ? bytes : POISON_BLOCK, offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            break;
        offset += written;
        bytes -= (size_t)written;
    }
    restore_file_limit(&limit);
    return bytes == 0;
}

/* Takes a kept extent of this size out of the list. Returns its offset, or -1 without one. */
static off_t take_kept(struct memory_file *file, size_t bytes)
{
    for (size_t i = 0; i < file->kept_count; i++) {
        if (file->kept[i].bytes != bytes)
            continue;
        off_t offset = file->kept[i].offset;
        file->kept[i] = file->kept[--file->kept_count];
        file->kept_bytes -= bytes;
        return offset;
    }
    return -1;
}

static void drop_pages(const struct memory_file *file, off_t offset, size_t bytes)
{
    /*
     * Where punching a hole fails, the pages stay until the process ends and are never used again.
     */
    int ignored = fallocate(file->descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, (off_t)bytes);
    (void)ignored;
}

off_t cudasim_extent_take(bool host, size_t bytes)
{
    struct memory_file *file = &files[host];
    if (!open_file(file) || !make_poison_block())
        return -1;
    off_t offset = take_kept(file, bytes);
    if (offset < 0) {
        if (bytes > (size_t)(FILE_BYTES - file->next))
            return -1;
        offset = file->next;
        file->next += (off_t)bytes;
    }
    if (poison_extent(file->descriptor, offset, bytes))
        return offset;
    drop_pages(file, offset, bytes);
    return -1;
}

void cudasim_extent_give(bool host, off_t offset, size_t bytes)
{
    struct memory_file *file = &files[host];
    if (file->kept_count < KEPT_EXTENTS && bytes <= KEPT_BYTES - file->kept_bytes) {
        file->kept[file->kept_count++] = (struct kept_extent){offset, bytes};
        file->kept_bytes += bytes;
    } else {
        drop_pages(file, offset, bytes);
    }
}

bool cudasim_extent_map(bool host, off_t offset, uintptr_t base, size_t bytes)
{
    return mmap((void *)base, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, files[host].descriptor, offset) != MAP_FAILED;
}

int cudasim_extent_descriptor(bool host, off_t offset)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/self/fd/%d", files[host].descriptor);
    int descriptor = open(path, O_RDWR | O_CLOEXEC);
    if (descriptor >= 0)
        lseek(descriptor, offset, SEEK_SET);
    return descriptor;
}

/*
 * The lock belongs to the descriptor's open file, in any process that holds it. It is gone when the
 * last duplicate is closed.
 */
bool cudasim_extent_hold(int descriptor, off_t offset, size_t bytes)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = offset, .l_len = (off_t)bytes};

    return fcntl(descriptor, F_OFD_SETLK, &lock) == 0;
}

bool cudasim_extent_is_held(bool host, off_t offset, size_t bytes)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = offset, .l_len = (off_t)bytes};

    return fcntl(files[host].descriptor, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

off_t cudasim_extent_behind(bool host, int descriptor)
{
    struct stat mine, theirs;

    if (!files[host].descriptor || fstat(files[host].descriptor, &mine) || fstat(descriptor, &theirs))
        return -1;
    return mine.st_dev == theirs.st_dev && mine.st_ino == theirs.st_ino ? lseek(descriptor, 0, SEEK_CUR) : -1;
}
