/*
 * The host's lead: how far ahead of the device the program may queue its launches while memory is tight.
 *
 * What a host that is far ahead has allocated takes pages before the device has a use for them, and what it has freed keeps them until the device is done
 * with it; the plan knows one clock, the device's. In a step whose backward makes 7 GB in 20 ms the host was 60 ms ahead, reloads found no pages, and
 * the device waited for them (FSDP2 at 30 of 50 GiB on an H200, 800 ms a step where 640 were predicted). And the driver blocks a thread that has about 56 event
 * records outstanding on a stream, or its queue of launches full, with a lock held that all other calls want: reloads were queued at 20 instead of 54 GB/s
 * beside it. Here nothing is held.
 *
 * Threads: any, without the registry lock.
 */
#ifndef PS_RUN_AHEAD_H
#define PS_RUN_AHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/planner/playback.h"

struct ps_stream;

/* Of work that the device has yet to do, where PS_RUN_AHEAD_NS is the usual: less while reloads have no pages. */
#define PS_RUN_AHEAD_SHORT_NS 6000000u
/* And ticks of the stream that it has yet to come to: fewer than the records at which the driver blocks. */
#define PS_RUN_AHEAD_TICKS 48u

/*
 * A launch with spans was queued on the stream. Now and then a tick is recorded, and certainly where evictions come after the launch (`gaps_open`): a D2H then
 * waits for this launch and not for those that the host queues until a helper thread comes to it. The host waits until it is no further ahead than `most`, in ns
 * (0: it need not wait): at most a quarter of a second, and half as long each time that it took longer (a kernel may be waiting for what this thread is yet to launch).
 * `work`: ps_following_work(), this launch's included.
 */
void ps_run_ahead_launched(struct ps_stream *stream, bool gaps_open, uint64_t most, uint64_t work);

#endif
