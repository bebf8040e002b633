/*
 * The stopwatch, with a driver that has a clock of its own. The tests check its reports of launches
 * and waits, their time and their order. A steady program makes no events.
 */
#include <stdlib.h>

#include "cuda/driver.h"
#include "cuda/streams.h"
#include "expect.h"
#include "residency/stopwatch.h"

#define EVENTS_MAX 16384u
#define SAMPLES 8192u
#define MS UINT64_C(1000000)

/* ---- the driver ---- */

static struct {
    uint64_t at_ns; /* the stream's place, in device time */
    bool alive;
} events[EVENTS_MAX];
static unsigned made, destroyed, records;
static uint64_t queued_ns;              /* device time at the end of the queued work, on any stream */
static uint64_t device_ns = UINT64_MAX; /* the device time that the device has reached */

static CUresult CUDAAPI create_event(CUevent *event, unsigned int flags)
{
    (void)flags;
    if (made + 1 == EVENTS_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    events[++made].alive = true;
    *event = (CUevent)(uintptr_t)made; /* NOLINT(performance-no-int-to-ptr): never followed */
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI destroy_event(CUevent event)
{
    EXPECT(events[(uintptr_t)event].alive);
    events[(uintptr_t)event].alive = false;
    destroyed++;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI record_event(CUevent event, CUstream stream)
{
    (void)stream;
    EXPECT(events[(uintptr_t)event].alive);
    events[(uintptr_t)event].at_ns = queued_ns;
    records++;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI query_event(CUevent event)
{
    return events[(uintptr_t)event].at_ns <= device_ns ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult CUDAAPI elapsed(float *ms, CUevent from, CUevent to)
{
    *ms = (float)(events[(uintptr_t)to].at_ns - events[(uintptr_t)from].at_ns) / 1e6f;
    return CUDA_SUCCESS;
}

/* ---- steps ---- */

static struct ps_stream *stream, *other;
static struct ps_stopwatch_sample samples[SAMPLES];
static uint64_t launches;

static void launch(struct ps_stream *on, uint64_t ns)
{
    ps_stopwatch_launch_begins(on, launches);
    queued_ns += ns;
    ps_stopwatch_launch_ends(on, launches++);
}

static void wait_then_launch(uint64_t wait_ns, uint64_t ns)
{
    ps_stopwatch_wait_begins(stream);
    queued_ns += wait_ns;
    launch(stream, ns);
}

/* Clears what the previous test left. */
static void begin(void)
{
    device_ns = UINT64_MAX;
    ps_stopwatch_learn(false);
    launch(stream, 0);
    while (ps_stopwatch_read(samples, SAMPLES))
        continue;
    launches = 100;
    records = 0;
}

static void expect_sample(const struct ps_stopwatch_sample *s, uint64_t number, uint64_t ns, bool waited)
{
    EXPECT_U64(number, s->launch);
    EXPECT_U64(ns / 1000, (s->ns + 500) / 1000); /* the driver tells milliseconds as a float */
    EXPECT_INT(waited, s->waited);
}

/* ---- tests ---- */

static void test_durations_while_they_are_wanted(void)
{
    begin();
    ps_stopwatch_learn(true);
    launch(stream, 1 * MS); /* the first launch has no start time */
    launch(stream, 2 * MS);
    launch(stream, 3 * MS);
    EXPECT_U64(2, ps_stopwatch_read(samples, SAMPLES));
    expect_sample(&samples[0], 101, 2 * MS, false);
    expect_sample(&samples[1], 102, 3 * MS, false);
}

static void test_a_wait_is_no_part_of_the_launch_that_waits(void)
{
    begin();
    ps_stopwatch_learn(true);
    launch(stream, 1 * MS);
    wait_then_launch(7 * MS, 2 * MS);
    EXPECT_U64(2, ps_stopwatch_read(samples, SAMPLES));
    expect_sample(&samples[0], 101, 7 * MS, true);
    expect_sample(&samples[1], 101, 2 * MS, false);
}

static void test_waits_alone_when_durations_are_not_wanted(void)
{
    begin();
    for (int i = 0; i < 5; i++)
        launch(stream, 1 * MS);
    EXPECT_U64(0, records);
    wait_then_launch(4 * MS, 1 * MS);
    for (int i = 0; i < 5; i++)
        launch(stream, 1 * MS);
    EXPECT_U64(2, records);
    EXPECT_U64(1, ps_stopwatch_read(samples, SAMPLES));
    expect_sample(&samples[0], 105, 4 * MS, true);
}

/*
 * Several waits before one launch are one wait, from the first on. A wait of the host is one of the
 * main stream.
 */
static void test_waits_that_come_together(void)
{
    begin();
    ps_stopwatch_wait_begins(NULL);
    queued_ns += 3 * MS;
    ps_stopwatch_wait_begins(stream);
    queued_ns += 2 * MS;
    launch(stream, 1 * MS);
    EXPECT_U64(1, ps_stopwatch_read(samples, SAMPLES));
    expect_sample(&samples[0], 100, 5 * MS, true);
}

static void test_what_the_device_has_not_come_to_is_told_later(void)
{
    uint64_t oldest = 0;

    begin();
    uint64_t before = queued_ns;
    device_ns = before;
    wait_then_launch(2 * MS, 1 * MS);
    wait_then_launch(3 * MS, 1 * MS);
    EXPECT_U64(0, ps_stopwatch_read(samples, SAMPLES));
    EXPECT_U64(2, ps_stopwatch_outstanding(&oldest));
    EXPECT_U64(100, oldest);
    device_ns = before + 2 * MS;
    EXPECT_U64(1, ps_stopwatch_read(samples, SAMPLES));
    EXPECT_U64(1, ps_stopwatch_outstanding(&oldest));
    EXPECT_U64(101, oldest);
    device_ns = UINT64_MAX;
    EXPECT_U64(1, ps_stopwatch_read(samples, SAMPLES));
    expect_sample(&samples[0], 101, 3 * MS, true);
    EXPECT_U64(0, ps_stopwatch_outstanding(&oldest));
    EXPECT_U64(UINT64_MAX, oldest);
}

static void test_other_streams_are_not_timed(void)
{
    begin();
    ps_stopwatch_learn(true);
    launch(stream, 1 * MS);
    launch(other, 1 * MS);
    ps_stopwatch_wait_begins(other);
    launch(other, 1 * MS);
    EXPECT_U64(0, ps_stopwatch_read(samples, SAMPLES));
}

static void test_the_stream_that_launches_most_is_the_one(void)
{
    begin();
    ps_stopwatch_learn(true);
    for (int i = 0; i < 20000; i++) {
        launch(other, MS / 100);
        ps_stopwatch_read(samples, SAMPLES);
    }
    launch(other, 2 * MS);
    launch(other, 2 * MS);
    EXPECT_U64(2, ps_stopwatch_read(samples, SAMPLES));
    for (int i = 0; i < 40000; i++) /* and back */
        launch(stream, 1);
}

/*
 * FSDP's collectives are on several streams. Together these may launch more than the stream that
 * computes.
 */
static void test_many_streams_together_are_none(void)
{
    begin();
    ps_stopwatch_learn(true);
    for (uint64_t i = 0; i < 20000; i++) {
        bool computes = i % 5 < 2;
        launch(computes ? stream : ps_stream_find((CUstream)(uintptr_t)(100 + i % 5), false),
               1); /* NOLINT(performance-no-int-to-ptr) */
        ps_stopwatch_read(samples, SAMPLES);
    }
    launch(stream, 2 * MS);
    launch(stream, 2 * MS);
    EXPECT(ps_stopwatch_read(samples, SAMPLES) >= 1);
    for (int i = 0; i < 20000; i++) { /* a stream that launches hardly more */
        launch(i % 19 < 9 ? stream : other, 1);
        ps_stopwatch_read(samples, SAMPLES);
    }
    launch(stream, 3 * MS);
    size_t told = ps_stopwatch_read(samples, SAMPLES);
    EXPECT(told >= 1);
    expect_sample(&samples[told - 1], launches - 1, 3 * MS, false);
}

static void test_a_steady_program_makes_no_events(void)
{
    for (int round = 0; round < 5; round++) {
        unsigned made_before = made, destroyed_before = destroyed;
        begin();
        for (int i = 0; i < 100; i++) /* more waits than the host may be ahead of the device */
            wait_then_launch(1 * MS, 1 * MS);
        EXPECT_U64(100, ps_stopwatch_read(samples, SAMPLES));
        if (round) {
            EXPECT_U64(made_before, made);
            EXPECT_U64(destroyed_before, destroyed);
        }
    }
}

static void test_more_than_can_be_kept(void)
{
    uint64_t oldest;

    begin();
    device_ns = queued_ns;
    ps_stopwatch_learn(true);
    for (int i = 0; i < 6000; i++)
        launch(stream, 1 * MS);
    EXPECT(ps_stopwatch_outstanding(&oldest) >= 4000);
    device_ns = UINT64_MAX;
    size_t told = ps_stopwatch_read(samples, SAMPLES);
    EXPECT(told >= 4000 && told < 6000);
    expect_sample(&samples[0], 101, 1 * MS, false);
    launch(stream, 1 * MS); /* and then it goes on */
    launch(stream, 5 * MS);
    EXPECT_U64(1, ps_stopwatch_read(samples, SAMPLES));
    expect_sample(&samples[0], 6101, 5 * MS, false);
}

/* All streams belong to the one context. */
static CUresult CUDAAPI context_of_stream(CUstream of, CUcontext *context)
{
    (void)of;
    *context = NULL;
    return CUDA_SUCCESS;
}

int main(void)
{
    ps_cu = (struct ps_real_cuda){.cuStreamGetCtx = context_of_stream,
                                  .cuEventCreate = create_event,
                                  .cuEventDestroy = destroy_event,
                                  .cuEventRecord = record_event,
                                  .cuEventQuery = query_event,
                                  .cuEventElapsedTime = elapsed};
    stream = ps_stream_find((CUstream)(uintptr_t)64, false); /* NOLINT(performance-no-int-to-ptr): never followed */
    other = ps_stream_find((CUstream)(uintptr_t)128, false); /* NOLINT(performance-no-int-to-ptr) */
    test_durations_while_they_are_wanted();
    test_a_wait_is_no_part_of_the_launch_that_waits();
    test_waits_alone_when_durations_are_not_wanted();
    test_waits_that_come_together();
    test_what_the_device_has_not_come_to_is_told_later();
    test_other_streams_are_not_timed();
    test_the_stream_that_launches_most_is_the_one();
    test_many_streams_together_are_none();
    test_a_steady_program_makes_no_events();
    test_more_than_can_be_kept();
    return expect_status();
}
