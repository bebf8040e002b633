/*
 * Ordering rules that no trainer can be made to need. Each case brings the core, through its own
 * functions, to the one moment at which the rule counts. It runs under many seeds of the simulated
 * device. The bats test tests/bats/memory/ordering-rules.bats runs the same cases with the rule
 * removed.
 *
 * Usage: test_orderings [CASE [FIRST SEED [SEEDS]]]. CASE '' stands for all cases.
 *
 * A case runs in a child process for each seed, because the simulated device reads its settings
 * once. A span is used as the tracer uses it: begin, the driver call, end.
 */
#include <cuda.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/access.h"
#include "core/allocation.h"
#include "cuda/capture.h"
#include "cuda/capture_mode.h"
#include "cuda/device_memory.h"
#include "cuda/devices.h"
#include "cuda/driver.h"
#include "cuda/streams.h"
#include "expect.h"
#include "kernels/pointer_tables.h"
#include "memory/registry.h"
#include "memory/slab.h"
#include "plan/learning.h"
#include "residency/copies.h"
#include "residency/demand_eviction.h"
#include "residency/eviction.h"
#include "residency/graph_memory.h"
#include "residency/page_supply.h"
#include "residency/prefetch.h"
#include "residency/residency.h"
#include "tracer/start.h"

#define SKIP 77
#define SEEDS 48
#define ENOUGH 3 /* failed seeds after which a case ends: each may have waited for its alarm */
#define PAGE 4096u
#define SPAN_BYTES (16 * PAGE)
#define LARGE 3u /* the most SPAN_BYTES of a large span */
#define MANY 64u
#define CHILD_SECONDS 20

