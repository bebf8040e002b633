/*
 * Which kernels are proved, in real cubins. Those of scan.cu and outside.cu in
 * tests/unit/kernels/cubins have names that begin with what must be found.
 * tests/unit/kernels/test_kernel_params.c gives the scan spoilt cubins.
 *
 *     test_kernel_scan             the tests
 *     test_kernel_scan CUBIN...    prints what was found, for tests/unit/kernels/cubins/compare
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/libelf.h"
#include "expect.h"
#include "kernels/cubin.h"
#include "kernels/kernel_scan.h"
#include "read_image.h"

static const char *const prefixes[PS_DOUBTS] = {
    [PS_DOUBT_NONE] = "proved_",         [PS_DOUBT_ATOMICS] = "atomics_",
    [PS_DOUBT_FENCES] = "fences_",       [PS_DOUBT_SHARING] = "sharing_",
    [PS_DOUBT_CLOCK] = "clock_",         [PS_DOUBT_PLACE] = "place_",
    [PS_DOUBT_LAUNCH] = "launch_",       [PS_DOUBT_CALLS] = "calls_",
    [PS_DOUBT_VARIABLES] = "variables_", [PS_DOUBT_INSTRUCTION] = "instruction_",
};

struct seen {
    unsigned kernels, of[PS_DOUBTS];
};

static int see_named(const struct ps_kernel_scan *scan, void *ctx)
{
    struct seen *seen = ctx;

    seen->kernels++;
    seen->of[scan->doubt]++;
    if (!EXPECT(prefixes[scan->doubt] && !strncmp(scan->name, prefixes[scan->doubt], strlen(prefixes[scan->doubt]))))
        fprintf(stderr, "  %s: %s, instruction %03x at %x\n", scan->name, ps_kernel_doubt_text(scan->doubt),
                scan->instruction, scan->at);
    return 0;
}

static int see(const struct ps_kernel_scan *scan, void *ctx)
{
    struct seen *seen = ctx;

    seen->kernels++;
    seen->of[scan->doubt]++;
    return 0;
}

static struct seen scan_file(const char *path, ps_kernel_scan_fn each)
{
    struct image image = read_image(path);
    struct seen seen = {0};

    EXPECT_INT(0, ps_kernel_scan(image.bytes, image.size, each, &seen));
    free(image.bytes);
    return seen;
}

static void test_names(void)
{
    const struct seen sm_80 = scan_file(CUBINS "scan-sm_80-cuda13.cubin", see_named);
    const struct seen sm_90 = scan_file(CUBINS "scan-sm_90-cuda13.cubin", see_named);
    const struct seen outside = scan_file(CUBINS "outside-sm_90-cuda13.cubin", see_named);

    EXPECT_U64(33, sm_80.kernels);
    EXPECT_U64(34, sm_90.kernels); /* one with an instruction of sm_90 */
    EXPECT_U64(4, outside.kernels);
    for (unsigned i = 0; i < PS_DOUBT_CODE; i++)
        EXPECT(sm_80.of[i] && sm_90.of[i]);
}

/* Kernels of plain arithmetic: of another compiler, and of an architecture that is not known. */
static void test_versions(void)
{
    const struct seen cuda12 = scan_file(CUBINS "params-sm_90-cuda12.cubin", see);
    const struct seen sm_80 = scan_file(CUBINS "params-sm_80-cuda12.cubin", see);
    const struct seen later = scan_file(CUBINS "params-sm_100-cuda13.cubin", see);

    EXPECT_U64(9, cuda12.of[PS_DOUBT_NONE]);
    EXPECT_U64(9, cuda12.kernels);
    EXPECT_U64(9, sm_80.of[PS_DOUBT_NONE]);
    EXPECT_U64(9, later.of[PS_DOUBT_CODE]);
    EXPECT_U64(9, later.kernels);
}

/* ---- single instructions ---- */

struct code {
    const char *name; /* of the section */
    const unsigned char *bytes;
    size_t size;
};

