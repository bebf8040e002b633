/*
 * The adversarial scheduler: a missing wait gives wrong values in some seed. A program with all its
 * waits is right in every seed. The programs are small versions of Penstock's moves. A tensor
 * leaves for the host and comes back, and its memory is used again.
 */
#include "unit_device.h"

static struct unit_device device;

#define WORDS 1024u
#define BYTES (WORDS * sizeof(uint32_t))
#define SEEDS 64u

/* The wait that a program leaves out. */
enum missing_wait {
    MISSING_NOTHING,
    MISSING_COPY_AFTER_WRITE,  /* the D2H copy does not wait for the kernel that writes the tensor */
    MISSING_REUSE_AFTER_COPY,  /* the tensor's pages are written again before the D2H copy has read them */
    MISSING_RELOAD_AFTER_COPY, /* the H2D copy does not wait for the D2H copy into the slot */
    MISSING_USE_AFTER_RELOAD,  /* the kernel that reads the tensor does not wait for the H2D copy */
    MISSING_SLOT_AFTER_RELOAD, /* the slot is overwritten before the H2D copy has read it */
    MISSING_COUNT,
};

struct program {
    enum missing_wait missing;
    unsigned int seed;
};

static void order(bool needed, CUstream before, CUstream after)
{
    CUevent event;
    if (!needed)
        return;
    EXPECT_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    EXPECT_OK(cuEventRecord(event, before));
    EXPECT_OK(cuStreamWaitEvent(after, event, 0));
    EXPECT_OK(cuEventDestroy(event));
}

/* Returns whether the values are right. */
static bool run_program(enum missing_wait missing)
{
    CUstream compute, out, in;
    CUdeviceptr tensor, result;
    void *slot;
    uint32_t right[2] = {0, 0};
    EXPECT_OK(cuStreamCreate(&compute, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuStreamCreate(&out, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuStreamCreate(&in, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuMemAlloc(&tensor, BYTES));
    EXPECT_OK(cuMemAlloc(&result, sizeof right));
    EXPECT_OK(cuMemHostAlloc(&slot, BYTES, 0));

    EXPECT_OK(launch_fill(&device, tensor, WORDS, 1, compute));
    order(missing != MISSING_COPY_AFTER_WRITE, compute, out);
    EXPECT_OK(cuMemcpyDtoHAsync(slot, tensor, BYTES, out));
    order(missing != MISSING_REUSE_AFTER_COPY, out, compute);
    EXPECT_OK(launch_fill(&device, tensor, WORDS, 2, compute));
    EXPECT_OK(launch_count(&device, tensor, WORDS, 2, result, compute));
    order(true, compute, in);
    /*
     * With the order above, the reload is ordered after the D2H copy only through the reuse.
     * Without both it has nothing to wait for.
     */
    order(missing != MISSING_RELOAD_AFTER_COPY && missing != MISSING_REUSE_AFTER_COPY, out, in);
    if (missing == MISSING_RELOAD_AFTER_COPY) {
        CUdeviceptr fresh;
        EXPECT_OK(cuMemAlloc(&fresh, BYTES));
        tensor = fresh;
        EXPECT_OK(cuStreamCreate(&in, CU_STREAM_NON_BLOCKING)); /* this stream is ordered after nothing */
    }
    EXPECT_OK(cuMemcpyHtoDAsync(tensor, slot, BYTES, in));
    order(missing != MISSING_SLOT_AFTER_RELOAD, in, out);
    EXPECT_OK(cuMemsetD32Async((CUdeviceptr)(uintptr_t)slot, 3, WORDS, out));
    order(missing != MISSING_USE_AFTER_RELOAD, in, compute);
    EXPECT_OK(launch_count(&device, tensor, WORDS, 1, result + 4, compute));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_OK(cuMemcpyDtoH(right, result, sizeof right));
    return right[0] == WORDS && right[1] == WORDS;
}

enum { CAME_OUT_RIGHT = 0, CALL_FAILED = 1, CAME_OUT_WRONG = 2 };

static int program_in_child(void *argument)
{
    const struct program *program = argument;
    char seed[16];
    snprintf(seed, sizeof seed, "%u", program->seed);
    setenv("CUDASIM_SEED", seed, 1);
    expect_checked = expect_failed = 0;
    bool right = open_device(&device) && run_program(program->missing);
    if (expect_failed)
        return CALL_FAILED;
    return right ? CAME_OUT_RIGHT : CAME_OUT_WRONG;
}

/* Returns the number of seeds in which the program gave wrong values. */
static unsigned int wrong_seeds(enum missing_wait missing)
{
    unsigned int wrong = 0;
    for (unsigned int seed = 0; seed < SEEDS; seed++) {
        struct program program = {missing, seed};
        int outcome = run_child(program_in_child, &program);
        EXPECT(outcome == CAME_OUT_RIGHT || outcome == CAME_OUT_WRONG);
        wrong += outcome == CAME_OUT_WRONG;
    }
    return wrong;
}

/* The same seed gives the same order, so a failure can be repeated. */
static int traced_in_child(void *argument)
{
    setenv("CUDASIM_TRACE", argument, 1);
    struct program program = {MISSING_NOTHING, 11};
    return program_in_child(&program);
}

static size_t read_trace(const char *path, char *text, size_t room)
{
    FILE *file = fopen(path, "r");
    size_t length = file ? fread(text, 1, room - 1, file) : 0;
    if (file)
        fclose(file);
    text[length] = 0;
    return length;
}

/*
 * Leaves only the order in which operations ended: stream and number of each. Addresses differ from
 * run to run.
 */
static void ends_only(char *text)
{
    char *to = text, *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char position[32];
        if (sscanf(line, "%*u end %31s", position) == 1)
            to += sprintf(to, "%s ", position);
    }
    *to = 0;
}

static void a_seed_repeats(void)
{
    static char first[1 << 16], second[1 << 16];
    char path[] = "/tmp/cudasim-trace-XXXXXX";
    int descriptor = mkstemp(path);
    EXPECT(descriptor >= 0);
    close(descriptor);
    EXPECT_INT(CAME_OUT_RIGHT, run_child(traced_in_child, path));
    EXPECT(read_trace(path, first, sizeof first) > 0);
    EXPECT_INT(CAME_OUT_RIGHT, run_child(traced_in_child, path));
    EXPECT(read_trace(path, second, sizeof second) > 0);
    ends_only(first);
    ends_only(second);
    EXPECT(first[0]);
    EXPECT_TEXT(first, second);
    unlink(path);
}

int main(void)
{
    static const char *const names[] = {"nothing",           "copy after write", "reuse after copy",
                                        "reload after copy", "use after reload", "slot after reload"};
    setenv("CUDASIM_SCHED", "seeded", 1);
    EXPECT_U64(0, wrong_seeds(MISSING_NOTHING));
    for (int missing = MISSING_NOTHING + 1; missing < MISSING_COUNT; missing++) {
        unsigned int wrong = wrong_seeds((enum missing_wait)missing);
        printf("without the wait %s: %u of %u seeds came out wrong\n", names[missing], wrong, SEEDS);
        EXPECT(wrong > 0);
    }
    a_seed_repeats();
    return expect_status();
}
