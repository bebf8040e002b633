/*
 * Looks at what a launch made, when contexts of the program end. The driver's events end with their
 * context, and a later context may have the same handle.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "cuda/device_memory.h"
#include "expect.h"
#include "kernels/context_ends.h"
#include "kernels/made_tables.h"
#include "kernels/module_variables.h"
#include "kernels/pointer_tables.h"
#include "memory/registry.h"
#include "stub_driver.h"

#define UNIT 4096u
#define UNITS 8u
#define BASE 0x200000000000u   /* of the span reservation */
#define MEMORY 0x500000000000u /* of the program, where kernels make their tables */
#define MANAGED ((CUcontext)1)
#define SECOND ((CUcontext)2)
#define GREEN ((CUcontext)3)
#define STREAM ((CUstream)16)
#define OTHER_STREAM ((CUstream)17)

/* ---- a driver with events that end with their context ---- */

struct CUevent_st {
    CUcontext context;
    bool ended, recorded;
};

static struct CUevent_st events[64];
static unsigned event_count;
static CUcontext current, registered_in;
static unsigned uses_after_the_end; /* of events */
static bool are_under_way;          /* the looks */
static bool makes_none;             /* no kernel writes an address */
static bool is_copy_asked_about;    /* a free comes while the copies of a look are being queued */

