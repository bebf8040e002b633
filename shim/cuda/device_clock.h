/*
 * Device times on the host's clock, for the trace (trace.h): when the device came to a point of a stream, in nanoseconds of CLOCK_MONOTONIC.
 *
 * The driver tells how long after one event another came, on the device's clock. So an event is recorded on an idle stream of our own, with the host's
 * clock read before it is queued and after it is over: it came between the two, and the middle is wrong by half of their distance at most. Of a few such
 * readings the one with the least distance is an anchor. One is made every second, since the driver tells milliseconds as a float, which after a minute
 * are right to 4 us only; events are counted from the last but one, which lies before all that is asked about (what the driver says of an event that
 * came before another is not documented), at the rate that the two clocks had between that one and the last, if that can be told.
 *
 * A *mark* is a timing event out of a fixed number of them. Per device; nothing here takes the registry lock.
 */
#ifndef PS_DEVICE_CLOCK_H
#define PS_DEVICE_CLOCK_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct ps_device_mark {
    CUevent event;
    bool recorded; /* since it was taken */
};

/* Makes the marks and the first anchor for the device that the thread is at, whose context is current. 0 or -errno: then it has none. Once a device. */
int ps_device_clock_open(void);

/* Makes an anchor if the last is a second old. Waits on the host for some microseconds, never for the program's work. One thread at a time. */
void ps_device_clock_renew(void);

/* A mark to record, or NULL: none is unused, or there is no clock. Without a lock or a driver call. Any thread. */
struct ps_device_mark *ps_device_clock_take(void);
void ps_device_clock_give(struct ps_device_mark *mark); /* NULL is nothing */

/* Records it. A refusal is no reason not to copy: the mark then tells nothing. NULL is nothing. */
void ps_device_clock_record(struct ps_device_mark *mark, CUstream stream);

/* Whether the device has yet to come to it. */
bool ps_device_clock_is_ahead(const struct ps_device_mark *mark);

/* When the device came to a timing event, or a mark, that it has come to. False: it can't be told. Not on a launching thread. */
bool ps_device_clock_when(CUevent event, uint64_t *ns);
bool ps_device_clock_when_marked(const struct ps_device_mark *mark, uint64_t *ns); /* NULL can't be told */

/* By how much what was told so far may have been wrong, at most, if there was an anchor every second. Any thread. */
uint64_t ps_device_clock_error_ns(void);

#endif
