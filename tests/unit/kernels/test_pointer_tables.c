/*
 * Pointer tables: the spans that a table names after any pieces of it were written, overwritten or
 * freed.
 */
#include <stdlib.h>

#include "base/counters.h"
#include "cuda/driver.h"
#include "expect.h"
#include "kernels/module_variables.h"
#include "kernels/pointer_tables.h"
#include "memory/registry.h"

#define UNIT 4096u
#define UNITS 64u
#define BASE 0x200000000000u   /* of the span reservation, in which each unit but the last is a span */
#define DEVICE 0x500000000000u /* the address of the tables */
#define WORDS 256u

static struct ps_span *_Atomic map[UNITS];
static struct ps_span span;

static void make_reservation(void)
{
    for (unsigned i = 0; i + 1 < UNITS; i++)
        map[i] = &span;
    ps_reservation.base = BASE;
    ps_reservation.granularity = UNIT;
    ps_reservation.unit_shift = 12;
    ps_reservation.map = map;
    ps_reservation.reserved = UNITS * UNIT;
}

/* The named spans, a bit for each unit. */
static uint64_t named;

static void note(void *ctx, CUdeviceptr address)
{
    (void)ctx;
    EXPECT(ps_address_is_a_spans(address));
    named |= 1ull << ((address - BASE) / UNIT);
}

static uint64_t named_at(CUdeviceptr address)
{
    named = 0;
    ps_pointer_tables_name(address, note, NULL, NULL);
    return named;
}

static uint64_t extent_bytes(void)
{
    uint64_t bytes;

    (void)ps_pointer_tables_range(&bytes);
    return bytes;
}

static uint64_t pointer(unsigned unit)
{
    return BASE + unit * UNIT + 8 * unit;
}

static void write_words(unsigned at, const uint64_t *words, unsigned n)
{
    ps_pointer_tables_copied(DEVICE + 8 * at, words, 8 * n);
}

static void forget_all(void)
{
    ps_pointer_tables_overwritten(DEVICE, 1 << 30);
    EXPECT(!ps_pointer_tables_exist());
}

static void test_pointers_among_other_words(void)
{
    const uint64_t words[] = {
        7, pointer(3), 0, pointer(3) + 100, pointer(9), UINT64_MAX, BASE + UNITS * UNIT, pointer(UNITS - 1)};

    EXPECT(!ps_pointer_tables_exist());
    write_words(0, words, 8);
    EXPECT(ps_pointer_tables_exist());
    EXPECT_U64(1 << 3 | 1 << 9, named_at(DEVICE));
    EXPECT_U64(1 << 3 | 1 << 9, named_at(DEVICE + 63));
    EXPECT_U64(0, named_at(DEVICE + 64));
    EXPECT_U64(0, named_at(DEVICE - 1));
    EXPECT_U64(DEVICE, ps_pointer_tables_extent.start);
    EXPECT_U64(64, extent_bytes());
    forget_all();
}

static void test_no_pointers_no_table(void)
{
    const uint64_t words[] = {1, 2, 3, BASE - 1, pointer(UNITS - 1)};
    static unsigned char large[3 * PS_POINTER_TABLE_LOOKED];
    const uint64_t one = pointer(1);

    write_words(0, words, 5);
    EXPECT(!ps_pointer_tables_exist());
    memcpy(large + PS_POINTER_TABLE_LOOKED, &one, sizeof one);
    ps_pointer_tables_copied(DEVICE, large, sizeof large); /* data */
    EXPECT(!ps_pointer_tables_exist());
    ps_pointer_tables_copied(DEVICE, &one, 7);
    EXPECT(!ps_pointer_tables_exist());
    memcpy(large + PS_POINTER_TABLE_LOOKED - 8, &one, sizeof one);
    ps_pointer_tables_copied(DEVICE, large, PS_POINTER_TABLE_LOOKED);
    EXPECT_U64(2, named_at(DEVICE));
    forget_all();
    /* The first bytes of a long copy; all copied bytes are the table. */
    ps_pointer_tables_copied(DEVICE, large, sizeof large);
    EXPECT_U64(2, named_at(DEVICE));
    EXPECT_U64(2, named_at(DEVICE + sizeof large - 8));
    forget_all();
}

