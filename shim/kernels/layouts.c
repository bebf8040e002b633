#include "kernels/layouts.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/counters.h"
#include "base/log.h"
#include "cuda/driver.h"
#include "kernels/kernel_params.h"
#include "kernels/named_kernels.h"

/*
 * Layouts by handle. A handle's layout is in one of PROBES places, from the handle's own on. Places
 * are read without a lock and written under it. While a place is written, its `changes` is odd:
 * readers then find nothing there and work the layout out. Places of an older generation are reused
 * first, then any place.
 */
#define TABLE (1u << 14)
#define PROBES 16u
struct place {
    _Alignas(64) _Atomic uint32_t changes;
    _Atomic uint32_t generation;
    CUfunction _Atomic function; /* NULL: free */
    const struct ps_layout *_Atomic layout;
    struct ps_named_kernel *_Atomic kernel; /* whose uses are counted; NULL: it could not be kept */
};
static struct place by_handle[TABLE];
static atomic_uint generation = 1; /* changes when handles may mean other kernels, and when more is known of them */
static atomic_uint unloads;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/*
 * All layouts so far, by content; guarded by the lock. There are few of them, since many kernels
 * are alike.
 */
#define KEPT (1u << 10)
static const struct ps_layout *kept[KEPT];

void ps_layouts_add_cubin(const void *image, size_t bytes)
{
    bool changed = false;
    const int r = ps_named_kernels_add_cubin(image, bytes, &changed);

    if (changed)
        atomic_fetch_add(&generation, 1);
    if (!r)
        ps_count(cubins_read);
    else
        ps_count(cubins_unread);
    if (r == -ENOTSUP) {
        static atomic_bool said;
        if (ps_log_first_time(&said))
            ps_log_info(LAYOUT, "libelf.so.1 is missing: the layout of kernel parameters comes from the driver alone");
    } else if (r)
        ps_log_debug(LAYOUT, "a cubin of %zu bytes can't be read (error %d)", bytes, -r);
}

void ps_layouts_missed_cubins(void)
{
    if (ps_named_kernels_missed())
        atomic_fetch_add(&generation, 1);
}

void ps_layouts_module_gone(void)
{
    atomic_fetch_add(&unloads, 1);
    atomic_fetch_add(&generation, 1);
}

unsigned ps_layouts_generation(void)
{
    return atomic_load_explicit(&unloads, memory_order_relaxed);
}

const char *ps_layouts_kernel_name(CUfunction function)
{
    const char *name = NULL;

    if (ps_cu.cuKernelGetName && ps_cu.cuKernelGetName(&name, (CUkernel)function) == CUDA_SUCCESS && name)
        return name;
    if (ps_cu.cuFuncGetName(&name, function) == CUDA_SUCCESS)
        return name;
    return NULL;
}

/*
 * Whether a list of parameters is whole. The call for the parameter behind the last one is refused
 * with this result. After another one the driver may know more of them.
 */
static bool is_whole(CUresult result, int n)
{
    return result == CUDA_ERROR_INVALID_VALUE || n == PS_KERNEL_PARAMS_COUNT_MAX;
}

/*
 * Asks the driver for the sizes of the parameters. `size` has room for PS_KERNEL_PARAMS_COUNT_MAX.
 * Returns the number of parameters, or -1 if the driver does not know, or fails.
 */
