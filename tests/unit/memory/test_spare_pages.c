/*
 * Spare pages, with a driver that only notes calls. The tests check the parts of a span's pages,
 * and the parts made beside them. They also check the order of giving back, and mapping side by
 * side.
 */
#include <errno.h>

#include "cuda/device_memory.h"
#include "cuda/driver.h"
#include "expect.h"
#include "memory/registry.h"
#include "memory/spare_pages.h"
#include "stub_driver.h"

#define UNIT ((size_t)65536)
#define LARGEST 64u /* the most units of a part */
#define SPAN (UINT64_C(1) << 46)
#define HANDLES_MAX 256

/* ---- the driver ---- */

static size_t units_of[HANDLES_MAX]; /* by handle; 0: it has been released */
static unsigned handles, made, maps, maps_until_refused = UINT32_MAX, handles_until_refused = UINT32_MAX;
static CUdeviceptr mapped_to; /* the end of the last mapping */
static size_t access_bytes, unmapped_bytes;

static CUresult CUDAAPI create(CUmemGenericAllocationHandle *handle, size_t bytes,
                               const CUmemAllocationProp *properties, unsigned long long flags)
{
    (void)properties;
    (void)flags;
    if (!handles_until_refused)
        return CUDA_ERROR_OUT_OF_MEMORY;
    handles_until_refused--;
    made++;
    units_of[ *handle = ++handles] = bytes / UNIT;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI release(CUmemGenericAllocationHandle handle)
{
    EXPECT(units_of[handle] != 0);
    units_of[handle] = 0;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                            unsigned long long flags)
{
    EXPECT_U64(0, offset);
    EXPECT_U64(0, flags);
    EXPECT_U64(units_of[handle], bytes / UNIT);
    if (maps == maps_until_refused)
        return CUDA_ERROR_UNKNOWN;
    if (maps++)
        EXPECT_U64(mapped_to, address);
    mapped_to = address + bytes;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    (void)access;
    (void)count;
    EXPECT_U64(SPAN, address);
    access_bytes = bytes;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI unmap(CUdeviceptr address, size_t bytes)
{
    EXPECT_U64(SPAN, address);
    unmapped_bytes = bytes;
    return CUDA_SUCCESS;
}

/* ---- steps ---- */

static size_t spare_units(void)
{
    return ps_spare_bytes() / UNIT;
}

static size_t lacking_units(const struct ps_pages *pages)
{
    return ps_pages_lacking(pages) / UNIT;
}

/* Obtains pages of `units`, for which the driver must make `expected` handles. */
static struct ps_pages *obtain(size_t units, unsigned expected)
{
    struct ps_pages *pages = ps_spare_gather(units * UNIT);
    unsigned before = made;

    EXPECT(pages != NULL);
    EXPECT_INT(0, ps_pages_make(pages));
    EXPECT_U64(expected, made - before);
    EXPECT_U64(0, lacking_units(pages));
    EXPECT_U64(units * UNIT, pages->bytes);
    return pages;
}

/* Makes parts of these sizes the only spare ones. */
static void lay_down(const size_t *units, unsigned count)
{
    struct ps_pages *pages[8];
    size_t sum = 0;

    EXPECT_U64(0, spare_units());
    for (unsigned i = 0; i < count; i++)
        sum += (pages[i] = obtain(units[i], 1))->bytes / UNIT;
    for (unsigned i = 0; i < count; i++)
        EXPECT(!ps_spare_keep(pages[i]));
    EXPECT_U64(sum, spare_units());
}

/* Returns the units that are given back first for `units` of room; 0: none. */
static size_t give_back_for(size_t units)
{
    struct ps_pages *pages = ps_spare_take_out(units * UNIT);

    if (!pages)
        return 0;
    size_t bytes = pages->bytes;
    ps_pages_give_back(pages);
    return bytes / UNIT;
}

static void give_all_back(void)
{
    while (give_back_for(1))
        ;
    for (unsigned i = 1; i <= handles; i++)
        EXPECT_U64(0, units_of[i]);
}

/* ---- tests ---- */

static void test_a_span_of_the_same_size_takes_what_another_had(void)
{
    struct ps_pages *pages = obtain(2 * LARGEST + 2, 4);

    EXPECT_U64((LARGEST + 2) / 2, pages->part[0].bytes / UNIT); /* a quarter, rounded up */
    EXPECT_U64((LARGEST + 2) / 2 - 2, pages->part[3].bytes / UNIT);
    EXPECT(!ps_spare_keep(pages));
    EXPECT_U64(2 * LARGEST + 2, spare_units());
    pages = obtain(2 * LARGEST + 2, 0);
    EXPECT_U64(0, spare_units());
    ps_pages_give_back(pages);
    give_all_back();
}

static void test_parts_of_other_spans_are_put_together(void)
{
    static const size_t sizes[] = {LARGEST, LARGEST / 2, LARGEST / 2, 3};

    lay_down(sizes, 4);
    struct ps_pages *pages = obtain(2 * LARGEST, 0);
    EXPECT_U64(3, spare_units());
    EXPECT(!ps_spare_keep(pages));
    pages = obtain(LARGEST + 3, 0); /* the small one is exactly the missing part */
    EXPECT_U64(LARGEST, spare_units());
    EXPECT(!ps_spare_keep(pages));
    pages = obtain(LARGEST + 10, 1);
    EXPECT_U64(LARGEST + 3, spare_units()); /* three units of the ten would be one handle more */
    ps_pages_give_back(pages);
    give_all_back();
}

/* Sizes of one model: halves and quarters of each other, and no powers of two. */
static void test_parts_fit_into_spans_of_other_sizes(void)
{
    struct ps_pages *pages = obtain(4 * 49, 4);

    EXPECT(!ps_spare_keep(pages));
    struct ps_pages *one = obtain(49, 0), *two = obtain(2 * 49, 0);
    EXPECT_U64(49, spare_units());
    EXPECT(!ps_spare_keep(one));
    EXPECT(!ps_spare_keep(two));
    ps_pages_give_back(obtain(4 * 49, 0));
    give_all_back();
}

/* An eighth of it would be larger than any part is. */
static void test_a_very_large_span_takes_small_parts(void)
{
    static const size_t sizes[] = {LARGEST, 16, 16, 8, 8, 7};

    lay_down(sizes, 6);
    struct ps_pages *pages = ps_spare_gather(16 * LARGEST * UNIT);
    EXPECT_U64(7, spare_units()); /* not used: it would be one handle more for too little */
    EXPECT_U64(5, pages->parts);
    EXPECT_INT(0, ps_pages_make(pages));
    EXPECT_U64(0, lacking_units(pages));
    ps_pages_give_back(pages);
    give_all_back();
}

static void test_no_part_is_cut(void)
{
    static const size_t sizes[] = {8, 8};

    lay_down(sizes, 2);
    struct ps_pages *pages = ps_spare_gather(7 * UNIT);
    EXPECT_U64(7, lacking_units(pages));
    EXPECT(!ps_spare_keep(pages));
    pages = ps_spare_gather(12 * UNIT);
    EXPECT_U64(4, lacking_units(pages));
    EXPECT(!ps_spare_keep(pages));
    EXPECT_U64(16, spare_units());
    give_all_back();
}

static void test_what_goes_back_is_as_little_as_will_do(void)
{
    static const size_t sizes[] = {2, 16, 4, 8};

    lay_down(sizes, 4);
    EXPECT_U64(4, give_back_for(3));
    EXPECT_U64(8, give_back_for(3));
    EXPECT_U64(16, give_back_for(20)); /* none is enough */
    EXPECT_U64(2, give_back_for(20));
    EXPECT_U64(0, give_back_for(20));
    EXPECT_U64(0, spare_units());
    give_all_back();
}

static void test_what_was_made_before_a_refusal_is_not_lost(void)
{
    struct ps_pages *pages = ps_spare_gather((2 * LARGEST + 2) * UNIT);

    handles_until_refused = 2;
    EXPECT_INT(-ENOMEM, ps_pages_make(pages));
    EXPECT_U64(LARGEST, lacking_units(pages));
    handles_until_refused = UINT32_MAX;
    EXPECT_INT(0, ps_pages_make(pages)); /* and goes on from there */
    EXPECT_U64(4, pages->parts);
    ps_pages_give_back(pages);
    give_all_back();
}

static void test_parts_are_mapped_side_by_side(void)
{
    struct ps_pages *pages = obtain(2 * LARGEST + 2, 4);

    maps = 0;
    EXPECT_INT(0, ps_pages_map(SPAN, pages));
    EXPECT_U64(4, maps);
    EXPECT_U64(SPAN + pages->bytes, mapped_to);
    EXPECT_U64(pages->bytes, access_bytes);
    EXPECT_U64(0, unmapped_bytes);
    maps = 0;
    maps_until_refused = 2;
    EXPECT(ps_pages_map(SPAN, pages) != 0);
    EXPECT_U64(LARGEST + 2, unmapped_bytes / UNIT); /* and nothing stays */
    ps_pages_give_back(pages);
    give_all_back();
}

int main(void)
{
    stub_driver_with(&(struct ps_real_cuda){.cuMemCreate = create,
                                            .cuMemRelease = release,
                                            .cuMemMap = map,
                                            .cuMemSetAccess = set_access,
                                            .cuMemUnmap = unmap});
    EXPECT_INT(0, ps_registry_open(UNIT, 1, 0));
    test_a_span_of_the_same_size_takes_what_another_had();
    test_parts_of_other_spans_are_put_together();
    test_parts_fit_into_spans_of_other_sizes();
    test_a_very_large_span_takes_small_parts();
    test_no_part_is_cut();
    test_what_goes_back_is_as_little_as_will_do();
    test_what_was_made_before_a_refusal_is_not_lost();
    test_parts_are_mapped_side_by_side();
    return expect_status();
}
