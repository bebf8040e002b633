#include "residency/copies.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/log.h"
#include "base/ordering_rules.h"
#include "base/per_device.h"
#include "cuda/copy_gate.h"
#include "cuda/device_memory.h"
#include "cuda/driver.h"
#include "cuda/managed_context.h"
#include "residency/events.h"
#include "residency/nvtx_emit.h"

/*
 * The number of marks kept for each H2D stream. A mark is an event behind a group of H2D copies. A
 * group without its mark is not waited for.
 */
#define MARKS 8u
/* Room for events that were given back. */
#define SPARE_EVENTS 64

static PS_PER_DEVICE struct {
    CUstream d2h[PS_COPIES_D2H_STREAMS], h2d[PS_COPIES_H2D_STREAMS]; /* constant once `copies` is true */
    CUstream joining;                                                /* constant once `joins` is true */
    CUevent joined[PS_COPIES_H2D_STREAMS]; /* behind the copies that the joining stream waits for; constant, too */
    atomic_bool copies, joins;
    pthread_mutex_t make_lock;                         /* held while streams and these events are made */
    pthread_mutex_t evict_lock[PS_COPIES_D2H_STREAMS]; /* held while one eviction is queued on that D2H stream */
    pthread_mutex_t order_lock;                        /* held while a thread records behind an H2D */
    uint64_t reloads;                                  /* H2D copies whose end has been recorded */
    struct {
        CUevent mark[MARKS];
        uint64_t marked;       /* groups of copies that have had their mark */
        unsigned since_copies; /* copies queued since the last mark */
        size_t since_bytes;
    } groups[PS_COPIES_H2D_STREAMS]; /* guarded by order_lock */
    pthread_mutex_t spare_lock;
    CUevent spare[SPARE_EVENTS];
    unsigned spares;
} first_dev = {.make_lock = PTHREAD_MUTEX_INITIALIZER,
               .evict_lock = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER},
               .order_lock = PTHREAD_MUTEX_INITIALIZER,
               .spare_lock = PTHREAD_MUTEX_INITIALIZER};
#define dev (&PS_HERE(first_dev))

/*
 * High priority orders kernels, not the work of copy engines (copy_gate.h). So it matters only
 * where a small copy runs as a kernel.
 */
static CUresult make_stream(CUstream *stream)
{
    int least = 0, greatest = 0;
    CUresult r = *stream ? CUDA_SUCCESS : ps_cu.cuCtxGetStreamPriorityRange(&least, &greatest);

    if (r == CUDA_SUCCESS && !*stream)
        r = ps_cu.cuStreamCreateWithPriority(stream, CU_STREAM_NON_BLOCKING, greatest);
    return r;
}

/* Makes the streams that are missing, and sets `made` if all are there. Returns 0 or -errno. */
static int make_streams(CUstream *const *streams, size_t n, atomic_bool *made)
{
    CUresult r = CUDA_SUCCESS;

    if (atomic_load_explicit(made, memory_order_acquire))
        return 0;
    const struct ps_managed_context context = ps_managed_context_enter();
    pthread_mutex_lock(&dev->make_lock);
    for (size_t i = 0; i < n && r == CUDA_SUCCESS; i++)
        r = make_stream(streams[i]);
    if (r == CUDA_SUCCESS)
        atomic_store_explicit(made, true, memory_order_release);
    pthread_mutex_unlock(&dev->make_lock);
    ps_managed_context_leave(context);
    return ps_cuda_errno(r);
}

static int make_copying_streams(void)
{
    CUstream *const streams[] = {&dev->d2h[PS_COPIES_IN_TURN], &dev->d2h[PS_COPIES_AT_ONCE],
                                 &dev->h2d[PS_COPIES_BEHIND], &dev->h2d[PS_COPIES_READY]};

    return make_streams(streams, sizeof streams / sizeof *streams, &dev->copies);
}

/* Makes the events of the joining stream. Returns 0 or -errno. */
static int make_joined_events(void)
{
    CUresult r = CUDA_SUCCESS;

    const struct ps_managed_context context = ps_managed_context_enter();
    pthread_mutex_lock(&dev->make_lock);
    for (unsigned i = 0; i < PS_COPIES_H2D_STREAMS && r == CUDA_SUCCESS; i++)
        if (!dev->joined[i])
            r = ps_cu.cuEventCreate(&dev->joined[i], CU_EVENT_DISABLE_TIMING);
    pthread_mutex_unlock(&dev->make_lock);
    ps_managed_context_leave(context);
    return ps_cuda_errno(r);
}

static int make_joining_stream(void)
{
    CUstream *const streams[] = {&dev->joining};
    int r = 0;

    if (!atomic_load_explicit(&dev->joins, memory_order_acquire))
        r = make_joined_events();
    return r ? r : make_streams(streams, 1, &dev->joins);
}

static bool has_copied(void)
{
    return atomic_load_explicit(&dev->copies, memory_order_acquire);
}

