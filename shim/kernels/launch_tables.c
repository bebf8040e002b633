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

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry list[PS_LAUNCH_TABLES_MAX];
static size_t count;
static uint64_t added;
/*
 * For pages, by their number modulo PAGES: memories that are given by an address there. So a launch
 * does not search the list for each of its words.
 */
static _Atomic uint32_t on_page[PAGES];
atomic_size_t ps_launch_tables, ps_launch_tables_in_variables;
atomic_uint_fast64_t ps_launch_tables_gone;

/* ---- the list; the lock is held ---- */

static void count_pages(const struct ps_made_memory *memory, uint32_t by)
{
    const uint64_t last = (memory->address + memory->bytes - 1) >> PAGE_BITS;

    for (uint64_t page = memory->from >> PAGE_BITS; page <= last; page++)
        atomic_fetch_add_explicit(&on_page[page % PAGES], by, memory_order_relaxed);
}

static void count_all_pages(const struct ps_made_launch *l, uint32_t by)
{
    for (unsigned i = 0; i < l->memories; i++)
        count_pages(&l->memory[i], by);
}

static void count_gone(void)
{
    atomic_fetch_add_explicit(&ps_launch_tables_gone, 1, memory_order_relaxed);
}

static void drop(size_t at)
{
    count_gone();
    count_all_pages(&list[at].launch, -1u);
    atomic_fetch_sub_explicit(&ps_launch_tables_in_variables, list[at].in_variable, memory_order_relaxed);
    list[at] = list[--count];
    atomic_store_explicit(&ps_launch_tables, count, memory_order_relaxed);
}

static void drop_oldest(void)
{
    size_t oldest = 0;

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
    count_pages(&l->memory[at], -1u);
    count_gone();
    l->memory[at] = l->memory[--l->memories];
}