static int find_code(const struct ps_cubin_section *section, void *ctx)
{
    struct code *code = ctx;

    if (section && section->name && !strcmp(section->name, code->name))
        return ps_cubin_section_bytes(section, &code->bytes, &code->size);
    return 0;
}

static int take_first(const struct ps_kernel_scan *scan, void *ctx)
{
    *(struct ps_kernel_scan *)ctx = *scan;
    return 0;
}

static struct ps_kernel_scan scan_one(struct image image)
{
    struct ps_kernel_scan scan = {.doubt = PS_DOUBTS};

    EXPECT_INT(0, ps_kernel_scan(image.bytes, image.size, take_first, &scan));
    return scan;
}

/* An instruction in place of another one, wherever it is in the code, is found there. */
static void test_each_place(void)
{
    static const struct {
        uint64_t low, high;
        enum ps_kernel_doubt doubt;
    } instructions[] = {
        {0x918, 0, PS_DOUBT_NONE},                     /* NOP */
        {0x1ff, 0, PS_DOUBT_INSTRUCTION},              /* none */
        {0x98e, 0, PS_DOUBT_ATOMICS},                  /* RED */
        {0x992, 0, PS_DOUBT_FENCES},                   /* MEMBAR */
        {0x981, 0, PS_DOUBT_NONE},                     /* a weak LDG */
        {0x981, (uint64_t)4 << 13, PS_DOUBT_NONE},     /* of constant memory */
        {0x981, (uint64_t)10 << 13, PS_DOUBT_SHARING}, /* for the whole system */
        {0x986, (uint64_t)7 << 13, PS_DOUBT_SHARING},  /* STG for the whole device */
        {0x986, (uint64_t)4 << 13, PS_DOUBT_SHARING},  /* a strong STG */
        {0x919, (uint64_t)0x21 << 8, PS_DOUBT_NONE},   /* S2R of the thread's number */
        {0x919, (uint64_t)0x43 << 8, PS_DOUBT_PLACE},
        {0x9c3, (uint64_t)0x50 << 8, PS_DOUBT_CLOCK},
        {0xa24, (uint64_t)0, PS_DOUBT_NONE},                 /* IMAD with the width of a block */
        {0xa24 | (uint64_t)0x210 << 38, 0, PS_DOUBT_NONE},   /* with a parameter */
        {0xa24 | (uint64_t)0x30 << 38, 0, PS_DOUBT_LAUNCH},  /* with the number of the grid */
        {0xa24 | (uint64_t)0x160 << 38, 0, PS_DOUBT_LAUNCH}, /* a parameter for sm_80 only */
        {0xa24, (uint64_t)1 << 27, PS_DOUBT_VARIABLES},      /* of a bank in a register */
        {0xff000b82, 0, PS_DOUBT_NONE},                      /* LDC of the width of a block */
        {0x00000b82, 0, PS_DOUBT_LAUNCH},                    /* by a register */
        {0xabb, (uint64_t)1 << 27, PS_DOUBT_LAUNCH},         /* ULDC by a register */
        {0xabb | (uint64_t)0x210 << 38, (uint64_t)1 << 27, PS_DOUBT_NONE},
        {0xb82 | (uint64_t)0x210 << 38, 0, PS_DOUBT_NONE},   /* of parameters, by a register */
        {0xff000b82, (uint64_t)1 << 14, PS_DOUBT_VARIABLES}, /* of a bank in a register */
        {0xa24 | (uint64_t)2 << 54, 0, PS_DOUBT_NONE},       /* with a number of the compiler's */
        {0xa24 | (uint64_t)3 << 54, 0, PS_DOUBT_VARIABLES},  /* with a constant variable */
        {0x624 | (uint64_t)4 << 54, 0, PS_DOUBT_VARIABLES},  /* the last operand is an address */
        {0x824 | (uint64_t)4 << 54, 0, PS_DOUBT_NONE},       /* a number that looks like that */
        {0x944, 0, PS_DOUBT_NONE},                           /* CALL.REL of a number */
        {0x344, 0, PS_DOUBT_CALLS},                          /* by a register */
        {0x949, 0, PS_DOUBT_CALLS},                          /* BRX */
    };
    struct image image = read_image(CUBINS "one-sm_90-cuda13.cubin");
    struct code code = {.name = ".text.one"};

    EXPECT_INT(0, ps_cubin_each_section(image.bytes, image.size, find_code, &code));
    if (!EXPECT(code.size >= 64 && code.size % 16 == 0))
        return;
    EXPECT_INT(PS_DOUBT_NONE, scan_one(image).doubt);
    for (size_t at = 0; at < code.size; at += 16)
        for (size_t i = 0; i < sizeof instructions / sizeof *instructions; i++) {
            unsigned char kept[16], *place = image.bytes + (code.bytes - image.bytes) + at;
            memcpy(kept, place, sizeof kept);
            memcpy(place, &instructions[i].low, 8);
            memcpy(place + 8, &instructions[i].high, 8);
            const struct ps_kernel_scan scan = scan_one(image);
            memcpy(place, kept, sizeof kept);
            bool right = EXPECT_INT(instructions[i].doubt, scan.doubt);
            right = right && EXPECT_U64(scan.doubt ? at : 0, scan.at);
            if (!right || !EXPECT_U64(scan.doubt ? instructions[i].low & 0xfff : 0, scan.instruction))
                fprintf(stderr, "  instruction %zu of the table at %zx\n", i, at);
        }
    free(image.bytes);
}

