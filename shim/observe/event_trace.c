#include "observe/event_trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/counters.h"
#include "base/log.h"
#include "base/observers.h"
#include "base/per_device.h"
#include "base/settings.h"
#include "cuda/device_memory.h"
#include "cuda/devices.h"
#include "cuda/driver.h"
#include "cuda/helper_thread.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "observe/trace_file.h"
#include "observe/trace_format.h"
#include "residency/event_ring.h"
#include "residency/events.h"

/*
 * Number of records in the ring. Except for layers, each record is of work that takes Penstock 10
 * us or more. The writer comes every 10 ms.
 */
#define BESIDE_MAX 10u
#define RING 16384u
#define WRITE_EVERY_NS 10000000

/*
 * Most reloads whose end the device has not reached. Each needs marks, and there are no more of
 * them.
 */
#define PENDING 2048u

/*
 * Time limits at the end: for the device to finish queued copies, and for the file to take the
 * rest.
 */
#define LAST_COPIES_NS 500000000u
#define FINISH_NS 2000000000u

static PS_PER_DEVICE unsigned first_number; /* number of the device; constant once it was added */

static struct ps_event_ring ring;
static const char *path;
static atomic_bool is_open, closing, closed;
static atomic_uint putting; /* number of threads that put a record, or are about to */

/* Used by the writer's thread only. */
static struct ps_trace_file file;
static struct ps_event_record *pending;
static unsigned pending_count, devices_met;

/*
 * Takes over the record, for the device that the thread is at. False: it is dropped, and counted
 * unless the trace has ended. Any thread, any lock.
 */
static bool take_record(struct ps_event_record *record)
{
    bool put = false;

    record->device = (uint8_t)PS_HERE(first_number);
    atomic_fetch_add(&putting, 1);
    /* Tracing still goes on: after its end no event is put or counted. */
    if (atomic_load(&ps_events_traces)) {
        put = ps_event_ring_put(&ring, record);
        if (put)
            ps_count(trace_events);
        else
            ps_count(trace_events_dropped);
    }
    atomic_fetch_sub(&putting, 1);
    return put;
}

/* ---- the writer ---- */

static void enter_device(unsigned number)
{
    if (!ps_devices_several)
        return;
    ps_devices_enter(number);
    ps_cu.cuCtxSetCurrent(ps_device.context);
}

static void meet_devices(void)
{
    for (; devices_met < ps_devices_count(); devices_met++) {
        enter_device(devices_met);
        ps_trace_format_device(devices_met, ps_device.ordinal, ps_budget.limit);
    }
}

/*
 * Returns whether the device has finished the reload, or never will. Then fills in the record's
 * times.
 */
static bool is_over(struct ps_event_record *r)
{
    enter_device(r->device);
    if (ps_device_clock_is_ahead(r->to))
        return false;
    if (!ps_device_clock_when_marked(r->from, &r->begin_ns) || !ps_device_clock_when_marked(r->to, &r->end_ns))
        r->begin_ns = r->end_ns = 0;
    return true;
}

/* Writes a reload whose times are known, or never will be. */
static void end_reload(struct ps_event_record *r)
{
    enter_device(r->device);
    ps_events_reload_is_over();
    ps_device_clock_give(r->from);
    ps_device_clock_give(r->to);
    ps_trace_format_add(r);
}

static void take_in(void)
{
    struct ps_event_record record;

    while (ps_event_ring_take(&ring, &record)) {
        meet_devices();                  /* the record may be the first of its device */
        ps_trace_format_levels(&record); /* in the order of the records, even if the reload itself is written later */
        if (!record.to)
            ps_trace_format_add(&record);
        else if (pending_count < PENDING)
            pending[pending_count++] = record;
        else
            end_reload(&record);
    }
}

/* Writes the reloads that are over. `all`: also the others. */
static void settle_reloads(bool all)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < pending_count; i++) {
        struct ps_event_record *r = &pending[i];
        if (!all && !is_over(r)) {
            pending[kept++] = *r;
            continue;
        }
        end_reload(r);
    }
    pending_count = kept;
}

/* Records the held bytes between moves, and renews the clocks. */
static void look_at_devices(void)
{
    for (unsigned i = 0; i < ps_devices_count(); i++) {
        enter_device(i);
        if (ps_events_is_tracing() && ps_registry_lock_soon()) {
            ps_events_levels();
            ps_registry_unlock();
        }
        ps_device_clock_renew();
    }
}

static void pause_ns(long ns)
{
    const struct timespec time = {.tv_nsec = ns};

    nanosleep(&time, NULL);
}

/*
 * Writes the rest. Records that need no driver come first: the end of the process may have
 * interrupted a driver call.
 */
