/*
 * Files of /proc and /sys, in turn a path and its contents up to a NUL, and the name of a PCI
 * device before them. The figures make sense, come from the files, and do not depend on how many
 * bytes a read returns.
 */
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#define FILES_MAX 32

static struct virtual_file {
    char *path, *text;
    size_t at;
} files[FILES_MAX];
static size_t file_count, read_bytes_max;
static unsigned reads;

static int open_virtual(const char *path)
{
    for (size_t i = 0; i < file_count; i++) {
        if (strcmp(files[i].path, path) != 0)
            continue;
        files[i].at = 0;
        return (int)i;
    }
    errno = ENOENT;
    return -1;
}

/* Each third read is interrupted where reads are short. */
static ssize_t read_virtual(int fd, char *to, size_t bytes)
{
    struct virtual_file *file = &files[fd];
    size_t left = strlen(file->text) - file->at;

    if (read_bytes_max < SIZE_MAX && ++reads % 3 == 0) {
        errno = EINTR;
        return -1;
    }
    bytes = bytes < left ? bytes : left;
    bytes = bytes < read_bytes_max ? bytes : read_bytes_max;
    memcpy(to, file->text + file->at, bytes);
    file->at += bytes;
    return (ssize_t)bytes;
}

#define open(path, flags) open_virtual(path)
#define read(fd, to, bytes) read_virtual(fd, to, bytes)
#define close(fd) (void)(fd)
#include "shim/base/host_memory.c"
#undef open
#undef read
#undef close

/* Returns whether a file that may hold a limit begins with this number. */
static bool is_in_a_file(uint64_t limit)
{
    char text[24];
    size_t length = (size_t)snprintf(text, sizeof text, "%llu", (unsigned long long)limit);

    for (size_t i = 0; i < file_count; i++) {
        const char *number = files[i].text, *name = strrchr(files[i].path, '/');
        while (*number == '0' && number[1] >= '0' && number[1] <= '9')
            number++;
        bool is_limit = name && (!strcmp(name, "/memory.max") || !strcmp(name, "/memory.limit_in_bytes"));
        if (is_limit && !strncmp(number, text, length) && (number[length] < '0' || number[length] > '9'))
            return true;
    }
    return false;
}

static void check(const struct ps_host_memory *m)
{
    fuzz_require(m->machine_available <= m->machine_total && m->machine_total % 1024 == 0);
    fuzz_require(m->cgroup_limit == PS_HOST_MEMORY_NO_LIMIT || is_in_a_file(m->cgroup_limit));
    fuzz_require(m->cgroup_available == PS_HOST_MEMORY_NO_LIMIT || m->cgroup_limit != PS_HOST_MEMORY_NO_LIMIT);
    fuzz_require(ps_host_memory_total(m) <= m->machine_total && ps_host_memory_total(m) <= m->cgroup_limit);
    fuzz_require(ps_host_memory_available(m) <= m->machine_available &&
                 ps_host_memory_available(m) <= m->cgroup_available);
    if (m->cgroup_limit == PS_HOST_MEMORY_NO_LIMIT)
        fuzz_require(ps_host_memory_total(m) == m->machine_total);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_input in = {data, bytes};
    struct ps_host_memory whole = {1, 2, 3, 4}, in_pieces = {1, 2, 3, 4};
    char *device = fuzz_text(&in, '\0');

    size_t piece = 1 + fuzz_u8(&in);
    for (file_count = 0; in.left && file_count < FILES_MAX; file_count++) {
        files[file_count].path = fuzz_text(&in, '\0');
        files[file_count].text = fuzz_text(&in, '\0');
    }
    read_bytes_max = SIZE_MAX;
    int error = ps_host_memory_read("", &whole), node = ps_host_memory_numa_node("", device);
    read_bytes_max = piece;
    fuzz_require(ps_host_memory_read("", &in_pieces) == error && ps_host_memory_numa_node("", device) == node);
    fuzz_require(!memcmp(&whole, &in_pieces, sizeof whole));
    if (error)
        fuzz_require(whole.machine_total == 1 && whole.cgroup_available == 4);
    else
        check(&whole);
    fuzz_require(node >= 0 || node == -ENODEV || node == -EINVAL);
    if (node != -EINVAL)
        fuzz_require(strlen(device) >= 12 && strlen(device) <= 16 &&
                     strspn(device, "0123456789abcdefABCDEF:.") == strlen(device));
    for (size_t i = 0; i < file_count; i++) {
        free(files[i].path);
        free(files[i].text);
    }
    free(device);
    return 0;
}
