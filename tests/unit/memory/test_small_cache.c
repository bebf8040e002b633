/*
 * Small blocks that the program freed. The tests check which request gets which block again. They
 * also check which blocks go back to the driver and where, and which are forgotten.
 */
#include "memory/small_cache.h"

#include "base/counters.h"
#include "cuda/device_memory.h"
#include "cuda/driver.h"
#include "cuda/streams.h"
#include "expect.h"
#include "memory/budget.h"
#include "stub_driver.h"

#define MIB ((size_t)1 << 20)
#define A ((CUdeviceptr)0x700000000000)
#define B (A + MIB)
#define C (B + MIB)

static int context_object, other_context_object;
#define CONTEXT ((CUcontext)&context_object)

static struct ps_stream first = {.handle = (CUstream)0x10, .index = 0}, second = {.handle = (CUstream)0x20, .index = 1};
static struct ps_stream elsewhere = {.handle = (CUstream)0x30, .index = 2};

static CUdeviceptr freed[8];
static CUstream freed_on[8];
static unsigned frees;
static CUresult free_result;

static CUresult CUDAAPI free_async(CUdeviceptr address, CUstream stream)
{
    freed[frees % 8] = address;
    freed_on[frees++ % 8] = stream;
    return free_result;
}

static CUresult CUDAAPI get_current(CUcontext *context)
{
    *context = CONTEXT;
    return CUDA_SUCCESS;
}

static void test_again(void)
{
    EXPECT_U64(512, ps_small_bytes(1));
    EXPECT_U64(512, ps_small_bytes(512));
    EXPECT_U64(1024, ps_small_bytes(513));
    EXPECT(!ps_small_are_known());
    EXPECT_U64(0, ps_small_take(&first, 1024));
    EXPECT_INT(PS_SMALL_UNKNOWN, ps_small_free(A, &first)); /* a block of the driver's, from before */
    ps_small_note(A, 1024);
    EXPECT(ps_small_are_known());
    ps_small_note(B, 1024);
    EXPECT_INT(PS_SMALL_KEPT, ps_small_free(A, &first));
    EXPECT_U64(1024, ps_small_kept());
    EXPECT_INT(PS_SMALL_TWICE, ps_small_free(A, &first));
    EXPECT_INT(PS_SMALL_TWICE, ps_small_free(A, NULL));
    EXPECT_U64(0, ps_small_take(&first, 512));
    EXPECT_U64(0, ps_small_take(&second, 1024));
    EXPECT_INT(PS_SMALL_KEPT, ps_small_free(B, &first));
    EXPECT_U64(B, ps_small_take(&first, 1024)); /* the last one first: it may be in the cache */
    EXPECT_U64(A, ps_small_take(&first, 1024));
    EXPECT_U64(0, ps_small_take(&first, 1024));
    EXPECT_U64(0, ps_small_kept());
    EXPECT_U64(2, ps_counted(small_reused));
    /* The stream of its free counts, not that of its allocation. */
    EXPECT_INT(PS_SMALL_KEPT, ps_small_free(A, &second));
    EXPECT_U64(0, ps_small_take(&first, 1024));
    EXPECT_U64(A, ps_small_take(&second, 1024));
    /* Freed at once, it is the driver's, and nothing is known of it. */
    EXPECT_INT(PS_SMALL_UNKNOWN, ps_small_free(A, NULL));
    EXPECT_INT(PS_SMALL_UNKNOWN, ps_small_free(A, &first));
    /* The driver gives out an address that was never returned to it here: it must know. */
    EXPECT_INT(PS_SMALL_KEPT, ps_small_free(B, &first));
    ps_small_note(B, 2048);
    EXPECT_U64(0, ps_small_take(&first, 1024));
    EXPECT_INT(PS_SMALL_KEPT, ps_small_free(B, &first));
    EXPECT_U64(B, ps_small_take(&first, 2048));
    EXPECT_INT(PS_SMALL_UNKNOWN, ps_small_free(B, NULL));
    EXPECT_U64(0, frees);
}

