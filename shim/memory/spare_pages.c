#include "memory/spare_pages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/counters.h"
#include "base/per_device.h"
#include "cuda/device_memory.h"
#include "memory/registry.h"
#include "policy/base/lower_bound.h"

/*
 * Units in the largest part (128 MiB on the device). Parts of one size serve all larger spans.
 * Smaller parts would serve more spans. But the driver takes 16 us to give access to one part, and
 * 11 us to unmap it. The link copies 1.5 MiB in that time (shim/README.md#mapping-memory).
 */
#define PART_UNITS 64u
/*
 * A spare part that goes into a span has at least this share of it, or SMALL_UNITS units (16 MiB).
 * A part that fills the rest exactly may be smaller. One step goes from optimizer state of 24 and
 * 32 MiB to logits of 2 GiB and back. It gave 11 GiB a step to the driver when the logits took
 * parts of 128 MiB only.
 */
#define PART_SHARE 8u
#define SMALL_UNITS 8u

/* The parts of one size. */
struct shelf {
    size_t bytes;
    CUmemGenericAllocationHandle *handle;
    size_t count, room;
};

static PS_PER_DEVICE struct {
    struct shelf *shelf; /* smallest first; an empty shelf stays */
    size_t count, room;
    uint64_t bytes; /* of all parts */
} first_dev;
#define dev (&PS_HERE(first_dev))

uint64_t ps_spare_bytes(void)
{
    return dev->bytes;
}

/*
 * Returns the first shelf with parts of at least `bytes`; the number of shelves if none has them.
 */
static size_t first_of(size_t bytes)
{
    return PS_LOWER_BOUND(dev->count, i, dev->shelf[i].bytes < bytes);
}

static struct ps_page_part take(struct shelf *shelf)
{
    dev->bytes -= shelf->bytes;
    return (struct ps_page_part){shelf->handle[--shelf->count], shelf->bytes};
}

/*
 * Returns the size of the smallest part that a span takes, except one that fills the rest exactly.
 */
static size_t least_part(size_t bytes)
{
    const size_t small = SMALL_UNITS * ps_reservation.granularity, share = bytes / PART_SHARE;

    return share < small ? share : small;
}

/*
 * A span is made of equal parts, whose number is a power of two. Sizes in one model are mostly such
 * multiples of each other, so parts of one span then fit others. Larger spans are made of the
 * largest parts.
 */
#define PIECES_MAX 16u
static size_t piece_of(size_t bytes)
{
    const size_t unit = ps_reservation.granularity, most = PART_UNITS * unit;
    size_t pieces = 1;

    while (bytes / pieces > most && pieces < PIECES_MAX)
        pieces *= 2;
    const size_t piece = (bytes / pieces + unit - 1) / unit * unit;
    return piece < most ? piece : most;
}

/*
 * Returns the most parts that a span can have. Only two can be smaller than the least part: one
 * that fills the rest exactly, and the last one that is made.
 */
static size_t parts_of(size_t bytes)
{
    const size_t unit = ps_reservation.granularity, least = least_part(bytes);

    return bytes / (least > unit ? least : unit) + 2;
}

static struct ps_pages *new_pages(size_t bytes, size_t parts)
{
    struct ps_pages *pages = malloc(sizeof *pages + parts * sizeof *pages->part);

    if (pages)
        *pages = (struct ps_pages){.bytes = bytes, .references = 1};
    return pages;
}

static void add(struct ps_pages *pages, struct ps_page_part part)
{
    pages->part[pages->parts++] = part;
}

struct ps_pages *ps_spare_gather(size_t bytes)
{
    struct ps_pages *pages = new_pages(bytes, parts_of(bytes));
    size_t lack = bytes;

    if (!pages)
        return NULL;
    for (size_t i = dev->count; lack && i-- > 0;) {
        size_t just = first_of(lack);
        if (just < dev->count && dev->shelf[just].bytes == lack && dev->shelf[just].count)
            i = just;
        else if (dev->shelf[i].bytes < least_part(bytes) || dev->shelf[i].bytes < ps_reservation.granularity)
            break;
        for (; dev->shelf[i].count && dev->shelf[i].bytes <= lack; lack -= dev->shelf[i].bytes)
            add(pages, take(&dev->shelf[i]));
    }
    return pages;
}

size_t ps_pages_lacking(const struct ps_pages *pages)
{
    size_t there = 0;

    for (uint32_t i = 0; i < pages->parts; i++)
        there += pages->part[i].bytes;
    return pages->bytes - there;
}

int ps_pages_make(struct ps_pages *pages)
{
    const size_t most = piece_of(pages->bytes);
    struct ps_page_part part;

    for (size_t lack = ps_pages_lacking(pages); lack; lack -= part.bytes) {
        part.bytes = lack < most ? lack : most;
        int r = ps_device_pages_create(part.bytes, &part.handle);
        if (r)
            return r;
        add(pages, part);
    }
    return 0;
}

/* Returns the shelf for parts of the size, with room for one more. NULL: no memory. */
static struct shelf *shelf_for(size_t bytes)
{
    size_t at = first_of(bytes);

    if (at == dev->count || dev->shelf[at].bytes != bytes) {
        struct shelf *grown = ps_grown_array(dev->shelf, dev->count, &dev->room, 16, sizeof *grown);
        if (!grown)
            return NULL;
        dev->shelf = grown;
        memmove(grown + at + 1, grown + at, (dev->count++ - at) * sizeof *grown);
        grown[at] = (struct shelf){.bytes = bytes};
    }
    struct shelf *shelf = &dev->shelf[at];
    CUmemGenericAllocationHandle *grown = ps_grown_array(shelf->handle, shelf->count, &shelf->room, 16, sizeof *grown);
    if (!grown)
        return NULL;
    shelf->handle = grown;
    return shelf;
}

bool ps_spare_keep(struct ps_pages *pages)
{
    for (; pages->parts; pages->parts--) {
        struct ps_page_part part = pages->part[pages->parts - 1];
        struct shelf *shelf = shelf_for(part.bytes);
        if (!shelf)
            return true;
        shelf->handle[shelf->count++] = part.handle;
        dev->bytes += part.bytes;
    }
    free(pages);
    return false;
}

struct ps_pages *ps_spare_take_out(uint64_t bytes)
{
    struct shelf *best = NULL;

    for (size_t i = 0; i < dev->count && (!best || best->bytes < bytes); i++)
        if (dev->shelf[i].count)
            best = &dev->shelf[i];
    struct ps_pages *pages = best ? new_pages(best->bytes, 1) : NULL;
    if (pages)
        add(pages, take(best));
    return pages;
}

void ps_pages_give_back(struct ps_pages *pages)
{
    for (uint32_t i = 0; i < pages->parts; i++) {
        ps_count_by(pages_given_back_bytes, pages->part[i].bytes);
        ps_pages_release(pages->part[i].handle);
    }
    free(pages);
}
