#include "observe/trace_format.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "cuda/devices.h"
#include "penstock/policy.h"
#include "penstock/version.h"
#include "residency/events.h"

/* Tracks that are no threads have numbers above all thread ids of Linux (4,194,304). */
#define TRACKS_FROM 5000000u
enum track { STEPS, STREAM, D2H, H2D, TRACKS };
static const char *const track_names[TRACKS] = {"steps and layers, as launched",
                                                "the program's stream waits for transfers", "link: D2H", "link: H2D"};

#define BATCH 1024u
#define THREADS_MAX 256u
#define NAME_BYTES 128 /* length at which a name from outside is cut */

/* All data below belong to the writer's thread. */
static struct ps_trace_file *file;
static int process_id;
static struct {
    bool in_step, in_layer;
    int ordinal;
    uint64_t budget;
    uint64_t over_ns[TRACKS]; /* the latest end on each track */
    struct ps_event_levels levels;
} devices[PS_DEVICES_MAX];
static struct ps_event_record batch[BATCH];
static unsigned batched;
static int32_t threads[THREADS_MAX];
static unsigned thread_count;

static char text[PS_TRACE_EVENT_MAX];
static struct ps_json json;

/* ---- events ---- */

static unsigned track_of(unsigned device, enum track track)
{
    return TRACKS_FROM + device * TRACKS + track;
}

/*
 * An event is written by begin_event, the calls for its kind, and end_event. begin_arguments and
 * the arguments come before end_event, if the event has any.
 */
static void begin_event(const char *phase, const char *name)
{
    ps_json_init_line(&json, text, sizeof text);
    ps_json_begin_object(&json, NULL);
    ps_json_string(&json, "ph", phase);
    ps_json_string(&json, "name", name);
    ps_json_u64(&json, "pid", (uint64_t)process_id);
}

static void begin_event_at(const char *phase, const char *name, uint64_t track, uint64_t ns)
{
    begin_event(phase, name);
    ps_json_u64(&json, "tid", track);
    ps_json_thousandths(&json, "ts", ns);
}

static void begin_arguments(void)
{
    ps_json_begin_object(&json, "args");
}

static size_t finish_event(bool with_arguments)
{
    if (with_arguments)
        ps_json_end(&json);
    ps_json_end(&json);
    return ps_json_finish(&json) ? 0 : strlen(text) - 1; /* without the line break */
}

static void end_event(bool with_arguments)
{
    size_t bytes = finish_event(with_arguments);

    if (bytes)
        ps_trace_file_add(file, text, bytes);
}

/* `about`: process_name and so on. The value is `value`, or `number` if that is NULL. */
static void write_metadata(const char *about, uint64_t track, const char *key, const char *value, uint64_t number)
{
    begin_event("M", about);
    if (track)
        ps_json_u64(&json, "tid", track);
    begin_arguments();
    if (value)
        ps_json_string(&json, key, value);
    else
        ps_json_u64(&json, key, number);
    end_event(true);
}

static void put_hex(const char *key, uint64_t value)
{
    char digits[24];

    snprintf(digits, sizeof digits, "0x%" PRIx64, value);
    ps_json_string(&json, key, digits);
}

/* Names a thread at its first event, by its name at that time. */
static void meet_thread(int32_t thread)
{
    char path[64], name[64] = "";

    for (unsigned i = 0; i < thread_count; i++)
        if (threads[i] == thread)
            return;
    if (thread_count == THREADS_MAX)
        return;
    threads[thread_count++] = thread;
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", (int)thread);
    FILE *comm = fopen(path, "re");
    if (comm && fgets(name, sizeof name, comm))
        name[strcspn(name, "\n")] = '\0';
    if (comm)
        fclose(comm);
    if (*name)
        write_metadata("thread_name", (uint64_t)thread, "name", name, 0);
}

/* ---- levels ---- */

static void write_counter(unsigned device, const char *what, uint64_t ns, uint64_t value)
{
    char name[64];

    snprintf(name, sizeof name, "device %d: %s", devices[device].ordinal, what);
    begin_event("C", name);
    ps_json_thousandths(&json, "ts", ns);
    begin_arguments();
    ps_json_u64(&json, "bytes", value);
    end_event(true);
}

void ps_trace_format_levels(const struct ps_event_record *r)
{
    const struct ps_event_levels *now = &r->levels;
    struct ps_event_levels *before = &devices[r->device].levels;
    const unsigned device = r->device;
    const uint64_t ns = r->told_ns;
    char name[64];

    if (!now->known)
        return;
    if (!before->known && devices[device].budget != UINT64_MAX)
        write_counter(device, "budget", ns, devices[device].budget);
    if (!before->known || before->held != now->held)
        write_counter(device, "held", ns, now->held);
    if (!before->known || before->live != now->live)
        write_counter(device, "live", ns, now->live);
    if (!before->known || before->slab_used != now->slab_used)
        write_counter(device, "slab in use", ns, now->slab_used);
    if (!before->known || before->evictions != now->evictions || before->reloads != now->reloads) {
        snprintf(name, sizeof name, "device %d: copies queued", devices[device].ordinal);
        begin_event("C", name);
        ps_json_thousandths(&json, "ts", ns);
        begin_arguments();
        ps_json_u64(&json, "D2H", now->evictions);
        ps_json_u64(&json, "H2D", now->reloads);
        end_event(true);
    }
    *before = *now;
}