int ps_copies_open(void)
{
    CUstream first = NULL;
    CUresult r = make_stream(&first);

    if (r != CUDA_SUCCESS)
        return ps_cuda_errno(r);
    ps_copy_gate_make(first, ps_device.granularity);
    ps_cu.cuStreamDestroy(first);
    return 0;
}

void ps_copies_close(void)
{
    ps_copy_gate_end();
}

/*
 * Makes the D2H stream wait for each H2D that still reads a slot of the row.
 *
 * Two clocks: the D2H stream waits for the latest record of the slot's read_by. The host made that
 * record behind the H2D, or later. If the slot was read in a row with another slot, the event may
 * be that other slot's. It may have been recorded again since, for a later row. Then the other slot
 * has been filled since, by a D2H that waited for the earlier H2D. That D2H was over on the host,
 * so the earlier H2D is over, too.
 */
static int wait_until_read(CUstream d2h, const struct ps_slot *row)
{
    CUevent waited_for = NULL;
    int r = 0;

    for (; row && !r; row = row->next_in_row) {
        if (!row->being_read || row->read_by == waited_for)
            continue;
        waited_for = row->read_by;
        r = ps_cuda_errno(ps_cu.cuStreamWaitEvent(d2h, waited_for, 0));
    }
    return r;
}

/*
 * A copy could not be queued as a whole, or its end not recorded. Waits until the queued part is
 * over. Returns `error`, or -EINPROGRESS if the driver can't tell.
 */
static int after_part(int error, CUstream stream)
{
    return ps_stream_host_wait(stream) ? -EINPROGRESS : error;
}

int ps_copies_evict_would_wait(const struct ps_uses *uses, bool fence_set, CUevent fence, const struct ps_slot *row,
                               struct ps_late_uses *late)
{
    const int over = ps_uses_query_noting(uses, late);
    int r = over == 1 ? 0 : over ? over : -EAGAIN;

    if (!r && fence_set)
        r = ps_cuda_errno(ps_cu.cuEventQuery(fence));
    for (; row && !r; row = row->next_in_row)
        if (row->being_read)
            r = ps_cuda_errno(ps_cu.cuEventQuery(row->read_by));
    return r;
}

int ps_copies_evict(enum ps_copies_d2h on, CUdeviceptr address, const struct ps_uses *uses, bool fence_set,
                    CUevent fence, const struct ps_slot *row, struct ps_device_mark *begins, CUevent done)
{
    const struct ps_slot *whole = row;
    int r = make_copying_streams();

    if (r)
        return r;
    const CUstream d2h = dev->d2h[on];

    ps_nvtx_range_begin(PS_NVTX_EVICT, row);
    /*
     * Evictions are queued one behind the other. Otherwise another's copies and waits could stand
     * between the copies of one, and both would end late.
     */
    pthread_mutex_lock(&dev->evict_lock[on]);
    /*
     * Order: after the last access on each stream that had one. The host may be 1,000 launches
     * ahead of that: only the stream waits.
     */
    if (ps_ordering_rule(EVICTION_WAITS_FOR_USES))
        r = ps_uses_stream_wait(uses, d2h);
    /* Order: after the H2D that filled the span, which no access may have waited for yet. */
    if (!r && fence_set && ps_ordering_rule(EVICTION_WAITS_FOR_RELOAD))
        r = ps_cuda_errno(ps_cu.cuStreamWaitEvent(d2h, fence, 0));
    /* Order: after each H2D that reads what the row's slots held before. */
    if (!r && ps_ordering_rule(EVICTION_WAITS_FOR_SLOT))
        r = wait_until_read(d2h, row);
    ps_device_clock_record(begins, d2h);
    for (; row && !r; row = row->next_in_row) {
        r = ps_copy_gate_copy(d2h, PS_COPY_GATE_OUT, row->address, address, row->bytes);
        address += row->bytes;
    }
    if (!r)
        r = ps_cuda_errno(ps_cu.cuEventRecord(done, d2h));
    pthread_mutex_unlock(&dev->evict_lock[on]);
    ps_nvtx_range_end();
    return r && row != whole ? after_part(r, d2h) : r;
}

/* Counts the H2D in its group; records the mark when the group is full. [with order_lock] */
static void mark_reload(enum ps_copies_h2d on, size_t bytes)
{
    dev->groups[on].since_bytes += bytes;
    if (++dev->groups[on].since_copies >= (ps_events_is_tracing() ? PS_RELOADS_A_GROUP / 2 : PS_RELOADS_A_GROUP) ||
        dev->groups[on].since_bytes >= PS_RELOAD_BYTES_A_GROUP) {
        CUevent *event = &dev->groups[on].mark[dev->groups[on].marked % MARKS];
        if (!*event && ps_cu.cuEventCreate(event, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC) != CUDA_SUCCESS)
            *event = NULL;
        if (*event)
            ps_cu.cuEventRecord(*event, dev->h2d[on]);
        dev->groups[on].marked++;
        dev->groups[on].since_copies = 0;
        dev->groups[on].since_bytes = 0;
    }
}

