/* Reads the live pages of this user's processes, and writes them as JSON. */
#include <errno.h>
#include <pwd.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/live_directory.h"
#include "observe/live_json.h"
#include "top_pages.h"

static const char *const tracers[] = {
    [PS_LIVE_TRACER_NONE] = "none", [PS_LIVE_TRACER_CUPTI] = "cupti", [PS_LIVE_TRACER_HOOK] = "hook"};

int top_say(int status, const char *format, ...)
{
    va_list arguments;

    fputs("penstock: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    return status;
}

const char *top_state_name(uint64_t state)
{
    static const char *const names[] = {[PS_LIVE_IDLE] = "idle",
                                        [PS_LIVE_LEARNING] = "learning",
                                        [PS_LIVE_PLANNED] = "planned",
                                        [PS_LIVE_REACTING] = "reacting"};

    return state < sizeof names / sizeof *names ? names[state] : NULL;
}

static bool is_wanted(const struct top_pages *pages, uint64_t pid)
{
    bool wanted = !pages->only_count;

    for (size_t i = 0; i < pages->only_count; i++)
        wanted |= (uint64_t)pages->only[i] == pid;
    return wanted;
}

static bool read_at(int fd, size_t offset, void *to, size_t bytes)
{
    return pread(fd, to, bytes, (off_t)offset) == (ssize_t)bytes;
}

/*
 * Reads a record as it was at one moment, like ps_live_record_read, but from a file. `told` is
 * false if it was never written or changed at every try. Returns false if the file ends before the
 * record does.
 */
static bool read_record(int fd, size_t offset, void *to, size_t bytes, bool *told)
{
    const size_t sequence_at = offset + offsetof(struct ps_live_record, sequence),
                 words_at = offset + offsetof(struct ps_live_record, word);
    uint64_t before, after;

    *told = false;
    for (int tries = 0; tries < PS_LIVE_TRIES; tries++) {
        if (!read_at(fd, sequence_at, &before, sizeof before) || !read_at(fd, words_at, to, bytes) ||
            !read_at(fd, sequence_at, &after, sizeof after))
            return false;
        *told = before && !(before & 1) && before == after;
        if (*told || !before)
            break;
    }
    return true;
}

/*
 * Reads the records of a page. A device that is counted has its facts in the header. Returns false
 * if the file is no page. The file is read and not mapped: a mapping of a file that is cut short
 * meanwhile ends in a fatal signal.
 */
static bool read_records(int fd, struct top_process *p)
{
    bool told;

    if (!read_record(fd, offsetof(struct ps_live_page, process), &p->now, sizeof p->now, &p->told))
        return false;
    if (!p->told)
        p->now = (struct ps_live_process){0}; /* it mixes two moments */
    if (p->now.devices > PS_LIVE_DEVICES_MAX)
        p->now.devices = PS_LIVE_DEVICES_MAX;
    if (!read_at(fd, offsetof(struct ps_live_page, header), &p->header, sizeof p->header))
        return false;
    for (unsigned i = 0; i < p->now.devices; i++) {
        if (!read_record(fd, offsetof(struct ps_live_page, device[i]), &p->device[i], sizeof p->device[i], &told))
            return false;
        p->told &= told;
    }
    /* Texts end within their fields, whatever the file holds. */
    p->header.aside[sizeof p->header.aside - 1] = p->header.command[sizeof p->header.command - 1] = 0;
    p->header.library_version[sizeof p->header.library_version - 1] = 0;
    for (unsigned i = 0; i < PS_LIVE_DEVICES_MAX; i++)
        p->header.device[i].name[sizeof p->header.device[i].name - 1] = 0;
    return true;
}

static void add_page(enum ps_live_found found, const char *name, int fd, const struct ps_live_header *header, void *ctx)
{
    struct top_pages *pages = ctx;
    uint64_t pid = strtoull(name, NULL, 10);

    if (found == PS_LIVE_FOUND_ELSEWHERE)
        pages->elsewhere++;
    if (found == PS_LIVE_FOUND_ELSEWHERE || !is_wanted(pages, pid))
        return;
    if (pages->count == pages->room) {
        size_t room = pages->room ? 2 * pages->room : 16;
        struct top_process *more = realloc(pages->process, room * sizeof *more);
        if (!more)
            return;
        pages->process = more;
        pages->room = room;
    }
    struct top_process *p = &pages->process[pages->count];
    *p = (struct top_process){.pid = pid, .other_version = found == PS_LIVE_FOUND_OTHER_VERSION ? header->version : 0};
    if (p->other_version || read_records(fd, p))
        pages->count++;
}

static int compare_pids(const void *left, const void *right)
{
    uint64_t a = ((const struct top_process *)left)->pid, b = ((const struct top_process *)right)->pid;

    return (a > b) - (a < b);
}

void top_look(struct top_pages *pages)
{
    char path[PS_LIVE_PATH_BYTES];

    pages->count = pages->elsewhere = 0;
    for (unsigned i = 0; i < PS_LIVE_DIRECTORIES; i++) {
        int directory = ps_live_directory_open(i, false, path);
        if (directory == -EPERM && !pages->looks)
            top_say(0, "%s: other users may write here; its pages are ignored", path);
        if (directory < 0)
            continue;
        ps_live_each(directory, add_page, pages);
        close(directory);
    }
    pages->looks++;
    if (pages->count)
        qsort(pages->process, pages->count, sizeof *pages->process, compare_pids);
}

int top_say_why_not(pid_t pid)
{
    struct ps_live_identity identity;
    struct stat status;
    char path[64];

    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    if (ps_live_identity_of(pid, &identity) || stat(path, &status))
        return top_say(1, "top: %d: no such process", (int)pid);
    if (status.st_uid != geteuid()) {
        const struct passwd *user = getpwuid(status.st_uid);
        return top_say(1, "top: %d: belongs to another user (%s), who alone can read its page", (int)pid,
                       user ? user->pw_name : "?");
    }
    return top_say(
        1,
        "top: %d: has no page: it runs without Penstock or with PENSTOCK_LIVE=0, or has allocated no device memory yet",
        (int)pid);
}

/* ---- as JSON ---- */

static void write_device(struct ps_json *json, const struct ps_live_device_facts *facts, const struct ps_live_device *d)
{
    ps_json_begin_object(json, NULL);
    ps_json_u64(json, "device", facts->ordinal);
    ps_json_string(json, "name", facts->name);
    ps_json_u64(json, "total_bytes", facts->total_bytes);
    ps_json_string(json, "doing", top_state_name(d->figures.state));
    ps_live_json_device(json, &d->figures);
    ps_json_begin_array(json, "recent_step_ns");
    for (unsigned i = 0; i < PS_LIVE_RECENT && d->recent_step_ns[i]; i++)
        ps_json_u64(json, NULL, d->recent_step_ns[i]);
    ps_json_end(json);
    ps_json_end(json);
}

static void write_process(struct ps_json *json, const struct top_process *p)
{
    const struct ps_live_header *h = &p->header;

    ps_json_begin_object(json, NULL);
    ps_json_u64(json, "pid", p->pid);
    if (p->other_version) {
        ps_json_u64(json, "page_version", p->other_version);
        ps_json_end(json);
        return;
    }
    ps_json_u64(json, "page_version", h->version);
    ps_json_string(json, "version", h->library_version);
    ps_json_string(json, "command", h->command);
    ps_json_string(json, "stands_aside",
                   *h->aside      ? h->aside
                   : p->now.aside ? "gave up during the run; a line on its stderr says why"
                                  : NULL);
    h->rank == PS_LIVE_NO_RANK ? ps_json_null(json, "rank") : ps_json_u64(json, "rank", h->rank);
    ps_json_u64(json, "processes", h->processes);
    ps_json_u64(json, "opened_ns", h->opened_ns);
    ps_json_u64(json, "updated_ns", p->now.updated_ns);
    ps_json_string(json, "tracer", p->now.tracer < sizeof tracers / sizeof *tracers ? tracers[p->now.tracer] : NULL);
    ps_json_u64(json, "evicted_bytes_per_second", p->now.evicted_bytes_per_second);
    ps_json_u64(json, "reloaded_bytes_per_second", p->now.reloaded_bytes_per_second);
    ps_json_u64(json, "host_wait_ns_per_second", p->now.host_wait_ns_per_second);
    ps_live_json_process(json, &p->now.figures);
    ps_json_begin_array(json, "devices");
    for (unsigned i = 0; i < p->now.devices; i++)
        write_device(json, &h->device[i], &p->device[i]);
    ps_json_end(json);
    ps_json_end(json);
}

int top_write_json(const struct top_pages *pages)
{
    char buffer[4096];
    struct ps_json json;
    int fd = STDOUT_FILENO;

    ps_json_init_sink(&json, buffer, sizeof buffer, ps_json_sink_fd, &fd);
    ps_json_begin_object(&json, NULL);
    ps_json_begin_array(&json, "processes");
    for (size_t i = 0; i < pages->count; i++)
        write_process(&json, &pages->process[i]);
    ps_json_end(&json);
    ps_json_end(&json);
    return ps_json_finish(&json);
}
