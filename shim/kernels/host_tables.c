#include "kernels/host_tables.h"

#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "base/ordering_rules.h"
#include "base/settings.h"
#include "cuda/driver.h"
#include "cuda/questions.h"
#include "kernels/kernel_words.h"
#include "kernels/pointer_tables.h"

atomic_bool ps_host_tables_seen;
atomic_bool ps_host_tables_led;

/*
 * Pages that are known to be no host memory, each with the time at which that was found. A time is
 * a value of `new_memory`, so new host memory makes all entries void. The driver is asked about
 * other pages: a launch costs a question for each word that no launch had before. If two pages want
 * the same place, the later one is kept.
 */
enum { PAGE_BITS = 12, TIME_BITS = 27, PLACES = 1 << 14 };
static _Atomic uint64_t no_host_memory[PLACES];
static _Atomic uint64_t new_memory = 1;

static uint64_t page_now(CUdeviceptr address)
{
    return address >> PAGE_BITS << TIME_BITS |
           (atomic_load_explicit(&new_memory, memory_order_acquire) & ((1u << TIME_BITS) - 1));
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
    CUdeviceptr start; /* of the allocation */
};

/*
 * Returns whether the device reads host memory there, and remembers a page that is none. An address
 * that the driver does not know is no pointer, or a pointer to ordinary memory of the program.
 */
static __attribute__((noinline)) bool ask(CUdeviceptr address, uint64_t now, struct host_memory *memory)
{
    unsigned int type = 0, managed = 0;
    void *readable = NULL;
    CUdeviceptr start = 0;
    size_t bytes = 0;
    void *values[] = {&type, &managed, &readable, &start, &bytes};
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE};

    if (!PS_TOLD(ps_cu.cuPointerGetAttributes(sizeof asked / sizeof *asked, asked, values, address)) ||
        (type != CU_MEMORYTYPE_HOST && !managed)) {
        atomic_store_explicit(place_of(address), now, memory_order_relaxed);
        return false;
    }
    /* Whole pages are pinned, so without a range from the driver the page's end counts. */
    memory->bytes =
        address - start < bytes ? bytes - (address - start) : (1u << PAGE_BITS) - address % (1u << PAGE_BITS);
    memory->readable = managed ? NULL : readable;
    memory->start = start;
    return true;
}

/* As ask. For most addresses the answer is known, so it costs a few instructions a word. */
static PS_ALWAYS_INLINE bool is_host_memory(CUdeviceptr address, struct host_memory *memory)
{
    const uint64_t now = page_now(address);

    return atomic_load_explicit(place_of(address), memory_order_relaxed) != now && ask(address, now, memory);
}

/* ---- how far to look ---- */

/*
 * Most host memory that kernels read holds no table. A full search would make such a launch ten
 * times as expensive. So each launch searches the head, where a table begins, and as far as tables
 * reached in this allocation. A full search comes at the first few launches, and now and then.
 */
enum {
    HEAD = 512,       /* bytes */
    REACH_BITS = 12,  /* a reach has units of 4 KiB */
    FIRST_LOOKS = 4,  /* full searches at first */
    LOOK_AGAIN = 256, /* launches between later full searches */
    ALLOCATIONS = 1 << 13,
    TAG_BITS = 36,
    LAUNCHES_BITS = 20,
};
#define CREDIT_AT_FIRST ((int64_t)16 << 20)
#define CREDIT_A_LAUNCH ((int64_t)2 << 10)

/*
 * One allocation of host memory: its tag, how far its tables reach, and its launches. A launch
 * whose full search was not affordable does not count.
 */
struct known {
    uint64_t tag : TAG_BITS, reach : 8, launches : LAUNCHES_BITS;
};
/* Each is a struct known. Threads may undo each other's counting, which costs one more search. */
static _Atomic uint64_t allocations[ALLOCATIONS];
static _Atomic int64_t credit = CREDIT_AT_FIRST; /* bytes that full searches may still read */
static _Atomic uint64_t looked_bytes;

uint64_t ps_host_tables_looked(void)
{
    return atomic_load_explicit(&looked_bytes, memory_order_relaxed);
}

static struct known known_of(uint64_t bits)
{
    struct known known;

    memcpy(&known, &bits, sizeof known);
    return known;
}

static uint64_t bits_of(struct known known)
{
    uint64_t bits;

    memcpy(&bits, &known, sizeof bits);
    return bits;
}

/*
 * Takes the bytes off the credit. Each call adds a launch's credit first. Returns false if the
 * credit is too small.
 */
static bool is_affordable(size_t bytes)
{
    const int64_t left = atomic_load_explicit(&credit, memory_order_relaxed) + CREDIT_A_LAUNCH;
    const bool enough = left >= (int64_t)bytes;
    const int64_t then = left - (enough ? (int64_t)bytes : 0);

    atomic_store_explicit(&credit, then < CREDIT_AT_FIRST ? then : CREDIT_AT_FIRST, memory_order_relaxed);
    return enough;
}

struct look {
    bool packed; /* the parameters are one buffer, and each of its words may be a pointer */
    bool found;
    void (*name)(void *ctx, CUdeviceptr named);
    void *ctx;
};

