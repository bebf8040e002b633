/*
 * The table that `penstock top` shows: its cells, which columns a narrow terminal gets, and the text of it all.
 */
#ifndef PENSTOCK_TOP_TABLE_H
#define PENSTOCK_TOP_TABLE_H

#include <time.h>

#include "base/plain_text.h"
#include "top_pages.h"

/* A process that has told nothing for so long is stopped, or has no processor. */
#define SILENT_NS (5ull * 1000000000u)
#define CELL_BYTES 256
#define BAR 10
#define NARROWEST_COMMAND 8

static bool colours;

/* ---- a line ---- */

struct row {
    const struct top_process *process;
    const struct ps_live_device *device; /* NULL: it has none */
    unsigned number;                     /* of the device, among the process's */
};

/* "475K", "12.3G": at most three digits, in powers of 1024. */
static inline void put_bytes(char *cell, size_t size, uint64_t bytes)
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

static inline void cell_pid(char *cell, size_t size, const struct row *r)
{
    snprintf(cell, size, "%llu", (unsigned long long)r->process->pid);
}

static inline void cell_rank(char *cell, size_t size, const struct row *r)
{
    if (r->process->other_version || r->process->header.rank == PS_LIVE_NO_RANK)
        snprintf(cell, size, "-");
    else
        snprintf(cell, size, "%llu", (unsigned long long)r->process->header.rank);
}

static inline void cell_device(char *cell, size_t size, const struct row *r)
{
    if (r->device)
        snprintf(cell, size, "%llu", (unsigned long long)r->process->header.device[r->number].ordinal);
    else
        snprintf(cell, size, "-");
}

static inline void cell_step(char *cell, size_t size, const struct row *r)
{
    if (r->device && r->device->figures.step)
        snprintf(cell, size, "%llu", (unsigned long long)r->device->figures.step);
    else
        snprintf(cell, size, "-");
}

static inline int compare_ns(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return (a > b) - (a < b);
}

/* The median of the last ones: a step with an evaluation in it is one of them. */
static inline void cell_step_time(char *cell, size_t size, const struct row *r)
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

static inline void put_use(char *cell, size_t size, uint64_t used, uint64_t limit)
{
    char of[32];

    put_bytes(cell, size, used);
    put_bytes(of, sizeof of, limit);
    size_t length = strlen(cell);
    snprintf(cell + length, size - length, "/%s", of);
}

static inline void cell_memory(char *cell, size_t size, const struct row *r)
{
    if (r->device)
        put_use(cell, size, r->device->figures.held_bytes, r->device->figures.budget_bytes);
    else
        snprintf(cell, size, "-");
}

static inline void cell_bar(char *cell, size_t size, const struct row *r)
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

static inline void cell_slab(char *cell, size_t size, const struct row *r)
{
    if (r->device)
        put_use(cell, size, r->device->figures.slab_used_bytes, r->device->figures.slab_limit_bytes);
    else
        snprintf(cell, size, "-");
}

/* Figures of all devices of a process stand in its first line. */
static inline void put_rate(char *cell, size_t size, const struct row *r, uint64_t bytes)
{
    if (r->process->told && !r->number)
        put_bytes(cell, size, bytes);
    else
        *cell = 0;
}

static inline void cell_out(char *cell, size_t size, const struct row *r)
{
    put_rate(cell, size, r, r->process->now.evicted_bytes_per_second);
}

static inline void cell_in(char *cell, size_t size, const struct row *r)
{
    put_rate(cell, size, r, r->process->now.reloaded_bytes_per_second);
}

static inline void cell_wait(char *cell, size_t size, const struct row *r)
{
    *cell = 0;
    if (r->process->told && !r->number)
        snprintf(cell, size, "%.0f%%", (double)r->process->now.host_wait_ns_per_second / 1e7);
}

static inline bool is_silent(const struct top_process *p)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    return p->now.updated_ns && !*p->header.aside && now > p->now.updated_ns + SILENT_NS;
}

static inline void cell_state(char *cell, size_t size, const struct row *r)
{
    const struct top_process *p = r->process;
    const char *state = "starting";

    if (p->other_version)
        state = "-";
    else if (p->now.aside)
        state = "aside";
    else if (is_silent(p))
        state = "silent";
    else if (p->told && r->device && r->device->figures.state < sizeof top_states / sizeof *top_states)
        state = top_states[r->device->figures.state];
    snprintf(cell, size, "%s", state);
}