/* The words are aligned on the device; on the host they may be unaligned. */
static void test_alignment(void)
{
    unsigned char bytes[20] = {0};
    const uint64_t one = pointer(4);

    memcpy(bytes + 3, &one, sizeof one);
    ps_pointer_tables_copied(DEVICE + 5, bytes, sizeof bytes); /* byte 3 of it comes to lie at 8 */
    EXPECT_U64(1 << 4, named_at(DEVICE + 8));
    forget_all();
}

static void test_written_over(void)
{
    const uint64_t words[] = {pointer(1), pointer(2), pointer(3), pointer(4)}, other = pointer(5);

    /* Words in the table's middle: it stays a table, with other pointers. */
    write_words(0, words, 4);
    write_words(1, &other, 1);
    EXPECT_U64(1 << 1 | 1 << 5 | 1 << 3 | 1 << 4, named_at(DEVICE));
    EXPECT_U64(1 << 3 | 1 << 4, named_at(DEVICE + 16));
    ps_pointer_tables_overwritten(DEVICE, 8);
    EXPECT_U64(1 << 5 | 1 << 3 | 1 << 4, named_at(DEVICE));
    EXPECT_U64(1 << 5 | 1 << 3 | 1 << 4, named_at(DEVICE + 8));
    ps_pointer_tables_overwritten(DEVICE + 24, 1);
    EXPECT_U64(1 << 5 | 1 << 3, named_at(DEVICE + 8));
    write_words(0, words, 4);
    EXPECT_U64(0x1e, named_at(DEVICE));
    /* What is left of a table is the same structure's, and kernels are given the structure. */
    ps_pointer_tables_overwritten(DEVICE, 8);
    EXPECT_U64(1 << 2 | 1 << 3 | 1 << 4, named_at(DEVICE));
    EXPECT_U64(DEVICE, ps_pointer_tables_extent.start);
    ps_pointer_tables_overwritten(DEVICE + 16, 8);
    EXPECT_U64(1 << 2 | 1 << 4, named_at(DEVICE));
    EXPECT_U64(1 << 2 | 1 << 4, named_at(DEVICE + 16));
    forget_all();
}

static size_t allocation_bytes; /* of each allocation; they are adjacent */

static CUresult give_range(CUdeviceptr *start, size_t *bytes, CUdeviceptr address)
{
    *start = address - (address - DEVICE) % allocation_bytes;
    *bytes = allocation_bytes;
    return CUDA_SUCCESS;
}

/* A structure that is copied field by field. Kernels are given its address, where no pointer is. */
static void test_fields(void)
{
    const uint64_t words[] = {pointer(1), pointer(2), pointer(3)};
    const CUdeviceptr large = DEVICE + (1u << 20), target = DEVICE + (2u << 20);

    ps_cu.cuMemGetAddressRange = give_range;
    allocation_bytes = 512;
    write_words(1, words, 1);
    write_words(3, words + 1, 1);
    write_words(64 + 1, words + 2, 1); /* another structure */
    EXPECT_U64(1 << 1 | 1 << 2, named_at(DEVICE));
    EXPECT_U64(1 << 2, named_at(DEVICE + 16));
    EXPECT_U64(0, named_at(DEVICE + 32));
    EXPECT_U64(0, named_at(DEVICE - 8));
    EXPECT_U64(1 << 3, named_at(DEVICE + 512));
    EXPECT_U64(DEVICE, ps_pointer_tables_extent.start);
    EXPECT_U64(512 + 16, extent_bytes());
    ps_pointer_tables_moved(target, DEVICE, 512, false);
    EXPECT_U64(1 << 1 | 1 << 2, named_at(target));
    EXPECT_U64(1 << 2, named_at(target + 16));
    ps_pointer_tables_moved(target + 256, DEVICE + 24, 8, false);
    EXPECT_U64(1 << 2, named_at(target + 32));
    ps_pointer_tables_overwritten(DEVICE + 8, 8);
    EXPECT_U64(1 << 2, named_at(DEVICE));
    forget_all();
    /* An arena: tables far behind the address are others' */
    allocation_bytes = 1u << 20;
    ps_pointer_tables_copied(large + PS_POINTER_TABLE_AHEAD, words, 8);
    ps_pointer_tables_copied(large + 2 * PS_POINTER_TABLE_AHEAD, words + 1, 8);
    EXPECT_U64(1 << 1, named_at(large));
    EXPECT_U64(large, ps_pointer_tables_extent.start);
    EXPECT_U64(1 << 1 | 1 << 2, named_at(large + PS_POINTER_TABLE_AHEAD));
    EXPECT_U64(1 << 2, named_at(large + PS_POINTER_TABLE_AHEAD + 8));
    forget_all();
    ps_cu.cuMemGetAddressRange = NULL;
}

