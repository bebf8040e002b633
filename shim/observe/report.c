#include "observe/report.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes_text.h"
#include "base/clock.h"
#include "base/counters.h"
#include "base/json.h"
#include "base/log.h"
#include "base/output.h"
#include "base/rank_exchange.h"
#include "base/ranks.h"
#include "base/settings.h"
#include "base/state.h"
#include "base/waits.h"
#include "cuda/device_memory.h"
#include "cuda/devices.h"
#include "kernels/named_kernels.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "memory/shutdown.h"
#include "memory/slab.h"
#include "observe/live.h"
#include "observe/event_trace.h"
#include "penstock/version.h"
#include "plan/following.h"
#include "plan/learning.h"
#include "plan/step_log.h"
#include "residency/eviction.h"
#include "tracer/start.h"
#include "tracer/tracer.h"
#include "verify/verify.h"

/*
 * The closing line gives advice if a planned step waits at least this many thousandths of the plain
 * step.
 */
#define HINT_FROM 20

/* Kernels that the report names: programs that make kernels may have any number. */
#define KERNELS_NAMED 2000u

static struct ps_ranks ranks;
static char directory[PS_SETTINGS_PATH_BYTES];
static char command[4096];
static const char *stands_aside;
static pid_t opened_by;
static atomic_int owner;    /* the process that writes the report; 0: none */
static atomic_bool writing; /* a thread writes the file */

void ps_report_remember_directory(void)
{
    static const char *const variables[] = {"PENSTOCK_REPORT", "PENSTOCK_RECORDING", "PENSTOCK_TRACE",
                                            "PENSTOCK_METRICS", "PENSTOCK_PROMETHEUS"};

    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *file = getenv(variables[i]);
        if (file && *file && *file != '/' && !*directory && !getcwd(directory, sizeof directory))
            directory[0] = 0;
    }
}

void ps_report_set_ranks(const struct ps_ranks *as)
{
    ranks = *as;
}

void ps_report_make_absolute(char *path, size_t size)
{
    size_t before = strlen(directory), length = strlen(path);

    if (!*path || *path == '/' || !before || before + 1 + length + 1 > size)
        return;
    memmove(path + before + 1, path, length + 1);
    memcpy(path, directory, before);
    path[before] = '/';
}

void ps_report_forget(void)
{
    atomic_store(&owner, 0);
}

/*
 * Reads the command line, with blanks between the arguments. Keeps only the part that the user
 * wants shown.
 */
static void read_command(void)
{
    if (ps_settings.report_command == PS_REPORT_COMMAND_OFF)
        return;
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, command, sizeof command - 1);

    if (fd >= 0)
        close(fd);
    if (ps_settings.report_command == PS_REPORT_COMMAND_NAME) {
        const size_t length = strlen(command);
        memset(command + length, 0, sizeof command - length);
        return;
    }
    for (ssize_t i = 0; i + 1 < n; i++)
        if (!command[i])
            command[i] = ' ';
}

const char *ps_report_command(void)
{
    return command;
}

/* Figures that the lock guards, and the steps of the process. */
struct figures {
    unsigned long long steps;
    uint64_t peak_held;
    uint64_t peak_live;
    struct ps_slab_figures slab;
    struct ps_steps_summary learnt;
    struct ps_learning_cost until_plan;
    uint64_t enough_bytes;
    uint64_t recent_step_ns[PS_LIVE_RECENT]; /* last step first; 0: no more steps */
    struct ps_following_summary followed;
};

static struct figures take_figures(void)
{
    struct figures f = {.peak_held = ps_budget.peak_held};

    ps_waits_ns(); /* brings the counter up to date */
    f.peak_live = ps_registry.peak_live_bytes;
    f.slab = ps_slab_figures();
    ps_learning_summary(&f.learnt);
    f.until_plan = ps_learning_cost();
    f.enough_bytes = ps_learning_enough_bytes();
    ps_step_log_recent(f.recent_step_ns);
    ps_following_summary(&f.followed);
    return f;
}

