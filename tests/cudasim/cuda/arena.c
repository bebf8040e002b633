/*
 * The addresses of plain and pooled allocations, their poison, and the bytes that each device
 * holds.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "config.h"
#include "guard.h"
#include "ledger.h"
#include "managed.h"
#include "memory.h"

/* ---- bytes held ---- */

static size_t used[CUDASIM_MAX_DEVICES];
static uint64_t requests;

size_t cudasim_device_free(int device)
{
    const struct cudasim_config *config = cudasim_config();
    size_t others = requests >= config->others_from ? config->others_bytes : 0;
    size_t shared = others < config->device_bytes ? config->device_bytes - others : 0;
    size_t bytes = shared < config->limit_bytes ? shared : config->limit_bytes;

    return bytes > used[device] ? bytes - used[device] : 0;
}

static void take(int device, enum cudasim_account account, size_t bytes)
{
    used[device] += bytes;
    cudasim_ledger_account(account, (int64_t)bytes);
    cudasim_ledger_account(CUDASIM_ACCOUNT_DEVICE, (int64_t)bytes);
}

CUresult cudasim_device_take(int device, enum cudasim_account account, size_t bytes)
{
    requests++;
    if (bytes > cudasim_device_free(device) && !cudasim_managed_make_room(device, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    take(device, account, bytes);
    return CUDA_SUCCESS;
}

bool cudasim_device_take_pages(int device, size_t bytes)
{
    if (bytes > cudasim_device_free(device))
        return false;
    take(device, CUDASIM_ACCOUNT_MANAGED, bytes);
    return true;
}

void cudasim_device_give(int device, enum cudasim_account account, size_t bytes)
{
    used[device] -= bytes;
    cudasim_ledger_account(account, -(int64_t)bytes);
    cudasim_ledger_account(CUDASIM_ACCOUNT_DEVICE, -(int64_t)bytes);
}

size_t cudasim_device_used(int device)
{
    return used[device];
}

/* ---- poison ---- */

void cudasim_poison(void *at, size_t bytes)
{
    static const uint32_t word = CUDASIM_POISON;
    unsigned char *to = at;
    size_t done = 0;
    for (; done < bytes && done < CUDASIM_PAGE; done++)
        to[done] = (unsigned char)(word >> (8 * (done % 4)));
    while (done < bytes) {
        size_t next = bytes - done < CUDASIM_PAGE ? bytes - done : CUDASIM_PAGE;
        memcpy(to + done, to, next);
        done += next;
    }
}

uint64_t cudasim_poison_pages(const void *from, size_t bytes)
{
    const unsigned char *page = from;
    uint64_t pages = 0;
    for (; bytes >= CUDASIM_PAGE; bytes -= CUDASIM_PAGE, page += CUDASIM_PAGE) {
        uint32_t first;
        memcpy(&first, page, sizeof first);
        if (first == CUDASIM_POISON && !memcmp(page, page + sizeof first, CUDASIM_PAGE - sizeof first))
            pages++;
    }
    return pages;
}

/* ---- the arena ---- */

/*
 * Free address space, in address order. Allocation goes round the arena from the place where it
 * last stopped (next fit). A freed address then comes back as late as possible, and a stale access
 * meets an inaccessible page.
 */
struct gap {
    uintptr_t base;
    size_t size;
    struct gap *next;
};

#define SMALLEST_ARENA ((size_t)1 << 24)
#define HUGE_PAGE ((size_t)1 << 21)

static struct gap *gaps;
static uintptr_t cursor;
static bool arena_tried;

static size_t whole_pages(size_t bytes)
{
    return (bytes + CUDASIM_PAGE - 1) & ~(size_t)(CUDASIM_PAGE - 1);
}

static void make_arena(void)
{
    arena_tried = true;
    size_t size = (size_t)1 << 40;
    if (size > cudasim_config()->reserve_limit)
        size = cudasim_config()->reserve_limit;
    void *base = MAP_FAILED;
    /* The process may have less address space (RLIMIT_AS). */
    while (size >= SMALLEST_ARENA && base == MAP_FAILED) {
        base = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        size = base == MAP_FAILED ? size / 2 : size;
    }
    if (base == MAP_FAILED)
        return;
    struct gap *gap = malloc(sizeof *gap);
    if (!gap || !cudasim_guard_add_range((uintptr_t)base, size)) {
        free(gap);
        munmap(base, size);
        return;
    }
    *gap = (struct gap){(uintptr_t)base, size, NULL};
    gaps = gap;
    cursor = gap->base;
}

/* Returns how far the gap's base is from the next multiple of `aligned`. */
static size_t before_aligned(const struct gap *gap, size_t aligned)
{
    return -gap->base & (aligned - 1);
}

/* Returns the link to a gap at or above `from` with room for `bytes` that are aligned, or NULL. */
static struct gap **gap_from(uintptr_t from, size_t bytes, size_t aligned)
{
    for (struct gap **link = &gaps; *link; link = &(*link)->next)
        if ((*link)->base >= from && (*link)->size >= bytes + before_aligned(*link, aligned))
            return link;
    return NULL;
}

/* Splits the gap, so that its base is aligned. Returns its link, or NULL if there is no memory. */
static struct gap **align_gap(struct gap **link, size_t aligned)
{
    struct gap *gap = *link;
    const size_t before = before_aligned(gap, aligned);
    struct gap *first = before ? malloc(sizeof *first) : NULL;

    if (!before || !first)
        return before ? NULL : link;
    *first = (struct gap){gap->base, before, gap};
    gap->base += before;
    gap->size -= before;
    *link = first;
    return &first->next;
}

uintptr_t cudasim_arena_take(size_t bytes)
{
    if (!arena_tried)
        make_arena();
    /*
     * Large allocations are aligned as the device aligns them, small ones to a page. Both are more
     * than CUDA promises.
     */
    size_t size = whole_pages(bytes) + CUDASIM_PAGE;
    const bool is_huge = bytes >= HUGE_PAGE;
    const size_t aligned = is_huge ? HUGE_PAGE : CUDASIM_PAGE;
    struct gap **link = gap_from(cursor, size, aligned);
    if (!link)
        link = gap_from(0, size, aligned);
    if (link)
        link = align_gap(link, aligned);
    if (!link)
        return 0;
    struct gap *gap = *link;
    uintptr_t base = gap->base;
    if (is_huge) /* without them, most of the system's time goes to the page faults of the poison */
        madvise((void *)base, whole_pages(bytes), MADV_HUGEPAGE);
    if (mprotect((void *)base, whole_pages(bytes), PROT_READ | PROT_WRITE))
        return 0;
    gap->base += size;
    gap->size -= size;
    cursor = gap->base;
    if (!gap->size) {
        *link = gap->next;
        free(gap);
    }
    cudasim_poison((void *)base, bytes);
    return base;
}

void cudasim_arena_give(uintptr_t base, size_t bytes)
{
    size_t size = whole_pages(bytes) + CUDASIM_PAGE;
    mmap((void *)base, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    struct gap *before = NULL, *after = gaps;
    while (after && after->base < base) {
        before = after;
        after = after->next;
    }
    bool joins_before = before && before->base + before->size == base;
    bool joins_after = after && base + size == after->base;
    if (joins_before && joins_after) {
        before->size += size + after->size;
        before->next = after->next;
        free(after);
    } else if (joins_before) {
        before->size += size;
    } else if (joins_after) {
        after->base = base;
        after->size += size;
    } else {
        struct gap *gap = malloc(sizeof *gap);
        if (!gap)
            return; /* the addresses are lost; a simulator can afford that */
        *gap = (struct gap){base, size, after};
        *(before ? &before->next : &gaps) = gap;
    }
}