static int ask_driver(CUfunction function, uint32_t *size)
{
    size_t offset, bytes;
    int n = 0;

    /*
     * A launch's handle is a CUkernel for most kernels and a CUfunction for some; each call refuses
     * the other (shim/README.md#tracing). A list without parameters may be such a refusal. For a
     * handle of the other sort the name is refused, too.
     */
    if (ps_cu.cuKernelGetParamInfo) {
        CUresult r = CUDA_SUCCESS;
        const char *name = NULL;
        while (n < PS_KERNEL_PARAMS_COUNT_MAX &&
               (r = ps_cu.cuKernelGetParamInfo((CUkernel)function, (size_t)n, &offset, &bytes)) == CUDA_SUCCESS)
            size[n++] = (uint32_t)bytes;
        if (n)
            return is_whole(r, n) ? n : -1;
        if (is_whole(r, n) && ps_cu.cuKernelGetName && ps_cu.cuKernelGetName(&name, (CUkernel)function) == CUDA_SUCCESS)
            return 0;
    }
    if (ps_cu.cuFuncGetParamInfo) {
        CUresult r = CUDA_SUCCESS;
        const char *name = NULL;
        while (n < PS_KERNEL_PARAMS_COUNT_MAX &&
               (r = ps_cu.cuFuncGetParamInfo(function, (size_t)n, &offset, &bytes)) == CUDA_SUCCESS)
            size[n++] = (uint32_t)bytes;
        if (is_whole(r, n) && (n || !ps_cu.cuFuncGetName || ps_cu.cuFuncGetName(&name, function) == CUDA_SUCCESS))
            return n;
    }
    return -1;
}

/* Finds or makes the layout of this content. Returns NULL if there is no memory. [locked] */
static const struct ps_layout *keep_layout(const uint32_t *size, uint32_t count, const char *name,
                                           enum ps_kernel_doubt doubt)
{
    const enum ps_known_kernel known = ps_kernel_known(name);
    const struct ps_torch_tensor_lists tensor_lists = known == PS_KERNEL_KEEPS_NO_ADDRESS
                                                          ? ps_torch_tensor_lists_of(name, size, count)
                                                          : (struct ps_torch_tensor_lists){0};
    uint32_t hash = (count * 4 + known) * PS_DOUBTS + doubt;

    for (uint32_t i = 0; i < count; i++)
        hash = (hash ^ size[i]) * 16777619u;
    const struct ps_layout **bucket = &kept[hash % KEPT];
    for (const struct ps_layout *l = *bucket; l; l = l->next)
        if (l->count == count && l->known == known && l->doubt == doubt &&
            !memcmp(&l->tensor_lists, &tensor_lists, sizeof tensor_lists) &&
            !memcmp(l->size, size, count * sizeof *size))
            return l;
    struct ps_layout *layout = malloc(sizeof *layout + count * sizeof *size);
    if (!layout)
        return NULL;
    layout->next = *bucket;
    layout->count = count;
    layout->known = known;
    layout->doubt = doubt;
    layout->tensor_lists = tensor_lists;
    memcpy(layout->size, size, count * sizeof *size);
    *bucket = layout;
    return layout;
}

/*
 * Works a layout out. Returns NULL if neither cubin nor driver knows it. Sets `kernel` to the
 * kernel of that name, or NULL.
 */
static const struct ps_layout *work_out(CUfunction function, struct ps_named_kernel **kernel)
{
    const struct ps_layout *layout = NULL;
    struct ps_kernel_facts facts = {.scan.doubt = PS_DOUBT_CODE};
    uint32_t *asked = malloc(PS_KERNEL_PARAMS_COUNT_MAX * sizeof *asked);
    int n;

    *kernel = NULL;
    if (!asked)
        return NULL;
    n = ask_driver(function, asked);
    const char *name = ps_layouts_kernel_name(function);
    if (name)
        *kernel = ps_named_kernel(name, &facts);
    bool same = facts.has_sizes && n == (int)facts.count && !memcmp(asked, facts.size, facts.count * sizeof *asked);
    if (facts.has_sizes && n >= 0) {
        ps_count(layouts_compared);
        if (!same) {
            ps_count(layout_disagreements);
            ps_log_warn_once(
                LAYOUT, "the cubin and the driver disagree about a kernel's parameters (%s); the driver's are used",
                name);
        }
    }
    bool use_cubin = facts.has_sizes && (n < 0 || same);
    if (facts.has_sizes && !use_cubin && !facts.scan.doubt) {
        ps_named_kernel_is_another(*kernel);
        facts.scan.doubt = PS_DOUBT_CODE;
    }
    pthread_mutex_lock(&lock);
    if (use_cubin)
        layout = keep_layout(facts.size, facts.count, name, facts.scan.doubt);
    else if (n >= 0)
        layout = keep_layout(asked, (uint32_t)n, name, facts.scan.doubt);
    pthread_mutex_unlock(&lock);
    if (layout && use_cubin)
        ps_count(layouts_from_cubin);
    else if (layout)
        ps_count(layouts_from_driver);
    free(asked);
    return layout;
}

