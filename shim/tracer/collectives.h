/*
 * NCCL's collectives and transfers as accesses. NCCL hands its kernels their buffers through work
 * queues, so a launch's parameters need not show them. It launches nothing before the outermost
 * group on the thread ends. So the hooks report the calls themselves here. The spans that a call
 * names are brought to their places before NCCL launches. They are held there until it has
 * launched.
 *
 * Two clocks: NCCL launches during the last call of a group, or during the one call without a
 * group. Just before it, the stream of each call waits for reloads that are under way. Just after
 * it, the position on that stream is noted, however far behind the device is. For a communicator
 * that does not block, a thread of NCCL launches later still. Spans that it will use are held until
 * the communicator has said that it succeeded. The host waits here for pages only, as at any
 * launch.
 *
 * Any thread that is not inside Penstock, without the registry lock. Groups are each thread's own.
 */
#ifndef PS_COLLECTIVES_H
#define PS_COLLECTIVES_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda/nccl_types.h"

/*
 * Memory of the program that a call names. The address may be NULL, and most addresses lie in no
 * span.
 */
struct ps_collective_buffer {
    const void *address;
    size_t bytes;
};

/* Returns whether the buffer begins in the span reservation. Cheap. */
bool ps_collective_concerns(const void *address);

/*
 * The calling thread is about to call NCCL to work on these buffers on `stream`. `what` tells sorts
 * of calls apart. Outside a group the named spans are ready when this returns.
 */
void ps_collective_begins(ncclComm_t communicator, CUstream stream, unsigned what,
                          const struct ps_collective_buffer *buffers, unsigned count);

/* That call was made, with that result. */
void ps_collective_ended(int result);

/* ncclGroupStart succeeded. */
void ps_collective_group_starts(void);

/*
 * ncclGroupEnd is about to be called. `launches` false: it only simulates, and the spans that the
 * group named are forgotten.
 */
void ps_collective_group_ends(bool launches);
/* ncclGroupEnd was called, with that result. */
void ps_collective_group_ended(int result);

/* Returns whether the calling thread is in a group. */
bool ps_collective_is_in_group(void);

/*
 * Returns a mark, to be taken before ncclCommGetAsyncError is called; 0: no communicator is
 * awaited.
 */
uint64_t ps_collective_mark(void);
/*
 * ncclCommGetAsyncError answered `state`. If the communicator succeeded, its spans that were held
 * for it before the mark are let go. After an error they are let go only when the communicator
 * ends.
 */
void ps_collective_asked(ncclComm_t communicator, uint64_t mark, int state);

/*
 * The communicator is about to be destroyed or aborted. Returns its collectives, whose spans stay
 * held until ps_collective_communicator_ended. Taken before the call: after it, another thread may
 * be given the same communicator.
 */
struct ps_collective *ps_collective_communicator_ends(ncclComm_t communicator);
void ps_collective_communicator_ended(struct ps_collective *collectives);

#endif
