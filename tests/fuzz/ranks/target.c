/*
 * The variables of launchers, a value a line, and a path with a rank behind them. The place in the
 * job makes sense, and is the one that a second reading finds. A rank in a file's name can be taken
 * out of it again.
 */
#include "tests/fuzz/fuzz.h"

#include "base/ranks.h"

static const char *const names[] = {"RANK",
                                    "WORLD_SIZE",
                                    "LOCAL_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_RANK",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_SIZE",
                                    "PMI_RANK",
                                    "PMI_SIZE",
                                    "MPI_LOCALNRANKS",
                                    "SLURM_PROCID",
                                    "SLURM_STEP_NUM_TASKS",
                                    "SLURM_STEP_TASKS_PER_NODE",
                                    "LOCAL_RANK"};
#define NAMES (sizeof names / sizeof *names)

static char *values[NAMES]; /* NULL: not set */

static char *variable(const char *name)
{
    for (size_t i = 0; i < NAMES; i++)
        if (!strcmp(names[i], name))
            return values[i];
    fuzz_require(!"a variable that this target does not know");
    return NULL;
}

/* Returns a whole number up to `most`, or -1. */
static long number(const char *text, long most, bool may_go_on)
{
    long value = 0;

    if (!text || *text < '0' || *text > '9')
        return -1;
    for (; *text >= '0' && *text <= '9'; text++)
        value = value > most ? value : value * 10 + (*text - '0');
    if (*text && !(may_go_on && (*text == '(' || *text == ',')))
        return -1;
    return value <= most ? value : -1;
}

static void check_place(const struct ps_ranks *ranks)
{
    static const struct {
        unsigned rank, processes, local;
    } launchers[] = {{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {9, 10, 11}, {12, 1, 1}};
    bool several = false;
    long local = 0;

    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        long rank = number(values[launchers[i].rank], 1 << 20, false);
        long processes = number(values[launchers[i].processes], 1 << 20, false);
        long here = number(values[launchers[i].local], 4096, true);
        bool is_one = rank >= 0 && processes > 1 && rank < processes;
        if (is_one && !several)
            fuzz_require(ranks->several && ranks->rank == (uint32_t)rank && ranks->processes == (uint32_t)processes);
        several |= is_one;
        if (local < 1 && (is_one || i == 0))
            local = here;
    }
    fuzz_require(ranks->several == several && ranks->local_processes == (local > 0 ? (uint32_t)local : 1));
}

static void check_name(const char *path, size_t room, uint32_t rank)
{
    size_t before = strlen(path);
    char *changed = fuzz_allocate(room), insert[24];

    if (before >= room) {
        free(changed);
        return;
    }
    strcpy(changed, path);
    ps_ranks_name_file(changed, room, rank);
    fuzz_require(strlen(changed) < room);
    snprintf(insert, sizeof insert, ".rank%u", rank);
    if (strcmp(changed, path) != 0) {
        size_t length = strlen(insert);
        char *at = strrchr(changed, '/');
        fuzz_require(strlen(changed) == before + length);
        /* It stands before the last dot of the name, or at its end. */
        for (at = at ? at + 1 : changed;
             strncmp(at, insert, length) != 0 || strchr(at + length + (at[length] == '.'), '.'); at++)
            fuzz_require(*at);
        memmove(at, at + length, strlen(at + length) + 1);
        fuzz_require(!strcmp(changed, path));
    } else {
        fuzz_require(!before || path[before - 1] == '/' || before + strlen(insert) + 1 > room);
    }
    free(changed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_input in = {data, bytes};

    for (size_t i = 0; i < NAMES; i++) {
        values[i] = fuzz_text(&in, '\n');
        if (!*values[i]) {
            free(values[i]);
            values[i] = NULL;
        }
    }
    const struct ps_ranks ranks = ps_ranks_read(variable);
    check_place(&ranks);
    char *path = fuzz_text(&in, '\n');
    size_t room = 1 + fuzz_u8(&in);
    check_name(path, room, (uint32_t)fuzz_u64(&in));
    free(path);
    for (size_t i = 0; i < NAMES; i++)
        free(values[i]);
    return 0;
}
