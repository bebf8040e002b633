#include "kernels/pointer_tables.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/counters.h"
#include "base/log.h"
#include "cuda/driver.h"
#include "kernels/launch_tables.h"
#include "kernels/module_variables.h"
#include "memory/blocks.h"
#include "memory/registry.h"
#include "policy/base/lower_bound.h"

/*
 * Consecutive words that name the same unit of the reservation. Where words may have come beside
 * known ones, a run has all that name it, and others in between (join_runs).
 */
struct run {
    CUdeviceptr first, last; /* the addresses of the first and last word */
    CUdeviceptr named;
};

/* Tables don't overlap. */
struct table {
    CUdeviceptr start, end;
    CUdeviceptr from; /* the lowest address by which launches are given it */
    CUdeviceptr base; /* of its allocation, as far as known */
    bool in_variable; /* it reaches into a variable of a module */
    uint64_t used;    /* the value of `uses` when it was last named or written */
    size_t count;
    struct run *run;
};

/*
 * A leaf, except that the lock of launch_tables.c is taken with it held. No driver call is
 * made with it held.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Sorted by start. There is room for a new table, and for one more when a table is cut in two. */
static struct table tables[PS_POINTER_TABLES_MAX + 2];
static size_t count;
static uint64_t uses;
struct ps_pointer_tables_extent ps_pointer_tables_extent;
atomic_size_t ps_pointer_tables_in_variables;

/* ---- the array; the lock is held ---- */

/*
 * Returns the multiple of PS_POINTER_TABLE_BLOCK at or below the address. The memory from there to
 * the address belongs to one allocation.
 */
static CUdeviceptr begin_of_block(CUdeviceptr address)
{
    return address - address % PS_POINTER_TABLE_BLOCK;
}

static void publish(void)
{
    const CUdeviceptr first = count ? tables[0].start : 0;
    CUdeviceptr start = first, end = count ? tables[count - 1].end : 0;
    CUdeviceptr made_start, made_end;

    /* Other tables of the first one's allocation may be given by earlier addresses. */
    for (size_t i = 0; i < count && tables[i].base <= first && start != tables[i].base; i++)
        start = tables[i].from < start ? tables[i].from : start;
    if (ps_launch_tables_extent(&made_start, &made_end)) {
        start = !count || made_start < start ? made_start : start;
        end = made_end > end ? made_end : end;
    }

    /*
     * A reader may find one value from before and one from after. Between them lie all tables that
     * are in both. Nothing orders the reader with the others' change.
     */
    atomic_store_explicit(&ps_pointer_tables_extent.start, start, memory_order_relaxed);
    atomic_store_explicit(&ps_pointer_tables_extent.end, end, memory_order_relaxed);
}

/* The allocation that a table lies in. */
struct memory {
    CUdeviceptr base; /* 0: unknown */
    bool is_small;
};

/*
 * Finds the allocation around the address. The driver does not know memory of a graph before the
 * launch. [unlocked]
 */
static struct memory memory_at(CUdeviceptr address)
{
    const struct ps_span *span = ps_address_span(address);
    CUdeviceptr base = 0;
    size_t bytes = 0;

    if (span)
        return (struct memory){span->address, false};
    if (!ps_cu.cuMemGetAddressRange || ps_cu.cuMemGetAddressRange(&base, &bytes, address) != CUDA_SUCCESS ||
        address - base >= bytes)
        return (struct memory){.base = 0};
    return (struct memory){base, bytes <= PS_POINTER_TABLE_SMALL};
}

static void place_in(struct table *table, struct memory memory)
{
    table->base = memory.base ? memory.base : begin_of_block(table->start);
    table->from = table->base;
    if (!memory.is_small && table->start - table->base > PS_POINTER_TABLE_AHEAD)
        table->from = table->start - PS_POINTER_TABLE_AHEAD;
}

/* Returns the index of the first table that ends behind the address. */
static size_t first_behind(CUdeviceptr address)
{
    return PS_LOWER_BOUND(count, i, tables[i].end <= address);
}

