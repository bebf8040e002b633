/*
 * Preloaded by scripts/dev/storm into a program under Penstock.
 *
 * PENSTOCK_TEST_MALLOC=N[+]: the Nth allocation that libpenstock.so asks libc for fails, or that
 * and every later one. Allocations of the program, of libc and of the driver never fail.
 * PENSTOCK_TEST_MALLOC_COUNT=FILE: the number of allocations is written there at exit.
 *
 * RLIMIT_FSIZE does not hold for the memory files of the simulated device, since a driver has none.
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LIBRARY "libpenstock.so"
#define DEVICE "libcuda.so.1"

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static uintptr_t code_begin, code_end; /* of the library; constant after the constructor */
static unsigned long from;             /* 0: none fails */
static int onwards;
static atomic_ulong asked;

static int find_code(struct dl_phdr_info *object, size_t size, void *unused)
{
    (void)size, (void)unused;
    if (!strstr(object->dlpi_name, LIBRARY))
        return 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && (part->p_flags & PF_X)) {
            code_begin = object->dlpi_addr + part->p_vaddr;
            code_end = code_begin + part->p_memsz;
        }
    }
    return 1;
}

__attribute__((constructor(101))) static void begin(void)
{
    const char *which = getenv("PENSTOCK_TEST_MALLOC");

    if (which) {
        from = strtoul(which, NULL, 10);
        onwards = strchr(which, '+') != NULL;
    }
    dl_iterate_phdr(find_code, NULL);
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("PENSTOCK_TEST_MALLOC_COUNT");
    const unsigned long count = atomic_load(&asked);
    FILE *file = path && count ? fopen(path, "we") : NULL;

    if (!file)
        return;
    fprintf(file, "%lu\n", count);
    fclose(file);
}

static int fails(const void *caller)
{
    const uintptr_t at = (uintptr_t)caller;

    if (at < code_begin || at >= code_end)
        return 0;
    const unsigned long nth = atomic_fetch_add(&asked, 1) + 1;
    if (!from || nth < from || (nth > from && !onwards))
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    if (fails(__builtin_return_address(0)))
        return ENOMEM;
    *memory = __libc_memalign(alignment, bytes);
    return *memory ? 0 : ENOMEM;
}

char *strdup(const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *copy = fails(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes);

    return copy ? memcpy(copy, text, bytes) : NULL;
}

static int is_device(void *caller)
{
    Dl_info info;

    return dladdr(caller, &info) && info.dli_fname && strstr(info.dli_fname, DEVICE);
}

/* Returns the limit, and lifts it where the caller is the simulated device. */
static struct rlimit lift(void *caller)
{
    struct rlimit limit, lifted;

    getrlimit(RLIMIT_FSIZE, &limit);
    lifted = limit;
    lifted.rlim_cur = lifted.rlim_max;
    if (is_device(caller))
        setrlimit(RLIMIT_FSIZE, &lifted);
    return limit;
}

int ftruncate(int fd, off_t bytes)
{
    const struct rlimit limit = lift(__builtin_return_address(0));
    const int r = (int)syscall(SYS_ftruncate, fd, bytes);

    setrlimit(RLIMIT_FSIZE, &limit);
    return r;
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at)
{
    const struct rlimit limit = lift(__builtin_return_address(0));
    const ssize_t r = syscall(SYS_pwrite64, fd, bytes, count, at);

    setrlimit(RLIMIT_FSIZE, &limit);
    return r;
}