/* Takes the largest peaks of all devices. */
static void take_largest_peaks(struct figures *f)
{
    for (unsigned i = 1; i < ps_devices_count(); i++) {
        ps_devices_enter(i);
        bool locked = ps_registry_lock_soon();
        if (ps_budget.peak_held > f->peak_held)
            f->peak_held = ps_budget.peak_held;
        if (ps_registry.peak_live_bytes > f->peak_live)
            f->peak_live = ps_registry.peak_live_bytes;
        if (locked)
            ps_registry_unlock();
    }
    ps_devices_enter(0);
}

/*
 * Writes how long a step waited for the link, and the budget that avoids the wait. Writes nothing
 * if the wait is short, or if the budget exceeds the device's memory.
 */
static void give_hint(const struct figures *f, char *text, size_t size)
{
    const struct ps_following_summary *p = &f->followed;
    unsigned long long waited_us = p->exposed_ns / 1000;

    *text = 0;
    if (!p->steps || !f->enough_bytes || f->enough_bytes > ps_device.total_bytes ||
        p->exposed_ns / HINT_FROM < p->plain_ns / 1000)
        return;
    snprintf(text, size, "; each step lost %llu.%03llu ms waiting for copies, and would lose none with a budget of %s",
             waited_us / 1000, waited_us % 1000, ps_bytes_text(f->enough_bytes).text);
}

static void say_closing_line(struct figures *f)
{
    unsigned long long waited_ms = ps_counted(host_wait_ns) / 1000000u;
    char how_many[32] = "", on_which[48] = "the device", hint[128];
    const unsigned devices = ps_devices_count();

    if (stands_aside)
        return; /* the line about standing aside was written already */
    if (f->steps)
        snprintf(how_many, sizeof how_many, "%llu steps, ", f->steps);
    if (devices > 1) {
        take_largest_peaks(f);
        snprintf(on_which, sizeof on_which, "the fullest of %u devices", devices);
    }
    give_hint(f, hint, sizeof hint);
    ps_log_warn(REPORT, "%speak %s on %s, %s without; moved %s out and %s back; waited %llu.%03llu s%s", how_many,
                ps_bytes_text(f->peak_held).text, on_which, ps_bytes_text(f->peak_live).text,
                ps_bytes_text(ps_counted(evicted_bytes)).text, ps_bytes_text(ps_counted(reloaded_bytes)).text,
                waited_ms / 1000, waited_ms % 1000, hint);
}

static void write_passthrough(struct ps_json *j)
{
    ps_json_begin_object(j, "passthrough");
#define PS_PASSTHROUGH(name, text) ps_json_u64(j, #name, atomic_load(&ps_passthrough.name));
    PS_PASSTHROUGH_TABLE
#undef PS_PASSTHROUGH
    ps_json_end(j);
}

static void write_learning(struct ps_json *j, const struct figures *f)
{
    ps_json_begin_object(j, "learning");
    ps_json_u64(j, "launches", f->learnt.launches);
    ps_json_u64(j, "launches_in_patterns", f->learnt.in_pattern);
    ps_json_u64(j, "steps", f->learnt.steps);
    ps_json_u64(j, "patterns_lost", f->learnt.lost);
    ps_json_begin_object(j, "until_plan");
    ps_json_u64(j, "launches", f->until_plan.launches);
    ps_json_u64(j, "ns", f->until_plan.ns);
    ps_json_u64(j, "host_wait_ns", f->until_plan.host_wait_ns);
    ps_json_end(j);
    ps_json_begin_array(j, "recent_steps");
    for (unsigned i = 0; i < PS_LIVE_RECENT && f->recent_step_ns[i]; i++) {
        ps_json_begin_object(j, NULL);
        ps_json_u64(j, "ns", f->recent_step_ns[i]);
        ps_json_end(j);
    }
    ps_json_end(j);
    ps_json_begin_array(j, "patterns");
    for (unsigned i = 0; i < PS_PATTERNS_MAX; i++) {
        if (!f->learnt.length[i])
            continue;
        ps_json_begin_object(j, NULL);
        ps_json_u64(j, "launches", f->learnt.length[i]);
        ps_json_u64(j, "rounds", f->learnt.rounds[i]);
        ps_json_end(j);
    }
    ps_json_end(j);
    ps_json_end(j);
    ps_json_begin_object(j, "plan");
    ps_json_u64(j, "steps", f->followed.steps);
    ps_json_u64(j, "plain_step_ns", f->followed.plain_ns);
    ps_json_u64(j, "predicted_step_ns", f->followed.predicted_ns);
    ps_json_u64(j, "predicted_mapping_ns", f->followed.mapping_ns);
    ps_json_u64(j, "exposed_ns", f->followed.exposed_ns);
    ps_json_u64(j, "nothing_lost_bytes", f->enough_bytes);
    ps_json_u64(j, "evictions", f->followed.evictions);
    ps_json_u64(j, "reloads", f->followed.reloads);
    ps_json_u64(j, "corrections", f->followed.corrections);
    ps_json_u64(j, "evictions_put_off", f->followed.put_off);
    ps_json_u64(j, "spans_made_ahead", f->followed.preallocation.made);
    ps_json_u64(j, "allocations_without_one", f->followed.preallocation.missing);
    ps_following_write_layers(j);
    ps_json_end(j);
}

