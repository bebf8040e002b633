/*
 * Which process of a job this is: launchers (torchrun, mpirun, srun) tell each process in its environment. So that the files that processes write
 * have names of their own, and the host's memory is shared among those on one machine.
 *
 * Pure but for what `variable` reads. Threads: any.
 */
#ifndef PS_RANKS_H
#define PS_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ps_ranks {
    bool several;             /* the process is one of several; else the rest but the last says nothing */
    uint32_t rank, processes; /* 0 .. processes - 1 */
    uint32_t local_processes; /* of the job on this machine, this one included; 1 where nobody tells */
};

/*
 * `variable` gives an environment variable's value or NULL (getenv). What makes no sense counts as not told: the variables are other people's, and being
 * wrong about them is no reason to complain.
 */
struct ps_ranks ps_ranks_read(char *(*variable)(const char *name));

/*
 * Puts ".rankN" into a file's path, before the ending if it has one: run/report.json becomes run/report.rank3.json. Left as it is where it would be
 * longer than `size` allows.
 */
void ps_ranks_name_file(char *path, size_t size, uint32_t rank);

#endif
