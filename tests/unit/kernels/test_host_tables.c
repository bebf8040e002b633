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

static CUresult CUDAAPI attributes_of(unsigned count, CUpointer_attribute *asked, void **values, CUdeviceptr address)
{
    const CUdeviceptr at = address - ALLOCATIONS_BASE;

    (void)asked;
    EXPECT_U64(5, count);
    if (at >= ALLOCATIONS * ALLOCATION_BYTES)
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

/*
 * A launch with `count` parameters, of which one points to a table of three spans. Returns how many
 * it names by the list of its pointers. Every fifth of the others is a number, every seventh a
 * span.
 */
static unsigned launch_by_list(unsigned count, unsigned table)
{
    struct ps_layout *layout = calloc(1, sizeof *layout + count * sizeof *layout->size);
    uint64_t word[100];
    void *parameters[100];
    CUdeviceptr list[PS_OTHERS_LISTED];
    struct ps_other_words others = {.list = list};
    unsigned pointers = 0;

    layout->count = count;
    for (unsigned i = 0; i < count; i++) {
        const bool is_number = i % 5 == 0, is_span = i % 7 == 0;
        word[i] = i == table ? ALLOCATIONS_BASE + 64 : is_number ? i : is_span ? BASE + i : 0x700000000000u + i * 4096u;
        pointers += i == table || !(is_number || is_span);
        parameters[i] = &word[i];
        layout->size[i] = sizeof *word;
    }
    EXPECT(ps_kernel_words(layout, parameters, NULL, no_span, NULL, &others));
    EXPECT_U64(pointers, others.pointers);
    EXPECT_U64(pointers, others.count);
    named = 0;
    EXPECT(ps_host_tables_name(layout, parameters, NULL, &others, note, NULL));
    free(layout);
    return named;
}

static void test_a_table_among_many_parameters(void)
{
    write_table(64, 3);
    for (unsigned count = 1; count <= 100; count++)
        for (unsigned table = 0; table < count; table++)
            EXPECT_U64(3, launch_by_list(count, table));
}

/* A structure has other words that look like addresses. A packed buffer has parameters. */
static void test_what_is_listed(void)
{
    struct ps_layout *layout = calloc(1, sizeof *layout + sizeof *layout->size);
    uint64_t word[] = {ALLOCATIONS_BASE, BASE, (1ull << 40) - 8, (1ull << 40) + 4, 77, 1ull << 48};
    size_t bytes = sizeof word;
    void *parameters[] = {word};
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, word, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    CUdeviceptr list[PS_OTHERS_LISTED];
    struct ps_other_words of_structure = {.list = list}, of_buffer = {.list = list};

    layout->count = 1;
    layout->size[0] = sizeof word;
    EXPECT(ps_kernel_words(layout, parameters, NULL, no_span, NULL, &of_structure));
    EXPECT_U64(3, of_structure.count);
    EXPECT_U64(1, of_structure.pointers);
    EXPECT_U64(word[0], list[0]);
    EXPECT(ps_kernel_words(NULL, NULL, extra, no_span, NULL, &of_buffer));
    EXPECT_U64(3, of_buffer.count);
    EXPECT_U64(3, of_buffer.pointers);
    EXPECT(list[0] == word[0] && list[1] == word[2] && list[2] == word[3]);
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

int main(void)
{
    prepare();
    test_a_table_that_begins_at_the_address();
    test_memory_without_tables_costs_little();
    test_a_table_far_behind_the_address();
    test_a_table_that_comes_later();
    test_a_table_that_grows();
    test_the_guard_unmap_looks_at_all();
    test_many_allocations();
    test_a_table_among_many_parameters();
    test_what_is_listed();
    free(memory);
    return expect_status();
}