/* A program may fill a table in pieces, and write over words that are no pointers. */
static void test_in_pieces(void)
{
    const uint64_t words[] = {7, pointer(1), pointer(2), pointer(3)};

    /* A structure whose first word and third are written anew. */
    write_words(0, words, 4);
    ps_pointer_tables_overwritten(DEVICE, 8);
    ps_pointer_tables_overwritten(DEVICE + 16, 8);
    EXPECT_U64(1 << 1 | 1 << 3, named_at(DEVICE));
    write_words(0, words, 1);
    EXPECT_U64(1 << 1 | 1 << 3, named_at(DEVICE));
    forget_all();
    /* Only words behind the first ones are ever written. */
    write_words(2, words + 2, 1);
    write_words(9, words + 3, 1);
    EXPECT_U64(1 << 2 | 1 << 3, named_at(DEVICE));
    EXPECT_U64(DEVICE, ps_pointer_tables_extent.start);
    /* Another allocation begins behind that. */
    write_words(PS_POINTER_TABLE_BLOCK / 8 + 1, words + 1, 1);
    EXPECT_U64(1 << 2 | 1 << 3, named_at(DEVICE));
    EXPECT_U64(1 << 1, named_at(DEVICE + PS_POINTER_TABLE_BLOCK));
    forget_all();
    /* Every word is written anew, one after the other. */
    write_words(0, words, 4);
    for (unsigned i = 0; i < 4; i++)
        ps_pointer_tables_overwritten(DEVICE + 8 * i, 8);
    EXPECT(!ps_pointer_tables_exist());
}

static void note_nothing(void *ctx, CUdeviceptr address)
{
    (void)ctx, (void)address;
}

/* ---- tables of launches ---- */

/* A launch of a kernel that makes a table of `bytes` bytes at the address, of two words at most. */
static struct ps_made_launch a_launch(CUdeviceptr address, size_t bytes, uint64_t number)
{
    return (struct ps_made_launch){.key = 1,
                                   .number = number,
                                   .is_known = true,
                                   .memories = 1,
                                   .memory = {{.address = address, .from = address, .bytes = bytes}}};
}

static void give(struct ps_made_launch *launch, unsigned place, CUdeviceptr address)
{
    launch->span[launch->spans++] = (struct ps_made_span){address, launch->number, place};
}

static void make(const struct ps_made_launch *launch)
{
    ps_launch_tables_add(launch, 0);
    ps_pointer_tables_publish();
}

static void make_one(CUdeviceptr address, size_t bytes, uint64_t number, unsigned place, unsigned unit)
{
    struct ps_made_launch launch = a_launch(address, bytes, number);

    give(&launch, place, pointer(unit));
    make(&launch);
}

