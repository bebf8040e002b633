/*
 * Exchange of numbers between the ranks of a job on one machine. A few times in a run, all ranks
 * must go by the same numbers.
 *
 * A rank tells its numbers by a note: a file in the directory of live pages (live_directory.h). A
 * note gets its name only when it is whole. Peers are processes of the same user and pid namespace
 * whose job has the same name. The name is MASTER_ADDR and MASTER_PORT if they are set, else the
 * process that started the rank. A peer that can't be found has told nothing. Each rank then goes
 * by its own numbers, as a single process does. A rank that finds a dead process's note removes it.
 */
#ifndef PS_RANK_EXCHANGE_H
#define PS_RANK_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ranks.h"

enum ps_rank_exchange_about { PS_RANK_EXCHANGE_LINK, PS_RANK_EXCHANGE_TIMES, PS_RANK_EXCHANGE_ABOUT };

#define PS_RANK_EXCHANGE_DEVICES_MAX 16u

/*
 * The subject of a note. A note counts for ranks whose notes have an equal key and as many bytes.
 * An exchange of 0 bytes is a meeting. A rank at a meeting with a higher number has been at this
 * one.
 */
struct ps_rank_exchange_key {
    enum ps_rank_exchange_about about;
    uint32_t device; /* by this process's numbers; ranks train alike on equal numbers */
    uint64_t of, number;
};

/* Receives the numbers of a peer. `theirs` lives until it returns. */
typedef void (*ps_rank_exchange_heard_fn)(void *ctx, const void *theirs);

/*
 * Finds out the job and the number of peers. Called once, in the set-up. `variable` returns an
 * environment variable's value or NULL (getenv). A rank that is alone on its machine has no peers.
 */
void ps_rank_exchange_open(const struct ps_ranks *ranks, char *(*variable)(const char *name));

/*
 * Tells `mine`, and waits until all peers have told theirs, for at most 400 ms. The wait also ends
 * when `is_over`, asked each millisecond, returns true. `heard` (may be NULL) is called for each
 * peer that told an equal key and as many bytes. Returns the number of these peers. After three
 * calls in a row without a peer, calls for that device and `about` return 0 at once. The peers then
 * train something else, run without Penstock, or have enough memory.
 *
 * Threads: the caller holds no lock. For each device one thread calls at a time.
 */
uint32_t ps_rank_exchange_exchange(struct ps_rank_exchange_key key, const void *mine, size_t bytes,
                                   bool (*is_over)(void), ps_rank_exchange_heard_fn heard, void *ctx);

/* Removes this process's notes at the end. Async-signal-safe. */
void ps_rank_exchange_close(void);

/* Leaves the notes to the parent, in a forked child. The child has no peers. */
void ps_rank_exchange_disown(void);

#endif
