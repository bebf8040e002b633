/*
 * The functions of libelf that Penstock calls, found at run time. The trainer's machine may lack
 * the library, and a preloaded object must not depend on it. The types come from <libelf.h> and
 * <gelf.h>, so the pointers match the library.
 */
#ifndef PS_LIBELF_H
#define PS_LIBELF_H

#include <gelf.h>
#include <libelf.h>

/* Lists each function that is looked up. */
#define PS_REAL_LIBELF_LIST(X)                                                                                         \
    X(elf_version)                                                                                                     \
    X(elf_memory)                                                                                                      \
    X(elf_end)                                                                                                         \
    X(elf_kind)                                                                                                        \
    X(gelf_getshdr)                                                                                                    \
    X(elf_getshdrnum)                                                                                                  \
    X(elf_getshdrstrndx)                                                                                               \
    X(elf_nextscn)                                                                                                     \
    X(elf_rawdata)                                                                                                     \
    X(elf_strptr)

struct ps_libelf {
#define X(name) __typeof__(name) *name;
    PS_REAL_LIBELF_LIST(X)
#undef X
};

/*
 * Returns the table, or NULL if libelf.so.1 is missing, lacks a function, or refuses the ELF
 * version. The answer is found once and kept. Any thread. The library stays open for the life of
 * the process.
 */
const struct ps_libelf *ps_real_libelf(void);

#endif
