/*
 * The cells of the table of `penstock top`, the columns that a narrow terminal gets, and how both
 * are drawn.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/plain_text.h"
#include "top_table.h"

/* A process that has written nothing for this long is stopped, or gets no processor. */
#define SILENT_NS (5ull * 1000000000u)
#define CELL_BYTES 256
#define BAR 10
#define NARROWEST_COMMAND 8

/* ---- a line ---- */

struct row {
    const struct top_process *process;
    const struct ps_live_device *device; /* NULL: the process has none */
    unsigned number;                     /* of the device, among those of the process */
};

/* "475K", "12.3G": at most three digits, in powers of 1024. */
static void put_bytes(char *cell, size_t size, uint64_t bytes)
{
    static const char units[] = "BKMGTPE";
    unsigned unit = 0;
    double value = (double)bytes;

    for (; value >= 999.5; unit++)
        value /= 1024;
    if (bytes == UINT64_MAX)
        snprintf(cell, size, "-");
    else
        snprintf(cell, size, value < 99.95 && unit ? "%.1f%c" : "%.0f%c", value, units[unit]);
}

static void cell_pid(char *cell, size_t size, const struct row *r)
{
    snprintf(cell, size, "%llu", (unsigned long long)r->process->pid);
}

static void cell_rank(char *cell, size_t size, const struct row *r)
{
    if (r->process->other_version || r->process->header.rank == PS_LIVE_NO_RANK)
        snprintf(cell, size, "-");
    else
        snprintf(cell, size, "%llu", (unsigned long long)r->process->header.rank);
}

static void cell_device(char *cell, size_t size, const struct row *r)
{
    if (r->device)
        snprintf(cell, size, "%llu", (unsigned long long)r->process->header.device[r->number].ordinal);
    else
        snprintf(cell, size, "-");
}

static void cell_step(char *cell, size_t size, const struct row *r)
{
    if (r->device && r->device->figures.step)
        snprintf(cell, size, "%llu", (unsigned long long)r->device->figures.step);
    else
        snprintf(cell, size, "-");
}

static int compare_ns(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return (a > b) - (a < b);
}

/* The median of the recent steps, so that one step with an evaluation in it does not show. */
static void cell_step_time(char *cell, size_t size, const struct row *r)
{
    uint64_t ns[PS_LIVE_RECENT];
    unsigned n = 0;

    for (; r->device && n < PS_LIVE_RECENT && r->device->recent_step_ns[n]; n++)
        ns[n] = r->device->recent_step_ns[n];
    if (!n) {
        snprintf(cell, size, "-");
        return;
    }
    qsort(ns, n, sizeof *ns, compare_ns);
    double ms = (double)ns[n / 2] / 1e6;
    snprintf(cell, size, ms < 99.95 ? "%.1f ms" : ms < 9999.5 ? "%.0f ms" : "%.1f s", ms < 9999.5 ? ms : ms / 1000);
}

static void put_use(char *cell, size_t size, uint64_t used, uint64_t limit)
{
    char of[32];

    put_bytes(cell, size, used);
    put_bytes(of, sizeof of, limit);
    size_t length = strlen(cell);
    snprintf(cell + length, size - length, "/%s", of);
}

static void cell_memory(char *cell, size_t size, const struct row *r)
{
    if (r->device)
        put_use(cell, size, r->device->figures.held_bytes, r->device->figures.budget_bytes);
    else
        snprintf(cell, size, "-");
}

static void cell_bar(char *cell, size_t size, const struct row *r)
{
    char bar[BAR + 1] = "..........";
    uint64_t limit = r->device ? r->device->figures.budget_bytes : UINT64_MAX;

    *cell = 0;
    if (limit == UINT64_MAX)
        return;
    double share = limit ? (double)r->device->figures.held_bytes / (double)limit : 1;
    memset(bar, '#', (size_t)((share < 1 ? share : 1) * BAR + 0.5));
    snprintf(cell, size, "[%s]", bar);
}

static void cell_slab(char *cell, size_t size, const struct row *r)
{
    if (r->device)
        put_use(cell, size, r->device->figures.slab_used_bytes, r->device->figures.slab_limit_bytes);
    else
        snprintf(cell, size, "-");
}