static inline void cell_command(char *cell, size_t size, const struct row *r)
{
    if (r->process->other_version)
        snprintf(cell, size, "(its page has version %u, and this command reads %u)", r->process->other_version, PS_LIVE_VERSION);
    else
        snprintf(cell, size, "%s", r->process->header.command);
    ps_plain_text(cell);
}

/* ---- the table ---- */

/* The last one, the command, has what is left of the line. */
static const struct column {
    const char *head;
    void (*cell)(char *cell, size_t size, const struct row *r);
    int least;    /* wide: numbers change, and columns shall not jump */
    unsigned use; /* the columns of the least use go first where the terminal is narrow */
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

static inline void each_row(const struct top_pages *pages, row_fn fn, void *ctx)
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

/* Characters, as UTF-8 has them. */
static inline int length_of(const char *text)
{
    int length = 0;

    for (; *text; text++)
        length += ((unsigned char)*text & 0xc0) != 0x80;
    return length;
}

static inline void widen(const struct row *r, void *ctx)
{
    struct layout *layout = ctx;
    char cell[CELL_BYTES];

    for (size_t i = 0; i < COMMAND; i++) {
        columns[i].cell(cell, sizeof cell, r);
        if (length_of(cell) > layout->width[i])
            layout->width[i] = length_of(cell);
    }
}

/* `across`: of the terminal; 0: no end. */
static inline struct layout lay_out(const struct top_pages *pages, int across)
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

/* A text that grows, so that a picture is one write. */
struct picture {
    char *text;
    size_t used, room;
    struct layout layout;
    int lines_left; /* INT32_MAX: no end */
    const char *end_of_line;
};

static inline void draw(struct picture *p, const char *text, size_t bytes)
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

static inline void draw_text(struct picture *p, const char *text)
{
    draw(p, text, strlen(text));
}

/* So many characters of it, and blanks up to there. */
static inline void draw_cell(struct picture *p, const char *text, int width, bool left, bool is_last)
{
    int length = length_of(text), blanks = width > length ? width - length : 0;
    const char *end = text;

    for (int i = left ? 0 : blanks; i > 0; i--)
        draw_text(p, " ");
    for (int n = 0; *end; end++)
        if (((unsigned char)*end & 0xc0) != 0x80 && n++ == width)
            break;
    draw(p, text, (size_t)(end - text));
    for (int i = left && !is_last ? blanks : 0; i > 0; i--)
        draw_text(p, " ");
}

static inline const char *colour_of(size_t column, const char *cell)
{
    if (!colours || columns[column].cell != cell_state)
        return NULL;
    if (!strcmp(cell, "planned"))
        return "\033[32m";
    return !strcmp(cell, "aside") || !strcmp(cell, "silent") ? "\033[31m" : "\033[33m";
}

static inline void draw_line(struct picture *p, const struct row *r)
{
    char cell[CELL_BYTES];
    size_t last = COLUMNS;
    bool first = true;

    while (last && !p->layout.width[last - 1])
        last--;
    for (size_t i = 0; i < last; i++) {
        if (!p->layout.width[i])
            continue;
        if (!first)
            draw_text(p, " ");
        first = false;
        if (r)
            columns[i].cell(cell, sizeof cell, r);
        else
            snprintf(cell, sizeof cell, "%s", columns[i].head);
        const char *colour = r ? colour_of(i, cell) : NULL;
        draw_text(p, colour ? colour : "");
        draw_cell(p, cell, p->layout.width[i], columns[i].left, i + 1 == last);
        draw_text(p, colour ? "\033[0m" : "");
    }
    draw_text(p, p->end_of_line);
}

static inline void draw_row(const struct row *r, void *ctx)
{
    struct picture *p = ctx;

    if (p->lines_left-- > 0)
        draw_line(p, r);
}

static inline void draw_table(struct picture *p, const struct top_pages *pages, int across)
{
    p->layout = lay_out(pages, across);
    draw_text(p, colours ? "\033[1m" : "");
    draw_line(p, NULL);
    draw_text(p, colours ? "\033[0m" : "");
    each_row(pages, draw_row, p);
}

#endif