static void insert(size_t at, const struct table *table)
{
    memmove(&tables[at + 1], &tables[at], (count - at) * sizeof *tables);
    tables[at] = *table;
    count++;
    atomic_fetch_add_explicit(&ps_pointer_tables_in_variables, table->in_variable, memory_order_relaxed);
}

/*
 * Launches read the count of tables in variables without the lock. While tables are replaced, it
 * must not fall to 0 in between.
 */
static void hold_variables(void)
{
    atomic_fetch_add_explicit(&ps_pointer_tables_in_variables, 1, memory_order_relaxed);
}

static void let_variables_go(void)
{
    atomic_fetch_sub_explicit(&ps_pointer_tables_in_variables, 1, memory_order_relaxed);
}

static void delete_at(size_t at)
{
    atomic_fetch_sub_explicit(&ps_pointer_tables_in_variables, tables[at].in_variable, memory_order_relaxed);
    free(tables[at].run);
    count--;
    memmove(&tables[at], &tables[at + 1], (count - at) * sizeof *tables);
}

/*
 * Forgets the words in [start, end) of a table. Its extent stays, because the words around are used
 * through the same address. Without memory the table names too much.
 */
static void forget_words(struct table *table, CUdeviceptr start, CUdeviceptr end)
{
    struct run *left = malloc((2 * table->count + 1) * sizeof *left);
    size_t kept = 0;

    if (!left)
        return;
    for (size_t i = 0; i < table->count; i++) {
        const struct run run = table->run[i];
        const bool is_before = run.first + 8 <= start, is_behind = run.last >= end;
        if (run.last + 8 <= start || run.first >= end) {
            left[kept++] = run;
            continue;
        }
        if (is_before) {
            left[kept] = run;
            left[kept++].last = (start - 8) / 8 * 8;
        }
        if (is_behind) {
            left[kept] = run;
            left[kept++].first = (end + 7) / 8 * 8;
        }
    }
    free(table->run);
    table->run = left;
    table->count = kept;
}

/* Keeps only the part of a table in [start, end). */
static void cut(struct table *table, CUdeviceptr start, CUdeviceptr end)
{
    size_t kept = 0;

    for (size_t i = 0; i < table->count; i++) {
        struct run run = table->run[i];
        if (run.last < start || run.first >= end)
            continue;
        run.first = run.first < start ? start : run.first;
        run.last = run.last >= end ? end - 8 : run.last;
        table->run[kept++] = run;
    }
    table->count = kept;
    table->start = start;
    table->end = end;
}

/*
 * Returns a copy of the part of a table in [start, end). The caller frees its runs, which are NULL
 * if there is no memory.
 */
static struct table part_of(const struct table *table, CUdeviceptr start, CUdeviceptr end)
{
    struct table part = *table;

    part.run = malloc(part.count * sizeof *part.run);
    if (!part.run) {
        part.count = 0;
        return part;
    }
    memcpy(part.run, table->run, part.count * sizeof *part.run);
    cut(&part, start > table->start ? start : table->start, end < table->end ? end : table->end);
    return part;
}

/*
 * Makes the part from `from` on a table of its own, because the table is overwritten in its middle.
 * Returns false and changes nothing if there is no memory.
 */
static bool split_off(size_t at, CUdeviceptr from)
{
    struct table behind = part_of(&tables[at], from, tables[at].end);

    if (!behind.run)
        return false;
    if (behind.count)
        insert(at + 1, &behind);
    else
        free(behind.run);
    return true;
}

/* Forgets the words in the range. A table that has none left is forgotten. */
static void forget_words_between(CUdeviceptr start, CUdeviceptr end)
{
    for (size_t at = first_behind(start); at < count && tables[at].start < end;) {
        forget_words(&tables[at], start, end);
        if (!tables[at].count || (tables[at].start >= start && tables[at].end <= end))
            delete_at(at);
        else
            at++;
    }
}

/* Takes the range out of all tables, so that another table can lie there. */
static void forget_between(CUdeviceptr start, CUdeviceptr end)
{
    size_t at = first_behind(start);

    while (at < count && tables[at].start < end) {
        struct table *table = &tables[at];
        if (table->start < start && table->end > end && !split_off(at, end))
            return; /* the table then names too much */
        if (table->start < start)
            cut(table, table->start, start);
        else if (table->end > end)
            cut(table, end, table->end);
        if ((table->start >= start && table->end <= end) || !table->count)
            delete_at(at);
        else
            at++;
    }
}

