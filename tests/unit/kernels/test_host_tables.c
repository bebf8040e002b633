/*
 * Tables in host memory that kernels read in place. The tests check which tables are found, and the
 * amount of memory searched for them.
 */
#include <stdlib.h>

#include "base/settings.h"
#include "cuda/driver.h"
#include "expect.h"
#include "kernels/host_tables.h"
#include "kernels/pointer_tables.h"
#include "memory/registry.h"

#define UNIT 4096u
#define UNITS 64u
#define BASE 0x200000000000u /* of the span reservation */
#define HEAD 512u            /* bytes that are searched each time */
#define ALLOCATION_BYTES ((size_t)1 << 20)
#define ALLOCATIONS 4000u /* allocations that the driver knows; for the processor, all are the same memory */
#define ALLOCATIONS_BASE 0x600000000000u

static struct ps_span *_Atomic map[UNITS];
static struct ps_span span;
static uint64_t *memory;

static unsigned questions;
static bool is_refused; /* the allocations are not there yet */

static CUresult CUDAAPI attributes_of(unsigned count, CUpointer_attribute *asked, void **values, CUdeviceptr address)
{
    const CUdeviceptr at = address - ALLOCATIONS_BASE;

    (void)asked;
    EXPECT_U64(5, count);
    questions++;
    if (is_refused || at >= ALLOCATIONS * ALLOCATION_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    *(unsigned *)values[0] = CU_MEMORYTYPE_HOST;
    *(unsigned *)values[1] = 0;
    *(void **)values[2] = (unsigned char *)memory + at % ALLOCATION_BYTES;
    *(CUdeviceptr *)values[3] = address - at % ALLOCATION_BYTES;
    *(size_t *)values[4] = ALLOCATION_BYTES;
    return CUDA_SUCCESS;
}

static void prepare(void)
{
    for (unsigned i = 0; i < UNITS; i++)
        map[i] = &span;
    ps_reservation.base = BASE;
    ps_reservation.granularity = UNIT;
    ps_reservation.unit_shift = 12;
    ps_reservation.map = map;
    ps_reservation.reserved = UNITS * UNIT;
    ps_cu.cuPointerGetAttributes = attributes_of;
    memory = calloc(1, ALLOCATION_BYTES);
}

static unsigned named;

static void note(void *ctx, CUdeviceptr address)
{
    (void)ctx;
    EXPECT(ps_address_is_a_spans(address));
    named++;
}

/*
 * Returns the number of spans that a launch names if it is given the address, in the nth
 * allocation.
 */
static unsigned launch_in(unsigned allocation, size_t at)
{
    CUdeviceptr word = ALLOCATIONS_BASE + allocation * ALLOCATION_BYTES + at;
    size_t bytes = sizeof word;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &word, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};

    named = 0;
    EXPECT(ps_host_tables_name(NULL, NULL, extra, NULL, note, NULL));
    return named;
}

static void write_table(size_t at, unsigned pointers)
{
    memset(memory, 0, ALLOCATION_BYTES);
    for (unsigned i = 0; i < pointers; i++)
        memory[at / 8 + i] = BASE + i * UNIT + 8 * i;
}

/* Every launch holds all spans until one of them has, not only the first one that asks. */
static void test_launches_lead_until_one_has(void)
{
    EXPECT(!ps_host_tables_must_lead());
    write_table(0, 0);
    launch_in(0, 0);
    EXPECT(ps_host_tables_must_lead()); /* a captured launch, which holds none */
    EXPECT(ps_host_tables_must_lead());
    ps_host_tables_have_led();
    launch_in(0, 0);
    EXPECT(!ps_host_tables_must_lead());
}

static void test_a_table_that_begins_at_the_address(void)
{
    write_table(0, 0);
    for (unsigned i = 0; i < 1000; i++)
        EXPECT_U64(0, launch_in(0, 64));
    write_table(64, 3); /* in memory that launches have been given for long */
    for (unsigned i = 0; i < 1000; i++)
        EXPECT_U64(3, launch_in(0, 64));
    write_table(4096 + HEAD / 2, 20);       /* behind some other words */
    EXPECT_U64(20, launch_in(0, 4096 + 3)); /* and at an address that no word begins at */
}

static void no_span(void *ctx, CUdeviceptr word, size_t bytes)
{
    (void)ctx, (void)bytes;
    EXPECT(ps_address_is_a_spans(word));
}

static bool name_by(const struct ps_layout *layout, void **parameters)
{
    struct ps_other_words others = {0};

    EXPECT(ps_kernel_words(layout, parameters, NULL, no_span, NULL, &others));
    named = 0;
    return ps_host_tables_name(layout, parameters, NULL, &others, note, NULL);
}

