/*
 * Calls that a capture forbids, with the simulated driver. Another thread begins a capture in the
 * global mode when this one is inside Penstock already, so that no check beforehand sees it. The
 * calls that follow leave the capture valid, and afterwards the thread has its own mode again. A
 * thread that makes no such call exchanges no mode.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda/capture.h"
#include "cuda/capture_mode.h"
#include "cuda/driver.h"
#include "expect.h"
#include "sim_driver.h"

static CUcontext context;
static CUresult (*real_exchange)(CUstreamCaptureMode *);
static __thread unsigned exchanges; /* made by this thread */

static CUresult CUDAAPI exchange(CUstreamCaptureMode *mode)
{
    exchanges++;
    return real_exchange(mode);
}

static CUresult (*begin_capture)(CUstream, CUstreamCaptureMode);
static CUresult (*end_capture)(CUstream, CUgraph *);
static CUresult (*destroy_graph)(CUgraph);

static bool begin_driver(void)
{
    if (!sim_driver_begin(&context))
        return false;
    begin_capture = (__typeof__(begin_capture))ps_real_cuda_symbol("cuStreamBeginCapture_v2");
    end_capture = (__typeof__(end_capture))ps_real_cuda_symbol("cuStreamEndCapture");
    destroy_graph = (__typeof__(destroy_graph))ps_real_cuda_symbol("cuGraphDestroy");
    real_exchange = ps_cu.cuThreadExchangeStreamCaptureMode;
    ps_cu.cuThreadExchangeStreamCaptureMode = exchange;
    return true;
}

/* ---- another thread's capture ---- */

static struct {
    pthread_t thread;
    sem_t begun, enough;
    CUresult ended;
} other;

