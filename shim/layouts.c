#include "layouts.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "counters.h"
#include "kernel_params.h"
#include "known_kernels.h"
#include "log.h"
#include "real_cuda.h"

/* By handle: open addressing, read without a lock, written under it. A full table forgets nothing: what doesn't fit is asked anew. */
#define TABLE (1u << 14)
static struct ps_layout *_Atomic by_handle[TABLE];
static atomic_uint generation = 1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* By name, from cubins: chained, guarded by the lock. */
struct named {
    struct named *next;
    uint64_t hash;
    char *name;
    bool ambiguous; /* two cubins disagree: generated kernels reuse names; the driver decides */
    uint32_t count;
    uint32_t *size;
};
#define BUCKETS (1u << 12)
static struct named *buckets[BUCKETS];

static uint64_t hash_of(const char *text) /* FNV-1a */
{
    uint64_t h = 14695981039346656037u;

    while (*text)
        h = (h ^ (unsigned char)*text++) * 1099511628211u;
    return h;
}

/* [locked] */
static struct named *find_named(const char *name, uint64_t hash)
{
    for (struct named *n = buckets[hash % BUCKETS]; n; n = n->next)
        if (n->hash == hash && !strcmp(n->name, name))
            return n;
    return NULL;
}

static uint32_t *sizes_of(const struct ps_kernel_layout *layout)
{
    uint32_t *size = malloc((layout->count ? layout->count : 1) * sizeof *size);

    for (uint32_t i = 0; size && i < layout->count; i++)
        size[i] = layout->params[i].size;
    return size;
}

