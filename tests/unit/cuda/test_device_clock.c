/*
 * Device times on the host's clock, with a driver whose device has a clock of its own. That clock
 * began at another time and runs at another rate. It gives no time for an event that came before
 * another. Each answer must be right within its stated error, before the latest anchor and after
 * it.
 */
#include "cuda/device_clock.h"

#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "cuda/driver.h"
#include "expect.h"

#define EVENTS_MAX 2048u
#define US UINT64_C(1000)

/* ---- the driver ---- */

static uint64_t over_at[EVENTS_MAX]; /* by the host's clock */
static uintptr_t made;
static uint64_t delay_ns;    /* from a record to the time when the device comes to it */
static double rate = 1.0001; /* rate of the device's clock; real ones are ten times better */
static unsigned refused;

static uint64_t device_ns(uint64_t host_ns)
{
    return (uint64_t)((double)host_ns * rate) + 12345678901u;
}

static CUresult CUDAAPI create_event(CUevent *event, unsigned int flags)
{
    EXPECT_INT(CU_EVENT_DEFAULT, (int)flags); /* with timing */
    if (made + 1 == EVENTS_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *event = (CUevent)++made; /* NOLINT(performance-no-int-to-ptr): never followed */
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI record_event(CUevent event, CUstream stream)
{
    (void)stream;
    if (refused)
        return CUDA_ERROR_DEINITIALIZED;
    over_at[(uintptr_t)event] = ps_now_ns() + delay_ns;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI query_event(CUevent event)
{
    return over_at[(uintptr_t)event] <= ps_now_ns() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult CUDAAPI elapsed(float *ms, CUevent from, CUevent to)
{
    if (over_at[(uintptr_t)to] < over_at[(uintptr_t)from])
        return CUDA_ERROR_INVALID_VALUE;
    *ms = (float)((double)(int64_t)(device_ns(over_at[(uintptr_t)to]) - device_ns(over_at[(uintptr_t)from])) / 1e6);
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI priorities(int *least, int *greatest)
{
    *least = *greatest = 0;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI create_stream(CUstream *stream, unsigned int flags, int priority)
{
    (void)flags;
    (void)priority;
    *stream = (CUstream)64; /* NOLINT(performance-no-int-to-ptr) */
    return CUDA_SUCCESS;
}

/* ---- tests ---- */

static void pause_ns(long ns)
{
    struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

    nanosleep(&time, NULL);
}

/*
 * Checks the time of an event that the host saw over at `host_ns`. It must be right within the
 * stated error, plus the error of the rate and of the float.
 */
static void expect_right(CUevent event, uint64_t beside_ns)
{
    uint64_t told = 0, right = over_at[(uintptr_t)event];

    EXPECT(ps_device_clock_when(event, &told));
    uint64_t off = told > right ? told - right : right - told;
    if (!EXPECT(off <= ps_device_clock_error_ns() + beside_ns))
        fprintf(stderr, "off by %" PRIu64 " ns, %" PRIu64 " claimed\n", off, ps_device_clock_error_ns());
}

static void test_without_a_clock(void)
{
    uint64_t ns;

    EXPECT(!ps_device_clock_take());
    EXPECT(!ps_device_clock_when((CUevent)1, &ns)); /* NOLINT(performance-no-int-to-ptr) */
    ps_device_clock_give(NULL);
}

static void test_marks(void)
{
    static struct ps_device_mark *taken[EVENTS_MAX];
    unsigned n = 0;

    while ((taken[n] = ps_device_clock_take()))
        n++;
    EXPECT_U64(1024, n);
    for (unsigned i = 0; i < n; i += 2)
        ps_device_clock_give(taken[i]);
    unsigned again = 0;
    while (ps_device_clock_take())
        again++;
    EXPECT_U64(512, again);
    for (unsigned i = 0; i < n; i++)
        ps_device_clock_give(taken[i]);
}

static void test_times(void)
{
    struct ps_device_mark *before = ps_device_clock_take(), *after = ps_device_clock_take();

    delay_ns = 20 * US; /* the device's delay before an event is part of the error */
    record_event(before->event, NULL);
    pause_ns(1100000000); /* the anchor is old by then */
    ps_device_clock_renew();
    record_event(after->event, NULL);
    pause_ns(1000000);
    EXPECT(ps_device_clock_error_ns() >= 10 * US && ps_device_clock_error_ns() < 3000 * US);
    /* A tenth of a per mille in 1.1 s is 110 us: the rate is known by now. */
    expect_right(before->event, 1000);
    expect_right(after->event, 1000);
    ps_device_clock_give(before);
    ps_device_clock_give(after);
}

/*
 * A device that does not come to our event leaves the anchor as it was, and no thread waits long.
 */
static void test_a_device_that_is_late(void)
{
    uint64_t told_before = 0, told_after = 0;
    struct ps_device_mark *mark = ps_device_clock_take();

    record_event(mark->event, NULL);
    pause_ns(1100000000);
    EXPECT(ps_device_clock_when(mark->event, &told_before));
    uint64_t error = ps_device_clock_error_ns();
    delay_ns = 5000000000u;
    uint64_t began = ps_now_ns();
    ps_device_clock_renew();
    EXPECT(ps_now_ns() - began < 500000000u);
    EXPECT(ps_device_clock_when(mark->event, &told_after));
    EXPECT_U64(told_before, told_after);
    EXPECT_U64(error, ps_device_clock_error_ns());
    delay_ns = 0;
    ps_device_clock_give(mark);
}

int main(void)
{
    ps_cu = (struct ps_real_cuda){.cuEventCreate = create_event,
                                  .cuEventRecord = record_event,
                                  .cuEventQuery = query_event,
                                  .cuEventElapsedTime = elapsed,
                                  .cuCtxGetStreamPriorityRange = priorities,
                                  .cuStreamCreateWithPriority = create_stream};
    test_without_a_clock();
    EXPECT_INT(0, ps_device_clock_open());
    test_marks();
    test_times();
    test_times();
    test_a_device_that_is_late();
    refused = 1;
    pause_ns(1100000000);
    ps_device_clock_renew();
    return expect_status();
}
