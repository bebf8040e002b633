/*
 * Streams and positions in them, with the simulated driver. The loader's path finds it, as
 * scripts/dev/test sets it; without it the test is skipped. A gate is a host function on a stream.
 * Work behind it stands still until the test opens it, so nothing here depends on time.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "comes_to.h"
#include "cuda/capture.h"
#include "cuda/driver.h"
#include "cuda/streams.h"
#include "expect.h"
#include "residency/run_ahead.h"
#include "sim_driver.h"

static CUresult (*launch_host_function)(CUstream, CUhostFn, void *);
static CUresult (*create_stream)(CUstream *, unsigned int);
static CUresult (*destroy_stream)(CUstream);
static CUresult (*query_stream)(CUstream);
static CUcontext context;

static bool begin_driver(void)
{
    if (!sim_driver_begin(&context))
        return false;
    launch_host_function = (__typeof__(launch_host_function))ps_real_cuda_symbol("cuLaunchHostFunc");
    create_stream = (__typeof__(create_stream))ps_real_cuda_symbol("cuStreamCreate");
    destroy_stream = (__typeof__(destroy_stream))ps_real_cuda_symbol("cuStreamDestroy_v2");
    query_stream = (__typeof__(query_stream))ps_real_cuda_symbol("cuStreamQuery");
    return true;
}

/* ---- gates ---- */

struct gate {
    sem_t open;
};

static void CUDA_CB wait_at_gate(void *gate)
{
    sem_wait(&((struct gate *)gate)->open);
}

static void CUDA_CB do_nothing(void *unused)
{
    (void)unused;
}

static void close_gate(struct gate *gate, CUstream stream)
{
    sem_init(&gate->open, 0, 0);
    EXPECT(launch_host_function(stream, wait_at_gate, gate) == CUDA_SUCCESS);
}

static void open_gate(struct gate *gate)
{
    sem_post(&gate->open);
}

static struct ps_stream *new_stream(void)
{
    CUstream handle = NULL;

