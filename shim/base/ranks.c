#include "base/ranks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROCESSES_MAX (1u << 20)
#define LOCAL_PROCESSES_MAX 4096u

/*
 * The innermost launcher comes first: torchrun inside srun sets variables for its own processes.
 * Sources: torchrun's manual; docs.open-mpi.org, "environment variables set for MPI applications";
 * Hydra (MPICH, Intel MPI); srun(1). srun sets the variables of a step only for processes that it
 * started.
 *
 * The number of processes on this machine comes from the innermost launcher that gives it. Scripts
 * make RANK and WORLD_SIZE from Slurm's variables and omit LOCAL_WORLD_SIZE. Under srun's PMI-2
 * only Slurm gives the number.
 */
static const struct {
    const char *rank, *processes, *local_processes;
} launchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"},
    /*
     * A script that starts itself again for each further device of its machine, as Lightning does.
     * The first process has none of these variables.
     */
    {"LOCAL_RANK", "WORLD_SIZE", "WORLD_SIZE"},
};

/* Reads a whole number up to `most`. `rest`: characters that may follow it. */
static bool number(const char *text, uint32_t most, const char *rest, uint32_t *out)
{
    char *end;

    if (!text || *text < '0' || *text > '9')
        return false;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno || value > most || (*end && !strchr(rest, *end)))
        return false;
    *out = (uint32_t)value;
    return true;
}

struct ps_ranks ps_ranks_read(char *(*variable)(const char *name))
{
    struct ps_ranks ranks = {.local_processes = 1};
    uint32_t local = 0;

    for (size_t i = 0; i < sizeof launchers / sizeof *launchers && !(local && ranks.several); i++) {
        uint32_t rank, processes, here;
        bool several = number(variable(launchers[i].rank), PROCESSES_MAX, "", &rank) &&
                       number(variable(launchers[i].processes), PROCESSES_MAX, "", &processes) && processes > 1 &&
                       rank < processes;
        /*
         * Slurm lists machines: 4(x2),3. It does not say which of them this one is, and they seldom
         * differ.
         */
        bool told = number(variable(launchers[i].local_processes), LOCAL_PROCESSES_MAX, "(,", &here) && here;
        /* LOCAL_WORLD_SIZE counts by itself; the rank may then come from another launcher. */
        if (told && !local && (several || i == 0))
            local = here;
        if (!several || ranks.several)
            continue;
        ranks.several = true;
        ranks.rank = rank;
        ranks.processes = processes;
    }
    if (local)
        ranks.local_processes = local;
    return ranks;
}

void ps_ranks_name_file(char *path, size_t size, uint32_t rank)
{
    char *name = strrchr(path, '/'), *ending, insert[24];

    name = name ? name + 1 : path;
    ending = strrchr(name, '.');
    if (!ending || ending == name)
        ending = name + strlen(name);
    size_t length = (size_t)snprintf(insert, sizeof insert, ".rank%u", rank);
    if (!*name || strlen(path) + length + 1 > size)
        return;
    memmove(ending + length, ending, strlen(ending) + 1);
    memcpy(ending, insert, length);
}
