#include "observe/live.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/live_directory.h"
#include "base/live_page.h"
#include "base/log.h"
#include "base/output.h"
#include "base/settings.h"
#include "base/state.h"
#include "cuda/device_memory.h"
#include "cuda/devices.h"
#include "cuda/helper_thread.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "observe/live_files.h"
#include "observe/report.h"
#include "observe/report_signal.h"
#include "penstock/version.h"
#include "plan/live_values.h"
#include "plan/step_log.h"
#include "residency/stopwatch.h"
#include "tracer/start.h"

#define TURN_NS 100000000u
#define TURNS_A_SECOND 10u
#define PROMETHEUS_EVERY_NS (5ull * 1000000000u)
#define FINISH_WAIT_NS 500000000u
#define STEPS_AT_ONCE 32u

/* Requests to the thread, which sleeps on the word `wanted`. */
enum {
    WANT_REPORT = 1,
    WANT_END = 2,
};
static _Atomic uint32_t wanted;
static atomic_bool ended; /* the thread has carried out WANT_END */
static atomic_int owner;  /* the process that owns the page; 0: none */
static atomic_bool has_thread;

static struct ps_live_page *_Atomic page; /* NULL: no page */
static char page_path[PS_LIVE_PATH_BYTES + PS_LIVE_NAME_BYTES];
static uint64_t epoch_ns; /* ns from 1970 to the clock's 0 */
static uint64_t rank = PS_LIVE_NO_RANK;

/* ---- the page ---- */

/*
 * Makes the file and takes its memory at once: a missing page at a later write would be a fatal
 * signal. Returns 0 or -errno.
 */
