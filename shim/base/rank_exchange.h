/*
 * The other ranks of a job on this machine, and what they tell each other: a few times in a run, some numbers that all of them are to go by.
 *
 * Told is a file in the directory of live pages (live_directory.h), which has a name only once it is whole. Peers are processes of the same user and pid namespace
 * whose job has the same name: MASTER_ADDR and MASTER_PORT if they are set, else the process that started them. Whoever can't be found has told nothing: each rank
 * goes by its own numbers then, as one alone does. What dead processes have left is removed by whoever finds it.
 */
#ifndef PS_RANK_EXCHANGE_H
#define PS_RANK_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ranks.h"

enum ps_rank_exchange_about { PS_RANK_EXCHANGE_LINK, PS_RANK_EXCHANGE_TIMES, PS_RANK_EXCHANGE_ABOUT };

#define PS_RANK_EXCHANGE_DEVICES_MAX 16u

/* Told counts for those who tell of the same, in as many bytes. Without any it is a meeting: who has gone on to one of a higher number has been there. */
struct ps_rank_exchange_key {
    enum ps_rank_exchange_about about;
    uint32_t device; /* as this process numbers them: what one trains on its second device, the others do on theirs */
    uint64_t of, number;
};

/* What a peer told. `theirs` lives until it returns. */
typedef void (*ps_rank_exchange_heard_fn)(void *ctx, const void *theirs);

/* Once, in the set-up; `variable` gives an environment variable's value or NULL (getenv). A rank without others on its machine has no peers. */
void ps_rank_exchange_open(const struct ps_ranks *ranks, char *(*variable)(const char *name));

/*
 * Tells it, and waits until all peers have told as much, 400 ms at most, or until `is_over`, asked each millisecond, says so; `heard` (NULL: nothing) is called for each that
 * has, with an equal key and as many bytes. Returns how many have. After three times in vain in a row a device asks for that no more: the others train something else, or
 * without Penstock, or their memory suffices.
 *
 * Without a lock; by one thread at a time for one device.
 */
uint32_t ps_rank_exchange_exchange(struct ps_rank_exchange_key key, const void *mine, size_t bytes, bool (*is_over)(void),
                                   ps_rank_exchange_heard_fn heard, void *ctx);

/* At the end: what was told is taken back. Async-signal-safe. */
void ps_rank_exchange_close(void);

/* What was told is the parent's: for a forked child. It has no peers. */
void ps_rank_exchange_disown(void);

#endif
