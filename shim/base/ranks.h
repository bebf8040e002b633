/*
 * The rank of this process in its job. Launchers (torchrun, mpirun, srun) tell it to each process
 * in its environment. The rank gives the files of each process names of their own. The number of
 * processes on one machine divides the host's memory.
 *
 * The functions are pure except for the reads of `variable`. Threads: any.
 */
#ifndef PS_RANKS_H
#define PS_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ps_ranks {
    bool several;             /* the process is one of several */
    uint32_t rank, processes; /* rank: 0 .. processes - 1. Both are valid only if `several` */
    uint32_t local_processes; /* processes of the job on this machine, this one too; 1: not known */
};

/*
 * Reads the ranks from the environment. `variable` returns an environment variable's value or NULL
 * (getenv). A value that makes no sense counts as missing, without a warning: the variables belong
 * to other software.
 */
struct ps_ranks ps_ranks_read(char *(*variable)(const char *name));

/*
 * Puts ".rankN" into a file's path, before the ending if it has one: run/report.json becomes
 * run/report.rank3.json. Leaves the path as it is if the result would be longer than `size` allows.
 */
void ps_ranks_name_file(char *path, size_t size, uint32_t rank);

#endif