/* Work that may not run leaves what is known, and adds to it. */
static void test_words_that_may_come(void)
{
    struct ps_made_launch made = a_launch(DEVICE, 8, 1);
    const uint64_t first[] = {pointer(1), pointer(2)}, second[] = {pointer(3), pointer(2)};

    write_words(0, first, 2);
    for (unsigned i = 0; i < 3; i++)
        ps_pointer_tables_brought(DEVICE, second, sizeof second, true, note_nothing, NULL);
    EXPECT_U64(1 << 1 | 1 << 2 | 1 << 3, named_at(DEVICE));
    made.in_graph = true;
    give(&made, 1, pointer(4));
    make(&made);
    EXPECT_U64(1 << 1 | 1 << 2 | 1 << 3 | 1 << 4, named_at(DEVICE));
    ps_pointer_tables_brought(DEVICE, second, sizeof second, false, note_nothing, NULL);
    EXPECT_U64(1 << 2 | 1 << 3, named_at(DEVICE));
    /* The same on the device, between two tables. */
    write_words(100, first, 2);
    write_words(102, first, 1);
    ps_pointer_tables_moved(DEVICE + 8 * 101, DEVICE, 16, true);
    EXPECT_U64(1 << 1 | 1 << 2 | 1 << 3, named_at(DEVICE + 8 * 100));
    forget_all();
}

/* Words that a copy on the device takes along are known in both places, each independently. */
static void test_copied_on(void)
{
    const uint64_t words[] = {pointer(1), pointer(2), 0, pointer(3), pointer(4)}, other = pointer(5);
    const CUdeviceptr target = DEVICE + 0x10000;

    write_words(0, words, 5);
    ps_pointer_tables_copied(target, &other, 8);
    ps_pointer_tables_moved(target, DEVICE + 8, 24, false); /* over what was known there */
    EXPECT_U64(1 << 2 | 1 << 3, named_at(target));
    EXPECT_U64(0, named_at(target + 24));
    ps_pointer_tables_overwritten(DEVICE + 8, 8);
    EXPECT_U64(1 << 2 | 1 << 3, named_at(target));
    ps_pointer_tables_overwritten(target, 24);
    EXPECT_U64(1 << 1 | 1 << 3 | 1 << 4, named_at(DEVICE + 16));
    forget_all();
    /* Two tables with a gap; each stays one. */
    write_words(0, words, 2);
    write_words(100, words + 3, 2);
    ps_pointer_tables_moved(target, DEVICE, 8 * 102, false);
    EXPECT_U64(1 << 1 | 1 << 2, named_at(target));
    EXPECT_U64(0, named_at(target + 8 * 50));
    EXPECT_U64(1 << 3 | 1 << 4, named_at(target + 8 * 100));
    /*
     * Not by whole words: these are no pointers at the target. Of the source nothing is known, so
     * the target's words are forgotten.
     */
    ps_pointer_tables_moved(target + 4, DEVICE, 8, false);
    EXPECT_U64(0, named_at(target + 4));
    ps_pointer_tables_moved(target + 8 * 100, DEVICE + 0x20000, 16, false);
    EXPECT_U64(0, named_at(target + 8 * 100));
    forget_all();
    /* Onto itself, further on. */
    write_words(0, words, 2);
    ps_pointer_tables_moved(DEVICE + 8, DEVICE, 16, false);
    EXPECT_U64(1 << 1 | 1 << 2, named_at(DEVICE));
    EXPECT_U64(1 << 1 | 1 << 2, named_at(DEVICE + 8));
    ps_pointer_tables_moved(DEVICE, DEVICE, 24, false);
    EXPECT_U64(1 << 1 | 1 << 2, named_at(DEVICE));
    forget_all();
}

/*
 * The tables that a kernel makes of its words. Each launch replaces the earlier ones, except those
 * made just before of other words.
 */
