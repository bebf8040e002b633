#include "kernels/given_memory.h"

#include "cuda/devices.h"
#include "cuda/driver.h"
#include "cuda/questions.h"
#include "kernels/kernel_words.h"
#include "kernels/pointer_tables.h"
#include "memory/registry.h"

#define BLOCK 512u /* torch's blocks in a span begin at multiples of this */

/* ---- words ---- */

struct words {
    struct ps_made_call *call;
    unsigned place;
};

static void add_candidate(struct ps_made_call *call, CUdeviceptr address, unsigned place, const struct ps_span *span)
{
    if (call->candidates == PS_MADE_CANDIDATES || address % 8)
        return;
    call->candidate[call->candidates++] =
        (struct ps_made_memory){.address = address, .place = place, .in_span = span != NULL};
}

/* A span of one unit may hold small blocks, of torch's own allocator for example. */
static PS_ALWAYS_INLINE void take_word(void *ctx, CUdeviceptr word, size_t bytes)
{
    struct words *words = ctx;
    struct ps_made_call *call = words->call;
    struct ps_made_launch *l = &call->launch;
    const unsigned place = words->place++;

    (void)bytes;
    if (word < PS_WORDS_LOWEST_DEVICE || word >= PS_WORDS_HIGHEST)
        return;
    if (!ps_address_is_a_spans(word)) {
        add_candidate(call, word, place, NULL);
        return;
    }
    word = ps_address_meant(word);
    const struct ps_span *span = ps_address_span(word);
    if (span && l->spans < PS_MADE_SPANS)
        l->span[l->spans++] = (struct ps_made_span){.address = word, .launch = l->number, .place = place};
    if (span && span->bytes <= ps_reservation.granularity)
        add_candidate(call, word, place, span);
}

bool ps_given_gather(struct ps_made_call *call, const struct ps_layout *layout, void **parameters, void **extra)
{
    struct words words = {.call = call};
    struct ps_made_launch *l = &call->launch;

    l->memories = l->spans = call->candidates = 0;
    return ps_kernel_words_between(0, UINT64_MAX, layout, parameters, extra, take_word, &words) && l->spans &&
           call->candidates && (l->spans > 1 || call->candidates > 1 || !call->candidate[0].in_span);
}

/* ---- memory ---- */

/* Sets the bytes of memory in a span, and where its block may begin. False: no span. */
static bool find_in_span(struct ps_made_memory *memory)
{
    const struct ps_span *span = ps_address_span(memory->address);
    const uint64_t before = span ? memory->address - span->address : 0;

    if (!span || before >= span->bytes)
        return false;
    memory->bytes = span->bytes - before < PS_GIVEN_LOOKED ? span->bytes - before : PS_GIVEN_LOOKED;
    memory->from = memory->address - memory->address % BLOCK;
    return true;
}

/* A copy from a slot, which is host memory, may wait for the stream. The launch holds the span. */
static bool is_on_pages(CUdeviceptr address)
{
    const struct ps_span *span = ps_address_span(address);
    const ptrdiff_t before = ps_here;

    if (!span)
        return false;
    if (ps_devices_several)
        ps_devices_enter(span->device);
    ps_registry_lock();
    const bool is = span->life == PS_LIFE_LIVE && span->backing == PS_BACKING_DEVICE;
    ps_registry_unlock();
    ps_here = before;
    return is;
}

/*
 * Sets the memory's bytes from its address on, and by which addresses it is given. Returns false if
 * it can't be copied: it is no memory, or managed memory, whose copy may wait.
 */
static bool find_memory(struct ps_made_memory *memory)
{
    unsigned int type = 0, managed = 0;
    CUdeviceptr start = 0;
    size_t bytes = 0;
    void *values[] = {&type, &managed, &start, &bytes};
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};

    if (memory->in_span)
        return find_in_span(memory);
    if (!PS_TOLD(ps_cu.cuPointerGetAttributes(sizeof asked / sizeof *asked, asked, values, memory->address)) ||
        type != CU_MEMORYTYPE_DEVICE || managed || memory->address - start >= bytes)
        return false;
    const size_t behind = (bytes - (memory->address - start)) & ~(size_t)7;
    memory->bytes = behind < PS_GIVEN_LOOKED ? behind : PS_GIVEN_LOOKED;
    memory->from = start;
    if (bytes > PS_POINTER_TABLE_SMALL && memory->address - start > PS_POINTER_TABLE_AHEAD)
        memory->from = memory->address - PS_POINTER_TABLE_AHEAD;
    return behind != 0;
}

/* The driver does not know memory of a graph before the launch. */
static void take_as_memory(struct ps_made_memory *memory)
{
    memory->bytes = PS_GIVEN_LOOKED;
    memory->from = memory->address - memory->address % PS_POINTER_TABLE_BLOCK;
}

static void take_candidate(struct ps_made_launch *l, struct ps_made_memory memory, uint64_t places)
{
    if (l->memories == PS_MADE_MEMORY)
        return;
    if (places ? !(places & ps_given_bit(memory.place)) : memory.in_span && !is_on_pages(memory.address))
        return;
    if (!find_memory(&memory)) {
        if (!places || memory.in_span)
            return;
        take_as_memory(&memory);
    }
    l->memory[l->memories++] = memory;
}

void ps_given_choose_memory(struct ps_made_call *call, uint64_t places, bool outside)
{
    struct ps_made_launch *l = &call->launch;

    l->memories = 0;
    for (unsigned i = 0; i < call->candidates; i++)
        if (!call->candidate[i].in_span)
            take_candidate(l, call->candidate[i], places);
    for (unsigned i = 0; i < call->candidates && !outside; i++)
        if (call->candidate[i].in_span)
            take_candidate(l, call->candidate[i], places);
}

void ps_given_keep_memory(struct ps_made_launch *l, bool in_spans)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < l->memories; i++)
        if (l->memory[i].in_span == in_spans)
            l->memory[kept++] = l->memory[i];
    l->memories = kept;
}
