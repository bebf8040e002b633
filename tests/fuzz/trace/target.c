/*
 * A trace: the process's name up to a NUL, then records, each of some bytes and the name of a
 * layer. The file is read by another JSON reader. Its events pair up, follow each other on each
 * track, and lie within pages, so that a file which was cut off between two pages can be read too.
 */
#include "tests/fuzz/fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

#include "shim/observe/trace_format.c"
#include "residency/events.h"
#include "tests/fuzz/json_reader.h"

#define RECORDS_MAX 100
#define TRACKS_MAX 512

/* ---- what is traced ---- */

static bool is_move(enum ps_event_kind kind)
{
    return kind == PS_EVENT_EVICTION || kind == PS_EVENT_VOID_EVICTION || kind == PS_EVENT_RELOAD ||
           kind == PS_EVENT_STALL;
}

/*
 * Makes a record as the library does: only moves may lack times, and no wait ends before it begins.
 */
static struct ps_event_record take_record(struct fuzz_input *in, uint64_t *now, char **name)
{
    const unsigned bits = fuzz_u8(in);
    struct ps_event_record r = {.kind = fuzz_u8(in) % (PS_EVENT_LEVELS + 1)};

    *now += fuzz_u8(in) * 1000u;
    r.told_ns = *now;
    r.device = bits & 1;
    r.direction = fuzz_u8(in) % 3;
    r.why = r.kind == PS_EVENT_WAIT ? fuzz_u8(in) % (PS_EVENTS_HELPER + 1) : bits >> 1 & 1;
    r.thread = bits & 4 ? (int32_t)getpid() : fuzz_u8(in);
    r.begin_ns = *now - fuzz_u8(in);
    r.end_ns = r.begin_ns + fuzz_u8(in);
    if (is_move(r.kind)) {
        r.queued_ns = bits & 8 ? *now : 0;
        r.begin_ns = bits & 16 ? r.begin_ns : 0;
        r.end_ns = bits & 32 ? r.end_ns : 0;
    }
    r.bytes = fuzz_u64(in);
    r.address = r.bytes * 3;
    r.number = r.other = ~r.bytes;
    *name = bits & 64 ? fuzz_text(in, '\0') : NULL;
    r.layer_name = *name;
    r.layer = bits & 128 ? fuzz_u8(in) : PENSTOCK_NEVER;
    r.levels = (struct ps_event_levels){.held = r.bytes, .live = r.bytes / 2, .known = bits & 2};
    return r;
}

static void write_trace(struct fuzz_input *in, int fd)
{
    static struct ps_trace_file to;
    char *process = fuzz_text(in, '\0'), *names[RECORDS_MAX];
    uint64_t now = 1000000000, count = 0;

    memset(devices, 0, sizeof devices);
    thread_count = batched = 0;
    to.fd = dup(fd);
    to.error = 0;
    to.bytes = to.used = 2; /* as ps_trace_file_open() begins a file */
    memcpy(to.gathered, "[\n", 2);
    ps_trace_format_begin(&to, process);
    ps_trace_format_device(0, 0, UINT64_MAX);
    ps_trace_format_device(1, 7, 12345);
    for (; in->left && count < RECORDS_MAX; count++) {
        const struct ps_event_record r = take_record(in, &now, &names[count]);
        ps_trace_format_levels(&r);
        ps_trace_format_add(&r);
        if (r.bytes % 8 == 7)
            ps_trace_format_settle();
    }
    fuzz_require(ps_trace_format_end(now, count, count % 3, 5) == 0);
    while (count)
        free(names[--count]);
    free(process);
}

/* ---- what was written ---- */

static uint64_t ns_of(const struct json_value *event, const char *key)
{
    const char *number = json_member(event, key)->text, *point = number ? strchr(number, '.') : NULL;

    fuzz_require(point && strlen(point) == 4);
    return strtoull(number, NULL, 10) * 1000 + strtoull(point + 1, NULL, 10);
}

static struct {
    uint64_t tid, over_ns;
    unsigned depth;
} track_state[TRACKS_MAX];

static unsigned state_of(uint64_t tid)
{
    unsigned i = 0;

    while (i < TRACKS_MAX && track_state[i].tid && track_state[i].tid != tid)
        i++;
    fuzz_require(i < TRACKS_MAX);
    track_state[i].tid = tid;
    return i;
}

static void check_event(const struct json_value *event)
{
    const char *phase = json_member(event, "ph")->text;
    static const char phases[] = "BEXiCM";

    fuzz_require(phase && strlen(phase) == 1 && strchr(phases, *phase));
    fuzz_require(json_is_u64(json_member(event, "pid"), (uint64_t)getpid()));
    fuzz_require(json_member(event, "name")->kind == JSON_STRING);
    if (*phase == 'M' || *phase == 'C') {
        fuzz_require(json_member(event, "args")->first);
        return;
    }
    uint64_t tid = strtoull(json_member(event, "tid")->text, NULL, 10), ns = ns_of(event, "ts");
    unsigned i = state_of(tid + 1);
    if (*phase == 'B' || *phase == 'E') {
        fuzz_require(*phase == 'B' ? track_state[i].depth < 2 : track_state[i].depth > 0);
        track_state[i].depth += *phase == 'B' ? 1u : -1u;
    } else if (*phase == 'X') {
        uint64_t end = ns + ns_of(event, "dur");
        fuzz_require(tid < TRACKS_FROM || ns >= track_state[i].over_ns);
        track_state[i].over_ns = end;
    }
}

/* A file that ends behind any of its pages is an array without its end. */
static void check_cut(const char *whole, size_t bytes)
{
    char *cut = fuzz_allocate(bytes + 1);

    memcpy(cut, whole, bytes);
    while (bytes && strchr(" \n,", cut[bytes - 1]))
        bytes--;
    cut[bytes] = ']';
    struct json_value *read = json_read(cut, bytes + 1);
    fuzz_require(read);
    json_free(read);
    free(cut);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static int fd = -1;
    struct fuzz_input in = {data, bytes};

    if (fd < 0)
        fd = memfd_create("trace", 0);
    fuzz_require(fd >= 0 && ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0);
    write_trace(&in, fd);
    const size_t length = (size_t)lseek(fd, 0, SEEK_END);
    char *written = fuzz_allocate(length);
    fuzz_require(pread(fd, written, length, 0) == (ssize_t)length);
    struct json_value *read = json_read(written, length);
    fuzz_require(read && read->kind == JSON_ARRAY);
    memset(track_state, 0, sizeof track_state);
    for (const struct json_value *event = read->first; event; event = event->next)
        check_event(event);
    for (unsigned i = 0; i < TRACKS_MAX; i++)
        fuzz_require(track_state[i].depth == 0);
    for (size_t page = PS_TRACE_PAGE; page < length; page += PS_TRACE_PAGE)
        check_cut(written, page);
    json_free(read);
    free(written);
    return 0;
}
