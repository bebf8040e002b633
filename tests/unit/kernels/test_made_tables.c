/*
 * Looks at what a launch made, when contexts of the program end. The driver's events end with their
 * context, and a later context may have the same handle.
 */
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

/* ---- a driver with events that end with their context ---- */

struct CUevent_st {
    CUcontext context;
    bool ended, recorded;
};

static struct CUevent_st events[64];
static unsigned event_count;
static CUcontext current, registered_in;
static unsigned uses_after_the_end; /* of events */

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
    return use(event);
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

static CUresult CUDAAPI register_memory(void *memory, size_t bytes, unsigned int flags)
{
    (void)memory;
    (void)bytes;
    (void)flags;
    registered_in = current;
    return CUDA_SUCCESS;
}

/* All kernels write the address of the first span. */
static CUresult CUDAAPI copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    const uint64_t word = BASE;

    (void)from;
    (void)stream;
    memset((void *)(uintptr_t)to, 0, bytes);
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

/* Launches the kernel of that number, which is given a span and memory of the program. */
static void launch(uintptr_t kernel)
{
    struct ps_layout *layout = calloc(1, sizeof *layout + 2 * sizeof layout->size[0]);
    CUdeviceptr table = MEMORY + 4096 * kernel, tensor = BASE;
    void *parameters[] = {&table, &tensor};
    struct ps_made_launch made;

    layout->count = 2;
    layout->size[0] = layout->size[1] = 8;
    ps_made_tables_begin(&made, (CUfunction)kernel, layout, parameters, NULL, false);
    ps_made_tables_end(&made, NULL, false, true);
    free(layout);
}

static bool has_table(uintptr_t kernel)
{
    return ps_pointer_tables_near(MEMORY + 4096 * kernel, 8);
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

int main(void)
{
    set_up();
    test_looks();
    test_copies_stay_registered();
    test_no_event_outlives_its_context();
    test_handle_comes_again();
    test_other_contexts_go_on();
    return expect_status();
}