/* A figure of the whole process stands in the line of its first device. */
static void put_rate(char *cell, size_t size, const struct row *r, uint64_t bytes)
{
    if (r->process->told && !r->number)
        put_bytes(cell, size, bytes);
    else
        *cell = 0;
}

static void cell_out(char *cell, size_t size, const struct row *r)
{
    put_rate(cell, size, r, r->process->now.evicted_bytes_per_second);
}

static void cell_in(char *cell, size_t size, const struct row *r)
{
    put_rate(cell, size, r, r->process->now.reloaded_bytes_per_second);
}

static void cell_wait(char *cell, size_t size, const struct row *r)
{
    *cell = 0;
    if (r->process->told && !r->number)
        snprintf(cell, size, "%.0f%%", (double)r->process->now.host_wait_ns_per_second / 1e7);
}

static bool is_silent(const struct top_process *p)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    return p->now.updated_ns && !*p->header.aside && now > p->now.updated_ns + SILENT_NS;
}

static void cell_state(char *cell, size_t size, const struct row *r)
{
    const struct top_process *p = r->process;
    const char *state = "starting";

    if (p->other_version)
        state = "-";
    else if (p->now.aside)
        state = "aside";
    else if (is_silent(p))
        state = "silent";
    else if (p->told && r->device && top_state_name(r->device->figures.state))
        state = top_state_name(r->device->figures.state);
    snprintf(cell, size, "%s", state);
}

static void cell_command(char *cell, size_t size, const struct row *r)
{
    if (r->process->other_version)
        snprintf(cell, size, "(its page has version %u; this command reads version %u)", r->process->other_version,
                 PS_LIVE_VERSION);
    else
        snprintf(cell, size, "%s", r->process->header.command);
    ps_plain_text(cell);
}

/* ---- the table ---- */

/* The last column, the command, gets the rest of the line. */
static const struct column {
    const char *head;
    void (*cell)(char *cell, size_t size, const struct row *r);
    int least;    /* width, so that columns do not jump when numbers change */
    unsigned use; /* columns of the least use are left out first where the terminal is narrow */
    bool left;
} columns[] = {
    {"PID", cell_pid, 7, 13, false},
    {"RANK", cell_rank, 4, 9, false},
    {"DEV", cell_device, 3, 7, false},
    {"STEP", cell_step, 6, 12, false},
    {"TIME", cell_step_time, 7, 11, false},
    {"DEVICE", cell_memory, 11, 10, false},
    {"", cell_bar, 0, 1, true},
    {"SLAB", cell_slab, 11, 2, false},
    {"OUT/s", cell_out, 5, 6, false},
    {"IN/s", cell_in, 5, 5, false},
    {"WAIT", cell_wait, 4, 4, false},
    {"STATE", cell_state, 8, 8, true},
    {"COMMAND", cell_command, NARROWEST_COMMAND, 3, true},
};
#define COLUMNS (sizeof columns / sizeof *columns)
#define COMMAND (COLUMNS - 1)

struct layout {
    int width[COLUMNS]; /* 0: left out */
};

typedef void (*row_fn)(const struct row *r, void *ctx);

static void each_row(const struct top_pages *pages, row_fn fn, void *ctx)
{
    for (size_t i = 0; i < pages->count; i++) {
        const struct top_process *p = &pages->process[i];
        struct row r = {.process = p};
        do {
            r.device = r.number < p->now.devices ? &p->device[r.number] : NULL;
            fn(&r, ctx);
        } while (++r.number < p->now.devices);
    }
}

/* The number of characters of a text in UTF-8. */
static int length_of(const char *text)
{
    int length = 0;

    for (; *text; text++)
        length += ((unsigned char)*text & 0xc0) != 0x80;
    return length;
}

static void widen(const struct row *r, void *ctx)
{
    struct layout *layout = ctx;
    char cell[CELL_BYTES];

    for (size_t i = 0; i < COMMAND; i++) {
        columns[i].cell(cell, sizeof cell, r);
        if (length_of(cell) > layout->width[i])
            layout->width[i] = length_of(cell);
    }
}

