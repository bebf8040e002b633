/*
 * The rank of this process in its job, from the launchers' environment variables; and the names of
 * files.
 */
#include "base/ranks.h"

#include <string.h>

#include "expect.h"

/* Names and values in turn. */
static const char *const *environment;

static char *variable(const char *name)
{
    for (const char *const *e = environment; *e; e += 2)
        if (!strcmp(e[0], name))
            return (char *)e[1];
    return NULL;
}

static void expect_ranks(const char *const *variables, bool several, uint32_t rank, uint32_t processes, uint32_t local)
{
    environment = variables;
    struct ps_ranks ranks = ps_ranks_read(variable);
    EXPECT(ranks.several == several);
    EXPECT_U64(rank, ranks.rank);
    EXPECT_U64(processes, ranks.processes);
    EXPECT_U64(local, ranks.local_processes);
}

#define VARIABLES(...)                                                                                                 \
    (const char *const[])                                                                                              \
    {                                                                                                                  \
        __VA_ARGS__ __VA_OPT__(, ) NULL                                                                                \
    }

static void test_launchers(void)
{
    expect_ranks(VARIABLES(), false, 0, 0, 1);
    expect_ranks(VARIABLES("RANK", "5", "WORLD_SIZE", "16", "LOCAL_WORLD_SIZE", "8"), true, 5, 16, 8);
    expect_ranks(VARIABLES("RANK", "5", "WORLD_SIZE", "16"), true, 5, 16, 1);
    expect_ranks(VARIABLES("OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "2", "OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
                 true, 1, 2, 2);
    expect_ranks(VARIABLES("PMI_RANK", "0", "PMI_SIZE", "4", "MPI_LOCALNRANKS", "4"), true, 0, 4, 4);
    expect_ranks(VARIABLES("SLURM_PROCID", "3", "SLURM_STEP_NUM_TASKS", "8", "SLURM_STEP_TASKS_PER_NODE", "4(x2)"),
                 true, 3, 8, 4);
    expect_ranks(VARIABLES("LOCAL_RANK", "2", "NODE_RANK", "0", "WORLD_SIZE", "4"), true, 2, 4, 4);
    expect_ranks(VARIABLES("SLURM_PROCID", "3", "SLURM_STEP_NUM_TASKS", "7", "SLURM_STEP_TASKS_PER_NODE", "4,3"), true,
                 3, 7, 4);
    /* torchrun, started by srun, sets the variables for its own processes. */
    expect_ranks(VARIABLES("SLURM_PROCID", "1", "SLURM_STEP_NUM_TASKS", "2", "RANK", "6", "WORLD_SIZE", "8",
                           "LOCAL_WORLD_SIZE", "4"),
                 true, 6, 8, 4);
    /*
     * Scripts that make torch's variables from Slurm's rarely make the one for the machine. srun's
     * PMI-2 has none.
     */
    expect_ranks(VARIABLES("SLURM_PROCID", "5", "SLURM_STEP_NUM_TASKS", "8", "SLURM_STEP_TASKS_PER_NODE", "4(x2)",
                           "RANK", "5", "WORLD_SIZE", "8"),
                 true, 5, 8, 4);
    expect_ranks(VARIABLES("SLURM_PROCID", "5", "SLURM_STEP_NUM_TASKS", "8", "SLURM_STEP_TASKS_PER_NODE", "4(x2)",
                           "PMI_RANK", "5", "PMI_SIZE", "8"),
                 true, 5, 8, 4);
}

static void test_one_process_alone(void)
{
    expect_ranks(VARIABLES("RANK", "0", "WORLD_SIZE", "1", "LOCAL_WORLD_SIZE", "1"), false, 0, 0, 1);
    /*
     * A program that a batch script of Slurm runs without srun is one process, whatever the job's
     * allocation is.
     */
    expect_ranks(VARIABLES("SLURM_PROCID", "0", "SLURM_NTASKS", "8"), false, 0, 0, 1);
    expect_ranks(VARIABLES("LOCAL_RANK", "0"), false, 0, 0, 1);
    expect_ranks(VARIABLES("LOCAL_RANK", "0", "WORLD_SIZE", "1"), false, 0, 0, 1);
    /* The number of processes that share the host's memory counts by itself. */
    expect_ranks(VARIABLES("LOCAL_WORLD_SIZE", "8"), false, 0, 0, 8);
    /*
     * A user may set it for a launcher that gives no such number. The rank is still the launcher's.
     */
    expect_ranks(VARIABLES("LOCAL_WORLD_SIZE", "8", "OMPI_COMM_WORLD_RANK", "5", "OMPI_COMM_WORLD_SIZE", "16"), true, 5,
                 16, 8);
    expect_ranks(VARIABLES("LOCAL_WORLD_SIZE", "8", "LOCAL_RANK", "2", "WORLD_SIZE", "4"), true, 2, 4, 8);
}

static void test_what_makes_no_sense(void)
{
    static const char *const nonsense[] = {"",          "-2", "+2", "2 ", "2.5", "two", "0x4", "18446744073709551618",
                                           "4294967298"};

    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
        expect_ranks(VARIABLES("RANK", nonsense[i], "WORLD_SIZE", "8", "LOCAL_WORLD_SIZE", "2"), false, 0, 0, 2);
        expect_ranks(VARIABLES("RANK", "1", "WORLD_SIZE", nonsense[i]), false, 0, 0, 1);
        expect_ranks(VARIABLES("RANK", "1", "WORLD_SIZE", "2", "LOCAL_WORLD_SIZE", nonsense[i]), true, 1, 2, 1);
    }
    expect_ranks(VARIABLES("RANK", "8", "WORLD_SIZE", "8"), false, 0, 0, 1);
    expect_ranks(VARIABLES("RANK", "1", "WORLD_SIZE", "2", "LOCAL_WORLD_SIZE", "0"), true, 1, 2, 1);
    expect_ranks(VARIABLES("RANK", "1", "WORLD_SIZE", "2", "LOCAL_WORLD_SIZE", "4097"), true, 1, 2, 1);
    expect_ranks(VARIABLES("LOCAL_WORLD_SIZE", "4096"), false, 0, 0, 4096);
}

static void expect_name(const char *expected, const char *path, uint32_t rank)
{
    char name[64];

    strcpy(name, path);
    ps_ranks_name_file(name, sizeof name, rank);
    EXPECT_TEXT(expected, name);
}

static void test_names(void)
{
    char tight[16] = "report.json";

    expect_name("report.rank3.json", "report.json", 3);
    expect_name("/a.b/report.rank12", "/a.b/report", 12);
    expect_name("/a/step.txt.rank0.gz", "/a/step.txt.gz", 0);
    expect_name("/a/.hidden.rank1", "/a/.hidden", 1);
    expect_name("", "", 1);
    expect_name("/a/", "/a/", 1);
    ps_ranks_name_file(tight, sizeof tight, 3); /* there is no room for it */
    EXPECT_TEXT("report.json", tight);
}

int main(void)
{
    test_launchers();
    test_one_process_alone();
    test_what_makes_no_sense();
    test_names();
    return expect_status();
}