/* ---- images ---- */

static void test_any_alignment(void)
{
    struct image image = read_image(CUBINS "scan-sm_90-cuda13.cubin");

    for (size_t shift = 1; shift < 16; shift++) {
        struct seen seen = {0};
        memmove(image.bytes + shift, image.bytes + shift - 1, image.size);
        EXPECT_INT(0, ps_kernel_scan(image.bytes + shift, image.size, see_named, &seen));
        EXPECT_U64(34, seen.kernels);
    }
    free(image.bytes);
}

static int stop_at_second(const struct ps_kernel_scan *scan, void *ctx)
{
    (void)scan;
    return ++*(int *)ctx == 2 ? -ECANCELED : 0;
}

static void test_refusals(void)
{
    struct image image = read_image(CUBINS "scan-sm_90-cuda13.cubin");
    int told = 0;

    EXPECT_INT(-ECANCELED, ps_kernel_scan(image.bytes, image.size, stop_at_second, &told));
    EXPECT_INT(2, told);
    EXPECT_INT(-EINVAL, ps_kernel_scan(NULL, 0, stop_at_second, &told));
    EXPECT_INT(-EINVAL, ps_kernel_scan(image.bytes, 40, stop_at_second, &told));
    image.bytes[7] = 0; /* OS and ABI: the place of the architecture is unknown */
    struct seen seen = {0};
    EXPECT_INT(0, ps_kernel_scan(image.bytes, image.size, see, &seen));
    EXPECT_U64(34, seen.of[PS_DOUBT_CODE]);
    free(image.bytes);
}

static int print(const struct ps_kernel_scan *scan, void *ctx)
{
    (void)ctx;
    printf("%s\t%x\t%03x\t%s\n", scan->name, scan->at, scan->instruction, ps_kernel_doubt_text(scan->doubt));
    return 0;
}

int main(int argc, char **argv)
{
    if (!ps_real_libelf()) {
        fprintf(stderr, "libelf.so.1 is not here\n");
        return 77;
    }
    for (int i = 1; i < argc; i++) {
        struct image image = read_image(argv[i]);
        printf("%s\n", argv[i]);
        EXPECT_INT(0, ps_kernel_scan(image.bytes, image.size, print, NULL));
        free(image.bytes);
    }
    if (argc > 1)
        return expect_status();
    test_names();
    test_versions();
    test_each_place();
    test_any_alignment();
    test_refusals();
    return expect_status();
}