static struct place *place_of(CUfunction function, uint32_t probe)
{
    return &by_handle[((uint32_t)(((uintptr_t)function >> 4) * 0x9E3779B97F4A7C15u >> 50) + probe) % TABLE];
}

/*
 * Returns the place for a handle's layout: its old place or a free one. Otherwise returns a place
 * of an older generation, or any place in turn. [locked]
 */
static struct place *place_for(CUfunction function, uint32_t now)
{
    static uint32_t turn;
    struct place *gone = NULL;

    for (uint32_t i = 0; i < PROBES; i++) {
        struct place *place = place_of(function, i);
        CUfunction other = atomic_load_explicit(&place->function, memory_order_relaxed);
        if (!other || other == function)
            return place;
        if (!gone && atomic_load_explicit(&place->generation, memory_order_relaxed) != now)
            gone = place;
    }
    return gone ? gone : place_of(function, turn++ % PROBES);
}

/*
 * Writes a place. A reader that sees one of these stores sees all stores before it. So a reader
 * that finds a new field also finds the odd number. [locked]
 */
static void write_place(struct place *place, CUfunction function, uint32_t now, const struct ps_layout *layout,
                        struct ps_named_kernel *kernel)
{
    const uint32_t changes = atomic_load_explicit(&place->changes, memory_order_relaxed);

    atomic_store_explicit(&place->changes, changes + 1, memory_order_relaxed);
    atomic_store_explicit(&place->generation, now, memory_order_release);
    atomic_store_explicit(&place->function, function, memory_order_release);
    atomic_store_explicit(&place->layout, layout, memory_order_release);
    atomic_store_explicit(&place->kernel, kernel, memory_order_release);
    atomic_store_explicit(&place->changes, changes + 2, memory_order_release);
}

/* Returns the layout of the place if it is the handle's, else NULL. Counts a use of the kernel. */
static inline const struct ps_layout *read_place(struct place *place, CUfunction function, uint32_t now)
{
    if (atomic_load_explicit(&place->function, memory_order_relaxed) != function)
        return NULL;
    const uint32_t changes = atomic_load_explicit(&place->changes, memory_order_acquire);
    const bool is_it = atomic_load_explicit(&place->function, memory_order_acquire) == function &&
                       atomic_load_explicit(&place->generation, memory_order_acquire) == now;
    const struct ps_layout *layout = atomic_load_explicit(&place->layout, memory_order_acquire);
    struct ps_named_kernel *kernel = atomic_load_explicit(&place->kernel, memory_order_acquire);

    if (!is_it || (changes & 1) || atomic_load_explicit(&place->changes, memory_order_relaxed) != changes)
        return NULL;
    ps_named_kernel_count(kernel);
    return layout;
}

const struct ps_layout *ps_layout_of(CUfunction function)
{
    const uint32_t now = atomic_load_explicit(&generation, memory_order_relaxed);
    struct ps_named_kernel *kernel;
    const struct ps_layout *layout;

    for (uint32_t i = 0; i < PROBES; i++)
        if ((layout = read_place(place_of(function, i), function, now)))
            return layout;
    layout = work_out(function, &kernel);
    ps_named_kernel_count(kernel);
    if (!layout)
        return NULL;
    pthread_mutex_lock(&lock);
    write_place(place_for(function, now), function, now, layout, kernel);
    pthread_mutex_unlock(&lock);
    return layout;
}