static void forget_oldest(void)
{
    static bool said;
    size_t oldest = 0;

    for (size_t i = 1; i < count; i++)
        if (tables[i].used < tables[oldest].used)
            oldest = i;
    delete_at(oldest);
    ps_count(pointer_tables_forgotten);
    if (!said)
        ps_log_info(TRACER, "more than %u pointer tables on the device: Penstock forgets the least recently used ones",
                    PS_POINTER_TABLES_MAX);
    said = true;
}

/* ---- reading ---- */

static void say_no_memory(void)
{
    ps_log_warn_once(TRACER, "no memory to record a pointer table: spans that it points to may be evicted when "
                             "a kernel uses it; a lower PENSTOCK_HOST_BUDGET makes the slab smaller");
}

/* Returns the beginning of the address's unit of the reservation. */
static CUdeviceptr unit_of(CUdeviceptr address)
{
    return address - (address - ps_reservation.base) % ps_reservation.granularity;
}

static bool add_word(struct table *table, size_t *room, CUdeviceptr place, CUdeviceptr word)
{
    CUdeviceptr named = unit_of(word);
    struct run *last = table->count ? &table->run[table->count - 1] : NULL;

    if (last && last->named == named && last->last + 8 == place) {
        last->last = place;
        return true;
    }
    struct run *grown = ps_grown_array(table->run, table->count, room, 16, sizeof *grown);
    if (!grown)
        return false;
    table->run = grown;
    table->run[table->count++] = (struct run){.first = place, .last = place, .named = named};
    return true;
}

/*
 * Returns a table of the copied words that are addresses in spans, or in holes of blocks. Pointers
 * are aligned on the device, and need not be on the host.
 */
static struct table read_copy(CUdeviceptr to, const unsigned char *from, size_t bytes)
{
    const CUdeviceptr base = ps_reservation.base;
    const uint64_t reserved = ps_reservation.reserved;
    struct table table = {.start = to, .end = to + bytes};
    const size_t looked = bytes < PS_POINTER_TABLE_LOOKED ? bytes : PS_POINTER_TABLE_LOOKED;
    size_t room = 0;

    for (size_t at = -to & 7; at + 8 <= looked; at += 8) {
        uint64_t word;
        memcpy(&word, from + at, sizeof word);
        struct ps_span *span = word - base < reserved ? ps_address_span(ps_address_meant(word)) : NULL;
        if (!span && (word - base >= reserved || !ps_blocks_have_holes()))
            continue;
        if (span)
            atomic_store_explicit(&span->grace.known, true, memory_order_relaxed);
        if (!add_word(&table, &room, to + at, word)) {
            say_no_memory();
            break;
        }
    }
    return table;
}

/*
 * Forgets the tables in the range, and puts this one there; NULL: none. Takes over the table's
 * runs. Publish it then. [locked]
 */
static void put(CUdeviceptr to, size_t bytes, struct table *table)
{
    hold_variables();
    if (table) {
        forget_between(to, to + bytes);
        table->used = ++uses;
        insert(first_behind(to), table);
    } else {
        forget_words_between(to, to + bytes);
    }
    let_variables_go();
    while (count > PS_POINTER_TABLES_MAX)
        forget_oldest();
}

static void write_over(CUdeviceptr to, size_t bytes, struct table *table)
{
    pthread_mutex_lock(&lock);
    if (table)
        ps_count(pointer_tables);
    put(to, bytes, table);
    publish();
    pthread_mutex_unlock(&lock);
}

void ps_pointer_tables_copied(CUdeviceptr to, const void *from, size_t bytes)
{
    struct table table = {.count = 0};

    if (bytes >= 8)
        table = read_copy(to, from, bytes);
    if (table.count) {
        table.in_variable = ps_module_variables_touch(to, bytes);
        place_in(&table, memory_at(to));
    }
    if (!table.count && !ps_pointer_tables_exist())
        return;
    write_over(to, bytes, table.count ? &table : NULL);
    ps_launch_tables_overwritten(to, bytes); /* last: in between, launches find more than there is */
}