static struct ps_layout *new_layout(unsigned count, uint32_t bytes)
{
    struct ps_layout *layout = calloc(1, sizeof *layout + count * sizeof *layout->size);

    layout->count = count;
    for (unsigned i = 0; i < count; i++)
        layout->size[i] = bytes;
    return layout;
}

/*
 * A launch with `count` parameters, of which one points to a table of three spans. Returns how many
 * it names, if it comes twice. Every fifth of the others is a number, every seventh a span.
 */
static unsigned launch_with(unsigned count, unsigned table)
{
    struct ps_layout *layout = new_layout(count, 8);
    uint64_t word[100];
    void *parameters[100];

    for (unsigned i = 0; i < count; i++) {
        const bool is_number = i % 5 == 0, is_span = i % 7 == 0;
        word[i] = i == table ? ALLOCATIONS_BASE + 64 : is_number ? i : is_span ? BASE + i : 0x700000000000u + i * 4096u;
        parameters[i] = &word[i];
    }
    EXPECT(name_by(layout, parameters));
    EXPECT(name_by(layout, parameters));
    free(layout);
    return named;
}

static void test_a_table_among_many_parameters(void)
{
    write_table(64, 3);
    for (unsigned count = 1; count <= 100; count++)
        for (unsigned table = 0; table < count; table++)
            EXPECT_U64(3, launch_with(count, table));
}

/* A launch without host memory is known when it comes again, until there is new host memory. */
static void test_launches_that_come_again(void)
{
    struct ps_layout *layout = new_layout(3, 8);
    uint64_t word[] = {0x710000000000u, 5, ALLOCATIONS_BASE + 64};
    void *parameters[] = {&word[0], &word[1], &word[2]};

    write_table(64, 3);
    is_refused = true;
    ps_host_tables_new_memory();
    EXPECT(!name_by(layout, parameters));
    is_refused = false;
    const unsigned before = questions;
    for (unsigned i = 0; i < 10; i++)
        EXPECT(!name_by(layout, parameters));
    EXPECT_U64(before, questions);
    ps_host_tables_new_memory();
    EXPECT(name_by(layout, parameters));
    EXPECT_U64(3, named);
    free(layout);
}

/* The words of a structure count only if they are aligned. As pointers the same words all count. */
static void test_words_of_other_layouts(void)
{
    struct ps_layout *pointer = new_layout(1, 8), *structure = new_layout(1, 16);
    uint64_t word[] = {ALLOCATIONS_BASE + 68, 0};
    void *parameters[] = {word};

    write_table(68, 3);
    structure->size[0] = 12;
    EXPECT(!name_by(structure, parameters));
    EXPECT(!name_by(structure, parameters));
    EXPECT(name_by(pointer, parameters));
    free(pointer);
    free(structure);
}

/* Any change of the words outside the spans changes the digest; spans don't. */
static void test_digests(void)
{
    struct ps_layout *layout = new_layout(20, 8);
    uint64_t word[20], digest[4 * 20 + 2];
    void *parameters[20];
    unsigned digests = 0;

    for (unsigned i = 0; i < 20; i++) {
        word[i] = i % 2 ? i / 8 : 0x700000000000u + i / 8;
        parameters[i] = &word[i];
    }
    for (unsigned i = 0; i < 4 * 20 + 1; i++) {
        struct ps_other_words others = {0};
        const unsigned at = i / 4;
        const uint64_t was = at < 20 ? word[at] : 0;
        if (at < 20)
            word[at] = (uint64_t[]){was + 1, was ^ 1ull << 63, was + (1ull << 32), ~was}[i % 4];
        EXPECT(ps_kernel_words(layout, parameters, NULL, no_span, NULL, &others));
        digest[digests++] = others.digest;
        if (at < 20)
            word[at] = was;
    }
    struct ps_other_words swapped = {0}, more = {0};
    parameters[3] = &word[4];
    parameters[4] = &word[3];
    EXPECT(ps_kernel_words(layout, parameters, NULL, no_span, NULL, &swapped));
    digest[digests++] = swapped.digest;
    for (unsigned i = 0; i < digests; i++)
        for (unsigned k = 0; k < i; k++)
            EXPECT(digest[i] != digest[k]);
    for (unsigned i = 0; i < 20; i++)
        word[i] = i == 19 ? 0 : BASE + i;
    EXPECT(ps_kernel_words(layout, parameters, NULL, no_span, NULL, &more));
    layout->count = 19;
    swapped = (struct ps_other_words){0};
    EXPECT(ps_kernel_words(layout, parameters, NULL, no_span, NULL, &swapped));
    EXPECT_U64(0, swapped.count);
    EXPECT_U64(0, swapped.digest);
    free(layout);
}

