#include "memory/mapping_time.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/per_device.h"
#include "cuda/capture.h"
#include "cuda/capture_mode.h"
#include "cuda/copy_gate.h"
#include "cuda/device_memory.h"
#include "cuda/driver.h"
#include "memory/budget.h"
#include "memory/registry.h"

/*
 * Copies of 1 MiB, or of a page where that is smaller, for 5 ms in all. A time slice is 1 ms, and
 * the second mapping waits for a whole one (copy_gate.h).
 */
#define COPY_BYTES ((size_t)1 << 20)
#define COPIES_MAX 400u
#define COPYING_NS 5000000u
#define COPIES_TIMED 8u
/*
 * A mapping that takes long may have waited for other processes in the driver. Nothing makes a
 * mapping take less.
 */
#define TRIES 3
#define TIMES 15
#define PAGES_WORTH_MEASURING 1024u /* 2 GiB: a smaller budget is not worth the time */
#define HELD_UP_NS 500000u

static PS_PER_DEVICE uint64_t first_mapping_ns; /* 0: not known */
#define mapping_ns PS_HERE(first_mapping_ns)
static PS_PER_DEVICE bool first_was_found;
#define was_found PS_HERE(first_was_found)

uint64_t ps_mapping_time_ns(void)
{
    return mapping_ns;
}

/*
 * Host memory, and one device page. Copies read the page at one address while it is mapped at
 * another.
 */
struct scratch {
    CUstream stream;
    size_t copied, page;
    unsigned copies;
    void *host;
    bool registered, mapped;
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle;
    CUevent begun, over;
};

static CUdeviceptr elsewhere(const struct scratch *s)
{
    return s->address + s->page;
}

static bool copy(const struct scratch *s)
{
    return ps_cu.cuMemcpyAsync((CUdeviceptr)(uintptr_t)s->host, s->address, s->copied, s->stream) == CUDA_SUCCESS;
}

/* Finds the number of copies that last long enough, by the time of a few copies in a row. */
static bool find_copies(struct scratch *s)
{
    uint64_t took = 0;

    for (int i = 0; i < 2; i++) { /* the first copies may take longer */
        const uint64_t since = ps_now_ns();
        bool well = true;
        for (unsigned j = 0; well && j < COPIES_TIMED; j++)
            well = copy(s);
        if (ps_cu.cuStreamSynchronize(s->stream) != CUDA_SUCCESS || !well)
            return false;
        took = ps_now_ns() - since + 1;
    }
    const uint64_t copies = COPIES_TIMED * COPYING_NS / took + 3;
    s->copies = copies < COPIES_MAX ? (unsigned)copies : COPIES_MAX;
    return true;
}