static void write_device(struct ps_json *j)
{
    ps_json_begin_object(j, "device");
    ps_json_u64(j, "ordinal", (uint64_t)ps_device.ordinal);
    ps_json_string(j, "name", ps_device.name);
    ps_json_u64(j, "total_bytes", ps_device.total_bytes);
    ps_json_end(j);
    if (ps_budget.limit == UINT64_MAX)
        ps_json_null(j, "budget_bytes"); /* unlimited */
    else
        ps_json_u64(j, "budget_bytes", ps_budget.limit);
}

static void write_peaks(struct ps_json *j, const struct figures *f)
{
    ps_json_u64(j, "peak_resident_bytes", f->peak_held);
    ps_json_u64(j, "peak_demand_bytes", f->peak_live);
}

static void write_slab(struct ps_json *j, const struct figures *f)
{
    ps_json_begin_object(j, "slab");
    ps_json_u64(j, "bytes", f->slab.bytes);
    ps_json_u64(j, "peak_used_bytes", f->slab.peak_used_bytes);
    ps_json_u64(j, "limit_bytes", f->slab.limit_bytes);
    ps_json_u64(j, "rows", f->slab.rows);
    ps_json_end(j);
}

struct kernels_written {
    struct ps_json *json;
    uint64_t used, proved, uses, uses_of_proved;
};

static int write_kernel(const struct ps_kernel_scan *scan, uint64_t uses, void *ctx)
{
    struct kernels_written *w = ctx;
    const bool is_proved = scan->doubt == PS_DOUBT_NONE;

    w->uses += uses;
    w->proved += is_proved;
    w->uses_of_proved += is_proved ? uses : 0;
    if (w->used++ >= KERNELS_NAMED)
        return 0;
    ps_json_begin_object(w->json, NULL);
    ps_json_string(w->json, "name", scan->name);
    ps_json_u64(w->json, "uses", uses);
    if (is_proved)
        ps_json_null(w->json, "doubt");
    else
        ps_json_string(w->json, "doubt", ps_kernel_doubt_text(scan->doubt));
    if (scan->instruction) {
        ps_json_u64(w->json, "at", scan->at);
        ps_json_u64(w->json, "instruction", scan->instruction);
    }
    ps_json_end(w->json);
    return 0;
}

/* Needs no registry lock: names are long, and launches should not wait for them. */
static void write_kernels(struct ps_json *j)
{
    struct kernels_written w = {.json = j};

    ps_json_begin_object(j, "kernels");
    ps_json_begin_array(j, "list");
    const bool is_whole = !ps_named_kernels_each_used(write_kernel, &w);
    ps_json_end(j);
    ps_json_u64(j, "used", w.used);
    ps_json_u64(j, "proved", w.proved);
    ps_json_u64(j, "uses", w.uses);
    ps_json_u64(j, "uses_of_proved", w.uses_of_proved);
    ps_json_bool(j, "some_unseen", ps_named_kernels_have_missed());
    ps_json_bool(j, "is_whole", is_whole);
    ps_json_end(j);
}

