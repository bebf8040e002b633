/*
 * The budget, with a driver that has a given number of pages. The last uses of freed spans end when
 * the test says so. A thread of the program and helper threads need pages at once. The tests check
 * which thread waits for which use, and which gets the pages.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "comes_to.h"
#include "cuda/driver.h"
#include "cuda/helper_thread.h"
#include "expect.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "residency/page_supply.h"
#include "stub_driver.h"

#define UNIT ((size_t)65536)
#define DEVICE_UNITS 4u
#define USES_MAX 8

/* ---- the driver ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool over[USES_MAX];      /* by event: whether its use is over */
static unsigned waits[USES_MAX]; /* by event: threads that wait for it now */
static size_t units_made, units_given_back;
static uint64_t handles;
static size_t units_of[256];

static CUresult CUDAAPI create(CUmemGenericAllocationHandle *handle, size_t bytes,
                               const CUmemAllocationProp *properties, unsigned long long flags)
{
    CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

    (void)properties;
    (void)flags;
    pthread_mutex_lock(&lock);
    if (units_made + bytes / UNIT <= DEVICE_UNITS) {
        units_made += bytes / UNIT;
        units_of[ *handle = ++handles] = bytes / UNIT;
        r = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    return r;
}

static CUresult CUDAAPI release(CUmemGenericAllocationHandle handle)
{
    pthread_mutex_lock(&lock);
    units_made -= units_of[handle];
    units_given_back += units_of[handle];
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI query(CUevent event)
{
    pthread_mutex_lock(&lock);
    bool is_over = over[(uintptr_t)event];
    pthread_mutex_unlock(&lock);
    return is_over ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult CUDAAPI wait_for(CUevent event)
{
    uintptr_t i = (uintptr_t)event;

    pthread_mutex_lock(&lock);
    waits[i]++;
    pthread_cond_broadcast(&changed);
    while (!over[i])
        pthread_cond_wait(&changed, &lock);
    waits[i]--;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

/* ---- steps ---- */

static void use_ends(unsigned event)
{
    pthread_mutex_lock(&lock);
    over[event] = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static bool is_waited_for(unsigned event)
{
    pthread_mutex_lock(&lock);
    bool is = waits[event] != 0;
    pthread_mutex_unlock(&lock);
    return is;
}

/* Frees a span on device pages that is in use until the event's use ends. [locked] */
static void free_in_use(size_t units, unsigned event)
{
    struct ps_supply supply;

    EXPECT_INT(0, ps_page_supply_obtain_now(units * UNIT, NULL, &supply));
    struct ps_span *span = ps_registry_new(units * UNIT, units * UNIT);
    span->pages = supply.pages;
    span->has_pages = true;
    span->backing = PS_BACKING_DEVICE;
    span->residency = PS_RESIDENT;
    TAILQ_INSERT_TAIL(&ps_registry.idle_order, span, listed);
    span->order.fence = (CUevent)(uintptr_t)event; /* NOLINT(performance-no-int-to-ptr): never followed */
    span->order.fence_set = true;
    ps_registry_end_life(span);
    ps_registry_cache(span);
    over[event] = false;
}

static void give_back(struct ps_supply *supply)
{
    ps_registry_lock();
    ps_page_supply_return(supply);
    ps_registry_unlock();
}

/* A thread of the program that needs one unit. */
static atomic_bool program_done;
static int program_got;
static struct ps_supply program_pages;

static void *program(void *unused)
{
    (void)unused;
    ps_registry_lock();
    program_got = ps_page_supply_obtain(UNIT, NULL, &program_pages);
    ps_registry_unlock();
    atomic_store(&program_done, true);
    return NULL;
}

static void start_program(pthread_t *thread)
{
    atomic_store(&program_done, false);
    EXPECT_INT(0, pthread_create(thread, NULL, program, NULL));
}

static bool program_waits(void)
{
    ps_registry_lock();
    bool some = ps_budget.program_waits != 0;
    ps_registry_unlock();
    return some;
}

/* A helper thread that needs the whole device, like one that reloads ahead. */
static atomic_bool helper_done;
static struct ps_supply helper_pages;

static void helper(void)
{
    for (bool has = false; !has;) {
        ps_registry_lock();
        has = !ps_page_supply_obtain_now(DEVICE_UNITS * UNIT, NULL, &helper_pages);
        if (!has && !ps_page_supply_make_some_room(DEVICE_UNITS * UNIT))
            ps_registry_wait_changed(1000000u);
        ps_registry_unlock();
    }
    atomic_store(&helper_done, true);
}

static void start_helper(void)
{
    atomic_store(&helper_done, false);
    EXPECT_INT(0, ps_helper_thread_start("test-helper", helper, NULL, NULL));
}

/* ---- tests ---- */

static void test_freed_spans_that_all_are_waited_for_are_no_reason_to_give_up(void)
{
    pthread_t thread;

    ps_registry_lock();
    free_in_use(DEVICE_UNITS, 1);
    ps_registry_unlock();
    start_helper();
    EXPECT(COMES_TO(is_waited_for(1)));
    start_program(&thread);
    EXPECT(COMES_TO(program_waits() || atomic_load(&program_done)));
    usleep(20000);
    EXPECT(!atomic_load(&program_done)); /* pages will come: the thread is not told otherwise */
    use_ends(1);
    pthread_join(thread, NULL);
    EXPECT_INT(0, program_got);

    /* The helper thread waited first, and left the pages to the program. */
    EXPECT(!atomic_load(&helper_done));
    give_back(&program_pages);
    EXPECT(COMES_TO(atomic_load(&helper_done)));
    give_back(&helper_pages);
    EXPECT_U64(0, ps_budget.held);
    EXPECT_U64(0, ps_budget.program_waits);
    EXPECT_U64(0, ps_budget.ending);
}

static void test_the_use_that_ends_first_is_waited_for(void)
{
    pthread_t thread;

    ps_registry_lock();
    free_in_use(2, 2);
    free_in_use(2, 3);
    ps_registry_unlock();
    start_helper();
    EXPECT(COMES_TO(is_waited_for(2)));
    start_program(&thread);
    EXPECT(COMES_TO(program_waits()));
    usleep(20000);
    use_ends(2); /* the other span's use goes on */
    EXPECT(COMES_TO(atomic_load(&program_done)));
    use_ends(3);
    pthread_join(thread, NULL);
    EXPECT_INT(0, program_got);
    give_back(&program_pages);
    EXPECT(COMES_TO(atomic_load(&helper_done)));
    give_back(&helper_pages);
    EXPECT_U64(0, ps_budget.held);
}

/* The oldest span's use may wait for work that this thread has yet to launch. */
static void test_a_use_that_does_not_end_holds_up_no_other(void)
{
    pthread_t thread;

    ps_registry_lock();
    free_in_use(3, 1);
    free_in_use(1, 2);
    ps_registry_unlock();
    start_program(&thread);
    EXPECT(COMES_TO(program_waits()));
    usleep(20000);
    use_ends(2);
    EXPECT(COMES_TO(atomic_load(&program_done)));
    use_ends(1);
    pthread_join(thread, NULL);
    EXPECT_INT(0, program_got);
    give_back(&program_pages);
    ps_registry_lock();
    EXPECT_U64(3 * UNIT, ps_page_supply_trim(UINT64_MAX));
    ps_registry_unlock();
    EXPECT_U64(0, ps_budget.held);
}

/* An unwanted span goes when its use is over. Until then no wanted span goes in its place. */
static void test_what_is_wanted_stays(void)
{
    ps_registry_lock();
    free_in_use(1, 1);
    free_in_use(2, 2);
    struct ps_span *unwanted = TAILQ_FIRST(&ps_registry.cached);
    unwanted->freed.period = 0; /* it was only asked for */
    use_ends(2);
    ps_page_supply_trim_unwanted(DEVICE_UNITS * UNIT);
    EXPECT_U64(3 * UNIT, ps_registry.cached_bytes);
    use_ends(1);
    ps_page_supply_trim_unwanted(DEVICE_UNITS * UNIT);
    EXPECT_U64(2 * UNIT, ps_registry.cached_bytes);
    EXPECT_U64(2 * UNIT, ps_page_supply_trim(2 * UNIT));
    ps_registry_unlock();
}

/* Frees spans of these sizes in units, in this order; their uses are over. [locked] */
static void free_spans(const size_t *units, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        free_in_use(units[i], i);
    for (unsigned i = 0; i < count; i++)
        use_ends(i);
}

/* Returns the units that are released for `units` of room, from the freed spans. [locked] */
static uint64_t units_given_up_for(size_t units)
{
    uint64_t before = ps_registry.cached_bytes;
    struct ps_supply supply;

    EXPECT_INT(0, ps_page_supply_obtain(units * UNIT, NULL, &supply));
    uint64_t given_up = before - ps_registry.cached_bytes;
    ps_page_supply_return(&supply);
    return given_up / UNIT;
}

static void test_as_few_freed_spans_go_as_will_do(void)
{
    static const size_t sizes[] = {1, 1, 2};

    ps_budget.limit = DEVICE_UNITS * UNIT;
    ps_registry_lock();
    free_spans(sizes, 3);
    EXPECT_U64(2, units_given_up_for(2)); /* the largest alone, although the others were freed before it */
    EXPECT_U64(1, units_given_up_for(3)); /* two are free already */
    EXPECT(!ps_page_supply_make_some_room(3 * UNIT));
    EXPECT_U64(1, ps_registry.cached_bytes / UNIT);
    EXPECT_U64(1, units_given_up_for(4));
    free_spans(sizes, 3);
    EXPECT_U64(3, units_given_up_for(3)); /* none is enough alone: the largest goes, and one of the others */
    EXPECT_U64(1, ps_registry.cached_bytes / UNIT);
    EXPECT_U64(UNIT, ps_page_supply_trim(UNIT));
    ps_registry_unlock();
    ps_budget.limit = UINT64_MAX;
}

/* Takes pages of `units` and returns them. [locked] */
static void take_and_return(size_t units)
{
    struct ps_supply supply;

    EXPECT_INT(0, ps_page_supply_obtain_now(units * UNIT, NULL, &supply));
    EXPECT_U64(units, supply.pages->bytes / UNIT);
    EXPECT(ps_budget.held <= ps_budget.limit);
    ps_page_supply_return(&supply);
}

/*
 * The driver clears pages that it gets back, over the link. While memory is short it gets only
 * pages that stand in another span's way.
 */
static void test_pages_stay_while_memory_is_tight(void)
{
    struct ps_supply two, one;
    size_t before;

    ps_registry_lock();
    ps_budget.reached = false; /* by the tests before */
    ps_page_supply_trim(0);
    before = units_given_back;
    take_and_return(2);
    EXPECT_U64(2, units_given_back - before); /* there is no budget */
    ps_budget.limit = DEVICE_UNITS * UNIT;
    ps_budget.reached = true;
    before = units_given_back;
    EXPECT_INT(0, ps_page_supply_obtain_now(2 * UNIT, NULL, &two));
    EXPECT_INT(0, ps_page_supply_obtain_now(2 * UNIT, NULL, &one));
    ps_page_supply_return(&two);
    ps_page_supply_return(&one);
    EXPECT_U64(0, units_given_back - before);
    EXPECT_U64(4 * UNIT, ps_budget.held);
    take_and_return(4); /* of the two */
    take_and_return(2);
    EXPECT_U64(0, units_given_back - before);
    EXPECT_INT(0, ps_page_supply_obtain_now(UNIT, NULL, &one)); /* two units can't be cut */
    EXPECT_U64(2, units_given_back - before);
    EXPECT_U64(3 * UNIT, ps_budget.held);
    ps_page_supply_return(&one);
    take_and_return(3); /* one and two */
    EXPECT_U64(2, units_given_back - before);
    ps_budget_give_back_spare(UNIT);
    EXPECT_U64(3, units_given_back - before);
    EXPECT_U64(0, ps_page_supply_trim(0));
    EXPECT_U64(5, units_given_back - before);
    EXPECT_U64(0, ps_budget.held);
    EXPECT_U64(0, units_made);
    ps_budget.reached = false;
    ps_budget.limit = UINT64_MAX;
    ps_registry_unlock();
}

/* The budget has room, but the driver has none: spare pages are more useful to the driver. */
static void test_what_is_spare_goes_back_when_the_driver_has_no_more(void)
{
    struct ps_supply three, two;

    ps_registry_lock();
    ps_budget.limit = (DEVICE_UNITS + 2) * UNIT;
    ps_budget.reached = true;
    EXPECT_INT(0, ps_page_supply_obtain_now(3 * UNIT, NULL, &three));
    ps_page_supply_return(&three);
    EXPECT_U64(3, units_made);
    EXPECT_INT(0, ps_page_supply_obtain_now(2 * UNIT, NULL, &two));
    EXPECT_U64(2, units_made);
    EXPECT_U64(2 * UNIT, ps_budget.held);
    EXPECT_U64(0, ps_budget.refused_at);
    ps_budget.reached = false;
    ps_budget.limit = UINT64_MAX;
    ps_page_supply_return(&two);
    ps_page_supply_trim(0);
    EXPECT_U64(0, ps_budget.held);
    ps_registry_unlock();
}

/*
 * The amount of memory is learnt from the driver. Memory that was there all the time shows nothing.
 */
static void test_a_refusal_is_remembered_until_the_driver_has_more(void)
{
    struct ps_supply three, two;

    ps_registry_lock();
    ps_budget.limit = (DEVICE_UNITS + 2) * UNIT;
    ps_budget.reached = true;
    EXPECT_INT(0, ps_page_supply_obtain_now(3 * UNIT, NULL, &three));
    EXPECT_INT(-ENOMEM, ps_page_supply_obtain_now(2 * UNIT, NULL, &two));
    EXPECT_U64(3 * UNIT, ps_budget.refused_at);
    ps_page_supply_return(&three);
    EXPECT_INT(0, ps_page_supply_obtain_now(3 * UNIT, NULL, &three));
    EXPECT_U64(3 * UNIT, ps_budget.refused_at);
    ps_page_supply_return(&three);
    ps_page_supply_trim(0);
    EXPECT_INT(0, ps_page_supply_obtain_now(2 * UNIT, NULL, &two));
    EXPECT_U64(0, ps_budget.refused_at);
    ps_page_supply_return(&two);
    ps_page_supply_trim(0);
    EXPECT_U64(0, ps_budget.held);
    ps_budget.reached = false;
    ps_budget.limit = UINT64_MAX;
    ps_registry_unlock();
}

static void test_what_there_is_to_spare(void)
{
    const uint64_t peak = ps_registry.peak_live_bytes;

    ps_registry_lock();
    ps_budget.limit = 64 * UNIT;
    ps_registry.peak_live_bytes = 40 * UNIT;
    EXPECT_U64(20 * UNIT, ps_budget_to_spare()); /* less a sixteenth */
    ps_registry.padding_bytes = 15 * UNIT;
    EXPECT_U64(5 * UNIT, ps_budget_to_spare());
    ps_registry.padding_bytes = 21 * UNIT;
    EXPECT_U64(0, ps_budget_to_spare());
    ps_registry.padding_bytes = 0;
    ps_registry.peak_live_bytes = 60 * UNIT;
    EXPECT_U64(0, ps_budget_to_spare());
    ps_budget.limit = UINT64_MAX;
    EXPECT(ps_budget_to_spare() > UINT64_MAX / 2);
    ps_registry.peak_live_bytes = peak;
    ps_registry_unlock();
}

static void test_nothing_that_can_give_way(void)
{
    struct ps_supply all, more;

    ps_registry_lock();
    EXPECT_INT(0, ps_page_supply_obtain(DEVICE_UNITS * UNIT, NULL, &all));
    EXPECT_INT(-ENOMEM, ps_page_supply_obtain(UNIT, NULL, &more));
    EXPECT_U64(0, ps_budget.program_waits);
    ps_page_supply_return(&all);
    EXPECT_INT(0, ps_page_supply_obtain(UNIT, NULL, &more));
    ps_page_supply_return(&more);
    ps_registry_unlock();
}

int main(void)
{
    stub_driver_with(&(struct ps_real_cuda){
        .cuMemCreate = create, .cuMemRelease = release, .cuEventQuery = query, .cuEventSynchronize = wait_for});
    EXPECT_INT(0, ps_registry_open(UNIT, 1, 0));
    ps_budget.limit = UINT64_MAX; /* the driver's refusal is what counts */
    test_freed_spans_that_all_are_waited_for_are_no_reason_to_give_up();
    test_the_use_that_ends_first_is_waited_for();
    test_a_use_that_does_not_end_holds_up_no_other();
    test_what_is_wanted_stays();
    test_as_few_freed_spans_go_as_will_do();
    test_what_there_is_to_spare();
    test_nothing_that_can_give_way();
    test_pages_stay_while_memory_is_tight();
    test_what_is_spare_goes_back_when_the_driver_has_no_more();
    test_a_refusal_is_remembered_until_the_driver_has_more();
    return expect_status();
}
