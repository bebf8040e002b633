/*
 * A live page as `penstock top` reads it: three bytes for the width, the sequences and the length
 * of the file, then patches to an empty page, each a place, a length and its bytes. The JSON is
 * read by another reader and has the page's figures. The table fits its width, and a terminal shows
 * all of it.
 */
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <unistd.h>

#include "tests/fuzz/json_reader.h"
#include "tests/fuzz/live_figure.h"
#include "top_table.h"

static union {
    struct ps_live_page page;
    char bytes[sizeof(struct ps_live_page)];
} file;
static size_t file_bytes;

static ssize_t read_page(char *to, size_t bytes, size_t offset)
{
    size_t left = offset < file_bytes ? file_bytes - offset : 0;

    bytes = bytes < left ? bytes : left;
    memcpy(to, file.bytes + offset, bytes);
    return (ssize_t)bytes;
}

#define pread(fd, to, bytes, offset) ((void)(fd), read_page(to, bytes, (size_t)(offset)))
#include "scripts/command/top_pages.c"
#undef pread

/* Stand in for shim/base/live_directory.c, whose pages are files. */
int ps_live_directory_open(unsigned which, bool make, char path[PS_LIVE_PATH_BYTES])
{
    (void)which;
    (void)make;
    (void)path;
    return -ENOENT;
}

void ps_live_each(int directory, ps_live_page_fn page, void *ctx)
{
    (void)directory;
    (void)page;
    (void)ctx;
}

int ps_live_identity_of(pid_t pid, struct ps_live_identity *out)
{
    (void)pid;
    (void)out;
    return -ESRCH;
}

static void make_page(struct fuzz_input *in, unsigned sequences, unsigned length)
{
    memset(&file, 0, sizeof file);
    while (in->left > 2) {
        size_t at = fuzz_u8(in);
        at = (at | (size_t)fuzz_u8(in) << 8) % sizeof file;
        size_t bytes = fuzz_u8(in);
        bytes = bytes < in->left ? bytes : in->left;
        bytes = bytes < sizeof file - at ? bytes : sizeof file - at;
        memcpy(file.bytes + at, in->at, bytes);
        in->at += bytes;
        in->left -= bytes;
    }
    /* A writer that died while it wrote leaves an odd number. */
    for (unsigned i = 0; i < 1 + PS_LIVE_DEVICES_MAX; i++) {
        struct ps_live_record *record = i ? &file.page.device[i - 1] : &file.page.process;
        record->sequence = i == sequences % 32 ? sequences / 32 : 2;
    }
    file_bytes = length % 4 ? sizeof file : sizeof file - length * 64u;
}

/* ---- JSON ---- */

static char text[1 << 17];
static size_t text_bytes;

static int take_text(const char *piece, size_t bytes, void *ctx)
{
    (void)ctx;
    fuzz_require(text_bytes + bytes <= sizeof text);
    memcpy(text + text_bytes, piece, bytes);
    text_bytes += bytes;
    return 0;
}

static void check_device(const struct json_value *of, const struct ps_live_device_facts *facts,
                         const struct ps_live_device *d)
{
    fuzz_require(json_is_u64(json_member(of, "device"), facts->ordinal));
    fuzz_require(json_is_string(json_member(of, "name"), facts->name));
#define PS_LIVE_DEVICE(name, kind, unit, metric, source, help) check_figure(of, #name, PS_LIVE_##unit, d->figures.name);
#include "base/live.def"
}

static void check_json(const struct top_process *p)
{
    char buffer[100];
    struct ps_json json;

    text_bytes = 0;
    ps_json_init_sink(&json, buffer, sizeof buffer, take_text, NULL);
    write_process(&json, p);
    fuzz_require(ps_json_finish(&json) == 0);
    struct json_value *read = json_read(text, text_bytes);
    fuzz_require(read);
    fuzz_require(json_is_u64(json_member(read, "pid"), p->pid));
    if (p->other_version) {
        fuzz_require(json_count(read, NULL) == 2);
    } else {
        const struct json_value *devices = json_member(read, "devices"), *device = devices->first;
        fuzz_require(json_is_string(json_member(read, "command"), p->header.command));
        fuzz_require(json_count(devices, NULL) == p->now.devices && p->now.devices <= PS_LIVE_DEVICES_MAX);
#define PS_LIVE_PROCESS(name, kind, unit, metric, source, help)                                                        \
    check_figure(read, #name, PS_LIVE_##unit, p->now.figures.name);
#include "base/live.def"
        for (unsigned i = 0; i < p->now.devices; i++, device = device->next)
            check_device(device, &p->header.device[i], &p->device[i]);
    }
    json_free(read);
}

/* ---- the table ---- */

/* A line has at most `across` characters, if there is room for the process's number. */
static void check_table(const struct top_pages *pages, unsigned across, bool colours)
{
    struct top_picture picture = {.lines_left = INT32_MAX, .end_of_line = "\n", .colours = colours};
    size_t lines = 0;

    top_draw_table(&picture, pages, (int)across);
    fuzz_require(picture.used && picture.text[picture.used - 1] == '\n');
    for (char *line = picture.text, *end; line < picture.text + picture.used; line = end + 1, lines++) {
        unsigned width = 0;
        end = memchr(line, '\n', (size_t)(picture.text + picture.used - line));
        fuzz_require(colours || fuzz_is_plain(line, (size_t)(end - line)));
        for (const char *c = line; c < end; c++)
            width += ((unsigned char)*c & 0xc0) != 0x80;
        fuzz_require(colours || !across || across < 24 || width <= across);
    }
    fuzz_require(lines == 1 + (pages->process->now.devices ? pages->process->now.devices : 1));
    free(picture.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct top_process p;
    struct fuzz_input in = {data, bytes};
    unsigned across = fuzz_u8(&in), sequences = fuzz_u8(&in), length = fuzz_u8(&in);
    struct top_pages pages = {.process = &p, .count = 1};

    make_page(&in, sequences, length);
    p = (struct top_process){.pid = 4242};
    if (!read_records(0, &p)) {
        fuzz_require(file_bytes < sizeof file);
        p = (struct top_process){.pid = UINT64_MAX, .other_version = 1 + length};
    } else if (sequences % 32 == 0 && (sequences / 32 % 2 || sequences / 32 == 0)) {
        fuzz_require(!p.told && !p.now.updated_ns && !p.now.devices);
    }
    check_json(&p);
    check_table(&pages, across, length & 1);
    return 0;
}
