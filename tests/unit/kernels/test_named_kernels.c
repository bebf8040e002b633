/*
 * Kernels by name, from real cubins: what is known of them, and how that changes with cubins that
 * come later.
 */
#include "kernels/named_kernels.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/driver.h"
#include "expect.h"
#include "kernels/layouts.h"
#include "read_image.h"

#define PROVED "proved_add" /* of scan.cu: two addresses and a number */

static const char *named = PROVED; /* what the driver calls each kernel */

static CUresult CUDAAPI stub_name(const char **name, CUkernel kernel)
{
    (void)kernel;
    *name = named;
    return CUDA_SUCCESS;
}

/* Adds a file. Returns whether what was known of a kernel is so no longer. */
static bool added(const char *path)
{
    struct image image = read_image(path);
    bool changed = false;

    EXPECT_INT(0, ps_named_kernels_add_cubin(image.bytes, image.size, &changed));
    free(image.bytes);
    return changed;
}

/* Returns what a launch finds about the kernel. Each name has one handle. */
static enum ps_kernel_doubt doubt_of(const char *name)
{
    const struct ps_layout *layout;

    ps_cu.cuKernelGetName = stub_name;
    named = name;
    layout = ps_layout_of((CUfunction)(uintptr_t)(0x7f0000000000u + 64u * strlen(name)));
    named = PROVED;
    return EXPECT(layout != NULL) ? layout->doubt : PS_DOUBTS;
}

static struct ps_kernel_facts facts_of(const char *name)
{
    struct ps_kernel_facts facts;

    EXPECT(ps_named_kernel(name, &facts) != NULL);
    return facts;
}

struct listed {
    unsigned kernels, proved;
    uint64_t uses;
};

static int list(const struct ps_kernel_scan *scan, uint64_t uses, void *ctx)
{
    struct listed *listed = ctx;

    listed->kernels++;
    listed->proved += !scan->doubt;
    listed->uses += uses;
    return !strcmp(scan->name, "the last one");
}

static struct listed all_used(void)
{
    struct listed listed = {0};

    ps_named_kernels_each_used(list, &listed);
    return listed;
}

/* A name is known before a cubin has it, and without one. */
static void test_before_and_behind_a_cubin(void)
{
    const struct ps_kernel_facts before = facts_of("one");

    EXPECT(!before.has_sizes);
    EXPECT_INT(PS_DOUBT_CODE, before.scan.doubt);
    EXPECT(added(CUBINS "one-sm_90-cuda13.cubin"));
    const struct ps_kernel_facts behind = facts_of("one");
    EXPECT(behind.has_sizes);
    EXPECT_U64(2, behind.count);
    EXPECT_U64(8, behind.size[0]);
    EXPECT_U64(4, behind.size[1]);
    EXPECT_INT(PS_DOUBT_NONE, behind.scan.doubt);
    EXPECT(!added(CUBINS "one-sm_90-cuda13.cubin")); /* again */
    EXPECT(!added(CUBINS "scan-sm_90-cuda13.cubin"));
    EXPECT_INT(PS_DOUBT_CODE, facts_of("no cubin has it").scan.doubt);
}

/*
 * Two files have a kernel `one` with other parameters. A kernel is proved if all of its name are.
 * Only kernels that were asked for can change.
 */
static void test_one_name_in_several_cubins(void)
{
    EXPECT(added(CUBINS "params-sm_90-cuda12.cubin"));
    EXPECT(!facts_of("one").has_sizes);
    EXPECT_INT(PS_DOUBT_NONE, facts_of("one").scan.doubt);
    EXPECT(!added(CUBINS "params-sm_90-cuda13.cubin"));
    EXPECT(facts_of("unused").has_sizes);
    EXPECT_INT(PS_DOUBT_NONE, facts_of("unused").scan.doubt);
    EXPECT_INT(PS_DOUBT_NONE, doubt_of("unused"));
    EXPECT(!added(CUBINS "params-sm_80-cuda13.cubin"));
    struct image later = read_image(CUBINS "params-sm_100-cuda13.cubin"); /* which can't be scanned */
    ps_layouts_add_cubin(later.bytes, later.size);
    free(later.bytes);
    EXPECT_INT(PS_DOUBT_CODE, doubt_of("unused")); /* a handle that is known */
    EXPECT_INT(PS_DOUBT_CODE, facts_of("unused").scan.doubt);
    EXPECT(facts_of("unused").has_sizes);
    EXPECT(!added(CUBINS "params-sm_80-cuda12.cubin"));
    EXPECT_INT(PS_DOUBT_CODE, facts_of("unused").scan.doubt);
}

static void test_uses(void)
{
    struct ps_kernel_facts facts;
    struct ps_named_kernel *kernel = ps_named_kernel(PROVED, &facts);

    const struct listed before = all_used();
    ps_named_kernel_count(NULL);
    for (unsigned i = 0; i < 5; i++)
        ps_named_kernel_count(kernel);
    EXPECT(ps_named_kernel(PROVED, &facts) == kernel);
    EXPECT_U64(before.kernels + 1, all_used().kernels);
    EXPECT_U64(before.proved + 1, all_used().proved);
    EXPECT_U64(before.uses + 5, all_used().uses);
}

/* A kernel with another name than any cubin has counts, too. */
static void test_launches(void)
{
    const struct listed before = all_used();

    EXPECT_INT(PS_DOUBT_NONE, doubt_of(PROVED));
    EXPECT_INT(PS_DOUBT_NONE, doubt_of(PROVED));
    named = "no cubin has it";
    EXPECT(ps_layout_of((CUfunction)(uintptr_t)0x7f0000100000u) == NULL);
    named = PROVED;
    EXPECT_U64(before.uses + 3, all_used().uses);
    EXPECT_U64(before.kernels + 1, all_used().kernels);
}

/*
 * An image that can't be read may have a kernel of any name. Launches are told at once, also those
 * of kernels that are known. So the test is the last one.
 */
static void test_unread(void)
{
    struct image image = read_image(CUBINS "one-sm_90-cuda13.cubin");
    const unsigned unloads = ps_layouts_generation();

    EXPECT_INT(PS_DOUBT_NONE, doubt_of(PROVED));
    EXPECT(!ps_named_kernels_have_missed());
    memset(image.bytes + 16, 0xff, image.size - 16);
    ps_layouts_add_cubin(image.bytes, image.size);
    EXPECT_INT(PS_DOUBT_CODE, doubt_of(PROVED));
    EXPECT(ps_named_kernels_have_missed());
    EXPECT_INT(PS_DOUBT_CODE, facts_of(PROVED).scan.doubt);
    EXPECT(facts_of(PROVED).has_sizes);
    EXPECT_U64(0, all_used().proved);
    ps_layouts_add_cubin(NULL, 0); /* CUPTI has none */
    EXPECT(!ps_named_kernels_missed());
    EXPECT_U64(unloads, ps_layouts_generation()); /* handles mean what they meant */
    free(image.bytes);
}

int main(void)
{
    test_before_and_behind_a_cubin();
    test_one_name_in_several_cubins();
    test_uses();
    test_launches();
    test_unread();
    return expect_status();
}
