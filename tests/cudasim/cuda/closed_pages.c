#include "closed_pages.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>

/*
 * One byte for each page of the address space, in leaves that are made at need. A byte is written
 * under the device lock and read without one.
 */
#define PAGE_BITS 12
#define LEAF_BITS 30
#define TOP_BITS (47 - LEAF_BITS)
#define PAGE ((uintptr_t)1 << PAGE_BITS)
#define LEAF_PAGES ((size_t)1 << (LEAF_BITS - PAGE_BITS))

#define BEGINS 0x80u     /* the first page of its mapping */
#define PROTECTION 0x0fu /* the protection of an open page; 0: the page is not closed */

typedef _Atomic uint8_t leaf[LEAF_PAGES];
static leaf *_Atomic leaves[(size_t)1 << TOP_BITS];

/* Returns the page's byte, or NULL if none was needed there. */
static _Atomic uint8_t *byte_of(uintptr_t address)
{
    if (address >> (LEAF_BITS + TOP_BITS))
        return NULL;
    leaf *found = atomic_load_explicit(&leaves[address >> LEAF_BITS], memory_order_acquire);
    return found ? &(*found)[(address >> PAGE_BITS) % LEAF_PAGES] : NULL;
}

static uint8_t state_of(uintptr_t address)
{
    const _Atomic uint8_t *byte = byte_of(address);

    return byte ? atomic_load(byte) : 0;
}

static bool make_leaf(uintptr_t address)
{
    if (address >> (LEAF_BITS + TOP_BITS))
        return false;
    if (byte_of(address))
        return true;
    void *made = mmap(NULL, sizeof(leaf), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED)
        return false;
    atomic_store_explicit(&leaves[address >> LEAF_BITS], made, memory_order_release);
    return true;
}

bool cudasim_closed_pages_add(uintptr_t base, size_t size, int protection)
{
    for (uintptr_t at = base; at < base + size; at += PAGE)
        if (!make_leaf(at))
            return false;
    if (mprotect((void *)base, size, PROT_NONE))
        return false;
    for (uintptr_t at = base; at < base + size; at += PAGE)
        atomic_store(byte_of(at), (uint8_t)(protection | (at == base ? (int)BEGINS : 0)));
    return true;
}

void cudasim_closed_pages_remove(uintptr_t base, size_t size)
{
    for (uintptr_t at = base; at < base + size; at += PAGE) {
        _Atomic uint8_t *byte = byte_of(at);
        if (byte)
            atomic_store(byte, 0);
    }
}

/* Takes the access away from those pages of the run that are closed ones still. */
static void close_run(uintptr_t base, size_t size)
{
    uintptr_t at = base;

    while (at < base + size) {
        const uintptr_t first = at;
        while (at < base + size && state_of(at) & PROTECTION)
            at += PAGE;
        if (at > first)
            mprotect((void *)first, at - first, PROT_NONE);
        else
            at += PAGE;
    }
}

bool cudasim_closed_pages_open(uintptr_t address, struct cudasim_open_pages *open)
{
    uintptr_t first = address & ~(PAGE - 1), end = first + PAGE;
    const int saved = errno, protection = state_of(first) & PROTECTION;

    if (!protection)
        return false;
    while (!(state_of(first) & BEGINS))
        first -= PAGE;
    while (state_of(end) & PROTECTION && !(state_of(end) & BEGINS))
        end += PAGE;
    const size_t place = open->count++ % CUDASIM_OPEN_ROOM;
    if (open->count > CUDASIM_OPEN_ROOM)
        close_run(open->run[place].base, open->run[place].size);
    open->run[place].base = first;
    open->run[place].size = end - first;
    const bool opened = !mprotect((void *)first, end - first, protection);
    errno = saved;
    return opened;
}

void cudasim_closed_pages_close(struct cudasim_open_pages *open)
{
    const int saved = errno;

    for (size_t i = 0; i < open->count && i < CUDASIM_OPEN_ROOM; i++)
        close_run(open->run[i].base, open->run[i].size);
    open->count = 0;
    errno = saved;
}
