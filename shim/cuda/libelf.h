/*
 * The functions of libelf that Penstock calls, found at run time: the trainer's machine may lack the library, and a preloaded object
 * must not depend on it. The types come from <libelf.h> and <gelf.h>, so the pointers can't differ from what the library has.
 */
#ifndef PS_LIBELF_H
#define PS_LIBELF_H

#include <gelf.h>
#include <libelf.h>

/* Every function that is looked up. */
#define PS_REAL_LIBELF_LIST(X)                                                                                                             \
    X(elf_version)                                                                                                                         \
    X(elf_memory)                                                                                                                          \
    X(elf_end)                                                                                                                             \
    X(elf_kind)                                                                                                                            \
    X(gelf_getshdr)                                                                                                                        \
    X(elf_getshdrnum)                                                                                                                      \
    X(elf_getshdrstrndx)                                                                                                                   \
    X(elf_nextscn)                                                                                                                         \
    X(elf_rawdata)                                                                                                                         \
    X(elf_strptr)

struct ps_libelf {
#define X(name) __typeof__(name) *name;
    PS_REAL_LIBELF_LIST(X)
#undef X
};

/*
 * The table, or NULL when libelf.so.1 is missing or lacks something (asked once, then remembered). Any thread. The library stays open
 * for the life of the process.
 */
const struct ps_libelf *ps_real_libelf(void);

#endif
