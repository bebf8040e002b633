/*
 * Collectives and transfers of NCCL's as accesses. NCCL hands its kernels their buffers through work queues, so no launch's parameters need show
 * them; and it launches nothing before the outermost group on the thread ends. So the calls themselves are told of here, by the hooks: what they
 * name is brought to where the work finds it before NCCL launches, and held there until it has launched.
 *
 * Two clocks: NCCL launches while the last call of a group (or the one call without a group) is made: just before it the stream of each call waits
 * for what is still on its way in, and just after it the position on that stream is noted, however far behind the device is. A communicator that does
 * not block has a thread of NCCL's launch later still: what it is to use is held until the communicator has said that it succeeded. Nothing here
 * waits on the host but for pages, as any launch does.
 *
 * Any thread that is not inside Penstock, without the registry lock. Groups are each thread's own.
 */
#ifndef PS_COLLECTIVES_H
#define PS_COLLECTIVES_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda/nccl_types.h"

/* Bytes of the program's that a call names; the address may be NULL, and most are none of a span's. */
struct ps_collective_buffer {
    const void *address;
    size_t bytes;
};

/* Whether it begins in the span reservation. Cheap. */
bool ps_collective_concerns(const void *address);

/*
 * The calling thread is about to call NCCL to work on these buffers on `stream`. `what` tells sorts of calls apart. Outside a group what it names is
 * ready when this returns.
 */
void ps_collective_begins(ncclComm_t communicator, CUstream stream, unsigned what, const struct ps_collective_buffer *buffers,
                          unsigned count);

/* That call was made, with that result. */
void ps_collective_ended(int result);

/* ncclGroupStart succeeded. */
void ps_collective_group_starts(void);

/* ncclGroupEnd is about to be called; and was. `launches` false: it only simulates, and what the group named is forgotten. */
void ps_collective_group_ends(bool launches);
void ps_collective_group_ended(int result);

/* Whether the calling thread is in a group. */
bool ps_collective_is_in_group(void);

/*
 * For ncclCommGetAsyncError: a mark to be taken before it is asked (0: nothing is awaited of any communicator), and what it said. Of what has been
 * awaited since before the mark was taken, that of this communicator is let go if it succeeded; after an error not before it ends.
 */
uint64_t ps_collective_mark(void);
void ps_collective_asked(ncclComm_t communicator, uint64_t mark, int state);

/* It was destroyed or aborted. */
void ps_collective_communicator_ended(ncclComm_t communicator);

#endif
