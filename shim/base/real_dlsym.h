/*
 * The C library's dlsym. This library exports a dlsym of its own (hooks/symbol_lookup.h), which a
 * plain call from inside it would reach.
 *
 * Threads: any. Callable before any constructor has run, in any process.
 */
#ifndef PS_REAL_DLSYM_H
#define PS_REAL_DLSYM_H

/* Works as dlsym(3). RTLD_NEXT and RTLD_DEFAULT have the meaning for a caller in this library. */
void *ps_real_dlsym(void *handle, const char *name);

typedef void *ps_dlsym_fn(void *handle, const char *name);

/* The function itself, once ps_dlsym_find() has returned. The assembly of our dlsym jumps to it. */
extern ps_dlsym_fn *ps_dlsym_behind __attribute__((visibility("hidden")));

/*
 * Returns the C library's dlsym, which the first call looks up. If the C library has none, returns
 * a function that finds nothing.
 */
ps_dlsym_fn *ps_dlsym_find(void);

#endif
