/* Whether this process may read at an address, for tests of mappings: C and C++. */
#ifndef CUDASIM_PROCESSOR_ACCESS_H
#define CUDASIM_PROCESSOR_ACCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Asks the kernel, which answers EFAULT where the program would fault. A sanitizer's write() would
 * look at the byte itself.
 */
static inline bool processor_may_read(uintptr_t address)
{
    int end[2];

    if (pipe(end))
        return false;
    const bool may = syscall(SYS_write, end[1], address, 1) == 1;
    close(end[0]);
    close(end[1]);
    return may;
}

#endif