static bool set_up(struct scratch *s)
{
    s->host = mmap(NULL, s->copied, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    s->registered = s->host != MAP_FAILED && ps_cu.cuMemHostRegister &&
                    ps_cu.cuMemHostRegister(s->host, s->copied, 0) == CUDA_SUCCESS;
    if (!s->registered || ps_cu.cuStreamCreateWithPriority(&s->stream, CU_STREAM_NON_BLOCKING, 0) != CUDA_SUCCESS ||
        ps_cu.cuEventCreate(&s->begun, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS ||
        ps_cu.cuEventCreate(&s->over, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS ||
        ps_cu.cuMemAddressReserve(&s->address, 2 * s->page, s->page, 0, 0) != CUDA_SUCCESS ||
        ps_device_pages_create(s->page, &s->handle))
        return false;
    s->mapped = !ps_handle_map(s->address, s->page, s->handle);
    /* Pages that were never written are not copied. */
    return s->mapped && ps_cu.cuMemsetD32Async(s->address, 0, s->page / 4, s->stream) == CUDA_SUCCESS && find_copies(s);
}

/*
 * Two clocks: all of it stays until the work queued on the stream is over. If that can't be known,
 * a page and some addresses stay for good.
 */
static void clear_up(const struct scratch *s)
{
    if (s->stream && ps_stream_host_wait(s->stream))
        return;
    if (s->stream)
        ps_cu.cuStreamDestroy(s->stream);
    if (s->over)
        ps_cu.cuEventDestroy(s->over);
    if (s->begun)
        ps_cu.cuEventDestroy(s->begun);
    if (s->mapped)
        ps_pages_unmap(s->address, s->page);
    if (s->handle)
        ps_pages_release(s->handle);
    if (s->address)
        ps_cu.cuMemAddressFree(s->address, 2 * s->page);
    if (s->registered)
        ps_cu.cuMemHostUnregister(s->host);
    if (s->host != MAP_FAILED)
        munmap(s->host, s->copied);
}

/* Maps the page once more and unmaps it there. Returns the time in ns; 0: the driver refused. */
static uint64_t map_once(const struct scratch *s)
{
    const uint64_t since = ps_now_ns();

    return ps_handle_map(elsewhere(s), s->page, s->handle) || ps_pages_unmap(elsewhere(s), s->page)
               ? 0
               : ps_now_ns() - since;
}

/*
 * Returns the median of TIMES mappings, and in `*least` the shortest. Returns 0 if the driver
 * refused one.
 */
static uint64_t measure_alone(const struct scratch *s, uint64_t *least)
{
    uint64_t took[TIMES];

    for (size_t i = 0; i < TIMES; i++)
        if (!(took[i] = map_once(s)))
            return 0;
    qsort(took, TIMES, sizeof *took, ps_by_ns);
    *least = took[0];
    return took[TIMES / 2];
}

/*
 * Queues the copies one after the other, without a look at a gate between them. Events are recorded
 * behind the first and the last.
 */
static bool queue_copies(const struct scratch *s)
{
    bool well = true;

    for (unsigned i = 0; well && i < s->copies; i++)
        well = copy(s) && (i || ps_cu.cuEventRecord(s->begun, s->stream) == CUDA_SUCCESS);
    return well && ps_cu.cuEventRecord(s->over, s->stream) == CUDA_SUCCESS;
}

/*
 * Returns how long a mapping takes during the copies; 0: unknown, as when the copies were over
 * first. The first mapping waits for the rest of a time slice, the second for a whole one.
 *
 * Two clocks: the copies stand behind the gate until all are queued. Other threads in the driver
 * may make the queueing take longer than the copies. The host waits for the first copy, and in the
 * end for all.
 */
static uint64_t map_beside(const struct scratch *s)
{
    const bool held = ps_copy_gate_hold(s->stream), queued = queue_copies(s);

    if (held)
        ps_copy_gate_let_go();
    const bool well = queued && ps_cu.cuEventSynchronize(s->begun) == CUDA_SUCCESS && map_once(s);
    const uint64_t took = well ? map_once(s) : 0;
    const bool beside = took && ps_cu.cuEventQuery(s->over) == CUDA_ERROR_NOT_READY;

    return ps_cu.cuStreamSynchronize(s->stream) == CUDA_SUCCESS && beside ? took : 0;
}

/*
 * Returns the least time of a few tries, which end once mappings seem not to wait for the copies.
 * 0: unknown.
 */
static uint64_t least_beside(const struct scratch *s, uint64_t alone)
{
    uint64_t least = 0;

    for (int i = 0; i < TRIES && (!least || least > alone + HELD_UP_NS); i++) {
        const uint64_t beside = map_beside(s);
        if (beside && (!least || beside < least))
            least = beside;
    }
    return least;
}

static void measure(void)
{
    const size_t page = ps_reservation.granularity;
    struct scratch s = {.page = page, .copied = page < COPY_BYTES ? page : COPY_BYTES, .host = MAP_FAILED};

    /* The first call that Penstock sees may be in the middle of a capture. */
    ps_capture_enter();
    uint64_t alone = 0;

    mapping_ns = set_up(&s) ? measure_alone(&s, &alone) : 0;
    const uint64_t beside = mapping_ns ? least_beside(&s, alone) : 0;
    clear_up(&s);
    ps_capture_mode_leave();
    if (!beside)
        return;
    const bool wait = beside > alone + HELD_UP_NS;
    /*
     * The driver makes mappings with one copy engine: the one for copies to the host, or the other
     * one.
     */
    ps_copy_gate_holds_up(PS_COPY_GATE_OUT, wait);
    ps_copy_gate_holds_up(PS_COPY_GATE_IN, !wait);
    ps_log_info(RESIDENCY,
                "mappings wait for copies to the %s: one takes %llu us alone, and %llu us during copies to the host",
                wait ? "host" : "device", (unsigned long long)(mapping_ns / 1000), (unsigned long long)(beside / 1000));
}

void ps_mapping_time_find(void)
{
    if (was_found)
        return;
    was_found = true;
    if (ps_budget.limit > PAGES_WORTH_MEASURING * ps_reservation.granularity)
        measure();
}
