#include "kernels/undecided_launches.h"

#include <pthread.h>
#include <string.h>

#include "kernels/module_variables.h"

struct undecided {
    uint64_t number;
    struct ps_made_launch launch;
    bool in_variable; /* some of its memory lies in a variable of a module */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct undecided list[PS_UNDECIDED_MAX]; /* in the order of launches */
static size_t count;
static uint64_t added;
atomic_size_t ps_undecided_launches, ps_undecided_in_variables;

/* ---- the list; the lock is held ---- */

static void publish(void)
{
    atomic_store_explicit(&ps_undecided_launches, count, memory_order_relaxed);
}

static void drop(size_t at)
{
    atomic_fetch_sub_explicit(&ps_undecided_in_variables, list[at].in_variable, memory_order_relaxed);
    count--;
    memmove(&list[at], &list[at + 1], (count - at) * sizeof *list);
    publish();
}

/* Returns whether both are the same launch of a graph. */
static bool is_again(const struct ps_made_launch *l, const struct ps_made_launch *other)
{
    bool is = l->in_graph && other->in_graph && l->key == other->key && l->memories == other->memories &&
              l->spans == other->spans;

    for (unsigned i = 0; is && i < l->memories; i++)
        is = l->memory[i].address == other->memory[i].address;
    for (unsigned i = 0; is && i < l->spans; i++)
        is = l->span[i].address == other->span[i].address;
    return is;
}

static uint64_t add(const struct ps_made_launch *launch, bool in_variable)
{
    for (size_t i = 0; launch->in_graph && i < count; i++)
        if (is_again(&list[i].launch, launch))
            return list[i].number;
    if (count == PS_UNDECIDED_MAX)
        drop(0);
    list[count++] = (struct undecided){++added, *launch, in_variable};
    atomic_fetch_add_explicit(&ps_undecided_in_variables, in_variable, memory_order_relaxed);
    publish();
    return added;
}

/* Forgets the memory of the launch that lies in the range. Returns whether some is left. */
static bool forget_memory(struct ps_made_launch *l, CUdeviceptr to, size_t bytes)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < l->memories; i++)
        if (l->memory[i].address < to || l->memory[i].address + l->memory[i].bytes > to + bytes)
            l->memory[kept++] = l->memory[i];
    l->memories = kept;
    return kept;
}

static bool overlaps(const struct ps_made_memory *memory, CUdeviceptr start, size_t bytes)
{
    return memory->address < start + bytes && memory->address + memory->bytes > start;
}

/* Keeps only the memory that overlaps the range. */
static void keep_memory(struct ps_made_launch *l, CUdeviceptr start, size_t bytes)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < l->memories; i++)
        if (overlaps(&l->memory[i], start, bytes))
            l->memory[kept++] = l->memory[i];
    l->memories = kept;
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

uint64_t ps_undecided_add(const struct ps_made_launch *launch)
{
    const bool in_variable = is_in_variable(launch);

    pthread_mutex_lock(&lock);
    const uint64_t number = add(launch, in_variable);
    pthread_mutex_unlock(&lock);
    return number;
}

void ps_undecided_forget(uint64_t number)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++)
        if (list[i].number == number) {
            drop(i);
            break;
        }
    pthread_mutex_unlock(&lock);
}

bool ps_undecided_take(uint64_t key, struct ps_made_launch *launch)
{
    bool is_there = false;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; !is_there && i < count; i++)
        if (list[i].launch.key == key) {
            *launch = list[i].launch;
            drop(i);
            is_there = true;
        }
    pthread_mutex_unlock(&lock);
    return is_there;
}

void ps_undecided_overwritten(CUdeviceptr to, size_t bytes)
{
    if (!ps_undecided_exist())
        return;
    pthread_mutex_lock(&lock);
    for (size_t i = count; i-- > 0;)
        if (!forget_memory(&list[i].launch, to, bytes))
            drop(i);
    pthread_mutex_unlock(&lock);
}

/* Adds the launch again, for the copy of its memory. */
static void add_moved(struct ps_made_launch moved, CUdeviceptr to, CUdeviceptr from, size_t bytes, bool in_variable)
{
    keep_memory(&moved, from, bytes);
    for (unsigned i = 0; i < moved.memories; i++) {
        moved.memory[i].address += to - from;
        moved.memory[i].from = moved.memory[i].address;
    }
    if (moved.memories && count < PS_UNDECIDED_MAX)
        add(&moved, in_variable);
}

void ps_undecided_moved(CUdeviceptr to, CUdeviceptr from, size_t bytes, bool keeps)
{
    if (!ps_undecided_exist())
        return;
    const bool in_variable = ps_module_variables_touch(to, bytes);
    pthread_mutex_lock(&lock);
    const size_t before = count;
    for (size_t i = 0; i < before && (to - from) % 8 == 0; i++)
        add_moved(list[i].launch, to, from, bytes, in_variable);
    for (size_t i = before; !keeps && i-- > 0;)
        if (!forget_memory(&list[i].launch, to, bytes))
            drop(i);
    pthread_mutex_unlock(&lock);
}

/* ---- naming ---- */

void ps_undecided_name(CUdeviceptr address, void (*name)(void *ctx, CUdeviceptr named), void *ctx)
{
    if (!ps_undecided_exist())
        return;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++) {
        const struct ps_made_launch *l = &list[i].launch;
        bool is_given = false;
        for (unsigned k = 0; k < l->memories; k++)
            is_given |= address >= l->memory[k].from && address < l->memory[k].address + l->memory[k].bytes;
        if (is_given)
            name_all(l, name, ctx);
    }
    pthread_mutex_unlock(&lock);
}

void ps_undecided_name_between(CUdeviceptr address, size_t bytes, void (*name)(void *ctx, CUdeviceptr named), void *ctx)
{
    if (!ps_undecided_exist())
        return;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++) {
        struct ps_made_launch there = list[i].launch;
        keep_memory(&there, address, bytes);
        if (there.memories)
            name_all(&there, name, ctx);
    }
    pthread_mutex_unlock(&lock);
}

void ps_undecided_name_of_variables(void (*name)(void *ctx, CUdeviceptr named), void *ctx)
{
    if (!ps_undecided_exist())
        return;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++)
        if (list[i].in_variable)
            name_all(&list[i].launch, name, ctx);
    pthread_mutex_unlock(&lock);
}

/* ---- asking ---- */

bool ps_undecided_near(CUdeviceptr address, size_t bytes)
{
    bool is_near = false;

    if (!ps_undecided_exist())
        return false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; !is_near && i < count; i++)
        for (unsigned k = 0; k < list[i].launch.memories; k++)
            is_near |= overlaps(&list[i].launch.memory[k], address, bytes);
    pthread_mutex_unlock(&lock);
    return is_near;
}

bool ps_undecided_has(const struct ps_span *span)
{
    bool has = false;

    if (!ps_undecided_exist())
        return false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; !has && i < count; i++)
        for (unsigned k = 0; k < list[i].launch.spans; k++)
            has |= list[i].launch.span[k].address - span->address < span->bytes;
    pthread_mutex_unlock(&lock);
    return has;
}

bool ps_undecided_extent(CUdeviceptr *start, CUdeviceptr *end)
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
