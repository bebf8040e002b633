/*
 * The slab, with a driver that only notes calls. The tests check the slots that are taken for a
 * size, rows of several slots, and returned slots. They also check the event that stands for reads
 * of a slot. Rows are mapped one slot behind the other, or not at all.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda/device_memory.h"
#include "cuda/driver.h"
#include "expect.h"
#include "memory/registry.h"
#include "memory/slab.h"
#include "stub_driver.h"

#define UNIT ((size_t)65536)
#define SPAN (UINT64_C(1) << 46) /* an address that a span could have */

/* ---- the driver ---- */

#define NOTED_MAX 64
static struct {
    CUdeviceptr address;
    size_t bytes;
    CUmemGenericAllocationHandle pages;
} mapped[NOTED_MAX], unmapped[NOTED_MAX]; /* at SPAN and above */
static unsigned maps, unmaps, maps_until_refused = UINT32_MAX;
static CUmemGenericAllocationHandle handles;
static uintptr_t events;
static CUevent waited_for[NOTED_MAX];
static unsigned waits;
static size_t host_units = SIZE_MAX; /* units that the host has for all slots */

static CUresult CUDAAPI create(CUmemGenericAllocationHandle *handle, size_t bytes,
                               const CUmemAllocationProp *properties, unsigned long long flags)
{
    (void)bytes; /* the slab has counted it */
    (void)properties;
    (void)flags;
    if (ps_slab_figures().bytes / UNIT > host_units)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = ++handles;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                            unsigned long long flags)
{
    EXPECT_U64(0, offset);
    EXPECT_U64(0, flags);
    if (address < SPAN)
        return CUDA_SUCCESS;
    if (!maps_until_refused)
        return CUDA_ERROR_OUT_OF_MEMORY;
    maps_until_refused--;
    mapped[maps].address = address;
    mapped[maps].bytes = bytes;
    mapped[maps++].pages = handle;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI unmap(CUdeviceptr address, size_t bytes)
{
    if (address >= SPAN) {
        unmapped[unmaps].address = address;
        unmapped[unmaps++].bytes = bytes;
    }
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI create_event(CUevent *event, unsigned int flags)
{
    (void)flags;
    *event = (CUevent)++events;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI wait_for_event(CUevent event)
{
    waited_for[waits++] = event;
    return CUDA_SUCCESS;
}

/* ---- steps ---- */

/* Makes n free slots of `units` each, in this order. */
static void make(unsigned n, size_t units)
{
    while (n--)
        EXPECT_INT(0, ps_slab_add(units * UNIT));
}

/*
 * Removes the free slots, so that each test begins with none. One slot that takes the whole bound
 * makes them give way.
 */
static void empty_the_slab(void)
{
    struct ps_slot *slot = NULL;

    EXPECT_INT(0, ps_slab_add(ps_slab_figures().limit_bytes));
    EXPECT_INT(0, ps_slab_make(UNIT, &slot));
    ps_slab_give(slot);
    slot = ps_slab_take(UNIT);
    EXPECT_U64(UNIT, ps_slab_figures().bytes);
    ps_slab_give(slot);
    slot = ps_slab_take_row(2 * UNIT);
    EXPECT(!slot);
}

/* Returns the row's sizes in units, as "4 4 2". */
static const char *sizes_of(const struct ps_slot *row)
{
    static char text[128];
    size_t length = 0;

    text[0] = 0;
    for (; row; row = row->next_in_row)
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%zu", length ? " " : "", row->bytes / UNIT);
    return text;
}

static void expect_used(size_t units)
{
    EXPECT_U64(units * UNIT, ps_slab_figures().used_bytes);
}

/* ---- tests ---- */

static void test_a_slot_of_just_the_size_comes_first(void)
{
    uint64_t rows = ps_slab_figures().rows;

    make(2, 4);
    make(1, 8);
    struct ps_slot *slot = ps_slab_take_row(8 * UNIT);
    EXPECT_TEXT("8", sizes_of(slot));
    EXPECT_U64(rows, ps_slab_figures().rows); /* one slot doesn't count as a row */
    struct ps_slot *row = ps_slab_take_row(8 * UNIT);
    EXPECT_TEXT("4 4", sizes_of(row));
    EXPECT_U64(8 * UNIT, ps_slab_row_bytes(row));
    EXPECT_U64(rows + 1, ps_slab_figures().rows);
    expect_used(16);
    ps_slab_give(slot);
    expect_used(8);
    ps_slab_give(row);
    expect_used(0);
}

static void test_the_oldest_of_a_size_come_first(void)
{
    make(3, 4);
    struct ps_slot *oldest = ps_slab_take(4 * UNIT), *middle = ps_slab_take(4 * UNIT);
    ps_slab_give(oldest); /* now the youngest of the three */
    ps_slab_give(middle);
    struct ps_slot *row = ps_slab_take_row(8 * UNIT);
    EXPECT(row && row != oldest && row != middle && row->next_in_row == oldest && !oldest->next_in_row);
    ps_slab_give(row);
}

static void test_several_sizes(void)
{
    make(1, 8);
    make(1, 4);
    make(1, 2);
    EXPECT(!ps_slab_take(14 * UNIT) && ps_slab_has_row(14 * UNIT));
    struct ps_slot *row = ps_slab_take_row(14 * UNIT);
    EXPECT_TEXT("8 4 2", sizes_of(row));
    ps_slab_give(row);
}

static void test_no_row_where_nothing_adds_up(void)
{
    uint64_t rows = ps_slab_figures().rows;

    make(2, 8);
    make(1, 4);
    EXPECT(!ps_slab_take_row(12 * UNIT + UNIT / 2) && !ps_slab_has_row(12 * UNIT + UNIT / 2));
    EXPECT(!ps_slab_take_row(14 * UNIT) && !ps_slab_has_row(14 * UNIT));
    EXPECT(!ps_slab_take_row(64 * UNIT));
    EXPECT_U64(rows, ps_slab_figures().rows);
    expect_used(0);
    EXPECT_U64(16 * UNIT, ps_slab_free_of(8 * UNIT)); /* nothing was taken out */
}

/* If a row is almost complete, only its missing part is made. */
static void test_what_is_missing_of_a_row_is_made(void)
{
    struct ps_slot *row = NULL;

    make(1, 8);
    make(1, 4);
    uint64_t before = ps_slab_figures().bytes;
    EXPECT_INT(0, ps_slab_make(16 * UNIT, &row));
    EXPECT_TEXT("8 4 4", sizes_of(row));
    EXPECT_U64(before + 4 * UNIT, ps_slab_figures().bytes);
    expect_used(16);
    ps_slab_give(row);
    EXPECT_INT(0, ps_slab_make(16 * UNIT, &row)); /* the row is complete */
    EXPECT_U64(before + 4 * UNIT, ps_slab_figures().bytes);
    ps_slab_give(row);
    expect_used(0);
}

/* Slots in use count like free ones: their bytes belong to the spans that are to be away. */
static void test_sizes_that_have_no_row(void)
{
    size_t bytes[] = {8 * UNIT, 4 * UNIT, 8 * UNIT, 8 * UNIT, 16 * UNIT, 4 * UNIT, 64 * UNIT};

    make(2, 8);
    make(3, 4);
    struct ps_slot *taken = ps_slab_take(8 * UNIT);
    EXPECT_U64(3, ps_slab_keep_lacking(bytes, 7));
    EXPECT_U64(16 * UNIT, bytes[0]);
    EXPECT_U64(4 * UNIT, bytes[1]); /* three of 4: one as it is, two in place of the third slot of 8 */
    EXPECT_U64(64 * UNIT, bytes[2]);
    EXPECT_U64(12 * UNIT, ps_slab_free_of(4 * UNIT)); /* nothing was taken */
    ps_slab_give(taken);
    EXPECT_U64(0, ps_slab_keep_lacking(bytes, 0));
}

/*
 * A part needs as many slots as a row may have. With the missing piece the row has one more, and is
 * valid all the same.
 */
static void test_a_row_that_is_made_need_not_be_found(void)
{
    struct ps_slot *row = NULL;

    make(24, 2);
    uint64_t before = ps_slab_figures().bytes;
    EXPECT(!ps_slab_has_row(50 * UNIT));
    EXPECT_INT(0, ps_slab_make(50 * UNIT, &row));
    EXPECT_U64(50 * UNIT, ps_slab_row_bytes(row));
    EXPECT_U64(before + 2 * UNIT, ps_slab_figures().bytes);
    ps_slab_give(row);
    expect_used(0);
}

/* If there is no room for the whole row, nothing is made and nothing gives way. */
static void test_a_row_that_there_is_no_room_for(void)
{
    struct ps_slot *row = NULL, *taken = NULL;
    uint64_t limit = ps_slab_figures().limit_bytes;

    EXPECT_INT(0, ps_slab_make(limit - 100 * UNIT, &taken));
    make(1, 40);
    uint64_t before = ps_slab_figures().bytes;
    EXPECT_INT(-ENOSPC, ps_slab_make(101 * UNIT, &row));
    EXPECT_U64(before, ps_slab_figures().bytes);
    EXPECT_U64(40 * UNIT, ps_slab_free_of(40 * UNIT));
    EXPECT(!row);
    ps_slab_give(taken);
    expect_used(0);
}

/* Nothing gives way to a row made ahead of need. */
static void test_rows_made_ahead_stay_within_the_bound(void)
{
    uint64_t limit = ps_slab_figures().limit_bytes;

    make(1, 8);
    EXPECT_INT(0, ps_slab_add_row(limit - ps_slab_figures().bytes - 4 * UNIT));
    EXPECT_INT(-ENOSPC, ps_slab_add_row(8 * UNIT));
    EXPECT_U64(8 * UNIT, ps_slab_free_of(8 * UNIT));
    EXPECT_INT(0, ps_slab_add_row(4 * UNIT));
    EXPECT_U64(limit, ps_slab_figures().bytes);
}

/* Large rows are made in pieces, and the pieces serve other spans. */
static void test_large_rows_are_made_in_pieces(void)
{
    struct ps_slot *row = NULL, *slot;

    EXPECT_INT(0, ps_slab_make(344 * UNIT, &row));
    for (slot = row; slot && slot->next_in_row; slot = slot->next_in_row)
        EXPECT_U64(64 * UNIT, slot->bytes);
    EXPECT_U64(24 * UNIT, slot ? slot->bytes : 0);
    ps_slab_give(row);
    uint64_t before = ps_slab_figures().bytes;
    EXPECT_INT(0, ps_slab_make(256 * UNIT, &row));
    EXPECT_U64(before, ps_slab_figures().bytes);
    EXPECT_INT(0, ps_slab_add_row(2048 * UNIT)); /* no more pieces than a row has: larger ones */
    EXPECT_U64(2048 * UNIT, ps_slab_free_of(128 * UNIT));
    ps_slab_give(row);
}

static void test_given_back_each_is_free_for_itself(void)
{
    make(3, 4);
    struct ps_slot *row = ps_slab_take_row(12 * UNIT);
    EXPECT_TEXT("4 4 4", sizes_of(row));
    EXPECT(!ps_slab_take(4 * UNIT));
    EXPECT_U64(0, ps_slab_free_of(4 * UNIT));
    ps_slab_give(row);
    EXPECT_U64(12 * UNIT, ps_slab_free_of(4 * UNIT));
    struct ps_slot *one = ps_slab_take(4 * UNIT), *two = ps_slab_take_row(8 * UNIT);
    EXPECT_TEXT("4", sizes_of(one));
    EXPECT_TEXT("4 4", sizes_of(two));
    ps_slab_give(two);
    ps_slab_give(one);
    /* The pieces give way to other sizes one by one. */
    EXPECT_U64(13 * UNIT, ps_slab_figures().bytes);
}

static void test_a_row_has_one_event_for_all_its_slots(void)
{
    make(1, 8);
    make(1, 4);
    struct ps_slot *row = ps_slab_take_row(12 * UNIT), *second = row->next_in_row;
    EXPECT(!row->being_read && !second->being_read);
    ps_slab_read_begins(row);
    EXPECT(row->being_read && second->being_read);
    EXPECT(row->read_by == row->read_done && second->read_by == row->read_done && second->read_by != second->read_done);
    ps_slab_give(row);
    EXPECT(row->being_read && second->being_read); /* of each slot for itself: no thread has seen it over */

    /* The second goes to another span, whose D2H waits for the event of the first. */
    struct ps_slot *alone = ps_slab_take(4 * UNIT);
    EXPECT(alone == second);
    waits = 0;
    EXPECT_INT(0, ps_slab_wait_until_read(alone));
    EXPECT_U64(1, waits);
    EXPECT(waited_for[0] == row->read_done);
    ps_slab_read_is_over(alone);
    EXPECT(!alone->being_read && row->being_read);

    /* Read by itself, the slot has its own event again. */
    ps_slab_read_begins(alone);
    EXPECT(alone->being_read && alone->read_by == alone->read_done);
    ps_slab_give(alone);
}

static void test_an_event_recorded_anew_holds_up_no_other(void)
{
    make(1, 8);
    make(1, 4);
    struct ps_slot *row = ps_slab_take_row(12 * UNIT), *second = row->next_in_row;
    ps_slab_read_begins(row);
    ps_slab_give(row);
    struct ps_slot *first = ps_slab_take(8 * UNIT);
    EXPECT(first == row && second->being_read);
    ps_slab_read_is_over(first); /* a D2H into it has waited for the event */
    EXPECT(second->being_read);
    ps_slab_read_begins(first); /* recorded again: the H2D that it stood for before is over */
    EXPECT(first->being_read && !second->being_read);
    ps_slab_give(first);
    EXPECT(first->being_read && !second->being_read);
}

static void test_slots_that_are_read_are_waited_for(void)
{
    make(1, 8);
    make(1, 4);
    make(1, 2);
    struct ps_slot *row = ps_slab_take_row(14 * UNIT);
    waits = 0;
    EXPECT_INT(0, ps_slab_wait_until_read(row));
    EXPECT_U64(0, waits);
    row->next_in_row->being_read = true;
    row->next_in_row->read_by = row->next_in_row->read_done;
    EXPECT_INT(0, ps_slab_wait_until_read(row));
    EXPECT_U64(1, waits);
    EXPECT(waited_for[0] == row->next_in_row->read_done);
    ps_slab_read_is_over(row);
    ps_slab_give(row);
}

static void test_a_row_is_mapped_slot_behind_slot(void)
{
    make(1, 8);
    make(1, 4);
    make(1, 2);
    struct ps_slot *row = ps_slab_take_row(14 * UNIT);
    const struct ps_slot *slot = row;
    static const size_t offsets[] = {0, 8, 12};

    maps = unmaps = 0;
    EXPECT_INT(0, ps_slab_map_row(SPAN, row));
    EXPECT_U64(3, maps);
    EXPECT_U64(0, unmaps);
    for (unsigned i = 0; i < 3 && slot; i++, slot = slot->next_in_row) {
        EXPECT_U64(SPAN + offsets[i] * UNIT, mapped[i].address);
        EXPECT_U64(slot->bytes, mapped[i].bytes);
        EXPECT_U64(slot->handle, mapped[i].pages);
    }

    /* The third mapping is refused: the first two are undone. */
    maps = 0;
    maps_until_refused = 2;
    EXPECT_INT(-ENOMEM, ps_slab_map_row(SPAN, row));
    EXPECT_U64(2, maps);
    EXPECT_U64(1, unmaps);
    EXPECT_U64(SPAN, unmapped[0].address);
    EXPECT_U64(12 * UNIT, unmapped[0].bytes);

    /* The first mapping is refused: nothing to undo. */
    maps_until_refused = 0;
    EXPECT_INT(-ENOMEM, ps_slab_map_row(SPAN, row));
    EXPECT_U64(1, unmaps);
    maps_until_refused = UINT32_MAX;
    ps_slab_give(row);
}

/* ---- a host that has less than the bound ---- */

static void test_once_the_host_refuses_free_slots_give_way(void)
{
    struct ps_slot *row = NULL, *more = NULL;

    make(3, 8);
    size_t made = ps_slab_figures().bytes;
    host_units = made / UNIT;
    EXPECT_INT(-ENOMEM, ps_slab_add(32 * UNIT)); /* all free slots are too few, and none goes */
    EXPECT_U64(made, ps_slab_figures().bytes);
    EXPECT(ps_slab_has_room(4 * UNIT));
    EXPECT(!ps_slab_can_hold_more(4 * UNIT));
    EXPECT_INT(0, ps_slab_make(4 * UNIT, &row));
    EXPECT_U64(20 * UNIT, ps_slab_figures().bytes);
    ps_slab_give(row);

    /* If no slot can go, the host is asked again. */
    row = ps_slab_take_row(20 * UNIT);
    EXPECT_TEXT("8 8 4", sizes_of(row));
    host_units = 20;
    EXPECT_INT(-ENOMEM, ps_slab_make(4 * UNIT, &more));
    EXPECT(!ps_slab_has_room(4 * UNIT));
    host_units = 24;
    EXPECT_INT(0, ps_slab_make(4 * UNIT, &more));
    ps_slab_give(more);
    ps_slab_give(row);
    host_units = SIZE_MAX;
}

/* A thread that would fail asks again at once; then the refusal is forgotten. */
static void test_a_refusal_can_be_forgotten(void)
{
    struct ps_slot *row = NULL;

    make(4, 8);
    ps_slab_ask_again(); /* a test before this one may have been refused */
    host_units = ps_slab_figures().bytes / UNIT;
    row = ps_slab_take_row(ps_slab_figures().bytes);
    EXPECT_INT(-ENOMEM, ps_slab_add(4 * UNIT));
    EXPECT(!ps_slab_has_room(4 * UNIT));
    EXPECT(ps_slab_ask_again());
    EXPECT(ps_slab_has_room(4 * UNIT));
    EXPECT(!ps_slab_ask_again());
    ps_slab_give(row);
    host_units = SIZE_MAX;
}

/* If no slot can go, no thread is told that there is room. */
static void test_a_host_that_refuses_all_is_not_asked_for_ever(void)
{
    struct ps_slot *row = NULL;
    unsigned asked = 0;

    make(4, 8);
    host_units = 0;
    for (EXPECT_INT(-ENOMEM, ps_slab_add(32 * UNIT)); ps_slab_has_room(4 * UNIT) && asked < 100; asked++)
        EXPECT_INT(-ENOMEM, ps_slab_make(4 * UNIT, &row));
    EXPECT(asked <= 5);
    host_units = SIZE_MAX;
    while (!ps_slab_can_hold_more(4 * UNIT)) /* a second */
        usleep(10000);
}

int main(void)
{
    static void (*const tests[])(void) = {
        test_a_slot_of_just_the_size_comes_first,
        test_the_oldest_of_a_size_come_first,
        test_several_sizes,
        test_no_row_where_nothing_adds_up,
        test_given_back_each_is_free_for_itself,
        test_a_row_has_one_event_for_all_its_slots,
        test_slots_that_are_read_are_waited_for,
        test_an_event_recorded_anew_holds_up_no_other,
        test_a_row_is_mapped_slot_behind_slot,
        test_what_is_missing_of_a_row_is_made,
        test_a_row_that_is_made_need_not_be_found,
        test_a_row_that_there_is_no_room_for,
        test_sizes_that_have_no_row,
        test_rows_made_ahead_stay_within_the_bound,
        test_once_the_host_refuses_free_slots_give_way,
        test_a_refusal_can_be_forgotten,
        test_a_host_that_refuses_all_is_not_asked_for_ever,
    };

    stub_driver_with(&(struct ps_real_cuda){.cuMemCreate = create,
                                            .cuMemMap = map,
                                            .cuMemUnmap = unmap,
                                            .cuEventCreate = create_event,
                                            .cuEventSynchronize = wait_for_event});
    ps_slab_open((struct ps_amount){.kind = PS_AMOUNT_BYTES, .value = 1024 * UNIT}, 1, UNIT);
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        empty_the_slab();
        tests[i]();
    }
    empty_the_slab();
    ps_slab_open((struct ps_amount){.kind = PS_AMOUNT_BYTES, .value = 65536 * UNIT}, 1, UNIT);
    test_large_rows_are_made_in_pieces();
    return expect_status();
}
