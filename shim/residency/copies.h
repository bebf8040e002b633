/*
 * The copies: one D2H and one H2D stream of Penstock's own, and the two operations on them with everything they must wait for.
 *
 * Two clocks: ps_copies_evict and ps_copies_reload only queue work. What the copy must come after is made the copy stream's business through events; what
 * must come after the copy waits for the event that the function records. Neither waits on the host for the device; what else is here says when it does.
 * Nothing looks at a span's state; of two threads that evict at once the second waits until the first has queued its copy.
 * Threads: any; the caller holds the span `busy`. Without the registry lock.
 */
#ifndef PS_COPIES_H
#define PS_COPIES_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#include "cuda/device_clock.h"
#include "cuda/streams.h"
#include "memory/slab.h"

/*
 * Copies to queue at a time in each direction. A stream of copies takes about 56 event records that are not over yet; the call that makes the next
 * one blocks until a copy ends (H200, driver 580: 60 copies of 86 MiB with no record each are queued in 0.4 ms, with one each in 7, with three each
 * in 69), and may hold a lock of the driver's that every launch wants (launches of 2 to 90 ms seen). A D2H is followed by one record, an H2D by two.
 * 48 copies of 2 MiB are 1.8 ms of the link: time enough for a helper thread to wake and queue more.
 */
#define PS_COPIES_QUEUED_MAX 48u
/* Each has a record more at its beginning while it is traced, and an H2D one at its end: half as many then come to no more. */
#define PS_COPIES_TRACED_MAX (PS_COPIES_QUEUED_MAX / 2)
/* Reloads that nobody waits for are queued two groups at a time: who waits for another one out of turn waits for them too (10 ms of the link). */
#define PS_RELOADS_A_GROUP 8u
#define PS_RELOAD_BYTES_A_GROUP (256ull << 20)

/*
 * H2D copies have two streams. Those for the sole stream that the program works on go to the first one, where they may wait on the device for a use of that
 * stream that is not over (sole_stream.h). All others go to the second, where nothing waits for any use.
 */
enum ps_copies_h2d {
    PS_COPIES_BEHIND,
    PS_COPIES_READY,
    PS_COPIES_H2D_STREAMS,
};

/*
 * D2H copies have two as well: the first one's may wait on the device for uses that are not over, in turn; nothing that is queued on the second waits for
 * anything, so that what can leave at once does so beside it.
 */
enum ps_copies_d2h {
    PS_COPIES_IN_TURN,
    PS_COPIES_AT_ONCE,
    PS_COPIES_D2H_STREAMS,
};

/* Which H2D a span's is. Of two on one stream the one with the larger number is over after the other. */
struct ps_copies_nth {
    enum ps_copies_h2d on;
    uint64_t number;
};

/* Makes the streams: non-blocking (no implicit order with the legacy default stream). 0 or -errno. */
int ps_copies_open(void);

/* They go again, and with them the gate: nothing was copied, and nothing will be. For the code that sets the device up. */
void ps_copies_close(void);

/*
 * Queues the D2H of the span at `address` into the row, after: `uses` (every access since the last transfer), `fence` if `fence_set`
 * (the H2D that filled the span), and each H2D that still reads a slot of the row. Records `done`, and `begins` (NULL: not) when all that is over.
 * 0 or -errno: then nothing may be assumed to have been copied, and what was queued of it is over, but with -EINPROGRESS, when nobody can tell whether it is.
 */
int ps_copies_evict(enum ps_copies_d2h on, CUdeviceptr address, const struct ps_uses *uses, bool fence_set, CUevent fence,
                    const struct ps_slot *row, struct ps_device_mark *begins, CUevent done);

/* 0: all of that is over, so that it may go at once; -EAGAIN: it is not, and a use that is not is noted (`late` NULL: not); other -errno. */
int ps_copies_evict_would_wait(const struct ps_uses *uses, bool fence_set, CUevent fence, const struct ps_slot *row,
                               struct ps_late_uses *late);

/*
 * Queues the H2D of the row's bytes to `address`, after `pages_uses` (what still uses the device pages, when they came from a freed span; else NULL). Records `fence` for the span's users and the first slot's read_done for the next D2H into any
 * slot of the row: two records, however many slots it has, and `begins` and `ends` around the copy (NULL: not). Results as ps_copies_evict; -EBUSY: what uses the pages is on a stream that is being
 * captured, and nothing was queued.
 */
int ps_copies_reload(enum ps_copies_h2d on, CUdeviceptr address, const struct ps_uses *pages_uses, const struct ps_slot *row,
                     struct ps_device_mark *begins, struct ps_device_mark *ends, CUevent fence, struct ps_copies_nth *nth);

/* Waits on the host until, of each stream's H2D copies, at most two groups are not over. For helper threads, ahead of need. */
void ps_copies_wait_for_reloads(void);

/*
 * Makes `event` the point after all of `uses` (and after what `event` stood for, if `event_set`), through a stream of its own: one event that
 * stands for several streams. 0 or -errno.
 */
int ps_copies_join(const struct ps_uses *uses, bool event_set, CUevent event);

/*
 * A new event after everything that is queued now on any stream of the program and on the H2D stream. NULL: there is none, since a stream is being captured
 * or the driver refuses. Takes one event of those given back, or makes one; the caller owns it.
 */
CUevent ps_copies_after_everything(void);
void ps_copies_give_event(CUevent event); /* NULL is nothing. [with the registry lock or without] */

/* Waits on the host until every H2D queued so far is over. 0 or -errno: that can't be told. */
int ps_copies_drain_reloads(void);

#endif
