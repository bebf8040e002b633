/*
 * Cuts: the addresses inside one large allocation at which accesses begin. A program that carves up
 * its memory itself does not say where a tensor ends. The next tensor used above it shows where it
 * must have ended. A copy or fill shows its end to the byte.
 *
 * A start that has not come back for a long time is forgotten. Otherwise it would shorten for ever
 * the tensors that are carved there later. A long time is two to four times the longest recent
 * return time of several starts of this allocation. In a training that time is the step or most of
 * it, whatever its length. So a start that is used once a step is kept. A start that the step no
 * longer uses is forgotten some steps later. The return of a single start proves nothing: the
 * program may have carved a new tensor there. Time is counted in accesses to the allocation, so no
 * start grows old while the program is busy elsewhere.
 *
 * The ends found here are guesses, for speed: a tensor may be larger than its neighbours suggest.
 * The caller must be correct when a guess is wrong (shim/memory/blocks.h).
 *
 * Pure: memory from the caller. Threads: the caller serialises. Addresses and sizes are in bytes,
 * times in accesses.
 */
#ifndef PS_TENSOR_STARTS_H
#define PS_TENSOR_STARTS_H

#include <stdbool.h>
#include <stdint.h>

struct ps_tensor_start {
    uint64_t at;
    uint64_t made; /* time when it was first noted, or noted again after it was forgotten */
    uint64_t used; /* time of the last access that began here */
    /*
     * While the start is young, the guessed end of a tensor at the head of a run; 0: no run came
     * here.
     */
    uint64_t until;
    uint64_t end;   /* end of the bytes that a copy or fill from here touched; 0: none has */
    uint64_t ended; /* time of that copy or fill */
};

struct ps_tensor_starts {
    struct ps_tensor_start *start; /* ascending by `at` */
    uint32_t count;
    uint32_t room;
    uint64_t now; /* accesses so far */
    /*
     * The largest power of two of accesses within which several starts came back lately, and not
     * within its half; 0: unknown.
     */
    uint64_t return_time;
    uint64_t faded; /* time when `returned` was last halved */
    /* The number of times a start lately came back within 2^i accesses, and not within 2^(i-1). */
    uint32_t returned[64];
};

/* Prepares an empty list, with room for `room` starts in the caller's memory. */
void ps_tensor_starts_init(struct ps_tensor_starts *starts, struct ps_tensor_start *memory, uint32_t room);

/* Begins another access; the caller then notes the addresses that it names. */
void ps_tensor_starts_begin(struct ps_tensor_starts *starts);

/*
 * Notes that the access under way begins at `at` and ends at `end`; 0: its end is unknown. When the
 * list is full, about a quarter of the starts are dropped: those used longest ago.
 */
void ps_tensor_starts_note(struct ps_tensor_starts *starts, uint64_t at, uint64_t end);

/*
 * Returns the likely end of an access that begins at `at`; 0: no start above is known. The end is
 * the first start at `at` + `least` or above that was used lately. If a copy or fill that began at
 * `at` ended higher, that is the end. `least` is 1 or more. Cuts nearer than that are ignored:
 * views of one tensor, such as interleaved ones, begin there as well.
 *
 * A run is a series of accesses that begin ever higher, in similar strides. A recurrent network
 * makes one, time step by time step. Above the head of a run the only known starts are those of
 * other tensors, maybe far away. So while the start at the head is young, its tensor is taken to
 * end some strides higher. By the time it is old, the accesses above it have been seen.
 */
uint64_t ps_tensor_starts_end_of(const struct ps_tensor_starts *starts, uint64_t at, uint64_t least);

#endif