static void test_made(void)
{
    struct ps_made_launch all = a_launch(DEVICE, 64, 100), other;
    const uint64_t one = pointer(9);

    give(&all, 1, pointer(1));
    give(&all, 2, pointer(2));
    give(&all, 5, pointer(3));
    make(&all);
    EXPECT_U64(1 << 1 | 1 << 2 | 1 << 3, named_at(DEVICE));
    EXPECT_U64(1 << 1 | 1 << 2 | 1 << 3, named_at(DEVICE + 56));
    EXPECT_U64(0, named_at(DEVICE + 64));
    make_one(DEVICE, 64, 101, 2, 7);
    make_one(DEVICE, 64, 102, 5, 8);
    EXPECT_U64(1 << 1 | 1 << 7 | 1 << 8, named_at(DEVICE));
    make_one(DEVICE, 64, 102 + PS_LAUNCH_TABLE_TOGETHER + 1, 2, 7);
    EXPECT_U64(1 << 7, named_at(DEVICE));
    /* A launch that is known later than the one behind it. */
    make_one(DEVICE, 64, 90, 2, 6);
    EXPECT_U64(1 << 6 | 1 << 7, named_at(DEVICE));
    make_one(DEVICE, 64, 120, 2, 7);
    EXPECT_U64(1 << 7, named_at(DEVICE));
    /* Another kernel, which may only read the table. And one that writes the table beside it. */
    other = a_launch(DEVICE, 64, 121);
    other.key = 2;
    give(&other, 2, pointer(3));
    make(&other);
    make_one(DEVICE + 32, 64, 122, 2, 4);
    EXPECT_U64(1 << 7 | 1 << 3, named_at(DEVICE));
    EXPECT_U64(1 << 7 | 1 << 3 | 1 << 4, named_at(DEVICE + 32));
    ps_pointer_tables_overwritten(DEVICE, 96);
    EXPECT_U64(0, named_at(DEVICE));
    /* A copy overwrites a part of it. Its words and those that a kernel makes are known. */
    make_one(DEVICE, 64, 130, 2, 7);
    ps_pointer_tables_copied(DEVICE, &one, 8);
    EXPECT_U64(1 << 9 | 1 << 7, named_at(DEVICE));
    make_one(DEVICE, 64, 200, 2, 8);
    EXPECT_U64(1 << 9 | 1 << 8, named_at(DEVICE));
    forget_all();
}

static void test_too_many_copied_on(void)
{
    const uint64_t one = pointer(1);
    const CUdeviceptr target = DEVICE + 64 * PS_POINTER_TABLES_MAX;
    const uint64_t before = ps_counters.pointer_tables_forgotten;

    for (unsigned i = 0; i < PS_POINTER_TABLES_MAX; i++)
        ps_pointer_tables_copied(DEVICE + 64 * i, &one, sizeof one);
    ps_pointer_tables_moved(target, DEVICE, 64 * PS_POINTER_TABLES_MAX, false);
    EXPECT_U64(before + PS_POINTER_TABLES_MAX, ps_counters.pointer_tables_forgotten);
    EXPECT_U64(0, named_at(DEVICE));
    EXPECT_U64(2, named_at(target));
    EXPECT_U64(2, named_at(target + 64 * (PS_POINTER_TABLES_MAX - 1)));
    forget_all();
}

/* If there are too many tables, those used longest ago are dropped. */
static void test_too_many(void)
{
    const uint64_t one = pointer(1), before = ps_counters.pointer_tables_forgotten;

    for (unsigned i = 0; i < PS_POINTER_TABLES_MAX; i++)
        ps_pointer_tables_copied(DEVICE + 4096 * i, &one, sizeof one);
    EXPECT_U64(2, named_at(DEVICE)); /* the first is used once more */
    for (unsigned i = 0; i < 10; i++)
        ps_pointer_tables_copied(DEVICE + 4096 * (PS_POINTER_TABLES_MAX + i), &one, sizeof one);
    EXPECT_U64(before + 10, ps_counters.pointer_tables_forgotten);
    EXPECT_U64(2, named_at(DEVICE));
    for (unsigned i = 1; i <= 10; i++)
        EXPECT_U64(0, named_at(DEVICE + 4096 * i));
    EXPECT_U64(2, named_at(DEVICE + 4096 * 11));
    forget_all();
}

/*
 * Copies, also from the device, and fills of any place and length. Each word that holds a pointer
 * is named through its own address.
 */