/* Called by the parser for each kernel of a cubin. */
static int keep(const struct ps_kernel_layout *layout, void *ctx)
{
    uint64_t hash = hash_of(layout->name);

    (void)ctx;
    pthread_mutex_lock(&lock);
    struct named *n = find_named(layout->name, hash);
    if (n) {
        bool same = n->count == layout->count;
        for (uint32_t i = 0; same && i < n->count; i++)
            same = n->size[i] == layout->params[i].size;
        n->ambiguous |= !same;
    } else if ((n = calloc(1, sizeof *n))) {
        n->hash = hash;
        n->name = strdup(layout->name);
        n->count = layout->count;
        n->size = sizes_of(layout);
        if (n->name && n->size) {
            n->next = buckets[hash % BUCKETS];
            buckets[hash % BUCKETS] = n;
        } else {
            free(n->name);
            free(n->size);
            free(n);
        }
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

void ps_layouts_add_cubin(const void *image, size_t bytes)
{
    if (!image || !bytes)
        return;
    int r = ps_kernel_params_parse(image, bytes, keep, NULL);
    if (r == -ENOTSUP) {
        static atomic_bool said;
        if (ps_log_first_time(&said))
            ps_log_info(LAYOUT, "libelf.so.1 is missing: kernel parameters are known from the driver alone");
    } else if (r)
        ps_log_debug(LAYOUT, "a cubin of %zu bytes gave no layouts (error %d)", bytes, -r);
}

void ps_layouts_module_gone(void)
{
    atomic_fetch_add(&generation, 1);
}

unsigned ps_layouts_generation(void)
{
    return atomic_load_explicit(&generation, memory_order_relaxed);
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

/* What the driver says, into `size` (room for PS_KERNEL_PARAMS_COUNT_MAX). The number of parameters, or -1 if it says nothing. */
static int ask_driver(CUfunction function, uint32_t *size)
{
    size_t offset, bytes;
    int n = 0;

    /* A launch's handle is a CUkernel for most kernels and a CUfunction for some; each call refuses the other (FACTS). */
    if (ps_cu.cuKernelGetParamInfo) {
        CUresult r;
        while (n < PS_KERNEL_PARAMS_COUNT_MAX &&
               (r = ps_cu.cuKernelGetParamInfo((CUkernel)function, (size_t)n, &offset, &bytes)) == CUDA_SUCCESS)
            size[n++] = (uint32_t)bytes;
        if (n || r == CUDA_ERROR_INVALID_VALUE) {
            /* No parameter, or not a kernel handle? The name tells: it is refused for a handle of the other sort. */
            const char *name = NULL;
            if (n || (ps_cu.cuKernelGetName && ps_cu.cuKernelGetName(&name, (CUkernel)function) == CUDA_SUCCESS))
                return n;
        }
    }
    if (ps_cu.cuFuncGetParamInfo) {
        CUresult r;
        while (n < PS_KERNEL_PARAMS_COUNT_MAX && (r = ps_cu.cuFuncGetParamInfo(function, (size_t)n, &offset, &bytes)) == CUDA_SUCCESS)
            size[n++] = (uint32_t)bytes;
        if (n || r == CUDA_ERROR_INVALID_VALUE)
            return n;
    }
    return -1;
}

/* Works a layout out. NULL if nobody knows. */
static struct ps_layout *work_out(CUfunction function)
{
    struct ps_layout *layout = NULL;
    uint32_t *asked = malloc(PS_KERNEL_PARAMS_COUNT_MAX * sizeof *asked);
    uint32_t *size = NULL;
    int n;

    if (!asked)
        return NULL;
    n = ask_driver(function, asked);
    const char *name = ps_layouts_kernel_name(function);
    pthread_mutex_lock(&lock);
    const struct named *cubin = name ? find_named(name, hash_of(name)) : NULL;
    if (cubin && cubin->ambiguous)
        cubin = NULL;
    bool same = cubin && n == (int)cubin->count && !memcmp(asked, cubin->size, cubin->count * sizeof *asked);
    if (cubin && n >= 0) {
        ps_count(layouts_compared);
        if (!same) {
            ps_count(layout_disagreements);
            ps_log_warn_once(LAYOUT, "the cubin and the driver disagree about a kernel's parameters (%s); the driver's are used", name);
        }
    }
    bool use_cubin = cubin && (n < 0 || same);
    uint32_t count = use_cubin ? cubin->count : (uint32_t)(n < 0 ? 0 : n);
    if (use_cubin || n >= 0) {
        layout = malloc(sizeof *layout);
        size = malloc((count ? count : 1) * sizeof *size);
        if (layout && size) {
            memcpy(size, use_cubin ? cubin->size : asked, count * sizeof *size);
            *layout = (struct ps_layout){
                .function = function, .count = count, .keeps_no_address = ps_kernel_keeps_no_address(name), .size = size};
            if (use_cubin)
                ps_count(layouts_from_cubin);
            else
                ps_count(layouts_from_driver);
        } else {
            free(layout);
            free(size);
            layout = NULL;
        }
    }
    pthread_mutex_unlock(&lock);
    free(asked);
    return layout;
}

static uint32_t place_of(CUfunction function)
{
    return (uint32_t)(((uintptr_t)function >> 4) * 0x9E3779B97F4A7C15u >> 50) % TABLE;
}

const struct ps_layout *ps_layout_of(CUfunction function)
{
    unsigned now = atomic_load_explicit(&generation, memory_order_relaxed);
    uint32_t i = place_of(function);

    for (uint32_t probes = 0; probes < TABLE; probes++, i = (i + 1) % TABLE) {
        struct ps_layout *l = atomic_load_explicit(&by_handle[i], memory_order_acquire);
        if (!l)
            break;
        if (l->function == function && l->generation == now)
            return l;
    }

    struct ps_layout *layout = work_out(function);
    if (!layout)
        return NULL;
    layout->generation = now;
    pthread_mutex_lock(&lock);
    i = place_of(function);
    for (uint32_t probes = 0; probes < TABLE; probes++, i = (i + 1) % TABLE) {
        struct ps_layout *l = atomic_load_explicit(&by_handle[i], memory_order_relaxed);
        if (l && l->function != function)
            continue;
        if (l && l->generation == now) { /* another thread was here at the same time */
            free((void *)layout->size);
            free(layout);
            layout = l;
            break;
        }
        /* One of an older generation is replaced; it stays reachable, since a launch on another thread may be reading it. */
        layout->older = l;
        atomic_store_explicit(&by_handle[i], layout, memory_order_release);
        break;
    }
    pthread_mutex_unlock(&lock);
    return layout;
}
