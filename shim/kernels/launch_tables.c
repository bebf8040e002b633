#include "kernels/launch_tables.h"

#include <pthread.h>

#include "kernels/module_variables.h"

struct entry {
    uint64_t number;
    struct ps_made_launch launch;
    bool in_variable; /* some of its memory lies in a variable of a module */
};

#define PAGE_BITS 12
#define PAGES 4096u /* a power of two */

/* What searches read first. These lie side by side, since entries are large. */
struct outline {
    uint64_t key;
    CUdeviceptr from, end; /* all memory of the launch, and the addresses by which it is given */
    bool is_known;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry list[PS_LAUNCH_TABLES_MAX + 1];       /* room for a new one, before another one goes */
static struct outline outlines[PS_LAUNCH_TABLES_MAX + 1]; /* of the launch at the same place in `list` */
static uint64_t signatures[PS_LAUNCH_TABLES_MAX + 1];     /* the same for equal launches (find_equal) */
static size_t count;
static uint64_t added;
/* The addresses of all outlines lie in [low, high). Few were removed since these were found. */
static CUdeviceptr low = UINT64_MAX, high;
static size_t removed;
/*
 * For pages, by their number modulo PAGES: memories that are given by an address there. So a launch
 * does not search the list for each of its words.
 */
static _Atomic uint32_t on_page[PAGES];
static _Atomic uint32_t gone_on_page[PAGES]; /* memories that began there, and were forgotten */
atomic_size_t ps_launch_tables, ps_launch_tables_in_variables;

/* ---- the list; the lock is held ---- */

static void count_pages(const struct ps_made_memory *memory, uint32_t by)
{
    const uint64_t last = (memory->address + memory->bytes - 1) >> PAGE_BITS;

    for (uint64_t page = memory->from >> PAGE_BITS; page <= last; page++)
        atomic_fetch_add_explicit(&on_page[page % PAGES], by, memory_order_relaxed);
}

static _Atomic uint32_t *gone_near(const struct ps_made_memory *memory)
{
    return &gone_on_page[(memory->address >> PAGE_BITS) % PAGES];
}

static void count_gone(const struct ps_made_memory *memory)
{
    count_pages(memory, -1u);
    atomic_fetch_add_explicit(gone_near(memory), 1, memory_order_relaxed);
}

static uint64_t mixed(uint64_t word)
{
    word *= 0x9E3779B97F4A7C15u;
    return word ^ word >> 32;
}

/* Memories may be in any order, spans have theirs. */
static uint64_t signature_of(const struct ps_made_launch *l)
{
    uint64_t memories = 0, signature = l->key + l->is_known + 2u * l->in_graph;

    for (unsigned i = 0; i < l->memories; i++)
        memories += mixed(l->memory[i].address);
    for (unsigned i = 0; i < l->spans; i++)
        signature = mixed(signature + l->span[i].address);
    return mixed(signature + memories);
}

static void draw_outline(size_t at)
{
    const struct ps_made_launch *l = &list[at].launch;
    struct outline *o = &outlines[at];

    signatures[at] = signature_of(l);
    *o = (struct outline){.key = l->key, .from = UINT64_MAX, .is_known = l->is_known};
    for (unsigned i = 0; i < l->memories; i++) {
        const struct ps_made_memory *memory = &l->memory[i];
        o->from = memory->from < o->from ? memory->from : o->from;
        o->end = memory->address + memory->bytes > o->end ? memory->address + memory->bytes : o->end;
    }
}

static void widen(const struct outline *o)
{
    low = o->from < low ? o->from : low;
    high = o->end > high ? o->end : high;
}

static void drop(size_t at)
{
    for (unsigned i = 0; i < list[at].launch.memories; i++)
        count_gone(&list[at].launch.memory[i]);
    atomic_fetch_sub_explicit(&ps_launch_tables_in_variables, list[at].in_variable, memory_order_relaxed);
    removed++;
    list[at] = list[--count];
    outlines[at] = outlines[count];
    signatures[at] = signatures[count];
    atomic_store_explicit(&ps_launch_tables, count, memory_order_relaxed);
}

/* Drops the oldest launch if there are too many. */
static void keep_most(void)
{
    size_t oldest = 0;

    if (count <= PS_LAUNCH_TABLES_MAX)
        return;
    for (size_t i = 1; i < count; i++)
        if (list[i].launch.number < list[oldest].launch.number)
            oldest = i;
    drop(oldest);
}

/* Returns whether one may take the place of the other. */
static bool is_of_same_kind(const struct ps_made_launch *l, const struct ps_made_launch *other)
{
    return l->key == other->key && l->is_known == other->is_known && l->in_graph == other->in_graph;
}

static bool has_memory_at(const struct ps_made_launch *l, CUdeviceptr address)
{
    for (unsigned i = 0; i < l->memories; i++)
        if (l->memory[i].address == address)
            return true;
    return false;
}

/* Returns how many of the memories of `l` the other launch has, too. */
static unsigned shared_memories(const struct ps_made_launch *l, const struct ps_made_launch *other)
{
    unsigned shared = 0;

    for (unsigned i = 0; i < l->memories; i++)
        shared += has_memory_at(other, l->memory[i].address);
    return shared;
}

/* Another memory of the launch may take its place. */
static void remove_memory(struct ps_made_launch *l, unsigned at)
{
    count_gone(&l->memory[at]);
    l->memory[at] = l->memory[--l->memories];
}

/* The launch may have lost memory. Drops it if none is left. */
static void settle(size_t at)
{
    if (list[at].launch.memories)
        draw_outline(at);
    else
        drop(at);
}

/* Takes the memories that the other launch has away from the one at that place. */
static void take_shared_memories(size_t at, const struct ps_made_launch *other)
{
    struct ps_made_launch *l = &list[at].launch;

    for (unsigned i = l->memories; i-- > 0;)
        if (has_memory_at(other, l->memory[i].address))
            remove_memory(l, i);
    settle(at);
}

static bool has_same_spans(const struct ps_made_launch *l, const struct ps_made_launch *other)
{
    bool is = l->spans == other->spans;

    for (unsigned i = 0; is && i < l->spans; i++)
        is = l->span[i].address == other->span[i].address;
    return is;
}

static bool gives(const struct ps_made_launch *l, unsigned place)
{
    for (unsigned i = 0; i < l->spans; i++)
        if (l->span[i].place == place)
            return true;
    return false;
}

/* Takes over the spans that other words of the parameters gave lately. */
static void keep_others(struct ps_made_launch *l, const struct ps_made_launch *before)
{
    for (unsigned i = 0; i < before->spans && l->spans < PS_MADE_SPANS; i++)
        if (l->number - before->span[i].launch <= PS_LAUNCH_TABLE_TOGETHER && !gives(l, before->span[i].place))
            l->span[l->spans++] = before->span[i];
}

/* One of them may be too many now (keep_most). */
static uint64_t add(const struct ps_made_launch *launch, bool in_variable)
{
    list[count] = (struct entry){++added, *launch, in_variable};
    draw_outline(count);
    widen(&outlines[count++]);
    for (unsigned i = 0; i < launch->memories; i++)
        count_pages(&launch->memory[i], 1);
    atomic_fetch_add_explicit(&ps_launch_tables_in_variables, in_variable, memory_order_relaxed);
    atomic_store_explicit(&ps_launch_tables, count, memory_order_relaxed);
    return added;
}

/* Returns the place of a launch that names the same spans for the same memory, or `count`. */
static size_t find_equal(const struct ps_made_launch *l)
{
    const uint64_t signature = signature_of(l);
    size_t at = 0;

    while (at < count && !(signatures[at] == signature && is_of_same_kind(&list[at].launch, l) &&
                           list[at].launch.memories == l->memories &&
                           shared_memories(l, &list[at].launch) == l->memories && has_same_spans(&list[at].launch, l)))
        at++;
    return at;
}

/* Returns whether the known launch replaces that one's tables. */
static bool replaces(const struct ps_made_launch *l, const struct ps_made_launch *before)
{
    return before->key == l->key && before->number <= l->number && is_of_same_kind(before, l) &&
           shared_memories(before, l);
}

/*
 * A launch that adds is not there twice. Another one that is known replaces those before it. What
 * was decided late replaces nothing that came behind. Searches begin without the lock. So the
 * memory never counts as given up in between.
 */
static uint64_t put(struct ps_made_launch *l, bool in_variable)
{
    const bool adds = l->in_graph || l->adds;
    const size_t equal = adds ? find_equal(l) : count;

    if (equal < count) {
        list[equal].launch.number = l->number;
        return list[equal].number;
    }
    if (adds || !l->is_known)
        return add(l, in_variable);
    for (size_t i = count; i-- > 0;)
        if (outlines[i].key == l->key && replaces(l, &list[i].launch))
            keep_others(l, &list[i].launch);
    const uint64_t number = add(l, in_variable);
    for (size_t i = count; i-- > 0;)
        if (outlines[i].key == l->key && list[i].number != number && replaces(l, &list[i].launch))
            take_shared_memories(i, l);
    return number;
}

static bool overlaps(const struct ps_made_memory *memory, CUdeviceptr start, size_t bytes)
{
    return memory->address < start + bytes && memory->address + memory->bytes > start;
}

static bool lies_in(const struct ps_made_memory *memory, CUdeviceptr start, size_t bytes)
{
    return memory->address >= start && memory->address + memory->bytes <= start + bytes;
}

static bool is_near(const struct outline *o, CUdeviceptr start, size_t bytes)
{
    return o->from < start + bytes && o->end > start;
}

/* Forgets the memory of the launch at that place that lies in the range. */
static void forget_memory(size_t at, CUdeviceptr to, size_t bytes)
{
    struct ps_made_launch *l = &list[at].launch;

    if (!is_near(&outlines[at], to, bytes))
        return;
    for (unsigned i = l->memories; i-- > 0;)
        if (lies_in(&l->memory[i], to, bytes))
            remove_memory(l, i);
    settle(at);
}

static bool has_memory_in(size_t at, CUdeviceptr start, size_t bytes)
{
    const struct ps_made_launch *l = &list[at].launch;
    bool has = false;

    for (unsigned i = 0; is_near(&outlines[at], start, bytes) && i < l->memories; i++)
        has |= overlaps(&l->memory[i], start, bytes);
    return has;
}

/* Returns whether there may be such memory in the range. Needs no lock. */
static bool may_have_memory_in(CUdeviceptr start, size_t bytes)
{
    if (!ps_launch_tables_exist() || !bytes)
        return false;
    const uint64_t first = start >> PAGE_BITS, last = (start + bytes - 1) >> PAGE_BITS;
    bool may = last - first >= PAGES / 4; /* then the pages are not worth the time */
    for (uint64_t page = first; !may && page <= last; page++)
        may = atomic_load_explicit(&on_page[page % PAGES], memory_order_relaxed);
    return may;
}

static void name_all(const struct ps_made_launch *l, void (*name)(void *ctx, CUdeviceptr named), void *ctx)
{
    for (unsigned i = 0; i < l->spans; i++)
        name(ctx, l->span[i].address);
}

/* ---- launches come and go ---- */

static bool is_in_variable(const struct ps_made_launch *l)
{
    bool is = false;

    for (unsigned i = 0; i < l->memories; i++)
        is |= ps_module_variables_touch(l->memory[i].address, l->memory[i].bytes);
    return is;
}

/* Returns the place of the launch of that number, or `count`. */
static size_t place_of(uint64_t number)
{
    size_t at = 0;

    while (at < count && list[at].number != number)
        at++;
    return at;
}

static void drop_number(uint64_t number)
{
    const size_t at = place_of(number);

    if (at < count)
        drop(at);
}

uint64_t ps_launch_tables_add(const struct ps_made_launch *launch, uint64_t undecided)
{
    struct ps_made_launch added_one = *launch;
    const bool in_variable = is_in_variable(launch);

    pthread_mutex_lock(&lock);
    const uint64_t number = put(&added_one, in_variable);
    if (undecided)
        drop_number(undecided);
    keep_most();
    pthread_mutex_unlock(&lock);
    return number;
}

void ps_launch_tables_forget(uint64_t number)
{
    pthread_mutex_lock(&lock);
    drop_number(number);
    pthread_mutex_unlock(&lock);
}

bool ps_launch_tables_is_there(uint64_t number)
{
    pthread_mutex_lock(&lock);
    const bool is = place_of(number) < count;
    pthread_mutex_unlock(&lock);
    return is;
}

uint64_t ps_launch_tables_undecided(uint64_t key, uint64_t except, struct ps_made_launch *launch)
{
    size_t oldest = SIZE_MAX;
    uint64_t number = 0;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++)
        if (list[i].launch.key == key && !list[i].launch.is_known && list[i].number != except &&
            (oldest == SIZE_MAX || list[i].launch.number < list[oldest].launch.number))
            oldest = i;
    if (oldest != SIZE_MAX) {
        *launch = list[oldest].launch;
        number = list[oldest].number;
    }
    pthread_mutex_unlock(&lock);
    return number;
}

