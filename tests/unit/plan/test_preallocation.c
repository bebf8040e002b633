/*
 * Preallocation, with a driver that has a given number of pages and maps when the test lets it. The
 * tests check the allocations of a step that spans are made for, and the cases without any. No span
 * made or taken for this may be lost.
 */
#include "plan/preallocation.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "comes_to.h"
#include "expect.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "residency/page_supply.h"
#include "stub_driver.h"

#define UNIT ((size_t)65536)
/* Long enough for a thread to do a thing that it must not do. */
#define A_WHILE_US 30000
#define LAUNCHES 4
/* Events behind this launch and the two after it are near (3 ms ahead). */
#define LAUNCH_NS 2000000u
/*
 * The number of rounds for which spans are still prepared for an allocation that missed once
 * (preallocation.c).
 */
#define ROUNDS_KEPT 3

/* ---- the driver ---- */

static atomic_size_t units_there, units_held;
static atomic_int refused_maps;                             /* the number of maps to come that are refused */
static pthread_mutex_t mapping = PTHREAD_MUTEX_INITIALIZER; /* while the test holds it, maps wait */
static atomic_bool maps;
static size_t units_of[256];
static atomic_size_t handles;

static CUresult CUDAAPI create(CUmemGenericAllocationHandle *handle, size_t bytes,
                               const CUmemAllocationProp *properties, unsigned long long flags)
{
    (void)properties;
    (void)flags;
    if (atomic_load(&units_held) + bytes / UNIT > atomic_load(&units_there))
        return CUDA_ERROR_OUT_OF_MEMORY;
    atomic_fetch_add(&units_held, bytes / UNIT);
    *handle = atomic_fetch_add(&handles, 1) + 1;
    units_of[*handle % 256] = bytes / UNIT;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI release(CUmemGenericAllocationHandle handle)
{
    atomic_fetch_sub(&units_held, units_of[handle % 256]);
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                            unsigned long long flags)
{
    (void)address, (void)bytes, (void)offset, (void)handle, (void)flags;
    atomic_store(&maps, true);
    pthread_mutex_lock(&mapping);
    pthread_mutex_unlock(&mapping);
    atomic_store(&maps, false);
    if (atomic_load(&refused_maps) > 0) {
        atomic_fetch_sub(&refused_maps, 1);
        return CUDA_ERROR_UNKNOWN;
    }
    return CUDA_SUCCESS;
}

/* ---- steps ---- */

/*
 * Makes a step of four launches. A span of one unit is born after the second, and one of two units
 * after the third.
 */
static struct ps_preallocation *make_step(void)
{
    static const struct penstock_launch launch[LAUNCHES] = {{.duration_ns = LAUNCH_NS, .moment = 0},
                                                            {.duration_ns = LAUNCH_NS, .moment = 1},
                                                            {.duration_ns = LAUNCH_NS, .moment = 3},
                                                            {.duration_ns = LAUNCH_NS, .moment = 5}};
    static const struct penstock_step_span span[] = {
        {.bytes = UNIT, .born = 2, .freed = 6},
        {.bytes = 2 * UNIT, .born = 4, .freed = 7},
        {.bytes = 8 * UNIT, .born = PENSTOCK_NEVER, .freed = PENSTOCK_NEVER}};
    const struct penstock_step step = {.moments = 8, .launches = LAUNCHES, .spans = 3, .launch = launch, .span = span};

    return ps_preallocation_make(&step);
}

static struct ps_preallocation *step;

static uint32_t freed_ones(size_t units)
{
    ps_registry_lock();
    uint32_t count = ps_registry_cached_count(units * UNIT);
    ps_registry_unlock();
    return count;
}

static uint64_t made(void)
{
    ps_registry_lock();
    uint64_t spans = ps_preallocation_figures().made;
    ps_registry_unlock();
    return spans;
}

static void at(uint32_t place)
{
    ps_registry_lock();
    ps_preallocation_at(step, place);
    ps_registry_unlock();
}

/*
 * Allocates as the program does. Returns whether there was a freed span. `*span` is the span that
 * the program has now.
 */
static bool allocate(size_t units, struct ps_span **span)
{
    struct ps_supply supply;

    ps_registry_lock();
    *span = ps_registry_cached_take(units * UNIT, NULL);
    bool found = *span != NULL;
    ps_preallocation_allocated(units * UNIT, found);
    if (found) {
        ps_registry_revive(*span, units * UNIT);
    } else if (EXPECT(!ps_page_supply_obtain_now(units * UNIT, NULL, &supply))) {
        *span = ps_registry_new(units * UNIT, units * UNIT);
        (*span)->pages = supply.pages;
        (*span)->has_pages = true;
        (*span)->backing = PS_BACKING_DEVICE;
        (*span)->residency = PS_RESIDENT;
        TAILQ_INSERT_TAIL(&ps_registry.idle_order, *span, listed);
    }
    ps_registry_unlock();
    return found;
}

/* Puts the span with the freed ones. [locked] */
static void lay_down(struct ps_span *span)
{
    ps_registry_end_life(span);
    ps_registry_cache(span);
    ps_registry_changed();
}

static void give(struct ps_span *span)
{
    ps_registry_lock();
    lay_down(span);
    ps_registry_unlock();
}

/* Returns the span's pages to the driver. */
static void drop(struct ps_span *span)
{
    size_t bytes = span->bytes;

    ps_registry_lock();
    lay_down(span);
    ps_page_supply_trim(bytes);
    ps_registry_unlock();
}

/* Begins with a new step, no freed spans, and a driver that has `units`. */
static void begin(size_t units)
{
    ps_registry_lock();
    ps_preallocation_leave();
    ps_preallocation_free(step);
    ps_page_supply_trim(UINT64_MAX);
    ps_budget.refused_at = 0;
    step = make_step();
    ps_registry_unlock();
    atomic_store(&units_there, units);
    EXPECT_U64(0, atomic_load(&units_held));
    EXPECT(step != NULL);
}

/*
 * A round in which the allocation of one unit finds no freed span, and its span is dropped again.
 * The other allocation finds one.
 */
static void miss_the_first(void)
{
    struct ps_span *span;

    at(0);
    at(1);
    EXPECT(!allocate(1, &span));
    drop(span);
    at(2);
    ps_registry_lock();
    ps_preallocation_allocated(2 * UNIT, true);
    ps_registry_unlock();
}

/* ---- tests ---- */

static void test_what_was_missing_is_made_ahead_and_nothing_else(void)
{
    struct ps_span *span;
    uint64_t before = made(), missing = ps_preallocation_figures().missing;

    begin(16);
    at(0);
    usleep(A_WHILE_US);
    EXPECT_U64(before, made()); /* no allocation has missed yet */
    miss_the_first();
    EXPECT_U64(missing + 1, ps_preallocation_figures().missing);
    EXPECT_U64(before, made()); /* its place in this round is past, and not soon in the next */
    at(3);
    EXPECT(COMES_TO(freed_ones(1) == 1));
    at(0);
    at(1);
    EXPECT(allocate(1, &span));
    EXPECT_U64(missing + 1, ps_preallocation_figures().missing);
    at(2);
    usleep(A_WHILE_US);
    EXPECT_U64(before + 1, made()); /* none of two units, which was found, and no second one */
    EXPECT_U64(0, freed_ones(2));
    EXPECT_U64(1, atomic_load(&units_held));
    /* While it lives on in the next round, that round needs one of its own. */
    at(3);
    EXPECT(COMES_TO(freed_ones(1) == 1));
    drop(span);
}

static void test_what_is_there_need_not_be_made(void)
{
    struct ps_span *span, *other;
    uint64_t before;

    begin(16);
    miss_the_first();
    EXPECT(!allocate(1, &other)); /* for no allocation of the step */
    give(other);
    before = made();
    at(3);
    usleep(A_WHILE_US);
    EXPECT_U64(before, made());
    at(0);
    at(1);
    EXPECT(allocate(1, &span));
    EXPECT(span == other);
    drop(span);
}

static void test_it_ends_where_others_would_have_done(void)
{
    struct ps_span *span, *other;
    uint64_t before = made();

    begin(16);
    miss_the_first();
    EXPECT(!allocate(1, &other));
    for (uint64_t round = 1; round <= ROUNDS_KEPT; round++) {
        at(3);
        EXPECT(COMES_TO(made() == before + round));
        give(other); /* it would have served the program too */
        at(0);
        at(1);
        EXPECT(allocate(1, &span));
        ps_registry_lock();
        other = ps_registry_cached_take(UNIT, NULL);
        ps_registry_revive(other, UNIT);
        ps_registry_unlock();
        drop(span);
        at(2);
    }
    at(3);
    usleep(A_WHILE_US);
    EXPECT_U64(before + ROUNDS_KEPT, made());
    at(0);
    at(1);
    EXPECT(!allocate(1, &span)); /* missed: begins again */
    drop(span);
    at(2);
    at(3);
    EXPECT(COMES_TO(made() == before + ROUNDS_KEPT + 1));
    drop(other);
}

/* The first allocation has missed, and the driver's whole memory is in use. */
static struct ps_span *begin_with_nothing_left(void)
{
    struct ps_span *all;

    begin(4);
    miss_the_first();
    EXPECT(!allocate(4, &all));
    return all;
}

static void test_pages_that_are_missing_are_waited_for(void)
{
    struct ps_span *all = begin_with_nothing_left();
    uint64_t before = made();

    at(3);
    usleep(A_WHILE_US);
    EXPECT_U64(before, made());
    drop(all);
    EXPECT(COMES_TO(made() == before + 1));
    EXPECT_U64(1, freed_ones(1));
}

static void test_what_did_not_come_in_its_place_is_not_made_later(void)
{
    struct ps_span *all = begin_with_nothing_left();
    uint64_t before = made();

    at(3);
    at(0);
    at(1);
    at(2); /* it was to come after the second launch */
    drop(all);
    usleep(A_WHILE_US);
    EXPECT_U64(before, made());
    EXPECT_U64(0, atomic_load(&units_held));
}

static void test_a_plan_that_is_left_or_gone_prepares_nothing(void)
{
    for (int gone = 0; gone < 2; gone++) {
        struct ps_span *all = begin_with_nothing_left();
        uint64_t before = made();
        at(3);
        ps_registry_lock();
        if (gone) {
            ps_preallocation_free(step);
            step = NULL;
        } else {
            ps_preallocation_leave();
        }
        ps_registry_unlock();
        drop(all);
        usleep(A_WHILE_US);
        EXPECT_U64(before, made());
        ps_registry_lock();
        uint64_t missing = ps_preallocation_figures().missing;
        ps_preallocation_allocated(UNIT, false); /* for no plan */
        EXPECT_U64(missing, ps_preallocation_figures().missing);
        ps_registry_unlock();
    }
}

static void test_a_mapping_that_is_refused_loses_nothing(void)
{
    struct ps_span *span;
    uint64_t before = made();

    begin(16);
    miss_the_first();
    atomic_store(&refused_maps, 2); /* one refusal is tried again at once */
    at(3);
    EXPECT(COMES_TO(!atomic_load(&refused_maps) && !atomic_load(&units_held)));
    EXPECT_U64(before, made());
    EXPECT_U64(0, freed_ones(1));
    at(0);
    at(1);
    EXPECT(!allocate(1, &span)); /* the program allocates in its own way */
    drop(span);
    at(2);
    at(3);
    EXPECT(COMES_TO(freed_ones(1) == 1)); /* and next time it works */
    EXPECT_U64(1, atomic_load(&units_held));
}

static void test_what_is_being_made_is_told(void)
{
    begin(16);
    miss_the_first();
    pthread_mutex_lock(&mapping);
    at(3);
    EXPECT(COMES_TO(atomic_load(&maps)));
    ps_registry_lock();
    EXPECT(ps_preallocation_is_making(UNIT));
    EXPECT(!ps_preallocation_is_making(2 * UNIT));
    EXPECT_U64(0, ps_registry_cached_count(UNIT));
    ps_registry_unlock();
    pthread_mutex_unlock(&mapping);
    EXPECT(COMES_TO(freed_ones(1) == 1));
    ps_registry_lock();
    EXPECT(!ps_preallocation_is_making(UNIT));
    ps_registry_unlock();
}

static bool can_spare(const struct ps_span *span)
{
    ps_registry_lock();
    bool can = ps_preallocation_can_spare(span);
    ps_registry_unlock();
    return can;
}

static void test_what_is_soon_wanted_is_not_spared(void)
{
    struct ps_span *one, *two, *another;

    begin(16);
    EXPECT(!allocate(1, &one));
    EXPECT(!allocate(2, &two));
    EXPECT(!allocate(1, &another));
    give(one);
    give(two);
    EXPECT(can_spare(one)); /* no plan is followed */
    at(0);
    EXPECT(!can_spare(one));
    EXPECT(!can_spare(two));
    give(another);
    EXPECT(can_spare(one)); /* one of the two will do */
    EXPECT(!can_spare(two));
    at(1);
    struct ps_span *taken;
    EXPECT(allocate(1, &taken));
    EXPECT(can_spare(taken == one ? another : one)); /* that allocation is past; its next one is a round away */
    EXPECT(!can_spare(two));
    ps_registry_lock();
    ps_preallocation_leave();
    ps_registry_unlock();
    EXPECT(can_spare(two));
    drop(taken);
}

int main(void)
{
    stub_driver();
    ps_cu.cuMemCreate = create;
    ps_cu.cuMemRelease = release;
    ps_cu.cuMemMap = map;
    EXPECT_INT(0, ps_registry_open(UNIT, 1, 0));
    ps_budget.limit = UINT64_MAX; /* the driver's refusal is what counts */
    test_what_was_missing_is_made_ahead_and_nothing_else();
    test_what_is_there_need_not_be_made();
    test_it_ends_where_others_would_have_done();
    test_pages_that_are_missing_are_waited_for();
    test_what_did_not_come_in_its_place_is_not_made_later();
    test_a_plan_that_is_left_or_gone_prepares_nothing();
    test_a_mapping_that_is_refused_loses_nothing();
    test_what_is_being_made_is_told();
    test_what_is_soon_wanted_is_not_spared();
    return expect_status();
}