/* ---- words beside those that are known ---- */

static int by_name(const void *a, const void *b)
{
    const struct run *one = a, *other = b;

    return (one->named > other->named) - (one->named < other->named);
}

/* Makes one run of all that name the same unit. So they stay few. */
static void join_runs(struct table *table)
{
    size_t kept = 0;

    qsort(table->run, table->count, sizeof *table->run, by_name);
    for (size_t i = 1; i < table->count; i++) {
        const struct run *next = &table->run[i];
        struct run *last = &table->run[kept];
        if (by_name(last, next) != 0) {
            table->run[++kept] = *next;
            continue;
        }
        last->first = next->first < last->first ? next->first : last->first;
        last->last = next->last > last->last ? next->last : last->last;
    }
    table->count = kept + 1;
}

/*
 * Adds a table to those that it overlaps. They become one, which names all that each of them names.
 * Takes over the table's runs. [locked]
 */
static void add(struct table *table)
{
    const size_t first = first_behind(table->start);
    const CUdeviceptr end = table->end;
    size_t total = table->count;

    for (size_t at = first; at < count && tables[at].start < end; at++)
        total += tables[at].count;
    struct run *grown = realloc(table->run, total * sizeof *grown);
    if (!grown) {
        say_no_memory();
        free(table->run);
        return;
    }
    table->run = grown;
    hold_variables();
    while (first < count && tables[first].start < end) {
        const struct table *before = &tables[first];
        memcpy(table->run + table->count, before->run, before->count * sizeof *before->run);
        table->count += before->count;
        table->start = before->start < table->start ? before->start : table->start;
        table->end = before->end > table->end ? before->end : table->end;
        table->from = before->from < table->from ? before->from : table->from;
        table->base = before->base < table->base ? before->base : table->base;
        table->in_variable |= before->in_variable;
        delete_at(first);
    }
    join_runs(table);
    table->used = ++uses;
    insert(first, table);
    let_variables_go();
    while (count > PS_POINTER_TABLES_MAX)
        forget_oldest();
    publish();
}

void ps_pointer_tables_brought(CUdeviceptr to, const void *from, size_t bytes, bool keeps,
                               void (*name)(void *ctx, CUdeviceptr named), void *ctx)
{
    if (bytes < 8)
        return;
    struct table table = read_copy(to, from, bytes);
    for (size_t i = 0; i < table.count; i++)
        name(ctx, table.run[i].named);
    if (!table.count) {
        free(table.run);
        return;
    }
    table.in_variable = ps_module_variables_touch(to, bytes);
    place_in(&table, memory_at(to));
    if (!keeps) {
        write_over(to, bytes, &table);
        ps_launch_tables_overwritten(to, bytes);
        return;
    }
    pthread_mutex_lock(&lock);
    ps_count(pointer_tables);
    add(&table);
    pthread_mutex_unlock(&lock);
}

void ps_pointer_tables_overwritten(CUdeviceptr to, size_t bytes)
{
    ps_launch_tables_overwritten(to, bytes);
    if (ps_pointer_tables_exist())
        write_over(to, bytes, NULL);
}

/*
 * Copies the parts of tables in `bytes` bytes at `from`, and shifts their addresses by `shift`.
 * Each part becomes a table of its own. Returns the number of parts; the caller frees the array.
 * [locked]
 */
static size_t gather_parts(CUdeviceptr from, size_t bytes, uint64_t shift, struct table **parts)
{
    size_t n = 0, room = 0;

    *parts = NULL;
    for (size_t at = first_behind(from); at < count && tables[at].start < from + bytes; at++) {
        struct table part = part_of(&tables[at], from, from + bytes);
        struct table *grown = ps_grown_array(*parts, n, &room, 8, sizeof *grown);
        *parts = grown ? grown : *parts;
        if (!part.count || !grown) {
            if (!part.run || !grown)
                say_no_memory();
            free(part.run);
            continue;
        }
        for (size_t i = 0; i < part.count; i++) {
            part.run[i].first += shift;
            part.run[i].last += shift;
        }
        part.start += shift;
        part.end += shift;
        grown[n++] = part;
    }
    return n;
}