void ps_launch_tables_overwritten(CUdeviceptr to, size_t bytes)
{
    if (!may_have_memory_in(to, bytes))
        return;
    pthread_mutex_lock(&lock);
    for (size_t i = count; i-- > 0;)
        forget_memory(i, to, bytes);
    pthread_mutex_unlock(&lock);
}

/* Adds the launch again, for the copy of its memory. */
static void add_moved(struct ps_made_launch moved, CUdeviceptr to, CUdeviceptr from, size_t bytes, CUdeviceptr given,
                      bool in_variable)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < moved.memories; i++) {
        struct ps_made_memory memory = moved.memory[i];
        if (!overlaps(&memory, from, bytes))
            continue;
        memory.address += to - from;
        memory.from = given < memory.address ? given : memory.address;
        moved.memory[kept++] = memory;
    }
    moved.memories = kept;
    const size_t equal = kept ? find_equal(&moved) : count;
    if (equal < count)
        list[equal].number = ++added; /* it is not overwritten by the copy */
    else if (kept)
        add(&moved, in_variable);
    keep_most();
}

void ps_launch_tables_moved(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUdeviceptr given, bool keeps)
{
    if (!may_have_memory_in(to, bytes) && !may_have_memory_in(from, bytes))
        return;
    const bool in_variable = ps_module_variables_touch(to, bytes);
    pthread_mutex_lock(&lock);
    const uint64_t last = added;
    for (size_t i = 0; i < count && (to - from) % 8 == 0; i++)
        if (list[i].number <= last && has_memory_in(i, from, bytes))
            add_moved(list[i].launch, to, from, bytes, given, in_variable);
    for (size_t i = count; !keeps && i-- > 0;)
        if (list[i].number <= last)
            forget_memory(i, to, bytes);
    pthread_mutex_unlock(&lock);
}