/* ---- steps and layers ---- */

static void end_layer(unsigned device, uint64_t ns)
{
    if (!devices[device].in_layer)
        return;
    devices[device].in_layer = false;
    begin_event_at("E", "layer", track_of(device, STEPS), ns);
    end_event(false);
}

static void end_step(unsigned device, uint64_t ns)
{
    end_layer(device, ns);
    if (!devices[device].in_step)
        return;
    devices[device].in_step = false;
    begin_event_at("E", "step", track_of(device, STEPS), ns);
    end_event(false);
}

static void begin_step(const struct ps_event_record *r)
{
    end_step(r->device, r->begin_ns);
    begin_event_at("B", "step", track_of(r->device, STEPS), r->begin_ns);
    begin_arguments();
    ps_json_u64(&json, "launches", r->number);
    ps_json_u64(&json, "pattern", r->other);
    end_event(true);
    devices[r->device].in_step = true;
}

static bool name_layer(const struct ps_event_record *r, char *name, size_t size)
{
    static const char *const directions[] = {"", " forward", " backward"};

    if (r->layer_name)
        snprintf(name, size, "%s", r->layer_name);
    else if (r->layer != PENSTOCK_NEVER)
        snprintf(name, size, "layer %" PRIu32 "%s", r->layer, directions[r->direction % 3]);
    return r->layer_name || r->layer != PENSTOCK_NEVER;
}

static void begin_layer(const struct ps_event_record *r)
{
    char name[NAME_BYTES];

    end_layer(r->device, r->begin_ns);
    if (!name_layer(r, name, sizeof name))
        return;
    begin_event_at("B", name, track_of(r->device, STEPS), r->begin_ns);
    end_event(false);
    devices[r->device].in_layer = true;
}

static void write_plan(const struct ps_event_record *r)
{
    begin_event_at("i", r->kind == PS_EVENT_PLAN ? "plan in force" : "plan lost", track_of(r->device, STEPS),
                   r->begin_ns);
    ps_json_string(&json, "s", "t");
    begin_arguments();
    ps_json_u64(&json, "pattern", r->other & UINT32_MAX);
    ps_json_u64(&json, "launches", r->number);
    ps_json_u64(&json, "moves", r->other >> 32);
    end_event(true);
}

/* ---- threads ---- */

static void write_wait(const struct ps_event_record *r)
{
    static const struct {
        const char *name, *what_for;
    } waits[] = {
        [PS_EVENTS_LAUNCH_FOR_PAGES] = {"launch waits", "pages"},
        [PS_EVENTS_LAUNCH_FOR_TURN] = {"launch waits", "its reload's turn"},
        [PS_EVENTS_ALLOCATION] = {"allocation waits", "pages"},
        [PS_EVENTS_HELPER] = {"Penstock waits", "pages"},
    };

    meet_thread(r->thread);
    begin_event_at("X", waits[r->why].name, (uint64_t)r->thread, r->begin_ns);
    ps_json_thousandths(&json, "dur", r->end_ns - r->begin_ns);
    begin_arguments();
    ps_json_string(&json, "for", waits[r->why].what_for);
    ps_json_u64(&json, "bytes", r->bytes);
    ps_json_u64(&json, "device", (uint64_t)devices[r->device].ordinal);
    end_event(true);
}

static void write_instant(const struct ps_event_record *r, const char *name, const char *scope)
{
    meet_thread(r->thread);
    begin_event_at("i", name, (uint64_t)r->thread, r->begin_ns);
    ps_json_string(&json, "s", scope);
    begin_arguments();
    ps_json_u64(&json, "bytes", r->bytes);
    if (r->number)
        put_hex("span", r->number);
    end_event(true);
}

/* ---- events that the device times ---- */

static enum track track_for(enum ps_event_kind kind)
{
    return kind == PS_EVENT_RELOAD ? H2D : kind == PS_EVENT_STALL ? STREAM : D2H;
}

static void write_move(const struct ps_event_record *r, bool timed)
{
    char layer[NAME_BYTES];

    ps_json_u64(&json, "bytes", r->bytes);
    put_hex("span", r->number);
    put_hex("address", r->address);
    ps_json_string(&json, "why",
                   r->kind == PS_EVENT_RELOAD ? (r->why ? "ahead" : "on demand")
                   : r->why                   ? "planned"
                                              : "reacting");
    if (name_layer(r, layer, sizeof layer))
        ps_json_string(&json, "layer", layer);
    ps_json_thousandths(&json, "queued_us", r->queued_ns);
    if (!timed)
        ps_json_string(&json, "times", "the host's");
}