static void test_any_order(void)
{
    uint64_t memory[WORDS] = {0};

    srand(7);
    for (int turn = 0; turn < 20000; turn++) {
        const unsigned at_most = rand() % 4 ? 8 : WORDS; /* in an order of its own, whatever the compiler */
        unsigned at = (unsigned)rand() % WORDS, n = 1 + (unsigned)rand() % at_most;
        uint64_t words[WORDS] = {0};
        if (at + n > WORDS)
            n = WORDS - at;
        unsigned from = (unsigned)rand() % (WORDS - n + 1);
        /* few, so that the words stay different */
        bool fills = rand() % 3 == 0, moves = !fills && n <= 8 && rand() % 2;
        for (unsigned i = 0; i < n; i++) {
            words[i] = fills || rand() % 3 == 0 ? 0 : pointer((unsigned)rand() % (UNITS - 1));
            if (moves)
                words[i] = memory[from + i];
        }
        memcpy(memory + at, words, n * sizeof *words);
        if (fills)
            ps_pointer_tables_overwritten(DEVICE + 8 * at, 8 * n);
        else if (moves)
            ps_pointer_tables_moved(DEVICE + 8 * at, DEVICE + 8 * from, 8 * n, false);
        else
            write_words(at, words, n);
        uint64_t all = 0;
        for (unsigned i = 0; i < WORDS; i++)
            all |= memory[i] ? 1ull << ((memory[i] - BASE) / UNIT) : 0;
        at = (unsigned)rand() % WORDS;
        uint64_t got = named_at(DEVICE + 8 * at);
        if (memory[at])
            EXPECT(got & 1ull << ((memory[at] - BASE) / UNIT));
        EXPECT_U64(0, got & ~all); /* and no span whose address has been overwritten everywhere */
    }
    forget_all();
}

static uint64_t named_by_variables(void)
{
    named = 0;
    ps_pointer_tables_name_of_variables(note, NULL);
    return named;
}

/* Tables in variables of modules are named for every launch, whatever way they came there. */
static void test_in_variables(void)
{
    const uint64_t words[] = {pointer(1), pointer(2), pointer(3)};
    const int module[2] = {0};

    write_words(0, words, 3);
    EXPECT_U64(0, ps_pointer_tables_in_variables);
    EXPECT_U64(0, named_by_variables());
    ps_module_variables_found(PS_VARIABLE_OF_MODULE, &module[0], DEVICE + 1024, 32);
    ps_module_variables_found(PS_VARIABLE_OF_MODULE, &module[0], DEVICE + 1024, 32);
    ps_module_variables_found(PS_VARIABLE_OF_MODULE, &module[1], DEVICE + 2048, 8);
    EXPECT(!ps_module_variables_touch(DEVICE + 1016, 8));
    EXPECT(ps_module_variables_touch(DEVICE + 1016, 9));
    EXPECT(ps_module_variables_touch(DEVICE + 1055, 8));
    EXPECT(!ps_module_variables_touch(DEVICE + 1056, 8));
    ps_pointer_tables_copied(DEVICE + 1032, words + 1, 16); /* from the host, into the middle */
    EXPECT_U64(1, ps_pointer_tables_in_variables);
    EXPECT_U64(1 << 2 | 1 << 3, named_by_variables());
    ps_pointer_tables_moved(DEVICE + 2048, DEVICE, 8, false); /* from another table */
    EXPECT_U64(2, ps_pointer_tables_in_variables);
    EXPECT_U64(1 << 1 | 1 << 2 | 1 << 3, named_by_variables());
    ps_pointer_tables_moved(DEVICE + 512, DEVICE + 1032, 8, false); /* away from one: a copy elsewhere */
    EXPECT_U64(2, ps_pointer_tables_in_variables);
    make_one(DEVICE + 2048, 8, 1, 0, 4); /* by a kernel that is given its place */
    EXPECT_U64(1 << 4 | 1 << 1 | 1 << 2 | 1 << 3, named_by_variables());
    ps_pointer_tables_overwritten(DEVICE + 1040, 8);
    EXPECT_U64(1 << 4 | 1 << 1 | 1 << 2, named_by_variables());
    /* The end of a module forgets its own tables alone. */
    ps_module_variables_gone(&module[0]);
    EXPECT_U64(1 << 4 | 1 << 1, named_by_variables());
    ps_module_variables_gone(&module[1]);
    EXPECT(!ps_pointer_tables_exist_in_variables());
    ps_pointer_tables_copied(DEVICE + 1032, words, 16);
    EXPECT_U64(0, named_by_variables());
    forget_all();
}

