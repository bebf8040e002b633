/*
 * Spans on which a thread makes driver calls. A walk over all spans waits for them, and misses none
 * if their structure is elsewhere afterwards. A thread that queues copies leaves them in the line.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "comes_to.h"
#include "cuda/driver.h"
#include "cuda/streams.h"
#include "expect.h"
#include "memory/registry.h"
#include "memory/slab.h"
#include "residency/eviction_queue.h"
#include "residency/residency.h"
#include "stub_driver.h"

#define UNIT ((size_t)65536)
#define NOTED_MAX 8

/* ---- the driver ---- */

static CUdeviceptr let_in[NOTED_MAX];
static atomic_uint lets_in;

static CUresult CUDAAPI set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    (void)bytes;
    (void)access;
    (void)count;
    let_in[atomic_fetch_add(&lets_in, 1)] = address;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI create(CUmemGenericAllocationHandle *handle, size_t bytes,
                               const CUmemAllocationProp *properties, unsigned long long flags)
{
    (void)bytes;
    (void)properties;
    (void)flags;
    *handle = 1;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                            unsigned long long flags)
{
    (void)address;
    (void)bytes;
    (void)offset;
    (void)handle;
    (void)flags;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI create_event(CUevent *event, unsigned int flags)
{
    (void)flags;
    *event = NULL;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI context_of_stream(CUstream of, CUcontext *context)
{
    (void)of;
    *context = NULL;
    return CUDA_SUCCESS;
}

/* The other thread's work while the launch's stream is made to wait. */
static void (*meanwhile)(void);

static CUresult CUDAAPI wait_event(CUstream waiter, CUevent event, unsigned int flags)
{
    (void)waiter;
    (void)event;
    (void)flags;
    meanwhile();
    return CUDA_SUCCESS;
}

/* ---- steps ---- */

/* Makes a span on device pages; the test needs no pages. [locked] */
static struct ps_span *new_span(size_t units)
{
    struct ps_span *span = ps_registry_new(units * UNIT, units * UNIT);

    span->backing = PS_BACKING_DEVICE;
    span->residency = PS_RESIDENT;
    TAILQ_INSERT_TAIL(&ps_registry.idle_order, span, listed);
    return span;
}

/* [locked] */
static void delete_span(struct ps_span *span)
{
    ps_registry_end_life(span);
    span->backing = PS_BACKING_NONE;
    ps_registry_delete(span);
}

static void *let_peers_in(void *unused)
{
    (void)unused;
    ps_residency_let_peers_in();
    return NULL;
}

static bool was_let_in(CUdeviceptr address)
{
    for (unsigned i = 0; i < lets_in; i++)
        if (let_in[i] == address)
            return true;
    return false;
}

/* ---- tests ---- */

static void test_a_walk_misses_nothing_when_a_structure_is_elsewhere(void)
{
    pthread_t thread;

    ps_registry_lock();
    struct ps_span *lowest = new_span(1), *first = new_span(1), *middle = new_span(1);
    EXPECT(lowest->address < first->address && first->address < middle->address);
    first->busy = true;
    ps_registry_unlock();
    EXPECT_INT(0, pthread_create(&thread, NULL, let_peers_in, NULL));
    EXPECT(COMES_TO(atomic_load(&lets_in) == 1)); /* of the lowest; it comes to the next then, and waits */
    usleep(20000);
    ps_registry_lock();
    first->busy = false;
    delete_span(first);
    struct ps_span *last = new_span(2);
    EXPECT(last == first && last->address > middle->address); /* the structure, behind the others */
    ps_registry_changed();
    ps_registry_unlock();
    pthread_join(thread, NULL);
    EXPECT_U64(3, lets_in);
    EXPECT(was_let_in(lowest->address) && was_let_in(middle->address) && was_let_in(last->address));
    ps_registry_lock();
    delete_span(lowest);
    delete_span(middle);
    delete_span(last);
    ps_registry_unlock();
}

static struct ps_span *reloaded;

static void free_and_reload_another(void)
{
    ps_registry_lock();
    const struct ps_span *before = reloaded;
    delete_span(reloaded);
    reloaded = new_span(2);
    EXPECT(reloaded == before); /* the structure */
    reloaded->order.fence_set = true;
    ps_registry_unlock();
}

/* The launch may use everything, so it keeps no thread from freeing the span that it waits for. */
static void test_what_a_blind_launch_waited_for_is_not_another_span(void)
{
    struct ps_stream *stream =
        ps_stream_find((CUstream)(uintptr_t)64, false); /* NOLINT(performance-no-int-to-ptr): never followed */

    meanwhile = free_and_reload_another;
    ps_registry_lock();
    reloaded = new_span(1);
    reloaded->order.fence_set = true;
    ps_registry_unlock();
    ps_residency_begin_access_to_all(stream);
    EXPECT_U64(0, reloaded->order.fence_seen);
    ps_registry_lock();
    ps_registry.blind_launches--;
    delete_span(reloaded);
    ps_registry_unlock();
}

static void test_a_transfer_waits_in_line_while_its_span_is_busy(void)
{
    EXPECT_INT(0, ps_slab_add(UNIT));
    EXPECT_INT(0, ps_slab_add(UNIT));
    ps_registry_lock();
    struct ps_span *busy = new_span(1), *next = new_span(1);
    struct ps_transfer *of_busy = ps_transfer_begin(busy), *of_next = ps_transfer_begin(next);
    ps_transfer_wait_for_slots(of_busy);
    ps_transfer_wait_for_slots(of_next);
    busy->busy = true;
    EXPECT(ps_transfer_next(true) == of_next);
    EXPECT(ps_transfer_next(true) == NULL);
    EXPECT_U64(UNIT, ps_transfers_waiting_bytes());
    busy->busy = false;
    EXPECT(ps_transfer_next(true) == of_busy);
    ps_registry_unlock();
}

int main(void)
{
    stub_driver_with(&(struct ps_real_cuda){.cuMemSetAccess = set_access,
                                            .cuMemCreate = create,
                                            .cuMemMap = map,
                                            .cuEventCreate = create_event,
                                            .cuStreamGetCtx = context_of_stream,
                                            .cuStreamWaitEvent = wait_event});
    EXPECT_INT(0, ps_registry_open(UNIT, 1, 0));
    ps_transfers_open();
    test_a_walk_misses_nothing_when_a_structure_is_elsewhere();
    test_what_a_blind_launch_waited_for_is_not_another_span();
    ps_slab_open((struct ps_amount){.kind = PS_AMOUNT_BYTES, .value = 16 * UNIT}, 1, UNIT);
    atomic_store(&lets_in, 0);
    test_a_transfer_waits_in_line_while_its_span_is_busy();
    return expect_status();
}