/* Returns the widths of the columns for a terminal that is `across` wide; 0: lines have no end. */
static struct layout lay_out(const struct top_pages *pages, int across)
{
    struct layout layout;
    int total = 0;

    for (size_t i = 0; i < COLUMNS; i++)
        layout.width[i] = columns[i].least > length_of(columns[i].head) ? columns[i].least : length_of(columns[i].head);
    each_row(pages, widen, &layout);
    for (size_t i = 0; i < COLUMNS; i++)
        total += layout.width[i] ? layout.width[i] + 1 : 0;
    for (unsigned use = 1; across && total - 1 > across && use < COLUMNS; use++) {
        for (size_t i = 0; i < COLUMNS; i++) {
            if (columns[i].use != use || !layout.width[i])
                continue;
            total -= layout.width[i] + 1;
            layout.width[i] = 0;
        }
    }
    if (layout.width[COMMAND])
        layout.width[COMMAND] = across ? across - (total - layout.width[COMMAND] - 1) : CELL_BYTES;
    return layout;
}

/* A table under way: the picture that it is drawn into, and the widths of its columns. */
struct drawing {
    struct top_picture *picture;
    struct layout layout;
};

static void draw(struct top_picture *p, const char *text, size_t bytes)
{
    if (!bytes)
        return;
    if (p->used + bytes > p->room) {
        size_t room = 2 * p->room + bytes + 4096;
        char *more = realloc(p->text, room);
        if (!more)
            return;
        p->text = more;
        p->room = room;
    }
    memcpy(p->text + p->used, text, bytes);
    p->used += bytes;
}

void top_draw_text(struct top_picture *p, const char *text)
{
    draw(p, text, strlen(text));
}

/*
 * Draws at most `width` characters of the text, and blanks up to that width; none behind the last
 * cell of a line.
 */
static void draw_cell(struct top_picture *p, const char *text, int width, bool left, bool is_last)
{
    int length = length_of(text), blanks = width > length ? width - length : 0;
    const char *end = text;

    for (int i = left ? 0 : blanks; i > 0; i--)
        top_draw_text(p, " ");
    for (int n = 0; *end; end++)
        if (((unsigned char)*end & 0xc0) != 0x80 && n++ == width)
            break;
    draw(p, text, (size_t)(end - text));
    for (int i = left && !is_last ? blanks : 0; i > 0; i--)
        top_draw_text(p, " ");
}

static const char *colour_of(size_t column, const char *cell)
{
    if (columns[column].cell != cell_state)
        return NULL;
    if (!strcmp(cell, "planned"))
        return "\033[32m";
    return !strcmp(cell, "aside") || !strcmp(cell, "silent") ? "\033[31m" : "\033[33m";
}

static void draw_line(const struct drawing *d, const struct row *r)
{
    struct top_picture *p = d->picture;
    char cell[CELL_BYTES];
    size_t last = COLUMNS;
    bool first = true;

    while (last && !d->layout.width[last - 1])
        last--;
    for (size_t i = 0; i < last; i++) {
        if (!d->layout.width[i])
            continue;
        if (!first)
            top_draw_text(p, " ");
        first = false;
        if (r)
            columns[i].cell(cell, sizeof cell, r);
        else
            snprintf(cell, sizeof cell, "%s", columns[i].head);
        const char *colour = r && p->colours ? colour_of(i, cell) : NULL;
        top_draw_text(p, colour ? colour : "");
        draw_cell(p, cell, d->layout.width[i], columns[i].left, i + 1 == last);
        top_draw_text(p, colour ? "\033[0m" : "");
    }
    top_draw_text(p, p->end_of_line);
}

static void draw_row(const struct row *r, void *ctx)
{
    const struct drawing *d = ctx;

    if (d->picture->lines_left-- > 0)
        draw_line(d, r);
}

void top_draw_table(struct top_picture *p, const struct top_pages *pages, int across)
{
    struct drawing d = {.picture = p, .layout = lay_out(pages, across)};

    top_draw_text(p, p->colours ? "\033[1m" : "");
    draw_line(&d, NULL);
    top_draw_text(p, p->colours ? "\033[0m" : "");
    each_row(pages, draw_row, &d);
}