static void test_memory_without_tables_costs_little(void)
{
    const uint64_t before = ps_host_tables_looked();

    write_table(0, 0);
    for (unsigned i = 0; i < 10000; i++)
        EXPECT_U64(0, launch_in(1, 8 * i));
    const uint64_t looked = ps_host_tables_looked() - before;
    EXPECT(looked >= 4 * PS_POINTER_TABLE_LOOKED + 10000 * HEAD / 2);
    EXPECT(looked <= 10000 * HEAD + (4 + 10000 / 256 + 1) * PS_POINTER_TABLE_LOOKED);
}

static void test_a_table_far_behind_the_address(void)
{
    write_table(200 << 10, 5);
    for (unsigned i = 0; i < 1000; i++)
        EXPECT_U64(5, launch_in(2, 0));
}

static void test_a_table_that_comes_later(void)
{
    unsigned found_after = 0;

    write_table(0, 0);
    for (unsigned i = 0; i < 1000; i++)
        launch_in(3, 0);
    write_table(200 << 10, 5);
    while (launch_in(3, 0) == 0 && found_after < 1000)
        found_after++;
    EXPECT(found_after <= 256);
    for (unsigned i = 0; i < 1000; i++)
        EXPECT_U64(5, launch_in(3, 0));
}

static void test_a_table_that_grows(void)
{
    for (unsigned pages = 1; pages <= 32; pages *= 2) {
        write_table(0, 1);
        memory[pages * 512 - 1] = BASE;
        EXPECT_U64(2, launch_in(4, 0));
        for (unsigned i = 0; i < 10; i++)
            EXPECT_U64(2, launch_in(4, 0));
    }
}

/* More allocations than are searched at once; launches are given each in turn. */
static void test_many_allocations(void)
{
    const uint64_t before = ps_host_tables_looked();
    const unsigned rounds = 5;

    write_table(0, 0);
    for (unsigned round = 0; round < rounds; round++)
        for (unsigned i = 0; i < ALLOCATIONS - 10; i++)
            EXPECT_U64(0, launch_in(10 + i, 0));
    const uint64_t looked = ps_host_tables_looked() - before;
    EXPECT(looked <= ((uint64_t)16 << 20) + rounds * ALLOCATIONS * (HEAD + 2048u));
}

/* If a span that is not found would fault, all memory is searched. */
static void test_the_guard_unmap_looks_at_all(void)
{
    ps_settings.guard = PS_GUARD_UNMAP;
    for (unsigned i = 0; i < 300; i++) {
        write_table(i % 2 ? 200 << 10 : 0, i % 2 ? 5 : 0);
        EXPECT_U64(i % 2 ? 5 : 0, launch_in(5, 0));
    }
    ps_settings.guard = PS_GUARD_AUTO;
}

/* Two numbers may change together, one by 1 and its neighbour by 512. That shows in the digest. */
static void test_digests_of_related_changes(void)
{
    struct ps_layout *layout = new_layout(2, 8);
    const uint64_t first = 1u << 20, second = 1u << 30;
    uint64_t word[2] = {first, second};
    void *parameters[] = {&word[0], &word[1]};
    struct ps_other_words before = {0};

    EXPECT(ps_kernel_words(layout, parameters, NULL, no_span, NULL, &before));
    for (uint64_t change = 1; change <= 100000; change++)
        for (int sign = -1; sign <= 1; sign += 2) {
            struct ps_other_words others = {0};
            word[0] = first + change;
            word[1] = second + (uint64_t)sign * 512 * change;
            EXPECT(ps_kernel_words(layout, parameters, NULL, no_span, NULL, &others));
            if (!EXPECT(others.digest != before.digest))
                change = UINT32_MAX;
        }
    free(layout);
}

int main(void)
{
    prepare();
    test_launches_lead_until_one_has();
    test_a_table_that_begins_at_the_address();
    test_memory_without_tables_costs_little();
    test_a_table_far_behind_the_address();
    test_a_table_that_comes_later();
    test_a_table_that_grows();
    test_the_guard_unmap_looks_at_all();
    test_many_allocations();
    test_a_table_among_many_parameters();
    test_launches_that_come_again();
    test_words_of_other_layouts();
    test_digests();
    test_digests_of_related_changes();
    free(memory);
    return expect_status();
}