/*
 * Writes the figures of each device. The caller holds the first device's lock; that device's
 * figures also stand at the top, as if it were the only one. At the end of the process a device is
 * written even if its lock can't be taken. Before the end this returns false then, and the report
 * is void.
 */
static bool write_devices(struct ps_json *j, bool at_the_end)
{
    bool all = true;

    ps_json_begin_array(j, "devices");
    for (unsigned i = 0; i < ps_devices_count(); i++) {
        ps_devices_enter(i);
        bool locked = i && ps_registry_lock_soon();
        all &= locked || !i || at_the_end;
        if (!all)
            break;
        struct figures f = take_figures();
        ps_json_begin_object(j, NULL);
        write_device(j);
        write_peaks(j, &f);
        write_slab(j, &f);
        write_learning(j, &f);
        ps_json_end(j);
        if (locked)
            ps_registry_unlock();
    }
    ps_json_end(j);
    ps_devices_enter(0);
    return all;
}

/* Writes the report's fields but the last one. Returns false as write_devices() does. */
static bool write_fields(struct ps_json *j, const struct figures *f, bool at_the_end)
{
    bool all = true;

    ps_json_begin_object(j, NULL);
    ps_json_string(j, "version", PENSTOCK_VERSION_STRING);
    ps_json_string(j, "command", command);
    ps_json_string(j, "stands_aside", stands_aside);
    if (ranks.several) {
        ps_json_u64(j, "rank", ranks.rank);
        ps_json_u64(j, "processes", ranks.processes);
    } else {
        ps_json_null(j, "rank");
        ps_json_u64(j, "processes", 1);
    }
    write_device(j);
    ps_json_string(j, "guard", ps_guard_names[ps_settings.guard]);
    ps_json_string(j, "tracer", ps_tracing_source());
    ps_json_u64(j, "steps", f->steps);
    write_peaks(j, f);
#define PS_COUNTER(name) ps_json_u64(j, #name, ps_counted(name));
    PS_COUNTER_TABLE
#undef PS_COUNTER
    write_slab(j, f);
    write_passthrough(j);
    write_learning(j, f);
    if (ps_devices_count() > 1)
        all = write_devices(j, at_the_end);
    return all;
}

static void say_not_written(int error)
{
    if (!error)
        return;
    errno = -error;
    ps_log_warn(REPORT,
                "PENSTOCK_REPORT=%s: the report could not be written (%m): free some space, or name another file",
                ps_settings.report);
}

static void write_report(const struct figures *f)
{
    static struct ps_output output;
    char buffer[1024];
    struct ps_json json;

    if (!*ps_settings.report)
        return;
    int error = ps_output_begin(&output, ps_settings.report, "");
    if (!error) {
        ps_json_init_sink(&json, buffer, sizeof buffer, ps_json_sink_fd, &output.fd);
        write_fields(&json, f, true);
        write_kernels(&json);
        ps_json_end(&json);
        error = ps_json_finish(&json);
    }
    say_not_written(ps_output_end(&output, error));
}

/* ---- on demand ---- */

/*
 * A text that is made with the lock held: while the program runs, no file is written under the
 * lock.
 */
struct text {
    char *bytes;
    size_t used, room;
};

static int add_to_text(const char *piece, size_t bytes, void *ctx)
{
    struct text *t = ctx;

    if (t->used + bytes > t->room) {
        size_t room = 2 * t->room + bytes;
        char *more = realloc(t->bytes, room);
        if (!more)
            return -ENOMEM;
        t->bytes = more;
        t->room = room;
    }
    memcpy(t->bytes + t->used, piece, bytes);
    t->used += bytes;
    return 0;
}