/* Driver calls that the core does not make itself. */
static struct {
    CUresult (*init)(unsigned int flags);
    CUresult (*retain)(CUcontext *context, CUdevice device);
    CUresult (*set_current)(CUcontext context);
    CUresult (*stream_create)(CUstream *stream, unsigned int flags);
    CUresult (*fill)(CUdeviceptr to, unsigned int value, size_t words, CUstream stream);
    CUresult (*download)(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
    CUresult (*copy)(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
    CUresult (*allocate)(CUdeviceptr *address, size_t bytes);
    CUresult (*begin_capture)(CUstream stream, CUstreamCaptureMode mode);
    CUresult (*end_capture)(CUstream stream, CUgraph *graph);
    CUresult (*destroy_graph)(CUgraph graph);
    CUresult (*stream_destroy)(CUstream stream);
    CUresult (*allocate_async)(CUdeviceptr *address, size_t bytes, CUstream stream);
    CUresult (*instantiate)(CUgraphExec *executable, CUgraph graph, unsigned long long flags);
    CUresult (*launch_graph)(CUgraphExec executable, CUstream stream);
    CUresult (*destroy_executable)(CUgraphExec executable);
} driver;

static struct ps_stream *stream;
static CUstream busy_stream; /* the core never hears of it */
static CUdeviceptr busy_bytes;

/* Replaces the core's function: a span that a case evicted stays away until the case reloads it. */
void ps_prefetch_left(struct ps_span *span)
{
    (void)span;
}

void ps_prefetch_freed(void) {}

static bool is_there(void **function, const char *name)
{
    *function = ps_real_cuda_symbol(name);
    return *function != NULL;
}

static bool open_driver(void)
{
    return is_there((void **)&driver.init, "cuInit") && is_there((void **)&driver.retain, "cuDevicePrimaryCtxRetain") &&
           is_there((void **)&driver.set_current, "cuCtxSetCurrent") &&
           is_there((void **)&driver.stream_destroy, "cuStreamDestroy_v2") &&
           is_there((void **)&driver.stream_create, "cuStreamCreate") &&
           is_there((void **)&driver.fill, "cuMemsetD32Async") &&
           is_there((void **)&driver.download, "cuMemcpyDtoHAsync_v2") &&
           is_there((void **)&driver.allocate, "cuMemAlloc_v2") &&
           is_there((void **)&driver.begin_capture, "cuStreamBeginCapture_v2") &&
           is_there((void **)&driver.end_capture, "cuStreamEndCapture") &&
           is_there((void **)&driver.destroy_graph, "cuGraphDestroy") &&
           is_there((void **)&driver.copy, "cuMemcpyDtoDAsync_v2") &&
           is_there((void **)&driver.allocate_async, "cuMemAllocAsync") &&
           is_there((void **)&driver.instantiate, "cuGraphInstantiateWithFlags") &&
           is_there((void **)&driver.launch_graph, "cuGraphLaunch") &&
           is_there((void **)&driver.destroy_executable, "cuGraphExecDestroy");
}

/*
 * Opens the core as process.c does, without CUPTI. There is room for `spans` spans on the device
 * and `slots` slots in the slab.
 */
static bool open_core(unsigned spans, unsigned slots)
{
    CUcontext context;
    CUstream handle;
    const char *why = "";
    const struct ps_amount budget = {.kind = PS_AMOUNT_BYTES, .value = (uint64_t)spans * SPAN_BYTES};
    const struct ps_amount host = {.kind = PS_AMOUNT_BYTES, .value = (uint64_t)slots * SPAN_BYTES};

    if (!EXPECT_INT(0, ps_real_cuda_load()) || !EXPECT(open_driver()))
        return false;
    if (!EXPECT_INT(0, driver.init(0)) || !EXPECT_INT(0, driver.retain(&context, 0)) ||
        !EXPECT_INT(0, driver.set_current(context)))
        return false;
    if (!EXPECT_INT(0, ps_device_open(&why)) || !EXPECT_INT(0, ps_registry_open(ps_device.granularity, 1, 0)) ||
        !EXPECT_INT(0, ps_copies_open()))
        return false;
    ps_budget_open(budget, (struct ps_amount){.kind = PS_AMOUNT_AUTO}, ps_device.total_bytes, ps_device_free_bytes());
    ps_slab_open(host, 1, ps_device.granularity);
    ps_eviction_open(PS_GUARD_HOST);
    ps_residency_open(PS_GUARD_HOST);
    ps_tracing_assume();
    if (!EXPECT_INT(0, driver.stream_create(&handle, CU_STREAM_NON_BLOCKING)))
        return false;
    stream = ps_stream_find(handle, false);
    return EXPECT_INT(0, driver.stream_create(&busy_stream, CU_STREAM_NON_BLOCKING)) &&
           EXPECT_INT(0, driver.allocate(&busy_bytes, PAGE));
}

/* ---- steps of the cases ---- */

/* Queues work that uses no span. A device that prefers it leaves the copies waiting meanwhile. */
static void keep_the_device_busy(void)
{
    for (unsigned i = 0; i < 1000; i++)
        EXPECT_INT(0, driver.fill(busy_bytes, i, PAGE / sizeof(uint32_t), busy_stream));
}

static const struct ps_access_kind kernel = {.is_kernel = true, .layer = {.number = PENSTOCK_NEVER}};
static uint64_t launch; /* the launch of the use that has begun */

static struct ps_span *begin_use(CUdeviceptr address)
{
    struct ps_span *span = ps_address_span(address);
    size_t count = 1;

    launch = ps_access_begin(&span, &count, stream, &kernel);
    EXPECT_U64(1, count);
    return span;
}

static void end_use(struct ps_span *span)
{
    ps_access_end(&span, 1, stream, &kernel, launch);
}

static void fill(CUdeviceptr address, uint32_t value)
{
    struct ps_span *span = begin_use(address);

    EXPECT_INT(0, driver.fill(address, value, span->bytes / sizeof value, stream->handle));
    end_use(span);
}

static uint32_t words_there[LARGE * SPAN_BYTES / sizeof(uint32_t)];

/* Expects the value in the bytes that were queued to come to words_there. */
static void expect_there(size_t bytes, uint32_t value, CUstream on)
{
    size_t count = bytes / sizeof(uint32_t), right = 0;

    EXPECT_INT(0, ps_cu.cuStreamSynchronize(on));
    for (size_t i = 0; i < count; i++)
        right += words_there[i] == value;
    EXPECT_U64(count, right);
}

static void expect_filled_with(CUdeviceptr address, uint32_t value)
{
    struct ps_span *span = begin_use(address);

    EXPECT_INT(0, driver.download(words_there, address, span->bytes, stream->handle));
    end_use(span);
    expect_there(span->bytes, value, stream->handle);
}

/* Allocates a span `times` as large as the others. */
static CUdeviceptr allocate_large(unsigned times)
{
    CUdeviceptr address = 0;

    EXPECT_INT(0, ps_allocation_make(times * SPAN_BYTES, NULL, PS_ALLOCATION_TO_USE, &address));
    return address;
}

static CUdeviceptr allocate(void)
{
    return allocate_large(1);
}

/*
 * Makes slots ahead of need, so that an eviction queues its copy at once and takes the oldest free
 * one.
 */
static void make_slots(unsigned n)
{
    while (n--)
        EXPECT_INT(0, ps_slab_add(SPAN_BYTES));
}

static void make_large_slot(unsigned times)
{
    EXPECT_INT(0, ps_slab_add(times * SPAN_BYTES));
}

/* Begins to evict the span idle longest. */
static void begin_an_eviction(void)
{
    ps_registry_lock();
    uint64_t bytes = TAILQ_FIRST(&ps_registry.idle_order)->bytes;
    EXPECT_U64(bytes, ps_demand_eviction_evict(1));
    ps_registry_unlock();
}

/* Begins to evict this span, once the helper threads are there. */
static void begin_to_evict(CUdeviceptr address)
{
    ps_registry_lock();
    EXPECT_INT(0, ps_eviction_start(ps_registry_live_at(address)));
    ps_registry_unlock();
}

static void begin_to_evict_if_resident(CUdeviceptr address)
{
    ps_registry_lock();
    struct ps_span *span = ps_registry_live_at(address);
    if (span->residency == PS_RESIDENT)
        EXPECT_INT(0, ps_eviction_start(span));
    ps_registry_unlock();
}

static void wait_until_evicted(CUdeviceptr address)
{
    ps_registry_lock();
    for (const struct ps_span *span = ps_registry_live_at(address); span->residency != PS_EVICTED || span->busy;)
        ps_registry_wait_changed(1000000u); /* if it never happens, the child's alarm ends it */
    ps_registry_unlock();
}

/* Expects that the device has finished its work without an access to unmapped addresses. */
static void expect_device_is_well(void)
{
    EXPECT_INT(0, ps_cu.cuCtxSynchronize());
}

static void release_what_is_free(void)
{
    ps_registry_lock();
    ps_page_supply_trim(UINT64_MAX);
    ps_registry_unlock();
}

/* ---- cases ---- */

/* A span is freed while its D2H is under way, and its pages are needed again at once. */
static void free_while_evicting(void)
{
    make_slots(1);
    CUdeviceptr gone = allocate();
    fill(gone, 1);
    keep_the_device_busy();
    begin_an_eviction();
    EXPECT_INT(0, ps_allocation_free(gone, NULL));
    EXPECT_INT(0, ps_cu.cuStreamSynchronize(stream->handle)); /* the program's last use is over; the D2H may not be */
    release_what_is_free();
    CUdeviceptr next = allocate();
    fill(next, 2);
    expect_device_is_well();
    expect_filled_with(next, 2);
}

/* The same, but an access came in between: the eviction is cancelled, and its D2H still goes on. */
static void free_after_cancel(void)
{
    make_slots(1);
    CUdeviceptr gone = allocate();
    fill(gone, 1);
    keep_the_device_busy();
    begin_an_eviction();
    fill(gone, 2);
    EXPECT_INT(0, ps_allocation_free(gone, NULL));
    EXPECT_INT(0, ps_cu.cuStreamSynchronize(stream->handle));
    release_what_is_free();
    expect_device_is_well();
}

/* A span is reloaded ahead of its use and must leave again before any stream has waited for it. */
static void evict_while_reloading(void)
{
    /*
     * The second eviction takes the other slot. With the same slot, the slot's order would be the
     * span's too.
     */
    make_slots(2);
    CUdeviceptr span = allocate();
    fill(span, 3);
    begin_an_eviction();
    wait_until_evicted(span);
    keep_the_device_busy();
    EXPECT_INT(0, ps_residency_reload_ahead(span));
    begin_an_eviction();
    wait_until_evicted(span);
    expect_filled_with(span, 3);
    expect_device_is_well();
}

/* A span is reloaded ahead and freed at once; another span gets its pages. */
static void free_while_reloading(void)
{
    make_slots(1);
    CUdeviceptr gone = allocate();
    fill(gone, 4);
    begin_an_eviction();
    wait_until_evicted(gone);
    keep_the_device_busy();
    EXPECT_INT(0, ps_residency_reload_ahead(gone));
    EXPECT_INT(0, ps_allocation_free(gone, NULL));
    CUdeviceptr next = allocate();
    fill(next, 5);
    expect_filled_with(next, 5);
    EXPECT_INT(0, ps_allocation_free(next, NULL));
    EXPECT_INT(0, ps_cu.cuStreamSynchronize(stream->handle));
    release_what_is_free();
    expect_device_is_well();
}

/*
 * A launch that found no pages is about to run on the slot. Then pages come free, and another
 * thread reloads the span ahead.
 */
static void reload_before_launch(void)
{
    make_slots(2);
    CUdeviceptr span = allocate();
    fill(span, 6);
    CUdeviceptr first = allocate();
    struct ps_span *held_first = begin_use(first);
    begin_an_eviction();
    wait_until_evicted(span);
    CUdeviceptr second = allocate();
    struct ps_span *held_second = begin_use(second);
    /* the device is full of spans that launches hold, so the span stays on its slot */
    struct ps_span *held = begin_use(span);
    end_use(held_second);
    EXPECT_INT(0, ps_allocation_free(second, NULL));
    keep_the_device_busy();
    ps_residency_reload_ahead(span);
    EXPECT_INT(0, driver.fill(span, 7, held->bytes / sizeof(uint32_t), stream->handle));
    end_use(held);
    end_use(held_first);
    expect_filled_with(span, 7);
    expect_device_is_well();
}

/* A span leaves to a row of two slots; the second slot is still being read for another span. */
static void evict_to_row_being_read(void)
{
    make_slots(2);
    CUdeviceptr small = allocate();
    fill(small, 8);
    begin_an_eviction();
    wait_until_evicted(small);
    CUdeviceptr large = allocate_large(2);
    fill(large, 9);
    keep_the_device_busy();
    EXPECT_INT(0, ps_residency_reload_ahead(small)); /* its slot is now the one that was given back last */
    begin_to_evict(large);
    wait_until_evicted(large);
    EXPECT_U64(1, ps_slab_figures().rows);
    expect_filled_with(small, 8);
    expect_filled_with(large, 9);
    expect_device_is_well();
}

/*
 * A span leaves to the former second slot of a row, which is still being read as part of the row.
 */
static void evict_to_slot_of_row_being_read(void)
{
    make_large_slot(2);
    make_slots(1);
    CUdeviceptr large = allocate_large(3);
    fill(large, 10);
    begin_an_eviction();
    wait_until_evicted(large);
    EXPECT_U64(1, ps_slab_figures().rows);
    CUdeviceptr small = allocate();
    fill(small, 11);
    keep_the_device_busy();
    EXPECT_INT(0, ps_residency_reload_ahead(large));
    begin_to_evict(small);
    wait_until_evicted(small);
    EXPECT_U64(1, ps_slab_figures().rows);
    expect_filled_with(large, 10);
    expect_filled_with(small, 11);
    expect_device_is_well();
}

/*
 * Another thread repeatedly orders work after the stream's queued work. The main thread reports its
 * errors.
 */
static atomic_bool captures_are_over;
static atomic_uint wrong_results;

static void *come_after_uses(void *unused)
{
    (void)unused;
    if (driver.set_current(ps_device.context) != CUDA_SUCCESS)
        atomic_fetch_add(&wrong_results, 1);
    ps_capture_mode_relax_for_good();
    while (!atomic_load(&captures_are_over)) {
        struct ps_uses uses = {.count = 0};
        ps_uses_note(&uses, stream);
        int r = ps_uses_stream_wait(&uses, busy_stream);
        if (!r && driver.fill(busy_bytes, 1, PAGE / sizeof(uint32_t), busy_stream) != CUDA_SUCCESS)
            r = -EIO;
        if (r && r != -EBUSY) /* else the stream is being captured: try later */
            atomic_fetch_add(&wrong_results, 1);
        usleep(50);
    }
    return NULL;
}

/* The stream joins captures of another one, in the way of the tracer and the driver. */
static void join_while_recording(void)
{
    CUstream other;
    CUevent forked, joined;
    pthread_t thread;

    EXPECT_INT(0, driver.stream_create(&other, CU_STREAM_NON_BLOCKING));
    EXPECT_INT(0, ps_cu.cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
    EXPECT_INT(0, ps_cu.cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
    EXPECT_INT(0, pthread_create(&thread, NULL, come_after_uses, NULL));
    for (unsigned turn = 0; turn < 24; turn++) {
        CUgraph graph = NULL;
        ps_capture_begins(other, false);
        ps_capture_began(driver.begin_capture(other, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
        EXPECT_INT(0, ps_cu.cuEventRecord(forked, other));
        usleep(turn % 8 * 40);
        ps_capture_may_be_joined(stream->handle, false);
        EXPECT_INT(0, ps_cu.cuStreamWaitEvent(stream->handle, forked, 0));
        ps_capture_was_joined();
        usleep(400); /* a capture lasts longer than the first thread that looks at the stream takes to record on it */
        EXPECT_INT(0, ps_cu.cuEventRecord(joined, stream->handle));
        EXPECT_INT(0, ps_cu.cuStreamWaitEvent(other, joined, 0));
        /* A stream that waits for an event of the capture is captured too. */
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
        EXPECT_INT(0, ps_cu.cuStreamIsCapturing(busy_stream, &status));
        EXPECT_INT(CU_STREAM_CAPTURE_STATUS_NONE, status);
        if (!EXPECT_INT(0, driver.end_capture(other, &graph)))
            break;
        ps_capture_ended(other, false, CUDA_SUCCESS);
        EXPECT_INT(0, driver.destroy_graph(graph));
    }
    atomic_store(&captures_are_over, true);
    pthread_join(thread, NULL);
    EXPECT_U64(0, wrong_results);
    expect_device_is_well();
}

static CUstream captured_stream(unsigned flags)
{
    CUstream other = NULL;

    EXPECT_INT(0, driver.stream_create(&other, flags));
    ps_capture_begins(other, false);
    ps_capture_began(driver.begin_capture(other, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    return other;
}

/*
 * Uses on the legacy stream are waited for while a blocking stream is captured. Earlier known uses
 * have a tick, and no other tick can be made.
 */
static void wait_for_legacy_in_capture(void)
{
    struct ps_uses before = {.count = 0}, uses = {.count = 0};
    CUgraph graph = NULL;

    EXPECT_INT(0, driver.fill(busy_bytes, 1, PAGE / sizeof(uint32_t), NULL));
    ps_uses_note(&before, ps_stream_find(NULL, false));
    CUstream other = captured_stream(CU_STREAM_DEFAULT);
    EXPECT_INT(0, ps_uses_stream_wait(&before, busy_stream));
    ps_uses_note(&uses, ps_stream_find(NULL, false));
    EXPECT_INT(-EBUSY, ps_uses_stream_wait(&uses, busy_stream));
    EXPECT_INT(0, ps_uses_host_wait_for_queued(&uses, 1000000000u));
    EXPECT(ps_capture_has(CU_STREAM_LEGACY, false));
    EXPECT(!ps_capture_has(busy_stream, false));
    EXPECT_INT(0, driver.end_capture(other, &graph));
    ps_capture_ended(other, false, CUDA_SUCCESS);
    EXPECT(!ps_capture_anywhere());
    EXPECT_INT(0, ps_uses_stream_wait(&uses, busy_stream));
    expect_device_is_well();
}

/* A stream is destroyed while it is captured: its earlier work is still waited for. */
static void destroy_in_capture(void)
{
    struct ps_uses uses = {.count = 0};
    CUstream other;
    CUdeviceptr bytes;

    EXPECT_INT(0, driver.allocate(&bytes, PAGE));
    EXPECT_INT(0, driver.stream_create(&other, CU_STREAM_NON_BLOCKING));
    struct ps_stream *known = ps_stream_find(other, false);
    EXPECT_INT(0, ps_stream_tick(known));
    EXPECT_INT(0, driver.fill(bytes, 6, PAGE / sizeof(uint32_t), other));
    ps_uses_note(&uses, known);
    ps_capture_begins(other, false);
    ps_capture_began(driver.begin_capture(other, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    EXPECT(ps_capture_anywhere());
    ps_stream_retire(other);
    EXPECT_INT(0, driver.stream_destroy(other));
    EXPECT(!ps_capture_anywhere());
    EXPECT_INT(0, ps_uses_stream_wait(&uses, busy_stream));
    EXPECT_INT(0, driver.download(words_there, bytes, PAGE, busy_stream));
    expect_there(PAGE, 6, busy_stream);
    expect_device_is_well();
}

static bool yes(void)
{
    return true;
}

/*
 * A graph fills memory of its own, as torch captures it. The graph is destroyed while its launch
 * and a copy of that memory have yet to run.
 */
static void graph_goes_while_its_memory_is_read(void)
{
    CUdeviceptr memory = 0, result = 0;
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;

    ps_devices_add(ps_device.context);
    EXPECT_INT(0, driver.allocate(&result, SPAN_BYTES));
    CUstream other = captured_stream(CU_STREAM_NON_BLOCKING);
    EXPECT_INT(0, driver.allocate_async(&memory, SPAN_BYTES, other));
    ps_graph_memory_allocated(memory, SPAN_BYTES, other, false, yes);
    EXPECT_INT(0, driver.fill(memory, 7, SPAN_BYTES / sizeof(uint32_t), other));
    EXPECT_INT(0, driver.end_capture(other, &graph));
    ps_capture_ended(other, false, CUDA_SUCCESS);
    EXPECT_INT(0, driver.instantiate(&executable, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    ps_graph_memory_instantiated(graph, executable, true);
    ps_graph_memory_graph_goes(graph);
    EXPECT_INT(0, driver.destroy_graph(graph));

    EXPECT_INT(0, driver.launch_graph(executable, stream->handle));
    EXPECT_INT(0, driver.copy(result, memory, SPAN_BYTES, stream->handle));
    EXPECT(ps_graph_memory_freed(memory, other, false));
    ps_graph_memory_executable_goes(executable);
    EXPECT_INT(0, driver.destroy_executable(executable));
    EXPECT_INT(0, driver.download(words_there, result, SPAN_BYTES, stream->handle));
    expect_there(SPAN_BYTES, 7, stream->handle);
    expect_device_is_well();
}

#include "orderings_of_grace.h"
#include "orderings_of_standing.h"

static const struct {
    const char *name;
    unsigned spans; /* spans that fit on the device */
    unsigned slots; /* slots in the slab; if the case makes them, no others are made ahead of need */
    void (*run)(void);
} cases[] = {
    {"free-while-evicting", 2, MANY, free_while_evicting},
    {"free-after-cancel", 2, MANY, free_after_cancel},
    {"evict-while-reloading", 2, MANY, evict_while_reloading},
    {"free-while-reloading", 2, MANY, free_while_reloading},
    {"reload-under-unseen-use", 2, MANY, reload_under_unseen_use},
    {"reload-before-launch", 2, MANY, reload_before_launch},
    {"hold-in-grace", 2, MANY, hold_what_left_in_grace},
    {"reload-in-grace", 2, MANY, reload_in_grace_for_another_stream},
    {"reload-beside-launch", 2, MANY, reload_in_grace_beside_launch},
    {"launch-beside-grace", 2, MANY, launch_beside_new_grace},
    {"stand-in-call", 2, MANY, stand_in_the_call},
    {"stand-before-call", 2, MANY, stand_before_the_call},
    {"launches-overlap", 2, MANY, launches_that_overlap},
    {"launches-without-number", 2, MANY, launches_without_number},
    {"thread-ends-in-launch", 2, MANY, thread_ends_in_launch},
    {"thread-ends-later", 2, MANY, thread_ends_in_last_launch},
    {"end-made-once", 2, MANY, end_made_once},
    {"born-beside-standing", 3, MANY, born_beside_standing},
    {"look-behind-gate", 2, MANY, look_behind_gate},
    {"look-in-grace", 2, MANY, look_in_grace},
    {"look-beside-blind", 2, MANY, look_beside_blind_launch},
    {"held-up-by-return", 2, MANY, held_up_by_what_comes_back},
    {"reloads-of-two-streams", 2, MANY, reloads_of_two_streams},
    {"second-stream-waits", 2, MANY, second_stream_while_waiting},
    {"reload-beside-table", 2, MANY, reload_beside_freed_table},
    {"reload-before-table", 2, MANY, reload_before_freed_table},
    {"leave-in-grace", 8, MANY, leave_in_grace_again_and_again},
    {"evict-to-row", 3, 2, evict_to_row_being_read},
    {"evict-to-slot-of-row", 4, 3, evict_to_slot_of_row_being_read},
    {"reuse-event-of-reload", 2, MANY, reuse_event_of_reload},
    {"join-while-recording", 2, 2, join_while_recording},
    {"wait-for-legacy-in-capture", 2, 2, wait_for_legacy_in_capture},
    {"destroy-in-capture", 2, 2, destroy_in_capture},
    {"graph-goes", 2, 2, graph_goes_while_its_memory_is_read},
};

#define CASES (sizeof cases / sizeof cases[0])

/* ---- running them ---- */

static int run_in_this_process(size_t i, unsigned seed)
{
    char text[16];

    snprintf(text, sizeof text, "%u", seed);
    setenv("CUDASIM_SCHED", "seeded", 1);
    setenv("CUDASIM_SEED", text, 1);
    setenv("CUDASIM_GRANULARITY", "4096", 1);
    alarm(CHILD_SECONDS);
    expect_checked = expect_failed = 0;
    if (open_core(cases[i].spans, cases[i].slots))
        cases[i].run();
    return expect_status();
}

static bool run_seed(size_t i, unsigned seed)
{
    int status = -1;

    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(run_in_this_process(i, seed)); /* its helper threads wait for the device, so no destructor may run */
    waitpid(child, &status, 0);
    if (EXPECT_INT(0, status))
        return true;
    fprintf(stderr, "  case %s, seed %u%s\n", cases[i].name, seed, WIFSIGNALED(status) ? ", by a signal" : "");
    return false;
}

static void run_seeds(size_t i, unsigned first, unsigned seeds)
{
    unsigned wrong = 0;

    for (unsigned seed = first; seed < first + seeds && wrong < ENOUGH; seed++)
        wrong += !run_seed(i, seed);
}

/* A child looks for the device: if the parent opened the driver, its children could not. */
static bool device_is_simulated(void)
{
    int status = -1;
    pid_t child = fork();

    if (child == 0)
        _exit(ps_real_cuda_symbol("cudasim_register_kernel") ? 0 : 1);
    waitpid(child, &status, 0);
    return status == 0;
}

int main(int argc, char **argv)
{
    unsigned first = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 1;
    unsigned seeds = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : SEEDS;

    if (!device_is_simulated()) {
        fprintf(stderr, "needs the simulated device in LD_LIBRARY_PATH\n");
        return SKIP;
    }
    for (size_t i = 0; i < CASES; i++)
        if (argc < 2 || !*argv[1] || !strcmp(argv[1], cases[i].name))
            run_seeds(i, first, seeds);
    return expect_status();
}