/*
 * Names the spans in bytes [from, to) of the memory at `word`. Returns the end of the last address
 * found, or 0.
 */
static size_t look_through(const struct look *look, const struct host_memory *memory, CUdeviceptr word, size_t from,
                           size_t to)
{
    size_t end = 0;

    for (size_t at = from + (-(word + from) & 7); at + 8 <= to; at += 8) {
        CUdeviceptr named;
        memcpy(&named, memory->readable + at, sizeof named);
        if (!ps_address_is_a_spans(named))
            continue;
        look->name(look->ctx, named);
        end = at + 8;
    }
    atomic_fetch_add_explicit(&looked_bytes, to > from ? to - from : 0, memory_order_relaxed);
    return end;
}

static size_t reach_of(size_t bytes)
{
    return (bytes + (1u << REACH_BITS) - 1) >> REACH_BITS;
}

/* Searches as far as is worth the time, and remembers how far tables reach. */
static void look_into(const struct look *look, const struct host_memory *memory, CUdeviceptr word)
{
    const size_t all = memory->bytes < PS_POINTER_TABLE_LOOKED ? memory->bytes : PS_POINTER_TABLE_LOOKED;
    const uint64_t tag = memory->start >> 12 & (((uint64_t)1 << TAG_BITS) - 1);
    _Atomic uint64_t *place = &allocations[(tag * 0x9E3779B97F4A7C15u >> 32) % ALLOCATIONS];
    struct known known = known_of(atomic_load_explicit(place, memory_order_relaxed));
    size_t near;

    if (known.tag != tag)
        known = (struct known){.tag = tag};
    near = (size_t)known.reach << (REACH_BITS + 1); /* twice the reach, to follow a growing table */
    near = near < HEAD ? HEAD : near;
    const bool due = known.launches < FIRST_LOOKS || known.launches % LOOK_AGAIN == 0;
    const bool looks_at_all = near >= all || ps_settings.guard == PS_GUARD_UNMAP || (due && is_affordable(all));
    const size_t end = look_through(look, memory, word, 0, looks_at_all ? all : near);
    if (looks_at_all || reach_of(end) > known.reach)
        known.reach = reach_of(end) & 0xff;
    if (!due || looks_at_all) /* otherwise the full search stays due */
        known.launches = (known.launches + 1) & ((1u << LAUNCHES_BITS) - 1);
    if (known.launches == 0)
        known.launches = LOOK_AGAIN;
    atomic_store_explicit(place, bits_of(known), memory_order_relaxed);
}

static PS_ALWAYS_INLINE void look_at(void *ctx, CUdeviceptr word, size_t bytes)
{
    struct look *look = ctx;
    struct host_memory memory;

    if ((bytes != sizeof word && !look->packed && !ps_may_be_in_structure(word)) || ps_address_is_a_spans(word) ||
        !is_host_memory(word, &memory))
        return;
    look->found = true;
    if (memory.readable && ps_ordering_rule(HOST_TABLE_NAMES_SPANS))
        look_into(look, &memory, word);
}

/* ---- launches ---- */

/*
 * Launches that were looked through and are given no host memory, each by its digest and the time.
 * Most launches have the words that they had in the step before, and are found here.
 */
enum { LAUNCHES = 1 << 14 };
static _Atomic uint64_t without_host_memory[LAUNCHES];

/* Layouts live as long as the process. They tell which of the words may be pointers. */
static uint64_t digest_of(const struct ps_layout *layout, bool packed, const struct ps_other_words *others)
{
    return (others->digest ^ (uint64_t)(uintptr_t)layout ^ packed) * 0x9E3779B97F4A7C15u;
}

bool ps_host_tables_name(const struct ps_layout *layout, void **parameters, void **extra,
                         const struct ps_other_words *others, void (*name)(void *ctx, CUdeviceptr named), void *ctx)
{
    struct look look = {.packed = !parameters, .name = name, .ctx = ctx};

    if (layout && layout->known)
        return false;
    const uint64_t time = atomic_load_explicit(&new_memory, memory_order_acquire);
    const uint64_t digest = others ? digest_of(layout, look.packed, others) : 0;
    const uint64_t now = digest + time * 0xD6E8FEB86659FD93u;
    _Atomic uint64_t *place = &without_host_memory[(digest >> 32) % LAUNCHES];
    if (others && atomic_load_explicit(place, memory_order_relaxed) == now)
        return false;
    if (!ps_kernel_words_between(PS_WORDS_LOWEST, PS_WORDS_HIGHEST - PS_WORDS_LOWEST, layout, parameters, extra,
                                 look_at, &look))
        return false;
    if (!look.found) {
        if (others)
            atomic_store_explicit(place, now, memory_order_relaxed);
        return false;
    }
    if (!atomic_exchange(&ps_host_tables_seen, true))
        ps_log_info(TRACER, "a kernel is given host memory, which may hold tables of pointers: from now on "
                            "PENSTOCK_GUARD=auto maps every evicted span to its copy on the host");
    return true;
}