static int make_file(int directory, const char *name, struct ps_live_page **out)
{
    unlinkat(directory, name, 0); /* left by an earlier process of this number, or by this one before an exec */
    int fd = openat(directory, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    struct ps_output_signals held;
    ps_output_hold_signals(&held);
    int error = posix_fallocate(fd, 0, sizeof **out);
    ps_output_release_signals(&held, error);
    void *mapped = error ? MAP_FAILED : mmap(NULL, sizeof **out, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!error && mapped == MAP_FAILED)
        error = errno;
    close(fd);
    if (error) {
        unlinkat(directory, name, 0);
        return -error;
    }
    *out = mapped;
    return 0;
}

static void fill_header(struct ps_live_header *header, const struct ps_live_identity *identity,
                        const struct ps_ranks *ranks, const char *aside)
{
    uint64_t magic;

    header->version = PS_LIVE_VERSION;
    header->bytes = sizeof(struct ps_live_page);
    header->identity = *identity;
    header->opened_ns = epoch_ns + ps_now_ns();
    header->rank = rank;
    header->processes = ranks->several ? ranks->processes : 1;
    snprintf(header->library_version, sizeof header->library_version, "%s", PENSTOCK_VERSION_STRING);
    snprintf(header->aside, sizeof header->aside, "%s", aside ? aside : "");
    snprintf(header->command, sizeof header->command, "%s", ps_report_command());
    memcpy(&magic, PS_LIVE_MAGIC, sizeof magic);
    /* This comes last: with the magic a reader believes the rest. */
    atomic_store_explicit((_Atomic uint64_t *)(void *)header->magic, magic, memory_order_release);
}

static int open_page(const struct ps_ranks *ranks, const char *aside)
{
    char directory_path[PS_LIVE_PATH_BYTES], name[PS_LIVE_NAME_BYTES];
    struct ps_live_identity identity;
    struct ps_live_page *made = NULL;
    int error = ps_live_identity_of(getpid(), &identity);

    if (error)
        return error;
    int directory = ps_live_directory_open_any(directory_path);
    if (directory < 0)
        return directory;
    ps_live_each(directory, NULL, NULL); /* deletes the files of processes that were killed */
    ps_live_name(name, &identity);
    error = make_file(directory, name, &made);
    close(directory);
    if (error)
        return error;
    snprintf(page_path, sizeof page_path, "%s/%s", directory_path, name);
    fill_header(&made->header, &identity, ranks, aside);
    atomic_store(&page, made);
    return 0;
}

/* ---- a look ---- */

/* Totals of about a second ago, for rates. Only the thread uses them. */
static struct totals {
    uint64_t at_ns, out, in, waited;
} earlier[TURNS_A_SECOND];
static unsigned looks;

static uint64_t per_second(uint64_t now, uint64_t before, uint64_t ns)
{
    return ns ? (uint64_t)((unsigned __int128)(now - before) * 1000000000u / ns) : 0;
}

static void tell_process(struct ps_live_process *p)
{
    const struct totals now = {ps_now_ns(), p->figures.evicted_bytes, p->figures.reloaded_bytes,
                               p->figures.host_wait_ns};
    const struct totals *before = &earlier[looks < TURNS_A_SECOND ? 0 : looks % TURNS_A_SECOND];
    const char *source = ps_tracing_source();

    if (looks) {
        p->evicted_bytes_per_second = per_second(now.out, before->out, now.at_ns - before->at_ns);
        p->reloaded_bytes_per_second = per_second(now.in, before->in, now.at_ns - before->at_ns);
        p->host_wait_ns_per_second = per_second(now.waited, before->waited, now.at_ns - before->at_ns);
    }
    earlier[looks++ % TURNS_A_SECOND] = now;
    p->updated_ns = epoch_ns + now.at_ns;
    p->aside = atomic_load(&ps_process_state) != PS_PROCESS_MANAGING;
    p->tracer = *source == 'c' ? PS_LIVE_TRACER_CUPTI : *source == 'h' ? PS_LIVE_TRACER_HOOK : PS_LIVE_TRACER_NONE;
}

/* Writes the device's facts. They are constant once the device is counted. */
static void tell_device_facts(struct ps_live_device_facts *facts)
{
    facts->ordinal = (uint64_t)ps_device.ordinal;
    facts->total_bytes = ps_device.total_bytes;
    snprintf(facts->name, sizeof facts->name, "%s", ps_device.name);
}

/*
 * Writes the steps whose waits have been reported, or all steps. The lock is held while they are
 * taken, but not while they are written.
 */
static void write_steps(bool all)
{
    static struct ps_live_step step[STEPS_AT_ONCE];
    uint64_t lost = 0;
    size_t n;

    do {
        if (!ps_registry_lock_soon()) {
            if (all)
                ps_live_files_left_out(ps_step_log_left());
            break;
        }
        n = ps_step_log_take(step, STEPS_AT_ONCE, all, &lost);
        ps_registry_unlock();
        for (size_t i = 0; i < n; i++)
            ps_live_files_step(&step[i], (uint64_t)ps_device.ordinal, epoch_ns);
    } while (n == STEPS_AT_ONCE);
    ps_live_files_lost(lost);
}

/*
 * Writes the figures of the thread's current device, number `i`. Leaves the earlier figures if its
 * lock can't be taken.
 */
static void look_at_device(unsigned i, struct ps_live_snapshot *all)
{
    /* Samples that were outstanding at the look before have been taken in by now. */
    static uint64_t outstanding_before[PS_LIVE_DEVICES_MAX];
    struct ps_live_page *to = atomic_load(&page);
    struct ps_live_device d;
    uint64_t outstanding;

    ps_stopwatch_outstanding(&outstanding);
    if (!ps_registry_lock_soon())
        return;
    ps_step_log_told(outstanding_before[i]);
    ps_live_values_device(&d.figures);
    ps_step_log_recent(d.recent_step_ns);
    ps_registry_unlock();
    outstanding_before[i] = outstanding;
    all->device[i] = d.figures;
    all->ordinal[i] = (uint64_t)ps_device.ordinal;
    if (!to)
        return;
    if (!atomic_load_explicit(&to->device[i].sequence, memory_order_relaxed))
        tell_device_facts(&to->header.device[i]);
    ps_live_record_write(&to->device[i], &d, PS_LIVE_WORDS(d));
}

static void look(struct ps_live_snapshot *all)
{
    struct ps_live_page *to = atomic_load(&page);
    struct ps_live_process p = {.devices = ps_devices_count()};

    for (unsigned i = 0; i < p.devices; i++) {
        ps_devices_enter(i);
        look_at_device(i, all);
    }
    all->devices = (unsigned)p.devices;
    ps_live_values_process(&p.figures);
    all->process = p.figures;
    tell_process(&p);
    if (to)
        ps_live_record_write(&to->process, &p, PS_LIVE_WORDS(p));
}

/* ---- the thread ---- */

/* Sleeps until a request comes. NULL: without a limit. */
static void sleep_until_wanted(const struct timespec *at_most)
{
    syscall(SYS_futex, &wanted, FUTEX_WAIT_PRIVATE, 0, at_most, NULL, 0);
}

static void wake(uint32_t what)
{
    atomic_fetch_or(&wanted, what);
    syscall(SYS_futex, &wanted, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void write_all_steps(bool all)
{
    for (unsigned i = 0; *ps_settings.metrics && i < ps_devices_count(); i++) {
        ps_devices_enter(i);
        write_steps(all);
    }
}

static void look_on(void)
{
    static const struct timespec a_turn = {.tv_nsec = TURN_NS};
    static struct ps_live_snapshot now;
    uint64_t prometheus_at = 0;

    now.rank = rank;
    for (uint64_t turn = 0;; turn++) {
        const uint32_t asked = atomic_exchange(&wanted, 0);
        const bool last = asked & WANT_END;
        look(&now);
        if ((asked & WANT_REPORT) && !ps_report_write_now())
            atomic_fetch_or(&wanted, WANT_REPORT); /* the lock could not be taken; try again */
        write_all_steps(last);
        if (*ps_settings.prometheus && (last || ps_now_ns() >= prometheus_at)) {
            ps_live_files_prometheus(&now);
            prometheus_at = ps_now_ns() + PROMETHEUS_EVERY_NS;
        }
        if (turn % TURNS_A_SECOND == 0)
            ps_report_signal_check();
        if (last) {
            ps_live_files_close();
            atomic_store(&ended, true);
            ps_helper_thread_park();
        }
        sleep_until_wanted(&a_turn);
    }
}

/* Runs when Penstock stands aside: no figures need to be written then. */
static void write_reports(void)
{
    for (;;) {
        if ((atomic_exchange(&wanted, 0) & WANT_REPORT) && !ps_report_write_now())
            atomic_fetch_or(&wanted, WANT_REPORT);
        sleep_until_wanted(NULL);
    }
}

/* ---- life ---- */

void ps_live_open_device(void)
{
    if (*ps_settings.metrics && ps_step_log_keep())
        ps_log_warn(REPORT,
                    "PENSTOCK_METRICS=%s: no memory to keep steps until they are written, so no "
                    "lines are written; a lower PENSTOCK_HOST_BUDGET makes the slab smaller",
                    ps_settings.metrics);
}

void ps_live_open(const struct ps_ranks *ranks, const char *aside)
{
    struct timespec since_1970;

    clock_gettime(CLOCK_REALTIME, &since_1970);
    epoch_ns = (uint64_t)since_1970.tv_sec * 1000000000u + (uint64_t)since_1970.tv_nsec - ps_now_ns();
    rank = ranks->several ? ranks->rank : PS_LIVE_NO_RANK;
    atomic_store(&owner, (int)getpid());
    int error = ps_settings.live ? open_page(ranks, aside) : 0;
    if (error)
        ps_log_info(REPORT, "`penstock top` can't show this process: its live page can't be created (error %d)",
                    -error);
    if (aside) {
        struct ps_live_process p = {.updated_ns = epoch_ns + ps_now_ns(), .aside = 1};
        if (atomic_load(&page))
            ps_live_record_write(&atomic_load(&page)->process, &p, PS_LIVE_WORDS(p));
        if (ps_report_signal_is_on())
            ps_helper_thread_start_apart("penstock-live", write_reports);
        return;
    }
    if (!atomic_load(&page) && !*ps_settings.metrics && !*ps_settings.prometheus && !ps_report_signal_is_on())
        return;
    atomic_store(&has_thread, !ps_helper_thread_start_apart("penstock-live", look_on));
    if (!atomic_load(&has_thread) && atomic_exchange(&page, NULL))
        unlink(page_path); /* no thread would write the page */
}

void ps_live_want_report(void)
{
    wake(WANT_REPORT);
}

void ps_live_finish(void)
{
    int us = (int)getpid(), saved = errno;

    if (!atomic_compare_exchange_strong(&owner, &us, 0))
        return;
    /* Waits only for files; the page alone needs no wait. */
    bool waits = atomic_load(&has_thread) && (*ps_settings.metrics || *ps_settings.prometheus);
    if (waits)
        wake(WANT_END);
    const uint64_t since = ps_now_ns();
    while (waits && !atomic_load(&ended) && ps_sleep_within(since, FINISH_WAIT_NS, 1000000)) {
    }
    if (atomic_load(&page))
        unlink(page_path);
    errno = saved;
}

void ps_live_disown(void)
{
    atomic_store(&owner, 0);
    atomic_store(&page, NULL);
}