/* ---- naming ---- */

static bool is_given(const struct ps_made_launch *l, CUdeviceptr address)
{
    bool is = false;

    for (unsigned i = 0; i < l->memories; i++)
        is |= address >= l->memory[i].from && address < l->memory[i].address + l->memory[i].bytes;
    return is;
}

void ps_launch_tables_name(bool known, CUdeviceptr address, void (*name)(void *ctx, CUdeviceptr named), void *ctx)
{
    if (!atomic_load_explicit(&on_page[(address >> PAGE_BITS) % PAGES], memory_order_relaxed))
        return;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++)
        if (outlines[i].is_known == known && is_near(&outlines[i], address, 1) && is_given(&list[i].launch, address))
            name_all(&list[i].launch, name, ctx);
    pthread_mutex_unlock(&lock);
}

void ps_launch_tables_name_between(CUdeviceptr address, size_t bytes, void (*name)(void *ctx, CUdeviceptr named),
                                   void *ctx)
{
    if (!may_have_memory_in(address, bytes))
        return;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++)
        if (has_memory_in(i, address, bytes))
            name_all(&list[i].launch, name, ctx);
    pthread_mutex_unlock(&lock);
}

void ps_launch_tables_name_of_variables(void (*name)(void *ctx, CUdeviceptr named), void *ctx)
{
    if (!ps_launch_tables_exist())
        return;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++)
        if (list[i].in_variable)
            name_all(&list[i].launch, name, ctx);
    pthread_mutex_unlock(&lock);
}

/* ---- asking ---- */

bool ps_launch_tables_near(CUdeviceptr address, size_t bytes)
{
    bool has = false;

    if (!may_have_memory_in(address, bytes))
        return false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; !has && i < count; i++)
        has = has_memory_in(i, address, bytes);
    pthread_mutex_unlock(&lock);
    return has;
}

uint64_t ps_launch_tables_gone(const struct ps_made_launch *launch)
{
    uint64_t gone = 0;

    for (unsigned i = 0; i < launch->memories; i++)
        gone += atomic_load_explicit(gone_near(&launch->memory[i]), memory_order_relaxed);
    return gone;
}

/* After many were removed, finds anew where the others lie. The lock is held. */
static void narrow(void)
{
    if (removed <= count / 4)
        return;
    removed = high = 0;
    low = UINT64_MAX;
    for (size_t i = 0; i < count; i++)
        widen(&outlines[i]);
}

bool ps_launch_tables_extent(CUdeviceptr *start, CUdeviceptr *end)
{
    pthread_mutex_lock(&lock);
    narrow();
    *start = low;
    *end = high;
    pthread_mutex_unlock(&lock);
    return *end != 0;
}