static void write_last(void)
{
    uint64_t error = 0;

    take_in();
    ps_trace_format_settle();
    ps_trace_file_flush(&file);
    const uint64_t since = ps_now_ns();
    do {
        settle_reloads(false);
    } while (pending_count && ps_sleep_within(since, LAST_COPIES_NS, 1000000));
    settle_reloads(true);
    for (unsigned i = 0; i < ps_devices_count(); i++) {
        ps_devices_enter(i);
        error = ps_device_clock_error_ns() > error ? ps_device_clock_error_ns() : error;
    }
    ps_trace_format_end(ps_now_ns(), ps_counted(trace_events), ps_counted(trace_events_dropped), error);
}

static void write_trace(void)
{
    while (!atomic_load(&closing)) {
        meet_devices();
        look_at_devices();
        take_in();
        settle_reloads(false);
        ps_trace_format_settle();
        int r = ps_trace_file_flush(&file);
        errno = -r;
        if (r && atomic_exchange(&ps_events_traces, false))
            ps_log_warn(
                REPORT,
                "PENSTOCK_TRACE=%s: the trace could not be written (%m) and ends here; free some space, or name another file",
                path);
        pause_ns(WRITE_EVERY_NS);
    }
    meet_devices();
    write_last();
    atomic_store(&closed, true);
    ps_helper_thread_park();
}

/* ---- beginning and end ---- */

/*
 * Opens the file. Two processes that do not know of each other may have the same path. Then the
 * later one writes to a new file beside it.
 */
static int open_file(void)
{
    static char beside[PS_SETTINGS_PATH_BYTES + 32];
    int r = ps_trace_file_open(&file, path, 0);

    if (r != -EWOULDBLOCK)
        return r;
    for (unsigned tries = 0; tries < BESIDE_MAX; tries++) {
        const int length = snprintf(beside, sizeof beside, "%s.%d", path, (int)getpid());
        if (tries)
            snprintf(beside + length, sizeof beside - (size_t)length, "-%u", tries);
        r = ps_trace_file_open(&file, beside, O_EXCL);
        if (r != -EEXIST)
            break;
    }
    if (r)
        return r;
    ps_log_info(REPORT, "PENSTOCK_TRACE=%s: another process writes its trace there; the trace of this process is %s",
                path, beside);
    path = beside;
    return 0;
}

static void open_clock(void)
{
    if (ps_device_clock_open())
        ps_log_info(REPORT, "device %d gives no timestamps: the trace shows its copies with the host's times",
                    ps_device.ordinal);
}

/* Ends tracing, because the writer's thread can't have its context. */
static void writer_is_gone(void *unused)
{
    (void)unused;
    atomic_store(&closed, true);
    ps_event_trace_stop();
}

void ps_event_trace_open(const char *where)
{
    path = where;
    if (!*path)
        return;
    int r = open_file();
    if (r) {
        errno = -r;
        ps_log_warn(REPORT, "PENSTOCK_TRACE=%s: the trace could not be opened (%m): name a file that can be written to",
                    path);
        return;
    }
    ps_trace_format_begin(&file, program_invocation_short_name);
    pending = calloc(PENDING, sizeof *pending);
    open_clock();
    if (!pending || ps_event_ring_open(&ring, RING) ||
        ps_helper_thread_start("penstock-trace", write_trace, writer_is_gone, NULL)) {
        ps_log_warn(REPORT,
                    "PENSTOCK_TRACE=%s: no trace is written, because there is no memory or no "
                    "thread for it; a lower PENSTOCK_HOST_BUDGET makes the slab smaller",
                    path);
        return;
    }
    ps_observers.event = take_record;
    ps_observers.trace_ends = ps_event_trace_finish;
    atomic_store(&is_open, true);
    atomic_store(&ps_events_traces, true);
}

void ps_event_trace_add_device(void)
{
    if (!atomic_load(&is_open))
        return;
    PS_HERE(first_number) = ps_devices_count();
    open_clock();
}

/* The wait is limited: a signal may have interrupted this very thread while it put a record. */
#define PUTTING_NS 20000000u

void ps_event_trace_stop(void)
{
    atomic_store(&ps_events_traces, false);
    const uint64_t since = ps_now_ns();

    while (atomic_load(&putting) && ps_sleep_within(since, PUTTING_NS, 1000000)) {
    }
}

void ps_event_trace_finish(void)
{
    if (!atomic_exchange(&is_open, false))
        return;
    ps_event_trace_stop();
    atomic_store(&closing, true);
    const uint64_t since = ps_now_ns();
    while (!atomic_load(&closed) && ps_sleep_within(since, FINISH_NS, 1000000)) {
    }
    if (!atomic_load(&closed))
        ps_log_warn(REPORT,
                    "PENSTOCK_TRACE=%s: the end of the trace could not be written in "
                    "time; the part before it can be read; use a faster file system",
                    path);
}

void ps_event_trace_forget(void)
{
    atomic_store(&ps_events_traces, false);
    if (atomic_exchange(&is_open, false))
        close(file.fd); /* the parent has its own descriptor, and the lock goes with the last one */
}