/* Makes the report's text. Returns 0 or -errno; -EAGAIN: a lock could not be taken. */
static int make_text(struct text *t)
{
    const ptrdiff_t before = ps_here;
    const unsigned long long steps = ps_tracer_steps_so_far();
    char buffer[1024];
    struct ps_json json;

    ps_devices_enter(0);
    bool whole = ps_registry_lock_soon();
    if (whole) {
        struct figures f = take_figures();
        f.steps = steps;
        ps_json_init_sink(&json, buffer, sizeof buffer, add_to_text, t);
        whole = write_fields(&json, &f, false);
        ps_registry_unlock();
        write_kernels(&json);
        ps_json_end(&json);
    }
    ps_here = before;
    return whole ? ps_json_finish(&json) : -EAGAIN;
}

bool ps_report_write_now(void)
{
    static struct ps_output output;
    struct text text = {0};

    output.fd = -1;
    if (!*ps_settings.report || atomic_exchange(&writing, true))
        return true; /* the report at the end is being written */
    int error = atomic_load(&owner) ? make_text(&text) : -EAGAIN;
    if (error != -EAGAIN) {
        if (!error)
            error = ps_output_begin(&output, ps_settings.report, ".now");
        if (!error)
            error = ps_output_write_whole(output.fd, text.bytes, text.used);
        /* If that took long, the report at the end may have been written; then that one stays. */
        error = ps_output_end(&output, error || atomic_load(&owner) ? error : -ECANCELED);
        say_not_written(error == -ECANCELED ? 0 : error);
    }
    atomic_store(&writing, false);
    free(text.bytes);
    return error != -EAGAIN || !atomic_load(&owner);
}

#define WRITING_NS 1000000000u

/*
 * Waits before the report at the end until no other thread writes, at most a second. A thread that
 * still writes then has a file of its own.
 */
static void wait_to_write(void)
{
    const uint64_t since = ps_now_ns();

    while (atomic_exchange(&writing, true) && ps_sleep_within(since, WRITING_NS, 1000000)) {
    }
}

void ps_report_finish(void)
{
    int us = (int)getpid();

    if (!atomic_compare_exchange_strong(&owner, &us, 0))
        return;
    int saved = errno;
    const ptrdiff_t before = ps_here;
    wait_to_write();
    ps_devices_enter(0);
    /*
     * Helper threads still run, and waits of the last step still come in. Under the lock all
     * figures are of one moment.
     */
    bool locked = ps_registry_lock_soon();
    ps_event_trace_stop();
    struct figures f = take_figures();
    f.steps = ps_tracer_steps();
    write_report(&f);
    if (locked)
        ps_registry_unlock();
    ps_event_trace_finish();
    say_closing_line(&f);
    ps_here = before;
    errno = saved;
}

/* ---- the ways in which a program ends ---- */

/* Registered after the handlers of driver and runtime, and so called before them. */
static void on_exit_call(void)
{
    if (getpid() != opened_by)
        return; /* a forked child, which has no helper threads */
    if (ps_verify_is_on())
        ps_verify_ended();
    ps_report_finish();
    ps_live_finish();
    ps_shutdown_begin();
    ps_rank_exchange_close(); /* This comes last: until it has parked, a helper thread may write a note. */
}

static void on_fatal_signal(int signal_number)
{
    ps_report_finish();
    ps_live_finish();
    ps_rank_exchange_close();
    /* Takes the default action, as without Penstock. It ends the process. */
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void take_fatal_signals(void)
{
    static const int fatal[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGABRT};
    struct sigaction ours = {.sa_handler = on_fatal_signal}, theirs;

    sigemptyset(&ours.sa_mask);
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        if (!sigaction(fatal[i], NULL, &theirs) && !(theirs.sa_flags & SA_SIGINFO) && theirs.sa_handler == SIG_DFL)
            sigaction(fatal[i], &ours, NULL);
}

void ps_report_open(const char *aside)
{
    stands_aside = aside;
    read_command();
    opened_by = getpid();
    atomic_store(&owner, (int)opened_by);
    atexit(on_exit_call);
    at_quick_exit(on_exit_call);
    take_fatal_signals();
}