/*
 * A stream does one thing after the other, so events on a track must not overlap. Marks may say
 * otherwise in two cases. Two threads queued at once, so that one's mark came before the other's
 * copy. Or the driver's floats were rounded.
 */
static void write_told_by_device(const struct ps_event_record *r)
{
    static const char *const names[] = {
        [PS_EVENT_EVICTION] = "evict",
        [PS_EVENT_VOID_EVICTION] = "evict, void",
        [PS_EVENT_RELOAD] = "reload",
        [PS_EVENT_STALL] = "stands still",
    };
    enum track track = track_for(r->kind);
    uint64_t *over = &devices[r->device].over_ns[track];
    uint64_t end = r->end_ns ? r->end_ns : r->told_ns, begin = r->begin_ns ? r->begin_ns : r->queued_ns;

    if (end < *over)
        end = *over;
    if (begin < *over)
        begin = *over;
    if (begin > end)
        begin = end;
    *over = end;
    begin_event_at("X", names[r->kind], track_of(r->device, track), begin);
    ps_json_thousandths(&json, "dur", end - begin);
    begin_arguments();
    if (r->kind == PS_EVENT_STALL)
        ps_json_u64(&json, "before_launch", r->number);
    else
        write_move(r, r->begin_ns && r->end_ns);
    end_event(true);
}

static int compare_ends(const void *a, const void *b)
{
    const struct ps_event_record *x = a, *y = b;

    return (x->end_ns > y->end_ns) - (x->end_ns < y->end_ns);
}

void ps_trace_format_settle(void)
{
    qsort(batch, batched, sizeof *batch, compare_ends);
    for (unsigned i = 0; i < batched; i++)
        write_told_by_device(&batch[i]);
    batched = 0;
}

/* ---- the whole trace ---- */

void ps_trace_format_begin(struct ps_trace_file *into, const char *process)
{
    char name[NAME_BYTES + 32];

    file = into;
    process_id = (int)getpid();
    snprintf(name, sizeof name, "penstock: %.*s", NAME_BYTES, process);
    write_metadata("process_name", 0, "name", name, 0);
}

void ps_trace_format_device(unsigned device, int ordinal, uint64_t budget)
{
    char name[96];

    devices[device].ordinal = ordinal;
    devices[device].budget = budget;
    for (enum track track = 0; track < TRACKS; track++) {
        snprintf(name, sizeof name, "device %d, %s", ordinal, track_names[track]);
        write_metadata("thread_name", track_of(device, track), "name", name, 0);
        write_metadata("thread_sort_index", track_of(device, track), "sort_index", NULL, device * TRACKS + track);
    }
}

void ps_trace_format_add(const struct ps_event_record *r)
{
    switch (r->kind) {
    case PS_EVENT_EVICTION:
    case PS_EVENT_VOID_EVICTION:
    case PS_EVENT_RELOAD:
    case PS_EVENT_STALL:
        if (batched == BATCH)
            ps_trace_format_settle();
        batch[batched++] = *r;
        break;
    case PS_EVENT_EVICTION_CANCELLED:
        write_instant(r, "eviction cancelled", "t");
        break;
    case PS_EVENT_WAIT:
        write_wait(r);
        break;
    case PS_EVENT_STEP:
        begin_step(r);
        break;
    case PS_EVENT_STEP_ENDS:
        end_step(r->device, r->begin_ns);
        break;
    case PS_EVENT_LAYER:
        begin_layer(r);
        break;
    case PS_EVENT_PLAN:
    case PS_EVENT_PLAN_LOST:
        write_plan(r);
        break;
    case PS_EVENT_OUT_OF_MEMORY:
        write_instant(r, "out of memory", "p");
        break;
    case PS_EVENT_LEVELS:
        break;
    }
}

int ps_trace_format_end(uint64_t now_ns, uint64_t events, uint64_t dropped, uint64_t clock_error_ns)
{
    char label[96];

    ps_trace_format_settle();
    for (unsigned i = 0; i < PS_DEVICES_MAX; i++) {
        end_step(i, now_ns);
        if (devices[i].levels.known && devices[i].budget != UINT64_MAX)
            write_counter(i, "budget", now_ns, devices[i].budget);
    }
    if (dropped) {
        snprintf(label, sizeof label, "%" PRIu64 " events were dropped", dropped);
        write_metadata("process_labels", 0, "labels", label, 0);
    }
    begin_event_at("i", "the trace ends", track_of(0, STEPS), now_ns);
    ps_json_string(&json, "s", "p");
    begin_arguments();
    ps_json_string(&json, "version", PENSTOCK_VERSION_STRING);
    ps_json_string(&json, "clock", "CLOCK_MONOTONIC");
    ps_json_u64(&json, "clock_error_ns", clock_error_ns);
    ps_json_u64(&json, "events", events);
    ps_json_u64(&json, "dropped", dropped);
    size_t bytes = finish_event(true);
    return ps_trace_file_close(file, text, bytes);
}