/*
 * Records the end of an H2D, for the span's users and for the next D2H into its slots. Two threads
 * that reload can tell by `nth` whose copy ends later.
 */
static int record_end(CUevent fence, CUevent read_done, size_t bytes, struct ps_copies_nth *nth)
{
    int r;

    pthread_mutex_lock(&dev->order_lock);
    r = ps_cuda_errno(ps_cu.cuEventRecord(fence, dev->h2d[nth->on]));
    if (!r) {
        nth->number = ++dev->reloads;
        r = ps_cuda_errno(ps_cu.cuEventRecord(read_done, dev->h2d[nth->on]));
    }
    if (!r)
        mark_reload(nth->on, bytes);
    pthread_mutex_unlock(&dev->order_lock);
    return r;
}

void ps_copies_wait_for_reloads(void)
{
    for (unsigned i = 0; i < PS_COPIES_H2D_STREAMS; i++) {
        pthread_mutex_lock(&dev->order_lock);
        CUevent event = dev->groups[i].marked >= 2 ? dev->groups[i].mark[(dev->groups[i].marked - 2) % MARKS] : NULL;
        pthread_mutex_unlock(&dev->order_lock);
        /* If it is recorded again meanwhile, the wait lasts until a later copy of that stream. */
        if (event)
            ps_cu.cuEventSynchronize(event);
    }
}

int ps_copies_reload(enum ps_copies_h2d on, CUdeviceptr address, const struct ps_uses *pages_uses,
                     const struct ps_slot *row, struct ps_device_mark *begins, struct ps_device_mark *ends,
                     CUevent fence, struct ps_copies_nth *nth)
{
    size_t bytes = 0;
    int r = make_copying_streams();

    nth->on = on;
    if (r)
        return r;
    const CUstream h2d = dev->h2d[on];

    ps_nvtx_range_begin(PS_NVTX_RELOAD, row);
    /*
     * Order: after the last use of the freed span whose pages these were. The slot's D2H was over
     * on the host before the mapping moved.
     */
    if (pages_uses && ps_ordering_rule(RELOAD_WAITS_FOR_PAGES))
        r = ps_uses_stream_wait(pages_uses, h2d);
    ps_device_clock_record(begins, h2d);
    for (const struct ps_slot *slot = row; slot && !r; slot = slot->next_in_row) {
        r = ps_copy_gate_copy(h2d, PS_COPY_GATE_IN, address + bytes, slot->address, slot->bytes);
        bytes += slot->bytes;
    }
    ps_device_clock_record(ends, h2d);
    if (!r)
        r = record_end(fence, row->read_done, bytes, nth);
    ps_nvtx_range_end();
    return r && bytes ? after_part(r, h2d) : r;
}

int ps_copies_join(const struct ps_uses *uses, bool event_set, CUevent event)
{
    int r = make_joining_stream();

    if (!r && event_set)
        r = ps_cuda_errno(ps_cu.cuStreamWaitEvent(dev->joining, event, 0));
    if (!r)
        r = ps_uses_stream_wait(uses, dev->joining);
    return r ? r : ps_cuda_errno(ps_cu.cuEventRecord(event, dev->joining));
}

void ps_copies_give_event(CUevent event)
{
    pthread_mutex_lock(&dev->spare_lock);
    if (event && dev->spares < SPARE_EVENTS)
        dev->spare[dev->spares++] = event; /* further events are left to the driver */
    pthread_mutex_unlock(&dev->spare_lock);
}

static CUevent take_event(void)
{
    CUevent event = NULL;

    pthread_mutex_lock(&dev->spare_lock);
    if (dev->spares)
        event = dev->spare[--dev->spares];
    pthread_mutex_unlock(&dev->spare_lock);
    if (!event && ps_cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC) != CUDA_SUCCESS)
        return NULL;
    return event;
}

CUevent ps_copies_after_everything(void)
{
    struct ps_uses everything = {0};
    CUevent event = take_event();

    ps_uses_note_everything(&everything);
    int r = event ? make_joining_stream() : -EIO;
    /*
     * `event` may have stood for the end of an H2D. A launch may still wait for it, so it is
     * recorded once, behind everything, and nowhere in between.
     */
    for (unsigned i = 0; !r && has_copied() && i < PS_COPIES_H2D_STREAMS; i++) {
        r = ps_cuda_errno(ps_cu.cuEventRecord(dev->joined[i], dev->h2d[i]));
        if (!r)
            r = ps_cuda_errno(ps_cu.cuStreamWaitEvent(dev->joining, dev->joined[i], 0));
    }

    /*
     * The waits and records of several threads may mix on the joining stream. Each event then comes
     * after more work, none after less.
     */
    if (!r)
        r = ps_copies_join(&everything, false, event);
    if (!r)
        return event;
    ps_copies_give_event(event);
    return NULL;
}

int ps_copies_drain_reloads(void)
{
    int r = 0;

    for (unsigned i = 0; has_copied() && i < PS_COPIES_H2D_STREAMS && !r; i++)
        r = ps_stream_host_wait(dev->h2d[i]);
    return r;
}