    EXPECT(create_stream(&handle, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    return ps_stream_find(handle, false);
}

static void end_stream(struct ps_stream *stream)
{
    CUstream handle = stream->handle;

    ps_stream_retire(handle);
    EXPECT(destroy_stream(handle) == CUDA_SUCCESS);
}

static struct ps_uses used_on(struct ps_stream *stream)
{
    struct ps_uses uses;

    ps_uses_clear(&uses);
    ps_uses_note(&uses, stream);
    return uses;
}

/* ---- which stream ---- */

static void *find_per_thread(void *unused)
{
    (void)unused;
    return ps_stream_find(CU_STREAM_PER_THREAD, false);
}

static void *tick_it(void *stream)
{
    EXPECT(ps_cu.cuCtxSetCurrent(context) == CUDA_SUCCESS);
    return (void *)(intptr_t)ps_stream_tick(stream);
}

static void *in_thread(void *(*run)(void *), void *argument)
{
    pthread_t thread;
    void *result = NULL;

    EXPECT(!pthread_create(&thread, NULL, run, argument) && !pthread_join(thread, &result));
    return result;
}

static void test_one_entry_a_stream(void)
{
    struct ps_stream *legacy = ps_stream_find(NULL, false), *mine = ps_stream_find(NULL, true), *made = new_stream();
    struct ps_stream *theirs = in_thread(find_per_thread, NULL);

    EXPECT(legacy == ps_stream_find(CU_STREAM_LEGACY, false) && legacy == ps_stream_find(CU_STREAM_LEGACY, true));
    EXPECT(mine == ps_stream_find(CU_STREAM_PER_THREAD, false) && mine != legacy);
    EXPECT(made == ps_stream_find(made->handle, false) && made == ps_stream_find(made->handle, true) &&
           made != legacy && made != mine);
    EXPECT(mine->per_thread && !legacy->per_thread && !made->per_thread);
    EXPECT(theirs != mine && theirs->per_thread);
    EXPECT(ps_streams_count() >= 4 && ps_streams_at(made->index) == made);
    /* Another thread can't name a thread's own stream, so it can't record on it either. */
    EXPECT_INT(0, ps_stream_tick(mine));
    EXPECT_INT(-EXDEV, (long)(intptr_t)in_thread(tick_it, mine));
    EXPECT_INT(0, (long)(intptr_t)in_thread(tick_it, made));
    end_stream(made);
}

/* ---- what a use waits for ---- */

static void test_a_use_waits_for_what_was_queued_before_it(void)
{
    struct ps_stream *stream = new_stream();
    struct gate gate;
    struct ps_uses uses;

    close_gate(&gate, stream->handle);
    uses = used_on(stream);
    EXPECT_INT(0, ps_uses_query(&uses));
    open_gate(&gate);
    EXPECT_INT(0, ps_uses_host_wait(&uses));
    EXPECT_INT(1, ps_uses_query(&uses));
    end_stream(stream);
}

static void test_a_use_does_not_wait_for_what_comes_after_its_tick(void)
{
    struct ps_stream *stream = new_stream();
    struct gate gate;
    struct ps_uses before = used_on(stream), after;

    EXPECT_INT(0, ps_stream_tick(stream));
    close_gate(&gate, stream->handle);
    after = used_on(stream);
    EXPECT(after.use[0].tick > before.use[0].tick);
    EXPECT_INT(0, ps_uses_host_wait(&before));
    EXPECT_INT(0, ps_uses_query(&after));
    /* A use noted again waits for the later tick. */
    ps_uses_note(&before, stream);
    EXPECT_U64(1, before.count);
    EXPECT_INT(0, ps_uses_query(&before));
    open_gate(&gate);
    EXPECT_INT(0, ps_uses_host_wait(&after));
    end_stream(stream);
}

static void test_a_stream_waits(void)
{
    struct ps_stream *user = new_stream(), *waiter = new_stream(), *third = new_stream();
    struct gate gate;
    struct ps_uses uses;

    close_gate(&gate, user->handle);
    uses = used_on(user);
    EXPECT_INT(0, ps_stream_comes_after_uses(waiter, &uses));
    EXPECT_INT(0, ps_stream_comes_after_uses(user, &uses)); /* the user's own work is ordered already */
    EXPECT(launch_host_function(waiter->handle, do_nothing, NULL) == CUDA_SUCCESS);
    EXPECT(launch_host_function(third->handle, do_nothing, NULL) == CUDA_SUCCESS);
    EXPECT(ps_cu.cuStreamSynchronize(third->handle) == CUDA_SUCCESS);
    EXPECT(query_stream(waiter->handle) == CUDA_ERROR_NOT_READY);
    open_gate(&gate);
    EXPECT(ps_cu.cuStreamSynchronize(waiter->handle) == CUDA_SUCCESS);
    EXPECT_INT(1, ps_uses_query(&uses));
    end_stream(user);
    end_stream(waiter);
    end_stream(third);
}

/*
 * The ring comes round: the event of an old tick is now that of a later one. A wait for it lasts
 * longer, never too short.
 */
static void test_a_tick_that_was_overwritten_still_waits(void)
{
    struct ps_stream *stream = new_stream();
    struct gate gate;
    struct ps_uses uses;

    close_gate(&gate, stream->handle);
    uses = used_on(stream);
    for (unsigned i = 0; i < 2 * PS_TICK_RING + 3; i++)
        EXPECT_INT(0, ps_stream_tick(stream));
    EXPECT_INT(0, ps_uses_query(&uses));
    open_gate(&gate);
    EXPECT_INT(0, ps_uses_host_wait(&uses));
    EXPECT_U64(2 * PS_TICK_RING + 3, atomic_load(&stream->recorded)); /* the wait itself needed no event of its own */
    EXPECT_INT(1, ps_uses_query(&uses));
    end_stream(stream);
}

/* ---- several streams ---- */

#define MANY (PS_USES + 2)

static void test_more_streams_than_fit_means_everywhere(void)
{
    struct ps_stream *stream[MANY];
    struct gate gate[MANY];
    struct ps_uses uses, merged, all;

    ps_uses_clear(&uses);
    ps_uses_clear(&merged);
    for (unsigned i = 0; i < MANY; i++) {
        stream[i] = new_stream();
        close_gate(&gate[i], stream[i]->handle);
        struct ps_uses one = used_on(stream[i]);
        ps_uses_note(&uses, stream[i]);
        ps_uses_merge(&merged, &one);
        EXPECT((uses.everywhere != 0) == (i >= PS_USES) && !merged.everywhere == !uses.everywhere);
    }
    ps_uses_clear(&all);
    ps_uses_note_all_streams(&all);
    EXPECT(all.everywhere);
    /* All streams but one may go. The remaining one is still waited for, whichever it is. */
    for (unsigned i = 0; i + 1 < MANY; i++)
        open_gate(&gate[i]);
    EXPECT_INT(0, ps_uses_query(&uses));
    EXPECT_INT(0, ps_uses_query(&merged));
    EXPECT_INT(0, ps_uses_query(&all));
    open_gate(&gate[MANY - 1]);
    EXPECT_INT(0, ps_uses_host_wait(&uses));
    EXPECT_INT(0, ps_uses_host_wait(&merged));
    EXPECT_INT(0, ps_uses_host_wait(&all));
    for (unsigned i = 0; i < MANY; i++)
        end_stream(stream[i]);
}

static void test_a_merge_keeps_the_later_tick_of_each_stream(void)
{
    struct ps_stream *a = new_stream(), *b = new_stream();
    struct ps_uses early = used_on(a), late;

    EXPECT_INT(0, ps_stream_tick(a));
    late = used_on(a);
    ps_uses_note(&late, b);
    ps_uses_merge(&early, &late);
    EXPECT_U64(2, early.count);
    EXPECT_U64(late.use[0].tick, early.use[0].tick);
    struct ps_uses copy = late, old = {.use = {{a, 1}}, .count = 1};
    ps_uses_merge(&copy, &old);
    EXPECT_U64(2, copy.count);
    EXPECT_U64(late.use[0].tick, copy.use[0].tick);
    end_stream(a);
    end_stream(b);
}

/* ---- streams that go ---- */

static void test_a_destroyed_stream_is_waited_for_and_no_longer_used(void)
{
    struct ps_stream *stream = new_stream();
    struct gate gate;
    struct ps_uses uses;
    CUevent event;

    close_gate(&gate, stream->handle);
    uses = used_on(stream);
    end_stream(stream);
    EXPECT(atomic_load(&stream->gone));
    EXPECT_INT(0, ps_uses_query(&uses));
    EXPECT_INT(-ENOENT, ps_stream_tick(stream));
    EXPECT(ps_cu.cuEventCreate(&event, 0) == CUDA_SUCCESS);
    EXPECT_INT(-ENOENT, ps_stream_wait_event(stream, event));
    /* A use noted by a thread that held the stream when it went. */
    struct ps_uses late = used_on(stream);
    EXPECT_INT(0, ps_uses_query(&late));
    open_gate(&gate);
    EXPECT_INT(0, ps_uses_host_wait(&uses));
    EXPECT_INT(0, ps_uses_host_wait(&late));
    EXPECT_INT(1, ps_uses_query(&uses));
}

static void test_a_handle_that_comes_again_is_another_stream(void)
{
    struct ps_stream *first = new_stream();
    CUstream handle = first->handle;

    ps_stream_retire(handle);
    /*
     * The driver may give the next stream the same handle. Here the stream itself simply lives on.
     */
    struct ps_stream *second = ps_stream_find(handle, false);
    EXPECT(second != first || !atomic_load(&second->gone));
    EXPECT_INT(0, ps_stream_tick(second));
    ps_stream_retire(NULL); /* the default streams never go */
    ps_stream_retire(CU_STREAM_LEGACY);
    EXPECT(!atomic_load(&ps_stream_find(NULL, false)->gone));
    end_stream(second);
}

/*
 * Streams come and go. There is room for the first 64, whose places are not used again, and for a
 * few at a time.
 */
static void test_places_of_destroyed_streams_are_used_again(void)
{
    const uint32_t before = ps_streams_count();

    for (unsigned i = 0; i < 300; i++) {
        struct ps_stream *stream = new_stream();
        struct ps_uses uses = used_on(stream);
        EXPECT_INT(0, ps_uses_host_wait(&uses));
        end_stream(stream);
    }
    EXPECT(ps_streams_count() < (before > 64 ? before : 64) + 50);
}

/* A use may be noted after the stream's last record. */
static void test_a_use_of_a_destroyed_stream_is_no_use_of_the_next_in_its_place(void)
{
    struct ps_stream *old, *next;
    struct gate gate;

    while ((old = new_stream())->index < 64) {
    }
    atomic_store(&old->grace.came_back, 7);
    struct ps_uses uses = used_on(old);
    end_stream(old);
    ps_uses_note(&uses, old);
    EXPECT_INT(0, ps_uses_host_wait(&uses));
    while ((next = new_stream()) != old) { /* other places may be free */
    }
    EXPECT(ps_uses_are_marked(&uses));
    EXPECT_INT(0, (long long)atomic_load(&next->grace.came_back));
    close_gate(&gate, next->handle);
    EXPECT_INT(0, ps_stream_tick(next));
    EXPECT_INT(1, ps_uses_query(&uses));
    struct ps_uses later = used_on(next);
    EXPECT_INT(0, ps_uses_query(&later));
    open_gate(&gate);
    EXPECT_INT(0, ps_uses_host_wait(&later));
    end_stream(next);
}

/*
 * One thread asks the driver whether a destroyed stream's work is over. Meanwhile another thread's
 * new stream takes its place.
 */
static struct ps_stream *asked_about, *in_its_place;
static bool is_to_be_taken = true;
static __typeof__(ps_cu.cuEventQuery) query_event;

static CUresult CUDAAPI query_and_take_its_place(CUevent event)
{
    CUresult result = query_event(event);

    if (is_to_be_taken && event == asked_about->ring[atomic_load(&asked_about->recorded) % PS_TICK_RING]) {
        is_to_be_taken = false; /* the thread that takes the place asks too */
        for (unsigned i = 0; i < 1000 && in_its_place != asked_about; i++)
            in_its_place = new_stream(); /* other places may be free */
    }
    return result;
}

static void test_a_stream_in_a_destroyed_ones_place_is_not_over(void)
{
    struct ps_uses everywhere = {0};
    struct gate gate;

    while ((asked_about = new_stream())->index < 64) {
    }
    struct ps_uses uses = used_on(asked_about);
    EXPECT_INT(0, ps_uses_host_wait(&uses));
    end_stream(asked_about);
    ps_uses_note_everything(&everywhere);
    query_event = ps_cu.cuEventQuery;
    ps_cu.cuEventQuery = query_and_take_its_place;
    EXPECT_INT(0, ps_uses_host_wait(&everywhere));
    ps_cu.cuEventQuery = query_event;
    EXPECT(!is_to_be_taken && in_its_place == asked_about && !atomic_load(&in_its_place->gone));
    EXPECT(!atomic_load(&in_its_place->over));
    close_gate(&gate, in_its_place->handle);
    ps_uses_note_everything(&everywhere);
    EXPECT_INT(0, ps_uses_query(&everywhere));
    open_gate(&gate);
    EXPECT_INT(0, ps_uses_host_wait(&everywhere));
    end_stream(in_its_place);
}

/* ---- no room ---- */

/* The C library's function, which this one replaces unless a sanitizer has its own. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern void *__libc_calloc(size_t count, size_t bytes);
static size_t none_of;

void *calloc(size_t count, size_t bytes)
{
    return none_of && count * bytes >= none_of ? NULL : __libc_calloc(count, bytes);
}

static struct gate late;
static __typeof__(ps_cu.cuCtxSynchronize) wait_for_device;
static __typeof__(ps_cu.cuEventSynchronize) wait_for_event;
static unsigned waits;

/* A capture that another thread begins while this one is about to wait for the device. */
static CUstream captured;
static atomic_bool capture_begins;

static void *begin_capture(void *unused)
{
    EXPECT(ps_cu.cuCtxSetCurrent(context) == CUDA_SUCCESS);
    ps_capture_begins(captured, false);
    atomic_store(&capture_begins, true);
    ps_capture_began(false);
    return unused;
}

static CUresult CUDAAPI open_and_wait_for_device(void)
{
    const uint64_t since = ps_now_ns();
    pthread_t thread;

    EXPECT(!pthread_create(&thread, NULL, begin_capture, NULL));
    usleep(10000);
    /* Such a wait would break the capture, which is held back for a tenth of a second. */
    EXPECT(!atomic_load(&capture_begins) || ps_now_ns() - since > 90000000u);
    pthread_detach(thread);
    waits++;
    open_gate(&late);
    return wait_for_device();
}

static CUresult CUDAAPI open_and_wait_for_event(CUevent event)
{
    waits++;
    open_gate(&late);
    return wait_for_event(event);
}

static void test_streams_without_a_place_are_waited_for_on_the_host(void)
{
    struct ps_stream *known = new_stream(), *unknown;
    CUstream handle;
    struct ps_uses all;

    none_of = sizeof(struct ps_stream);
    for (unsigned i = 0; i < 1000; i++) { /* the free places are taken first */
        EXPECT(create_stream(&handle, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
        unknown = ps_stream_find(handle, false);
        if (unknown->index == PS_STREAMS_MAX)
            break;
    }
    none_of = 0;
    EXPECT(unknown->index == PS_STREAMS_MAX && ps_stream_tick(unknown) == -EXDEV);
    struct ps_uses uses = used_on(unknown);
    ps_uses_clear(&all);
    ps_uses_note_all_streams(&all);
    EXPECT(uses.everywhere && all.everywhere);
    wait_for_device = ps_cu.cuCtxSynchronize;
    wait_for_event = ps_cu.cuEventSynchronize;
    ps_cu.cuCtxSynchronize = open_and_wait_for_device;
    close_gate(&late, handle);
    captured = known->handle;
    EXPECT_INT(0, ps_uses_stream_wait(&uses, known->handle));
    EXPECT_U64(1, waits);
    EXPECT(COMES_TO(atomic_load(&capture_begins)));
    EXPECT(query_stream(handle) == CUDA_SUCCESS);
    ps_cu.cuCtxSynchronize = wait_for_device;
    ps_cu.cuEventSynchronize = open_and_wait_for_event;
    close_gate(&late, known->handle);
    uses = used_on(known);
    EXPECT_INT(0, ps_stream_comes_after_uses(unknown, &uses));
    EXPECT_U64(2, waits);
    ps_cu.cuEventSynchronize = wait_for_event;
    EXPECT_INT(1, ps_uses_query(&uses));
    end_stream(known);
}
#else
static void test_streams_without_a_place_are_waited_for_on_the_host(void) {}
#endif

/* ---- threads that go ---- */

static struct gate *before_their_end;

static void *use_own(void *uses)
{
    EXPECT(ps_cu.cuCtxSetCurrent(context) == CUDA_SUCCESS);
    struct ps_stream *own = ps_stream_find(NULL, true);
    if (before_their_end)
        close_gate(before_their_end, CU_STREAM_PER_THREAD);
    ps_stream_settle(own);
    *(struct ps_uses *)uses = used_on(own);
    return own;
}

static void test_a_threads_own_stream_ends_with_it(void)
{
    const uint32_t before = ps_streams_count();
    struct ps_uses uses[2];
    struct gate gate;

    before_their_end = &gate;
    struct ps_stream *first = in_thread(use_own, &uses[0]);
    before_their_end = NULL;
    struct ps_stream *second = in_thread(use_own, &uses[1]);
    /* The C library gives the second thread the memory that stood for the first. */
    EXPECT(first != second && atomic_load(&first->gone) && atomic_load(&second->gone));
    EXPECT_INT(-ENOENT, ps_stream_tick(first));
    EXPECT_INT(0, ps_uses_query(&uses[0]));
    EXPECT_INT(0, ps_uses_host_wait(&uses[1]));
    open_gate(&gate);
    EXPECT_INT(0, ps_uses_host_wait(&uses[0]));
    for (unsigned i = 0; i < 300; i++) {
        in_thread(use_own, &uses[0]);
        EXPECT_INT(0, ps_uses_host_wait(&uses[0]));
        in_thread(find_per_thread, NULL);
    }
    EXPECT(ps_streams_count() < (before > 64 ? before : 64) + 50);
}

/* ---- many threads ---- */

#define THREADS 4
#define TICKS 200

static void *use_and_tick(void *stream)
{
    struct ps_stream *s = stream;
    intptr_t wrong = ps_cu.cuCtxSetCurrent(context) != CUDA_SUCCESS;

    for (unsigned i = 0; i < TICKS; i++) {
        wrong += ps_stream_find(s->handle, false) != s;
        struct ps_uses uses = used_on(s);
        wrong += ps_stream_tick(s) != 0;
        /* Uses noted before this thread's record are recorded now, whichever thread did it. */
        wrong += atomic_load(&s->recorded) < uses.use[0].tick;
        wrong += i % 50 == 0 && ps_uses_host_wait(&uses) != 0;
    }
    return (void *)wrong;
}

static void test_threads_tick_one_stream(void)
{
    struct ps_stream *stream = new_stream();
    pthread_t thread[THREADS];

    for (unsigned i = 0; i < THREADS; i++)
        EXPECT(!pthread_create(&thread[i], NULL, use_and_tick, stream));
    for (unsigned i = 0; i < THREADS; i++) {
        void *wrong = NULL;
        pthread_join(thread[i], &wrong);
        EXPECT_INT(0, (long)(intptr_t)wrong);
    }
    EXPECT_U64(THREADS * TICKS, atomic_load(&stream->recorded));
    EXPECT_U64(THREADS * TICKS + 1, atomic_load(&stream->next));
    end_stream(stream);
}

/* ---- the host's lead ---- */

#define MS 1000000u
/* Long enough for a thread to do a thing that it must not do. */
#define A_WHILE_US 20000

/* Launches of a millisecond each. The host makes them on a thread of its own. */
static struct {
    struct ps_stream *stream;
    uint64_t work;
    unsigned launches;
    uint64_t most; /* ns ahead; 0: any */
    _Atomic unsigned queued;
} host;

static void *queue_launches(void *unused)
{
    (void)unused;
    EXPECT(ps_cu.cuCtxSetCurrent(context) == CUDA_SUCCESS);
    for (unsigned i = 0; i < host.launches; i++) {
        ps_run_ahead_launched(host.stream, false, host.most, host.work += MS);
        atomic_fetch_add(&host.queued, 1);
    }
    return NULL;
}

static bool has_queued(unsigned launches)
{
    return atomic_load(&host.queued) == launches;
}

static pthread_t begin_launches(unsigned launches)
{
    pthread_t thread;

    host.launches = launches;
    atomic_store(&host.queued, 0);
    EXPECT(!pthread_create(&thread, NULL, queue_launches, NULL));
    return thread;
}

static void test_the_host_waits_when_it_is_far_ahead(uint64_t most)
{
    const unsigned lead = (unsigned)(most / MS);
    struct gate gate;

    host.stream = new_stream();
    host.work = 0;
    host.most = most;
    close_gate(&gate, host.stream->handle);
    pthread_t thread = begin_launches(2 * lead);
    EXPECT(COMES_TO(has_queued(lead)));
    usleep(A_WHILE_US);
    EXPECT(has_queued(lead)); /* the next one waits for the first, behind the gate */
    open_gate(&gate);
    pthread_join(thread, NULL);
    EXPECT(has_queued(2 * lead));
    /* Without a plan no thread waits. */
    host.most = 0;
    close_gate(&gate, host.stream->handle);
    pthread_join(begin_launches(10 * lead), NULL);
    open_gate(&gate);
    EXPECT(COMES_TO(query_stream(host.stream->handle) == CUDA_SUCCESS));
    end_stream(host.stream);
}

/*
 * The device waits for work that the host has not queued yet. The host goes on, and does not wait
 * again until the device has moved.
 */
static void test_the_host_does_not_wait_for_a_device_that_waits_for_it(void)
{
    const unsigned lead = PS_RUN_AHEAD_NS / MS;
    struct gate gate;

    host.stream = new_stream();
    host.work = 0;
    host.most = PS_RUN_AHEAD_NS;
    close_gate(&gate, host.stream->handle);
    pthread_join(begin_launches(4 * lead), NULL); /* waits once, for this long */
    EXPECT_U64(1, atomic_load(&host.stream->run_ahead.stuck_times));
    open_gate(&gate);
    EXPECT(COMES_TO(query_stream(host.stream->handle) == CUDA_SUCCESS));
    close_gate(&gate, host.stream->handle);
    pthread_t thread = begin_launches(2 * lead);
    EXPECT(COMES_TO(has_queued(lead)));
    usleep(A_WHILE_US);
    EXPECT(has_queued(lead)); /* waits again */
    open_gate(&gate);
    pthread_join(thread, NULL);
    EXPECT(COMES_TO(query_stream(host.stream->handle) == CUDA_SUCCESS));
    end_stream(host.stream);
}

int main(void)
{
    if (!begin_driver()) {
        fprintf(stderr, "the simulated driver is not in the loader's path\n");
        return 77;
    }
    test_one_entry_a_stream();
    test_a_use_waits_for_what_was_queued_before_it();
    test_a_use_does_not_wait_for_what_comes_after_its_tick();
    test_a_stream_waits();
    test_a_tick_that_was_overwritten_still_waits();
    test_a_merge_keeps_the_later_tick_of_each_stream();
    test_more_streams_than_fit_means_everywhere();
    test_a_destroyed_stream_is_waited_for_and_no_longer_used();
    test_a_handle_that_comes_again_is_another_stream();
    test_threads_tick_one_stream();
    test_places_of_destroyed_streams_are_used_again();
    test_a_use_of_a_destroyed_stream_is_no_use_of_the_next_in_its_place();
    test_a_stream_in_a_destroyed_ones_place_is_not_over();
    test_a_threads_own_stream_ends_with_it();
    test_the_host_waits_when_it_is_far_ahead(PS_RUN_AHEAD_NS);
    test_the_host_waits_when_it_is_far_ahead(PS_RUN_AHEAD_SHORT_NS);
    test_the_host_does_not_wait_for_a_device_that_waits_for_it();
    test_streams_without_a_place_are_waited_for_on_the_host(); /* none is found from here on */
    return expect_status();
}
