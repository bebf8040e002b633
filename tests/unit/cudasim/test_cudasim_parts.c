/*
 * Kernels that run in parts: a copy that is not ordered after its kernel sees half of what the
 * kernel writes, in some seed. A copy that is ordered sees all of it.
 */
#include "unit_device.h"

static struct unit_device device;

#define WORDS 1024u
#define BYTES (WORDS * sizeof(uint32_t))
#define SEEDS 64u

static void run_add_one(const struct cudasim_launch *launch, void *const *params)
{
    uint32_t *to = *(uint32_t *const *)params[0];
    for (uint32_t i = launch->part; i < WORDS; i += launch->parts)
        to[i]++;
}

static const struct cudasim_param add_one_params[] = {{0, 8}};
static const struct cudasim_kernel in_parts = {CUDASIM_KERNEL_ABI_IN_PARTS, 1, add_one_params, run_add_one};
static const struct cudasim_kernel as_a_whole = {CUDASIM_KERNEL_ABI, 1, add_one_params, run_add_one};

struct program {
    const struct cudasim_kernel *code;
    const char *split;
    bool ordered;
    unsigned int seed;
};

enum { SAW_ALL_OR_NOTHING = 0, CALL_FAILED = 1, SAW_HALF = 2 };

/* A copy runs in at most four pieces. A whole kernel between them makes at most three changes. */
static bool is_half(const uint32_t *words)
{
    unsigned int changes = 0;
    for (unsigned int i = 1; i < WORDS; i++)
        changes += words[i] != words[i - 1];
    return changes > 3;
}

static int program_in_child(void *argument)
{
    const struct program *program = argument;
    CUstream compute, out;
    CUevent event;
    CUdeviceptr tensor;
    void *host;
    char seed[16];
    uint32_t after[WORDS];
    snprintf(seed, sizeof seed, "%u", program->seed);
    setenv("CUDASIM_SCHED", "seeded", 1);
    setenv("CUDASIM_SEED", seed, 1);
    setenv("CUDASIM_SPLIT_KERNELS", program->split, 1);
    expect_checked = expect_failed = 0;
    if (!open_device(&device))
        return CALL_FAILED;
    CUkernel kernel = cudasim_register_kernel("add_one", program->code, NULL, 0);
    EXPECT_OK(cuStreamCreate(&compute, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuStreamCreate(&out, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    EXPECT_OK(cuMemAlloc(&tensor, BYTES));
    EXPECT_OK(cuMemHostAlloc(&host, BYTES, 0));
    EXPECT_OK(cuMemsetD32(tensor, 1, WORDS));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_OK(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, compute, (void *[]){&tensor}, NULL));
    if (program->ordered) {
        EXPECT_OK(cuEventRecord(event, compute));
        EXPECT_OK(cuStreamWaitEvent(out, event, 0));
    }
    EXPECT_OK(cuMemcpyDtoHAsync(host, tensor, BYTES, out));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_OK(cuMemcpyDtoH(after, tensor, BYTES));
    for (unsigned int i = 0; i < WORDS; i++)
        expect_failed += after[i] != 2; /* each word was reached once */
    if (expect_failed)
        return CALL_FAILED;
    return is_half(host) ? SAW_HALF : SAW_ALL_OR_NOTHING;
}

/* Returns the number of seeds in which the copy saw half. */
static unsigned int halves_seen(const struct cudasim_kernel *code, const char *split, bool ordered)
{
    unsigned int halves = 0;
    for (unsigned int seed = 0; seed < SEEDS; seed++) {
        int outcome = run_child(program_in_child, &(struct program){code, split, ordered, seed});
        EXPECT(outcome == SAW_ALL_OR_NOTHING || outcome == SAW_HALF);
        halves += outcome == SAW_HALF;
    }
    return halves;
}

int main(void)
{
    EXPECT(halves_seen(&in_parts, "1", false) > 0);
    EXPECT_INT(0, halves_seen(&in_parts, "1", true));
    EXPECT_INT(0, halves_seen(&in_parts, "0", false));
    EXPECT_INT(0, halves_seen(&as_a_whole, "1", false));
    return expect_status();
}
