#include "host_tables.h"

#include <stddef.h>
#include <stdint.h>

#include "kernel_words.h"
#include "log.h"
#include "pointer_tables.h"
#include "real_cuda.h"
#include "rules.h"

atomic_bool ps_host_tables_seen;
static atomic_bool news;

/*
 * What is known to be no host memory: pages, and the time that this was found at, which host memory that comes to be ends. The driver is asked about the rest,
 * so that a launch costs a question for a word that no launch had before. Of two pages that want the same place the later one is kept.
 */
enum { PAGE_BITS = 12, TIME_BITS = 27, PLACES = 1 << 14 };
static _Atomic uint64_t no_host_memory[PLACES];
static _Atomic uint64_t new_memory = 1;

static uint64_t page_now(CUdeviceptr address)
{
    return address >> PAGE_BITS << TIME_BITS | (atomic_load_explicit(&new_memory, memory_order_acquire) & ((1u << TIME_BITS) - 1));
}

static _Atomic uint64_t *place_of(CUdeviceptr address)
{
    return &no_host_memory[((address >> PAGE_BITS) * 0x9E3779B97F4A7C15u >> 32) % PLACES];
}

void ps_host_tables_new_memory(void)
{
    atomic_fetch_add_explicit(&new_memory, 1, memory_order_release);
}

/* Host memory, from an address on. */
struct host_memory {
    const unsigned char *readable; /* by the processor; NULL: not at all, or not without moving it */
    size_t bytes;
};

/* Whether the device reads host memory there. What the driver doesn't know is no pointer, or one to the program's ordinary memory. */
static bool is_host_memory(CUdeviceptr address, struct host_memory *memory)
{
    const uint64_t now = page_now(address);
    unsigned int type = 0, managed = 0;
    void *readable = NULL;
    CUdeviceptr start = 0;
    size_t bytes = 0;
    void *values[] = {&type, &managed, &readable, &start, &bytes};
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_HOST_POINTER,
                                   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};

    if (atomic_load_explicit(place_of(address), memory_order_relaxed) == now)
        return false;
    if (ps_cu.cuPointerGetAttributes(sizeof asked / sizeof *asked, asked, values, address) != CUDA_SUCCESS ||
        (type != CU_MEMORYTYPE_HOST && !managed)) {
        atomic_store_explicit(place_of(address), now, memory_order_relaxed);
        return false;
    }
    /* Whole pages are pinned, if no more is known. */
    memory->bytes = address - start < bytes ? bytes - (address - start) : (1u << PAGE_BITS) - address % (1u << PAGE_BITS);
    memory->readable = managed ? NULL : readable;
    return true;
}

struct look {
    bool packed; /* the parameters come as one buffer, whose words may each be a pointer */
    bool found;
    void (*name)(void *ctx, CUdeviceptr named);
    void *ctx;
};

static PS_ALWAYS_INLINE void look_at(void *ctx, CUdeviceptr word, size_t bytes)
{
    struct look *look = ctx;
    struct host_memory memory;

    if ((bytes != sizeof word && !look->packed) || ps_registry_owns(word) || !is_host_memory(word, &memory))
        return;
    look->found = true;
    if (!memory.readable || !ps_rule(HOST_TABLE_NAMES_SPANS))
        return;
    const size_t looked = memory.bytes < PS_POINTER_TABLE_LOOKED ? memory.bytes : PS_POINTER_TABLE_LOOKED;
    for (size_t at = -word & 7; at + 8 <= looked; at += 8) {
        CUdeviceptr named;
        memcpy(&named, memory.readable + at, sizeof named);
        if (ps_registry_owns(named))
            look->name(look->ctx, named);
    }
}

bool ps_host_tables_name(const struct ps_layout *layout, void **parameters, void **extra, void (*name)(void *ctx, CUdeviceptr named),
                         void *ctx)
{
    const CUdeviceptr lowest = 1u << 16, highest = (CUdeviceptr)1 << 48; /* of what may be an address at all */
    struct look look = {.packed = !parameters, .name = name, .ctx = ctx};

    if ((layout && layout->known) || !ps_kernel_words_between(lowest, highest, layout, parameters, extra, look_at, &look) || !look.found)
        return false;
    if (!atomic_exchange(&ps_host_tables_seen, true)) {
        ps_log_info(
            TRACER,
            "a kernel is given host memory, which may hold tables of pointers: from here on PENSTOCK_GUARD=auto guards every span that is away");
        atomic_store(&news, true);
    }
    return true;
}

bool ps_host_tables_take_news(void)
{
    return atomic_load_explicit(&news, memory_order_relaxed) && atomic_exchange(&news, false);
}