/* A look-up in the current context. */
static CUcontext current;

static CUresult CUDAAPI get_current(CUcontext *context)
{
    *context = current;
    return CUDA_SUCCESS;
}

static void found(enum ps_variable_holder kind, const void *holder, uintptr_t context, CUdeviceptr start)
{
    current = (CUcontext)context;
    ps_module_variables_found(kind, holder, start, 8);
}

/* A variable that a library and its module looked up goes with either. */
static void test_two_holders(void)
{
    const uint64_t word = pointer(1);
    static const int library, module, other;
    const void *const goes[] = {&library, &module};

    for (unsigned i = 0; i < 4; i++) {
        found(PS_VARIABLE_OF_LIBRARY, &library, 1, DEVICE);
        found(PS_VARIABLE_OF_MODULE, &module, 1, DEVICE);
        if (i < 2)
            found(PS_VARIABLE_OF_LIBRARY, &library, 1, DEVICE);
        ps_pointer_tables_copied(DEVICE, &word, 8);
        EXPECT_U64(1, ps_pointer_tables_in_variables);
        ps_module_variables_gone(&other);
        EXPECT_U64(1, ps_pointer_tables_in_variables);
        ps_module_variables_gone(goes[i % 2]);
        EXPECT_U64(0, ps_pointer_tables_in_variables);
        EXPECT(!ps_module_variables_touch(DEVICE, 8));
    }
    forget_all();
}

/* A context takes its variables along, and leaves nothing that a later module could end. */
static void test_contexts_of_variables(void)
{
    const uint64_t word = pointer(1);
    static const int library, module, next;

    found(PS_VARIABLE_OF_LIBRARY, &library, 1, DEVICE);
    found(PS_VARIABLE_OF_LIBRARY, &library, 2, DEVICE + 64);
    ps_pointer_tables_copied(DEVICE, &word, 8);
    ps_pointer_tables_copied(DEVICE + 64, &word, 8);
    ps_module_variables_context_ends((CUcontext)1);
    EXPECT_U64(1, ps_pointer_tables_in_variables);
    EXPECT(!ps_module_variables_touch(DEVICE, 8));
    EXPECT(ps_module_variables_touch(DEVICE + 64, 8));
    ps_module_variables_context_ends((CUcontext)2);
    EXPECT_U64(0, ps_pointer_tables_in_variables);

    /* Memory of the program lies there next, and another module has the handle. */
    found(PS_VARIABLE_OF_MODULE, &module, 1, DEVICE);
    ps_module_variables_context_ends((CUcontext)1);
    ps_pointer_tables_copied(DEVICE, &word, 8);
    EXPECT_U64(0, ps_pointer_tables_in_variables);
    ps_module_variables_gone(&module);
    EXPECT_U64(1 << 1, named_at(DEVICE));

    /* An end that was not seen: another context has a variable there. */
    found(PS_VARIABLE_OF_MODULE, &module, 1, DEVICE);
    found(PS_VARIABLE_OF_LIBRARY, &next, 2, DEVICE);
    ps_pointer_tables_copied(DEVICE, &word, 8);
    ps_module_variables_gone(&module);
    EXPECT_U64(1, ps_pointer_tables_in_variables);
    ps_module_variables_gone(&next);
    EXPECT_U64(0, ps_pointer_tables_in_variables);
    forget_all();
}

int main(void)
{
    make_reservation();
    ps_cu.cuCtxGetCurrent = get_current;
    test_pointers_among_other_words();
    test_no_pointers_no_table();
    test_alignment();
    test_written_over();
    test_fields();
    test_in_pieces();
    test_words_that_may_come();
    test_copied_on();
    test_made();
    test_too_many_copied_on();
    test_too_many();
    test_in_variables();
    test_two_holders();
    test_contexts_of_variables();
    test_any_order();
    return expect_status();
}
