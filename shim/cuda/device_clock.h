/*
 * Device times on the host's clock, for the trace (trace.h). A device time says when the device
 * reached a point of a stream, in nanoseconds of CLOCK_MONOTONIC.
 *
 * The driver tells how long after one event another came, on the device's clock. So an event is
 * recorded on an idle stream of Penstock's. The host's clock is read before the event is queued and
 * after it is over. The event came between the two, and their middle is wrong by at most half of
 * their distance. Of a few such readings the one with the least distance is an anchor.
 *
 * An anchor is made every second. The driver tells milliseconds as a float, which after a minute is
 * accurate only to 4 us. Events are counted from the second-to-last anchor, which lies before every
 * event in question. (The driver's answer for an event that came before another is not documented.)
 * The count uses the two clocks' rate between that anchor and the last, if it can be told.
 *
 * A *mark* is a timing event from a fixed set; each device has its own set. Nothing here takes the
 * registry lock.
 */
#ifndef PS_DEVICE_CLOCK_H
#define PS_DEVICE_CLOCK_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct ps_device_mark {
    CUevent event;
    bool recorded; /* since the mark was taken */
};

/*
 * Makes the marks and the first anchor for the device of the thread, whose context is current.
 * Returns 0, or -errno if the device gets no clock. Called once for each device.
 */
int ps_device_clock_open(void);

/*
 * Makes an anchor if the last one is a second old. Waits on the host for some microseconds, never
 * for the program's work. One thread at a time.
 */
void ps_device_clock_renew(void);

/*
 * Returns an unused mark to record, or NULL if all are in use or the device has no clock. Takes no
 * lock and makes no driver call. Any thread.
 */
struct ps_device_mark *ps_device_clock_take(void);
/* Returns the mark to the set. Ignores NULL. */
void ps_device_clock_give(struct ps_device_mark *mark);

/*
 * Records the mark on the stream. After a refusal the caller copies all the same; the mark then
 * tells nothing. Ignores NULL.
 */
void ps_device_clock_record(struct ps_device_mark *mark, CUstream stream);

/* Returns whether the device has yet to reach the mark. */
bool ps_device_clock_is_ahead(const struct ps_device_mark *mark);

/*
 * Tells in `*ns` when the device reached a timing event, which it must have reached. Returns false
 * if the time can't be told. Not on a launching thread.
 */
bool ps_device_clock_when(CUevent event, uint64_t *ns);
/* The same for a mark. Returns false for NULL. */
bool ps_device_clock_when_marked(const struct ps_device_mark *mark, uint64_t *ns);

/*
 * Returns the largest error, in ns, of the times told so far, if an anchor was made every second.
 * Any thread.
 */
uint64_t ps_device_clock_error_ns(void);

#endif
