/*
 * Run-ahead: how far ahead of the device the program may queue its launches while memory is tight.
 *
 * The spans that a host far ahead has allocated take pages before the device has a use for them.
 * The spans that it has freed keep their pages until the device is done with them. The plan knows
 * one clock, the device's. In a step whose backward pass makes 7 GB in 20 ms, the host was 60 ms
 * ahead. Reloads found no pages, and the device waited for them. (FSDP2 at 30 of 50 GiB on an H200:
 * 800 ms a step, where 640 ms were predicted.)
 *
 * The driver also blocks a thread with about 56 outstanding event records on a stream, or a full
 * launch queue. Meanwhile the thread holds a lock that all other calls want. Reloads were queued at
 * 20 instead of 54 GB/s beside it. The wait here holds no lock.
 *
 * Threads: any, without the registry lock.
 */
#ifndef PS_RUN_AHEAD_H
#define PS_RUN_AHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/planner/playback.h"

struct ps_stream;

/*
 * The shorter run-ahead, in ns of work that the device has yet to do, while reloads have no pages.
 * PS_RUN_AHEAD_NS is the usual one.
 */
#define PS_RUN_AHEAD_SHORT_NS 6000000u
/*
 * The number of ticks of the stream that the device may have yet to reach. It is below the number
 * of records at which the driver blocks.
 */
#define PS_RUN_AHEAD_TICKS 48u

/*
 * A launch with spans was queued on the stream. The call records a tick now and then, and always if
 * evictions come after the launch (`gaps_open`). So a D2H waits for this launch, and not for later
 * ones. Otherwise it would wait for all launches that the host queues until a helper thread comes
 * to it.
 *
 * The host waits until it is at most `most` ns ahead (0: it need not wait). The wait lasts at most
 * a quarter of a second. This limit is halved each time that it is reached. A kernel may be waiting
 * for a launch that this thread has yet to make. `work`: ps_following_work(), with this launch
 * included.
 */
void ps_run_ahead_launched(struct ps_stream *stream, bool gaps_open, uint64_t most, uint64_t work);

#endif
