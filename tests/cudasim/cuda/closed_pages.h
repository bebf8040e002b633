/*
 * Host memory that is mapped for the device alone: the processor has no access there, as on a GPU.
 * But kernels and copies run on this process's threads. So the pages have no access until an
 * operation touches them (guard.h), and none again when it is over.
 *
 * While a page is open, other threads do not fault there. A test that looks for such an access sees
 * it when no operation uses the page.
 */
#ifndef CUDASIM_CLOSED_PAGES_H
#define CUDASIM_CLOSED_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What one operation has open. Beyond this room, the pages that it opened first are closed. */
#define CUDASIM_OPEN_ROOM 64u
struct cudasim_open_pages {
    size_t count; /* of all that were ever opened */
    struct {
        uintptr_t base;
        size_t size;
    } run[CUDASIM_OPEN_ROOM];
};

/*
 * Closes a mapping. An operation opens it with `protection`, as for mprotect(2). Returns false
 * without memory, or if the kernel refuses. Under the device lock.
 */
bool cudasim_closed_pages_add(uintptr_t base, size_t size, int protection);
/*
 * The addresses hold no closed mapping any more, or are about to hold another. Their protection
 * stays. Under the device lock.
 */
void cudasim_closed_pages_remove(uintptr_t base, size_t size);

/*
 * Opens the closed mapping at the address, and notes it. Returns false if no closed mapping is
 * there. No lock; signal handlers may call it.
 */
bool cudasim_closed_pages_open(uintptr_t address, struct cudasim_open_pages *open);
/* Closes all that was opened and is still mapped there. No lock. */
void cudasim_closed_pages_close(struct cudasim_open_pages *open);

#endif
