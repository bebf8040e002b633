/*
 * The program's own copies beside Penstock's, on the simulated device. Its copy engines stay with a
 * stream, as a GPU's do. The loader's path finds it, as scripts/dev/test sets it; without it the
 * test is skipped. The program's copies get their turn between two pieces of a queued copy.
 * test_copy_gate.c tests the pieces.
 */
#include <stdlib.h>

#include "cuda/copy_gate.h"
#include "cuda/driver.h"
#include "expect.h"
#include "sim_driver.h"

#define PAGE ((size_t)4096)
#define BYTES (128 * PAGE) /* 131 ms at this test's rate; eight pieces */
#define OWN_BYTES PAGE

static CUresult (*create_stream)(CUstream *, unsigned int);
static CUresult (*destroy_stream)(CUstream);
static CUresult (*synchronize)(void);

/* The memory of one copy each way: of Penstock's, and of the program's. */
struct memory {
    CUdeviceptr device, host, own_device, own_host;
};

static bool begin_driver(void)
{
    CUcontext context = NULL;

    setenv("CUDASIM_D2H_GBPS", "0.004", 1);
    setenv("CUDASIM_H2D_GBPS", "0.004", 1);
    if (!sim_driver_begin(&context))
        return false;
    create_stream = (__typeof__(create_stream))ps_real_cuda_symbol("cuStreamCreate");
    destroy_stream = (__typeof__(destroy_stream))ps_real_cuda_symbol("cuStreamDestroy_v2");
    synchronize = (__typeof__(synchronize))ps_real_cuda_symbol("cuCtxSynchronize");
    return true;
}

static bool begin_memory(struct memory *m)
{
    CUresult (*allocate)(CUdeviceptr *, size_t) = (__typeof__(allocate))ps_real_cuda_symbol("cuMemAlloc_v2");
    CUresult (*allocate_host)(void **, size_t, unsigned int) =
        (__typeof__(allocate_host))ps_real_cuda_symbol("cuMemHostAlloc");
    void *host = NULL;
    const bool well = !allocate(&m->device, BYTES) && !allocate(&m->own_device, OWN_BYTES) &&
                      !allocate_host(&host, BYTES + OWN_BYTES, 0);

    m->host = (CUdeviceptr)(uintptr_t)host;
    m->own_host = m->host + BYTES;
    return EXPECT(well);
}

static CUevent record(CUstream stream)
{
    CUevent event = NULL;

    EXPECT(!ps_cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) && !ps_cu.cuEventRecord(event, stream));
    return event;
}

/*
 * Returns whether the program's copy comes between two of Penstock's. It is queued when both are
 * queued and the first has begun.
 */
static bool comes_between(const struct memory *m, enum ps_copy_gate_way way, CUstream ours, CUstream own)
{
    CUdeviceptr to = way == PS_COPY_GATE_OUT ? m->host : m->device,
                from = way == PS_COPY_GATE_OUT ? m->device : m->host;

    EXPECT_INT(0, ps_copy_gate_copy(ours, way, to, from, BYTES / 8));
    CUevent begun = record(ours);
    EXPECT_INT(0, ps_copy_gate_copy(ours, way, to, from, BYTES));
    CUevent over = record(ours);
    EXPECT(!ps_cu.cuEventSynchronize(begun));
    to = way == PS_COPY_GATE_OUT ? m->own_host : m->own_device,
    from = way == PS_COPY_GATE_OUT ? m->own_device : m->own_host;
    EXPECT(!ps_cu.cuMemcpyAsync(to, from, OWN_BYTES, own) && !ps_cu.cuStreamSynchronize(own));
    const bool between = ps_cu.cuEventQuery(over) == CUDA_ERROR_NOT_READY;
    EXPECT(!synchronize() && !ps_cu.cuEventDestroy(begun) && !ps_cu.cuEventDestroy(over));
    return between;
}

int main(void)
{
    struct memory memory = {0};
    CUstream ours = NULL, own = NULL;

    if (!begin_driver()) {
        printf("no simulated driver in the loader's path\n");
        return 0;
    }
    EXPECT(!create_stream(&ours, CU_STREAM_NON_BLOCKING) && !create_stream(&own, CU_STREAM_NON_BLOCKING));
    if (begin_memory(&memory)) {
        /* there is no gate yet: the copy is one piece, without a look */
        for (enum ps_copy_gate_way way = 0; way < PS_COPY_GATE_WAYS; way++)
            EXPECT(!comes_between(&memory, way, ours, own));
        ps_copy_gate_make(ours, PAGE);
        /* A GPU sends copies as small as these along with the command. */
        ps_copy_gate_program_copies_in(2 * OWN_BYTES);
        for (enum ps_copy_gate_way way = 0; way < PS_COPY_GATE_WAYS; way++) {
            bool between = false;
            for (int i = 0; i < 5 && !between; i++) /* a late thread finds all of them over */
                between = comes_between(&memory, way, ours, own);
            EXPECT(between);
        }
    }
    EXPECT(!destroy_stream(ours) && !destroy_stream(own));
    return expect_status();
}