static void *capture(void *unused)
{
    CUstream stream;
    CUgraph graph = NULL;

    (void)unused;
    EXPECT(!ps_cu.cuCtxSetCurrent(context));
    EXPECT(!ps_cu.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
    EXPECT(!begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    sem_post(&other.begun);
    sem_wait(&other.enough);
    other.ended = end_capture(stream, &graph);
    if (graph)
        destroy_graph(graph);
    ps_cu.cuStreamDestroy(stream);
    return NULL;
}

static void begin_other(void)
{
    sem_init(&other.begun, 0, 0);
    sem_init(&other.enough, 0, 0);
    EXPECT(!pthread_create(&other.thread, NULL, capture, NULL));
    sem_wait(&other.begun);
}

static CUresult end_other(void)
{
    sem_post(&other.enough);
    pthread_join(other.thread, NULL);
    return other.ended;
}

/* ---- what captures forbid ---- */

static void make_and_map(void)
{
    const CUmemAllocationProp what = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemAccessDesc access = {.location = what.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle pages;
    CUdeviceptr address;
    size_t bytes;

    EXPECT(!ps_cu.cuMemGetAllocationGranularity(&bytes, &what, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    EXPECT(!ps_cu.cuMemAddressReserve(&address, bytes, 0, 0, 0));
    EXPECT(!ps_cu.cuMemCreate(&pages, bytes, &what, 0));
    EXPECT(!ps_cu.cuMemMap(address, bytes, 0, pages, 0));
    EXPECT(!ps_cu.cuMemSetAccess(address, bytes, &access, 1));
    EXPECT(!ps_cu.cuMemUnmap(address, bytes));
    EXPECT(!ps_cu.cuMemRelease(pages));
    EXPECT(!ps_cu.cuMemAddressFree(address, bytes));
}

static void register_memory(void)
{
    void *start = aligned_alloc(4096, 4096);

    EXPECT(!ps_cu.cuMemHostRegister(start, 4096, 0));
    EXPECT(!ps_cu.cuMemHostUnregister(start));
    free(start);
}

static void ask_and_wait(void)
{
    CUstream stream;
    CUevent event;

    EXPECT(!ps_cu.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
    EXPECT(!ps_cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) && !ps_cu.cuEventRecord(event, stream));
    while (ps_cu.cuEventQuery(event) == CUDA_ERROR_NOT_READY)
        usleep(100);
    EXPECT(!ps_cu.cuEventSynchronize(event));
    EXPECT(!ps_cu.cuStreamSynchronize(stream));
    EXPECT(!ps_cu.cuEventDestroy(event) && !ps_cu.cuStreamDestroy(stream));
}

static void (*const forbidden[])(void) = {make_and_map, register_memory, ask_and_wait};
#define FORBIDDEN (sizeof forbidden / sizeof *forbidden)

/* ---- the tests ---- */

static CUstreamCaptureMode own_mode(CUstreamCaptureMode next)
{
    EXPECT(!real_exchange(&next));
    return next;
}

static void a_capture_that_begins_meanwhile_stays_valid(void)
{
    for (size_t i = 0; i < FORBIDDEN; i++) {
        ps_capture_enter();
        begin_other();
        forbidden[i]();
        ps_capture_mode_leave();
        EXPECT_INT(CUDA_SUCCESS, end_other());
        EXPECT_INT(CU_STREAM_CAPTURE_MODE_GLOBAL, own_mode(CU_STREAM_CAPTURE_MODE_GLOBAL));
    }
}

/* As at the start, when not every call comes from a function that has entered. */
static void so_does_one_beside_calls_that_stand_alone(void)
{
    for (size_t i = 0; i < FORBIDDEN; i++) {
        begin_other();
        forbidden[i]();
        EXPECT_INT(CU_STREAM_CAPTURE_MODE_GLOBAL, own_mode(CU_STREAM_CAPTURE_MODE_GLOBAL));
        EXPECT_INT(CUDA_SUCCESS, end_other());
    }
}

/* A call of the program that is passed on is refused as it is without Penstock. */
static void calls_that_are_passed_on_are_forbidden(void)
{
    CUevent event;

    EXPECT(!ps_cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    begin_other();
    EXPECT_INT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, ps_cu_as_is.cuEventQuery(event));
    EXPECT_INT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end_other());
    EXPECT(!ps_cu.cuEventDestroy(event));
}

static void the_program_keeps_its_mode(void)
{
    static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                                CU_STREAM_CAPTURE_MODE_RELAXED};

    for (size_t i = 0; i < 3; i++) {
        own_mode(modes[i]);
        ps_capture_enter();
        ps_capture_enter();
        ask_and_wait();
        ps_capture_mode_leave();
        /* The outer stay goes on. */
        EXPECT_INT(CU_STREAM_CAPTURE_MODE_RELAXED, own_mode(CU_STREAM_CAPTURE_MODE_RELAXED));
        ask_and_wait();
        ps_capture_mode_leave();
        EXPECT_INT((int)modes[i], own_mode(CU_STREAM_CAPTURE_MODE_GLOBAL));
    }
}

static void modes_are_exchanged_only_where_needed(void)
{
    CUcontext now;

    exchanges = 0;
    ps_capture_enter();
    ps_capture_enter();
    EXPECT(!ps_cu.cuCtxGetCurrent(&now));
    ps_capture_mode_leave();
    ps_capture_mode_leave();
    EXPECT_INT(0, exchanges);
    ps_capture_enter();
    ask_and_wait();
    make_and_map();
    ps_capture_mode_leave();
    EXPECT_INT(2, exchanges);
}

static void *of_penstock(void *unused)
{
    EXPECT(!ps_cu.cuCtxSetCurrent(context));
    ps_capture_mode_relax_for_good();
    exchanges = 0;
    for (size_t i = 0; i < FORBIDDEN; i++) {
        begin_other();
        forbidden[i]();
        EXPECT_INT(CUDA_SUCCESS, end_other());
    }
    EXPECT_INT(0, exchanges);
    return unused;
}

static void penstocks_own_threads_are_relaxed_for_good(void)
{
    pthread_t thread;

    EXPECT(!pthread_create(&thread, NULL, of_penstock, NULL));
    pthread_join(thread, NULL);
}

int main(void)
{
    alarm(60);
    if (!begin_driver())
        return 77;
    a_capture_that_begins_meanwhile_stays_valid();
    so_does_one_beside_calls_that_stand_alone();
    calls_that_are_passed_on_are_forbidden();
    the_program_keeps_its_mode();
    modes_are_exchanged_only_where_needed();
    penstocks_own_threads_are_relaxed_for_good();
    return expect_status();
}
