/*
 * The copies: Penstock's own D2H and H2D streams, and the two operations on them with all their
 * waits.
 *
 * Two clocks: ps_copies_evict and ps_copies_reload only queue work. The copy stream waits, by
 * events, for everything that the copy must come after. Work that must come after the copy waits
 * for the event that the function records. Neither function waits on the host for the device; other
 * functions here say when they do. No function looks at a span's state. Of two threads that evict
 * at once on one stream, the second waits until the first has queued its copy.
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
 * Copies to queue at a time in each direction. A stream of copies takes about 56 event records that
 * are not over yet. The call that makes the next record blocks until a copy ends. It may hold a
 * lock of the driver's that every launch wants (launches of 2 to 90 ms seen). Measured on an H200,
 * driver 580: 60 copies of 86 MiB without records are queued in 0.4 ms. With one record each they
 * take 7 ms, with three each 69 ms. A D2H is followed by one record, an H2D by two. 48 copies of 2
 * MiB take 1.8 ms of the link: time enough for a helper thread to wake and queue more.
 */
#define PS_COPIES_QUEUED_MAX 48u
/*
 * A traced copy has one more record at its beginning, and a traced H2D another at its end. Half the
 * number of copies then makes no more records.
 */
#define PS_COPIES_TRACED_MAX (PS_COPIES_QUEUED_MAX / 2)
/*
 * Reloads ahead of need are queued two groups at a time. A wait for another reload out of turn
 * includes the wait for them (10 ms of the link).
 */
#define PS_RELOADS_A_GROUP 8u
#define PS_RELOAD_BYTES_A_GROUP (256ull << 20)

/*
 * H2D copies have two streams. Copies for the sole stream that the program works on go to the
 * first. There they may wait on the device for a use of that stream that is not over
 * (sole_stream.h). All others go to the second, where no copy waits for any use.
 */
enum ps_copies_h2d {
    PS_COPIES_BEHIND,
    PS_COPIES_READY,
    PS_COPIES_H2D_STREAMS,
};

/*
 * D2H copies have two streams as well. Copies on the first may wait on the device, in turn, for
 * uses that are not over. Copies on the second wait for nothing, so spans that can leave at once do
 * so.
 */
enum ps_copies_d2h {
    PS_COPIES_IN_TURN,
    PS_COPIES_AT_ONCE,
    PS_COPIES_D2H_STREAMS,
};

/* The place of an H2D: of two on one stream, the one with the larger number ends later. */
struct ps_copies_nth {
    enum ps_copies_h2d on;
    uint64_t number;
};

/*
 * Finds out whether streams can be made, and makes the copy gate. Returns 0 or -errno.
 *
 * The streams are non-blocking, with no implicit order with the legacy default stream. They are
 * made when the first copy, or the first join, needs them. All streams of a device share a few
 * hardware queues (CUDA_DEVICE_MAX_CONNECTIONS: 8). With streams of ours among them, two of the
 * program's may have to share one. A program that needs both to run at once then waits forever. The
 * simulated device showed it (tests/samples/random_overlap.cu, five streams). So while memory
 * suffices, we have none.
 */
int ps_copies_open(void);

/* Ends the gate: nothing was copied, and nothing will be. For the code that sets the device up. */
void ps_copies_close(void);

/*
 * Queues the D2H of the span at `address` into the row. The copy comes after `uses`: every access
 * since the last transfer. It comes after `fence` if `fence_set`: the H2D that filled the span. It
 * comes after each H2D that still reads a slot of the row. Records `begins` (may be NULL) once
 * these are over, and `done` behind the copy. Returns 0 or -errno. After an error the bytes can't
 * be assumed copied, and any part that was queued is over. -EINPROGRESS: the driver can't tell
 * whether that part is over.
 */
int ps_copies_evict(enum ps_copies_d2h on, CUdeviceptr address, const struct ps_uses *uses, bool fence_set,
                    CUevent fence, const struct ps_slot *row, struct ps_device_mark *begins, CUevent done);

/*
 * Whether ps_copies_evict would wait for any of these. Returns 0 if all are over, so that the copy
 * may be queued at once; -EAGAIN if not, and notes an unfinished use in `late` (may be NULL); or
 * another -errno.
 */
int ps_copies_evict_would_wait(const struct ps_uses *uses, bool fence_set, CUevent fence, const struct ps_slot *row,
                               struct ps_late_uses *late);

/*
 * Queues the H2D of the row's bytes to `address`. `pages_uses`: the uses that the copy comes after,
 * if the device pages came from a freed span; else NULL. Records `fence` for the span's users.
 * Records the first slot's read_done for the next D2H into any slot of the row. These are two
 * records, for any number of slots. Records `begins` and `ends` (may be NULL) around the copy, and
 * sets `nth`. Returns the results of ps_copies_evict. -EBUSY: the pages are used on a stream that
 * is being captured, and nothing was queued.
 */
int ps_copies_reload(enum ps_copies_h2d on, CUdeviceptr address, const struct ps_uses *pages_uses,
                     const struct ps_slot *row, struct ps_device_mark *begins, struct ps_device_mark *ends,
                     CUevent fence, struct ps_copies_nth *nth);

/*
 * Waits on the host until at most two groups of H2D copies on each stream are not over. For helper
 * threads, ahead of need.
 */
void ps_copies_wait_for_reloads(void);

/*
 * Records `event` after all of `uses`, so that one event stands for several streams. If
 * `event_set`, it also comes after the point that `event` stood for. Uses a stream for this purpose
 * alone. Returns 0 or -errno.
 */
int ps_copies_join(const struct ps_uses *uses, bool event_set, CUevent event);

/*
 * Returns an event after everything that is queued now on any stream of the program and on the H2D
 * streams. NULL: a stream is being captured, or the driver refuses. Takes an event that was given
 * back, or makes one; the caller owns it.
 */
CUevent ps_copies_after_everything(void);

/* Gives the event back; NULL is allowed. [with the registry lock or without] */
void ps_copies_give_event(CUevent event);

/*
 * Waits on the host until every H2D queued so far is over. Returns 0, or -errno if the driver can't
 * tell.
 */
int ps_copies_drain_reloads(void);

#endif
