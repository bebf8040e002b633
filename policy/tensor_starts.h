/*
 * Cuts: the addresses inside one large allocation that accesses are seen to begin at. A program that carves its memory up itself tells nobody where a
 * tensor ends; the next one that is used above it tells where it must have ended, and a copy or fill tells it to the byte.
 *
 * A cut is forgotten once it has not come back for long, or it would shorten for ever what is carved there later. Long is two to four times the longest
 * time that several cuts of this allocation have lately taken to come back: in a training that is the step or most of it, whatever its length, so that
 * what is used once a step is kept and what a step no longer uses is gone some steps later. One alone tells nothing: it may be what is carved anew.
 * Time is counted in the allocation's own accesses: while the program is busy elsewhere nothing grows old.
 *
 * What is found here is a belief, for speed: a tensor may be larger than its neighbours suggest. Who asks must be right all the same (blocks.h).
 *
 * Pure; the caller brings the memory, and serialises. Addresses and sizes in bytes.
 */
#ifndef PS_TENSOR_STARTS_H
#define PS_TENSOR_STARTS_H

#include <stdbool.h>
#include <stdint.h>

struct ps_tensor_start {
    uint64_t at;
    uint64_t made;  /* when it was noted first, or anew after it was forgotten */
    uint64_t used;  /* when an access last began here */
    uint64_t until; /* a run came here: as far as what is at its head is believed to reach while it is young; 0: none did */
    uint64_t end;   /* of what a copy or fill that began here touched; 0: none has */
    uint64_t ended; /* when it did */
};

struct ps_tensor_starts {
    struct ps_tensor_start *cut; /* ascending by `at` */
    uint32_t count;
    uint32_t room;
    uint64_t now;          /* accesses so far */
    uint64_t return_time;  /* within so many accesses several cuts came back of late: a power of two, the largest of which that is so */
    uint64_t faded;        /* when `returned` was last halved */
    uint32_t returned[64]; /* how often of late a cut came back within 2^i accesses and not within 2^(i-1) */
};

/* No cuts, with room for some in memory of the caller's. */
void ps_tensor_starts_init(struct ps_tensor_starts *cuts, struct ps_tensor_start *memory, uint32_t room);

/* Another access begins; then what it names is noted. */
void ps_tensor_starts_begin(struct ps_tensor_starts *cuts);

/* The access under way begins at `at`; `end` is where it ends, 0: nobody knows. Without room about a quarter gives way, those that were used longest ago. */
void ps_tensor_starts_note(struct ps_tensor_starts *cuts, uint64_t at, uint64_t end);

/*
 * A run: accesses that begin ever higher, in strides that are alike, as a recurrent network's do moment by moment. Above its head nothing is known but what lies there
 * for others, maybe far away. So what begins there is believed to reach for some strides while it is young: what is above it has been seen by then.
 *
 * Where an access that begins at `at` ends, as far as is known: at the first cut at `at` + `least` or above that has come back of late, or where a copy
 * or fill that began there did, if that is further. 0: nothing is known above. Cuts that are nearer than `least` (1 or more) are none: views of one
 * tensor, such as interleaved ones, begin there as well.
 */
uint64_t ps_tensor_starts_end_of(const struct ps_tensor_starts *cuts, uint64_t at, uint64_t least);

#endif