static CUresult CUDAAPI get_current(CUcontext *context)
{
    *context = current;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI push(CUcontext context)
{
    current = context;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI pop(CUcontext *context)
{
    *context = current;
    current = SECOND;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI create(CUevent *event, unsigned int flags)
{
    (void)flags;
    events[event_count] = (struct CUevent_st){.context = current};
    *event = &events[event_count++];
    return CUDA_SUCCESS;
}

static CUresult use(CUevent event)
{
    uses_after_the_end += event->ended;
    return event->ended ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static CUresult CUDAAPI destroy(CUevent event)
{
    return use(event);
}

static CUresult CUDAAPI record(CUevent event, CUstream stream)
{
    (void)stream;
    EXPECT(event->context == current);
    event->recorded = true;
    return use(event);
}

static CUresult CUDAAPI query(CUevent event)
{
    EXPECT(event->recorded);
    return are_under_way ? CUDA_ERROR_NOT_READY : use(event);
}

static CUresult CUDAAPI attributes(unsigned int count, CUpointer_attribute *asked, void **values, CUdeviceptr address)
{
    (void)count;
    (void)asked;
    (void)address;
    *(unsigned int *)values[0] = CU_MEMORYTYPE_DEVICE;
    *(unsigned int *)values[1] = 0;
    *(CUdeviceptr *)values[2] = MEMORY;
    *(size_t *)values[3] = 1 << 20;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI range_of(CUdeviceptr *start, size_t *bytes, CUdeviceptr address)
{
    (void)address;
    *start = MEMORY;
    *bytes = 1 << 20;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI register_memory(void *memory, size_t bytes, unsigned int flags)
{
    (void)memory;
    (void)bytes;
    (void)flags;
    registered_in = current;
    return CUDA_SUCCESS;
}

/* Mostly all kernels write the address of the first span. */
static CUresult CUDAAPI copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    const uint64_t word = BASE;

    if (is_copy_asked_about) { /* another thread frees the memory, on its own stream or on this one */
        EXPECT(ps_made_looks == 1);
        EXPECT(ps_made_tables_are_read(MEMORY, OTHER_STREAM));
        EXPECT(!ps_made_tables_are_read(MEMORY, stream));
    }
    (void)from;
    memset((void *)(uintptr_t)to, 0, bytes);
    if (!makes_none)
        memcpy((void *)(uintptr_t)to, &word, sizeof word);
    return CUDA_SUCCESS;
}

static void end_context(CUcontext context)
{
    ps_kernels_context_ends(context);
    for (unsigned i = 0; i < event_count; i++)
        events[i].ended |= events[i].context == context;
}

/* ---- launches ---- */

static struct ps_span *_Atomic map[UNITS];
static struct ps_span span;

static void set_up(void)
{
    stub_driver_with(&(struct ps_real_cuda){
        .cuCtxGetCurrent = get_current,
        .cuCtxPushCurrent = push,
        .cuCtxPopCurrent = pop,
        .cuEventCreate = create,
        .cuEventDestroy = destroy,
        .cuEventRecord = record,
        .cuEventQuery = query,
        .cuPointerGetAttributes = attributes,
        .cuMemHostRegister = register_memory,
        .cuMemcpyAsync = copy,
        .cuMemGetAddressRange = range_of,
    });
    for (unsigned i = 0; i < UNITS; i++)
        map[i] = &span;
    ps_reservation.base = BASE;
    ps_reservation.granularity = UNIT;
    ps_reservation.unit_shift = 12;
    ps_reservation.map = map;
    ps_reservation.reserved = UNITS * UNIT;
    ps_device.context = MANAGED;
    current = SECOND;
}

/*
 * Launches the kernel of that number, which is given a span and memory of the program. As before
 * each launch, the looks that are over are read.
 */
static void launch_with(uintptr_t kernel, CUdeviceptr table, bool in_graph)
{
    struct ps_layout *layout = calloc(1, sizeof *layout + 2 * sizeof layout->size[0]);
    CUdeviceptr tensor = BASE;
    void *parameters[] = {&table, &tensor};
    struct ps_made_launch node;
    struct ps_made_call made;

    layout->count = 2;
    layout->size[0] = layout->size[1] = 8;
    ps_made_tables_read();
    if (in_graph && ps_made_tables_in_graph(&node, (CUfunction)kernel, layout, parameters, NULL))
        ps_made_tables_run(&node);
    if (!in_graph)
        ps_made_tables_begin(&made, (CUfunction)kernel, layout, parameters, NULL);
    if (!in_graph && made.looks)
        ps_made_tables_end(&made, STREAM, false);
    free(layout);
}

static void launch_at(uintptr_t kernel, size_t behind, bool in_graph)
{
    launch_with(kernel, MEMORY + 4096 * kernel + behind, in_graph);
}

static void launch(uintptr_t kernel)
{
    launch_at(kernel, 0, false);
}

static void count_name(void *names, CUdeviceptr named)
{
    EXPECT_U64(BASE, named);
    ++*(unsigned *)names;
}

static bool has_table(uintptr_t kernel)
{
    unsigned names = 0;

    ps_pointer_tables_name(MEMORY + 4096 * kernel, count_name, NULL, &names);
    return names;
}

/* Returns the number of spans that a launch uses which is given the address. */
static unsigned names_at(CUdeviceptr address)
{
    unsigned names = 0;

    uint64_t bytes;
    const CUdeviceptr start = ps_pointer_tables_range(&bytes);

    if (address - start < bytes)
        ps_pointer_tables_name(address, count_name, count_name, &names);
    return names;
}

static unsigned names_of(uintptr_t kernel)
{
    return names_at(MEMORY + 4096 * kernel);
}

static void test_looks(void)
{
    launch(1);
    EXPECT(!has_table(1)); /* not yet known */
    launch(1);             /* the first launch's look is over */
    EXPECT(has_table(1));
}

/* What the program destroys next may be any context, that of the first look as well. */
static void test_copies_stay_registered(void)
{
    EXPECT(registered_in == MANAGED);
}

/* The context's looks are left alone when it ends, under way or not. */
static void test_no_event_outlives_its_context(void)
{
    launch(2);
    end_context(SECOND);
    current = MANAGED;
    launch(3);
    launch(3);
    EXPECT(has_table(3));
    EXPECT_U64(0, uses_after_the_end);
    current = SECOND;
}

/* The next context has the same handle. Its looks need events of its own. */
static void test_handle_comes_again(void)
{
    for (unsigned i = 0; i < 6; i++)
        launch(4 + i);
    end_context(SECOND);
    for (unsigned i = 0; i < 6; i++) {
        launch(10);
        end_context(SECOND);
    }
    launch(11);
    launch(11);
    EXPECT(has_table(11));
    EXPECT_U64(0, uses_after_the_end);
}

/* Another context's looks go on. */
static void test_other_contexts_go_on(void)
{
    launch(12);
    end_context(GREEN);
    launch(13);
    EXPECT(has_table(12));
    EXPECT_U64(0, uses_after_the_end);
}

/* A launch uses what another one may have made, as long as that is not known. */
static void test_undecided_launches_count(void)
{
    are_under_way = true;
    launch(20);
    EXPECT(!has_table(20));
    EXPECT_U64(1, names_of(20));
    EXPECT_U64(0, names_of(21));
    are_under_way = false;
    ps_made_tables_read();
    EXPECT(has_table(20));
    EXPECT_U64(1, names_of(20));
}

static void test_looks_in_vain_end_it(void)
{
    makes_none = true;
    launch(22);
    EXPECT_U64(1, names_of(22));
    ps_made_tables_read();
    EXPECT_U64(0, names_of(22));
    makes_none = false;
}

/* A graph's launch is not looked at. Another one decides. */
static void test_launches_of_graphs_count(void)
{
    launch_at(24, 0, true);
    const size_t with_it = ps_launch_tables;
    launch_at(24, 0, true);
    EXPECT_U64(with_it, ps_launch_tables);
    ps_made_tables_read();
    EXPECT_U64(1, names_of(24));
    launch_at(24, 8192, false);
    ps_made_tables_read();
    EXPECT(has_table(24));
    EXPECT(has_table(26));
    EXPECT_U64(1, names_of(24));
}

/* The launch counts until its whole memory is written over: here, all bytes that are looked at. */
static void test_parts_written_over(void)
{
    const CUdeviceptr table = MEMORY + 4096 * 28;

    are_under_way = true;
    launch(28);
    ps_pointer_tables_overwritten(table + 64, 4096 - 64);
    ps_pointer_tables_overwritten(table, 64);
    EXPECT_U64(1, names_at(table));
    ps_pointer_tables_overwritten(table, 4096);
    EXPECT_U64(0, names_at(table));
    are_under_way = false;
    ps_made_tables_read();
    EXPECT(!has_table(28));
}

/* The copy counts as well, and stays when the source is written over. */
static void test_copies_on_the_device(void)
{
    const CUdeviceptr table = MEMORY + 4096 * 30, copy = MEMORY + 4096 * 40;

    are_under_way = true;
    launch(30);
    ps_pointer_tables_moved(copy, table, 16, false);
    ps_pointer_tables_overwritten(table, 4096);
    EXPECT_U64(0, names_at(table));
    EXPECT_U64(1, names_at(copy));
    are_under_way = false;
    ps_made_tables_read();
    EXPECT_U64(1, names_at(copy));
    EXPECT(has_table(40));
}

/* Of too many launches the oldest is forgotten. */
static void test_many_launches(void)
{
    for (uintptr_t i = 0; i <= PS_LAUNCH_TABLES_MAX; i++)
        launch_at(50 + i % 100, i / 100 * 8, true);
    EXPECT_U64(PS_LAUNCH_TABLES_MAX, ps_launch_tables);
    ps_pointer_tables_overwritten(MEMORY, 1 << 20);
    EXPECT_U64(0, ps_launch_tables);
}

/* A free of another thread comes behind a look whose copies are just being queued. */
static void test_free_while_a_look_begins(void)
{
    ps_made_tables_read();
    is_copy_asked_about = true;
    launch(48);
    is_copy_asked_about = false;
    ps_made_tables_read();
    EXPECT_U64(0, ps_made_looks);
    EXPECT(!ps_made_tables_are_read(MEMORY, OTHER_STREAM));
}

/* ---- two threads ---- */

#define DECISIONS 1000u

static _Atomic CUdeviceptr watched; /* a table that names a span all the time; 0: none; 1: the end */
static atomic_bool is_watching;

/* Another thread's launches are given the table. Returns how many would have missed the span. */
static void *watch(void *unused)
{
    uintptr_t missed = 0;

    (void)unused;
    for (CUdeviceptr table; (table = atomic_load(&watched)) != 1;) {
        atomic_store(&is_watching, table != 0);
        missed += table && !names_at(table) && atomic_load(&watched) == table;
    }
    return (void *)missed;
}

/* In turn: is decided by its look; is made again by a maker, whose table replaces that one. */
static void test_named_while_it_is_decided(void)
{
    pthread_t thread;
    void *missed;

    EXPECT(!pthread_create(&thread, NULL, watch, NULL));
    for (uintptr_t i = 0; i < DECISIONS; i++) {
        const uintptr_t kernel = 0x10000 + i;
        are_under_way = true;
        launch_with(kernel, MEMORY, false);
        atomic_store(&watched, MEMORY);
        while (!atomic_load(&is_watching))
            sched_yield();
        are_under_way = false;
        for (unsigned again = 0; again < 4; again++)
            launch_with(kernel, MEMORY, false);
        atomic_store(&watched, 0);
        while (atomic_load(&is_watching))
            sched_yield();
        ps_made_tables_read();
        ps_pointer_tables_overwritten(MEMORY, 1 << 20);
    }
    atomic_store(&watched, 1);
    EXPECT(!pthread_join(thread, &missed));
    EXPECT_U64(0, (uintptr_t)missed);
}

int main(void)
{
    set_up();
    test_looks();
    test_copies_stay_registered();
    test_no_event_outlives_its_context();
    test_handle_comes_again();
    test_other_contexts_go_on();
    test_undecided_launches_count();
    test_looks_in_vain_end_it();
    test_launches_of_graphs_count();
    test_parts_written_over();
    test_copies_on_the_device();
    test_many_launches();
    test_free_while_a_look_begins();
    test_named_while_it_is_decided();
    return expect_status();
}