static void test_given_back(void)
{
    ps_small_note(A, 512);
    ps_small_note(B, 512);
    ps_small_note(C, 512);
    EXPECT(!ps_small_give_back());
    EXPECT_INT(PS_SMALL_KEPT, ps_small_free(A, &first));
    EXPECT_INT(PS_SMALL_KEPT, ps_small_free(B, &second));
    /* On a stream without requests, a kept block would serve no request. */
    EXPECT_INT(PS_SMALL_UNKNOWN, ps_small_free(C, &elsewhere));
    EXPECT_U64(0, ps_small_take(&elsewhere, 512));
    ps_small_note(C, 512);
    EXPECT_INT(PS_SMALL_KEPT, ps_small_free(C, &elsewhere));
    EXPECT_U64(1024, ps_small_kept()); /* of this device */
    ps_small_give_back_of((CUstream)0x40);
    EXPECT_U64(0, frees);
    ps_small_give_back_of(second.handle);
    EXPECT_U64(1, frees);
    EXPECT_U64(B, freed[0]);
    EXPECT(freed_on[0] == second.handle);
    EXPECT(ps_small_give_back());
    EXPECT_U64(2, frees);
    EXPECT_U64(A, freed[1]);
    EXPECT(freed_on[1] == first.handle);
    EXPECT_U64(C, ps_small_take(&elsewhere, 512)); /* another context's stays */
    EXPECT_INT(PS_SMALL_UNKNOWN, ps_small_free(A, &first));
    EXPECT_INT(PS_SMALL_KEPT, ps_small_free(C, &first));
    EXPECT_U64(0, ps_counted(small_lost));
    free_result = CUDA_ERROR_INVALID_VALUE;
    EXPECT(ps_small_give_back());
    EXPECT_U64(1, ps_counted(small_lost));
    free_result = CUDA_SUCCESS;
}

/* Keeps `count` blocks of a MiB on the stream, from that one on. */
static void keep(struct ps_stream *stream, unsigned from, unsigned count)
{
    for (unsigned i = from; i < from + count; i++) {
        ps_small_note(A + i * MIB, MIB);
        EXPECT_INT(PS_SMALL_KEPT, ps_small_free(A + i * MIB, stream));
    }
}

static void test_excess(void)
{
    ps_budget.limit = UINT64_MAX;
    keep(&first, 0, 60);
    EXPECT_U64(0, ps_small_excess(&first));
    keep(&second, 60, 6);
    EXPECT_U64(A + 60 * MIB, ps_small_excess(&second)); /* its own block, though others were kept longer */
    EXPECT_U64(A, ps_small_excess(&first));
    EXPECT_U64(0, ps_small_excess(&first));
    EXPECT_U64(64 * MIB, ps_small_kept());
    /* If far too much is kept already, a freed block is not kept. */
    keep(&first, 66, 64);
    ps_small_note(A + 200 * MIB, MIB);
    EXPECT_INT(PS_SMALL_UNKNOWN, ps_small_free(A + 200 * MIB, &first));
    EXPECT(ps_small_give_back());
    /* A small budget keeps little. */
    ps_budget.limit = 256 * MIB;
    keep(&first, 0, 3);
    EXPECT_U64(A, ps_small_excess(&first));
    EXPECT_U64(0, ps_small_excess(&first));
    EXPECT(ps_small_give_back());
    EXPECT_U64(0, ps_small_kept());
}

int main(void)
{
    ps_cu.cuCtxGetCurrent = get_current;
    ps_cu.cuMemFreeAsync = free_async;
    ps_device.context = first.context = second.context = CONTEXT;
    elsewhere.context = (CUcontext)&other_context_object;
    ps_budget.limit = UINT64_MAX;
    test_again();
    test_given_back();
    test_excess();
    return expect_status();
}