void ps_pointer_tables_moved(CUdeviceptr to, CUdeviceptr from, size_t bytes, bool keeps)
{
    struct table *parts = NULL;

    if (!ps_pointer_tables_exist())
        return;
    const bool in_variable = ps_module_variables_touch(to, bytes);
    const struct memory memory = memory_at(to);
    struct table target = {.start = to};
    place_in(&target, memory);
    ps_launch_tables_moved(to, from, bytes, target.from, keeps);
    pthread_mutex_lock(&lock);
    /*
     * Pointers stay aligned only if they move by whole words. All tables are read before any is
     * forgotten, because the target may overlap the source.
     */
    size_t n = (to - from) % 8 ? 0 : gather_parts(from, bytes, to - from, &parts);
    hold_variables();
    if (!keeps)
        forget_words_between(to, to + bytes);
    for (size_t i = 0; i < n; i++) {
        parts[i].in_variable = in_variable;
        place_in(&parts[i], memory);
        if (keeps)
            add(&parts[i]);
        else
            put(parts[i].start, parts[i].end - parts[i].start, &parts[i]);
    }
    let_variables_go();
    publish();
    pthread_mutex_unlock(&lock);
    free(parts);
}

bool ps_pointer_tables_near(CUdeviceptr address, size_t bytes)
{
    if (!ps_pointer_tables_exist())
        return false;
    pthread_mutex_lock(&lock);
    size_t at = first_behind(address);
    bool near = at < count && tables[at].start < address + bytes;
    pthread_mutex_unlock(&lock);
    return near || ps_launch_tables_near(address, bytes);
}

static void name_one(struct table *table, void (*name)(void *ctx, CUdeviceptr named), void *ctx)
{
    table->used = ++uses;
    for (size_t i = 0; i < table->count; i++)
        name(ctx, table->run[i].named);
}

/* An arena may have many tables. Behind this one, others are farther still. */
static bool is_far_behind(const struct table *table, CUdeviceptr address)
{
    return table->from > address && table->start - address > PS_POINTER_TABLE_AHEAD;
}

static void name_copied(CUdeviceptr address, void (*name)(void *ctx, CUdeviceptr named), void *ctx)
{
    CUdeviceptr end = 0; /* of the last table that was named */

    pthread_mutex_lock(&lock);
    for (size_t at = first_behind(address); at < count; at++) {
        const bool follows = end && tables[at].start == end;
        if (!follows && (tables[at].base > address || is_far_behind(&tables[at], address)))
            break;
        if (!follows && tables[at].from > address)
            continue;
        name_one(&tables[at], name, ctx);
        end = tables[at].end;
    }
    pthread_mutex_unlock(&lock);
}

void ps_pointer_tables_name(CUdeviceptr address, void (*name)(void *ctx, CUdeviceptr named),
                            void (*maybe)(void *ctx, CUdeviceptr named), void *ctx)
{
    /* An undecided launch becomes a known one before it goes: so the undecided ones come first. */
    if (maybe)
        ps_launch_tables_name(false, address, maybe, ctx);
    ps_launch_tables_name(true, address, name, ctx);
    name_copied(address, name, ctx);
}

void ps_pointer_tables_name_between(CUdeviceptr address, size_t bytes, void (*name)(void *ctx, CUdeviceptr named),
                                    void *ctx)
{
    pthread_mutex_lock(&lock);
    for (size_t at = first_behind(address); at < count && tables[at].start < address + bytes; at++)
        name_one(&tables[at], name, ctx);
    pthread_mutex_unlock(&lock);
    ps_launch_tables_name_between(address, bytes, name, ctx);
}

void ps_pointer_tables_name_of_variables(void (*name)(void *ctx, CUdeviceptr named), void *ctx)
{
    pthread_mutex_lock(&lock);
    for (size_t at = 0; at < count; at++)
        if (tables[at].in_variable)
            name_one(&tables[at], name, ctx);
    pthread_mutex_unlock(&lock);
    ps_launch_tables_name_of_variables(name, ctx);
}

void ps_pointer_tables_publish(void)
{
    pthread_mutex_lock(&lock);
    publish();
    pthread_mutex_unlock(&lock);
}