/* Takes the memories that the other launch has away from `l`. Returns whether some are left. */
static bool take_shared_memories(struct ps_made_launch *l, const struct ps_made_launch *other)
{
    for (unsigned i = l->memories; i-- > 0;)
        if (has_memory_at(other, l->memory[i].address))
            remove_memory(l, i);
    return l->memories;
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

static uint64_t add(const struct ps_made_launch *launch, bool in_variable)
{
    if (count == PS_LAUNCH_TABLES_MAX)
        drop_oldest();
    list[count++] = (struct entry){++added, *launch, in_variable};
    count_all_pages(launch, 1);
    atomic_fetch_add_explicit(&ps_launch_tables_in_variables, in_variable, memory_order_relaxed);
    atomic_store_explicit(&ps_launch_tables, count, memory_order_relaxed);
    return added;
}

/* Returns the place of a launch that names the same spans for the same memory, or `count`. */
static size_t find_equal(const struct ps_made_launch *l)
{
    size_t at = 0;

    while (at < count && !(is_of_same_kind(&list[at].launch, l) && list[at].launch.memories == l->memories &&
                           shared_memories(l, &list[at].launch) == l->memories && has_same_spans(&list[at].launch, l)))
        at++;
    return at;
}

/*
 * A launch that adds is not there twice. Another one that is known replaces those before it. What
 * was decided late replaces nothing that came behind.
 */
static uint64_t put(struct ps_made_launch *l, bool in_variable)
{
    const bool adds = l->in_graph || l->adds;
    const size_t equal = adds ? find_equal(l) : count;

    if (equal < count) {
        list[equal].launch.number = l->number;
        return list[equal].number;
    }
    for (size_t i = count; i-- > 0;) {
        struct ps_made_launch *before = &list[i].launch;
        if (adds || !l->is_known || before->number > l->number || !is_of_same_kind(before, l) ||
            !shared_memories(before, l))
            continue;
        keep_others(l, before);
        if (!take_shared_memories(before, l))
            drop(i);
    }
    return add(l, in_variable);
}

static bool overlaps(const struct ps_made_memory *memory, CUdeviceptr start, size_t bytes)
{
    return memory->address < start + bytes && memory->address + memory->bytes > start;
}

static bool lies_in(const struct ps_made_memory *memory, CUdeviceptr start, size_t bytes)
{
    return memory->address >= start && memory->address + memory->bytes <= start + bytes;
}

/* Forgets the memory of the launch that lies in the range. Returns whether some is left. */
static bool forget_memory(struct ps_made_launch *l, CUdeviceptr to, size_t bytes)
{
    for (unsigned i = l->memories; i-- > 0;)
        if (lies_in(&l->memory[i], to, bytes))
            remove_memory(l, i);
    return l->memories;
}

static bool has_memory_in(const struct ps_made_launch *l, CUdeviceptr start, size_t bytes)
{
    bool has = false;

    for (unsigned i = 0; i < l->memories; i++)
        has |= overlaps(&l->memory[i], start, bytes);
    return has;
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

uint64_t ps_launch_tables_add(const struct ps_made_launch *launch)
{
    struct ps_made_launch added_one = *launch;
    const bool in_variable = is_in_variable(launch);

    pthread_mutex_lock(&lock);
    const uint64_t number = put(&added_one, in_variable);
    pthread_mutex_unlock(&lock);
    return number;
}

bool ps_launch_tables_forget(uint64_t number)
{
    size_t at = 0;

    pthread_mutex_lock(&lock);
    while (at < count && list[at].number != number)
        at++;
    const bool is_there = at < count;
    if (is_there)
        drop(at);
    pthread_mutex_unlock(&lock);
    return is_there;
}

bool ps_launch_tables_take(uint64_t key, struct ps_made_launch *launch)
{
    size_t oldest = SIZE_MAX;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++)
        if (list[i].launch.key == key && !list[i].launch.is_known &&
            (oldest == SIZE_MAX || list[i].launch.number < list[oldest].launch.number))
            oldest = i;
    if (oldest != SIZE_MAX) {
        *launch = list[oldest].launch;
        drop(oldest);
    }
    pthread_mutex_unlock(&lock);
    return oldest != SIZE_MAX;
}

void ps_launch_tables_overwritten(CUdeviceptr to, size_t bytes)
{
    if (!ps_launch_tables_exist())
        return;
    pthread_mutex_lock(&lock);
    for (size_t i = count; i-- > 0;)
        if (!forget_memory(&list[i].launch, to, bytes))
            drop(i);
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
}

void ps_launch_tables_moved(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUdeviceptr given, bool keeps)
{
    if (!ps_launch_tables_exist())
        return;
    const bool in_variable = ps_module_variables_touch(to, bytes);
    pthread_mutex_lock(&lock);
    const uint64_t last = added;
    for (size_t i = 0; i < count && (to - from) % 8 == 0; i++)
        if (list[i].number <= last && has_memory_in(&list[i].launch, from, bytes))
            add_moved(list[i].launch, to, from, bytes, given, in_variable);
    for (size_t i = count; !keeps && i-- > 0;)
        if (list[i].number <= last && !forget_memory(&list[i].launch, to, bytes))
            drop(i);
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
        if (list[i].launch.is_known == known && is_given(&list[i].launch, address))
            name_all(&list[i].launch, name, ctx);
    pthread_mutex_unlock(&lock);
}

void ps_launch_tables_name_between(CUdeviceptr address, size_t bytes, void (*name)(void *ctx, CUdeviceptr named),
                                   void *ctx)
{
    if (!ps_launch_tables_exist())
        return;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++)
        if (has_memory_in(&list[i].launch, address, bytes))
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
    bool is_near = false;

    if (!ps_launch_tables_exist())
        return false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; !is_near && i < count; i++)
        is_near = has_memory_in(&list[i].launch, address, bytes);
    pthread_mutex_unlock(&lock);
    return is_near;
}

bool ps_launch_tables_extent(CUdeviceptr *start, CUdeviceptr *end)
{
    *start = UINT64_MAX;
    *end = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++)
        for (unsigned k = 0; k < list[i].launch.memories; k++) {
            const struct ps_made_memory *memory = &list[i].launch.memory[k];
            *start = memory->from < *start ? memory->from : *start;
            *end = memory->address + memory->bytes > *end ? memory->address + memory->bytes : *end;
        }
    pthread_mutex_unlock(&lock);
    return *end != 0;
}
