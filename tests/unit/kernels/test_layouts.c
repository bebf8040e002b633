/*
 * Layouts by handle: the driver is asked once for each, and a reused handle gets its new layout.
 * Programs that make and drop handles cause neither slowness nor leaks.
 */
#include "kernels/layouts.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/counters.h"
#include "cuda/driver.h"
#include "expect.h"

#define HANDLES 40000u /* more than the table has places for */
#define THREADS 4

static _Atomic unsigned asked;
static unsigned era;               /* decides which kernel a handle means */
static size_t fails_at = SIZE_MAX; /* the parameter at which the next call for it fails */

/* Returns a kind with one to five parameters, whose sizes identify it. */
static unsigned kind_of(CUfunction function)
{
    return (unsigned)((uintptr_t)function / 64 + era) % 5;
}

static CUresult CUDAAPI stub_param_info(CUkernel kernel, size_t index, size_t *offset, size_t *bytes)
{
    const unsigned kind = kind_of((CUfunction)kernel);

    asked += !index;
    if (index == fails_at) {
        fails_at = SIZE_MAX;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (index > kind)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = 0;
    *bytes = 8 * (kind + 1) + index;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI stub_name(const char **name, CUkernel kernel)
{
    (void)kernel;
    *name = "a_kernel";
    return CUDA_SUCCESS;
}

static CUfunction handle(unsigned i)
{
    return (CUfunction)(uintptr_t)(0x7f0000000000u + 64u * i);
}

static bool is_right(const struct ps_layout *layout, unsigned kind)
{
    bool right = layout && layout->count == kind + 1;

    for (uint32_t i = 0; right && i < layout->count; i++)
        right = layout->size[i] == 8 * (kind + 1) + i;
    return right;
}

static bool found_right(unsigned i)
{
    return is_right(ps_layout_of(handle(i)), kind_of(handle(i)));
}

static unsigned asked_for(unsigned i)
{
    const unsigned before = asked;

    EXPECT(found_right(i));
    return asked - before;
}

/* A failure is no end of the parameters. The next launch asks again. */
static void test_the_driver_fails(void)
{
    for (unsigned i = 0; i < 5; i++)
        for (size_t at = 0; at <= kind_of(handle(i)) + 1u; at++) {
            ps_layouts_module_gone();
            fails_at = at;
            EXPECT(!ps_layout_of(handle(i)));
            EXPECT_INT(1, asked_for(i));
        }
}

static void test_asked_once(void)
{
    EXPECT_U64(1, asked_for(1));
    EXPECT_U64(0, asked_for(1));
    EXPECT_U64(1, asked_for(2));
    EXPECT_U64(0, asked_for(1));
}

static void test_module_gone(void)
{
    const struct ps_layout *before = ps_layout_of(handle(1));
    const unsigned kind = kind_of(handle(1));

    ps_layouts_module_gone();
    era++;
    EXPECT_U64(1, asked_for(1));
    EXPECT_U64(0, asked_for(1));
    EXPECT(is_right(before, kind)); /* another thread's launch may still be reading it */
    ps_layouts_module_gone();
    EXPECT_U64(1, asked_for(1));
}

/*
 * A program makes kernels and drops them. The driver is asked once about each current kernel, and
 * memory does not grow.
 */
static void test_handles_come_and_go(void)
{
    struct mallinfo2 before = mallinfo2();

    for (unsigned i = 0; i < HANDLES; i++) {
        if (i % 100 == 0)
            ps_layouts_module_gone();
        EXPECT(found_right(i));
        if (i == HANDLES / 2)
            before = mallinfo2();
    }
    EXPECT(mallinfo2().uordblks - before.uordblks < 4096);
    for (unsigned i = HANDLES - 100; i < HANDLES; i++)
        EXPECT_U64(0, asked_for(i));
    /* The same kernels, repeatedly. */
    before = mallinfo2();
    for (unsigned i = 0; i < 100000; i++) {
        if (i % 100 == 0)
            ps_layouts_module_gone();
        EXPECT(found_right(i % 100));
    }
    EXPECT(mallinfo2().uordblks - before.uordblks < 4096);
}

/* There are more kernels than places. Each look-up is right, and memory does not grow. */
static void test_too_many(void)
{
    struct mallinfo2 before = mallinfo2();

    ps_layouts_module_gone();
    for (unsigned turn = 0; turn < 2; turn++)
        for (unsigned i = 0; i < HANDLES; i++)
            EXPECT(found_right(i));
    EXPECT(mallinfo2().uordblks - before.uordblks < 4096);
}

static void *look(void *of)
{
    uintptr_t wrong = 0;

    for (unsigned i = 0; i < 20000; i++) {
        wrong += !found_right((unsigned)(uintptr_t)of + i % 3000);
        if (i % 1000 == 0)
            ps_layouts_module_gone();
    }
    return (void *)wrong;
}

/* Threads take each other's places in the table. */
static void test_threads(void)
{
    pthread_t thread[THREADS];
    void *wrong;

    for (uintptr_t i = 0; i < THREADS; i++)
        EXPECT(!pthread_create(&thread[i], NULL, look, (void *)(i * 1000)));
    for (uintptr_t i = 0; i < THREADS; i++) {
        EXPECT(!pthread_join(thread[i], &wrong));
        EXPECT(!wrong);
    }
}

int main(void)
{
    ps_cu.cuKernelGetParamInfo = stub_param_info;
    ps_cu.cuKernelGetName = stub_name;
    test_the_driver_fails();
    test_asked_once();
    test_module_gone();
    test_handles_come_and_go();
    test_too_many();
    test_threads();
    return expect_status();
}
