/*
 * The C library's dlsym. The library exports one of its own (tracer/symbol_lookup.h), which a plain call from inside it would reach.
 *
 * Threads: any. Callable before any constructor has run, in any process.
 */
#ifndef PS_REAL_DLSYM_H
#define PS_REAL_DLSYM_H

/* As dlsym(3). RTLD_NEXT and RTLD_DEFAULT mean what they mean to a caller in this library. */
void *ps_real_dlsym(void *handle, const char *name);

typedef void *ps_dlsym_fn(void *handle, const char *name);

/* The function itself, once ps_dlsym_find() has returned: the assembly of our dlsym jumps there. */
extern ps_dlsym_fn *ps_dlsym_behind __attribute__((visibility("hidden")));

/* Finds it, at the first call. Where the C library has none: a function that finds nothing. */
ps_dlsym_fn *ps_dlsym_find(void);

#endif
