/*
 * The calling thread's capture mode. The driver calls some calls potentially unsafe: making memory,
 * mapping it, asking for an event. Such a call makes a capture invalid, whichever thread makes it,
 * unless that thread's mode is relaxed (cuda.h, cuThreadExchangeStreamCaptureMode).
 *
 * Another thread's capture may begin at any moment, also while this one waits inside Penstock. So
 * no check beforehand is enough. The functions in ps_cu for such calls (unsafe_calls.def) relax the
 * thread themselves. A thread that makes several of them is relaxed once, from the first to the end
 * of its stay inside Penstock. One that makes none pays nothing.
 *
 * Threads: any; each has its own mode. Makes no call but the one that exchanges the mode.
 */
#ifndef PS_CAPTURE_MODE_H
#define PS_CAPTURE_MODE_H

/* The calling thread is inside Penstock until ps_capture_mode_leave. The pair may be nested. */
void ps_capture_mode_enter(void);

/* The outermost call gives the thread the mode back that the program has chosen for it. */
void ps_capture_mode_leave(void);

/*
 * Relaxes the thread until it leaves, if it is not relaxed yet. Needed only before unsafe calls
 * that are not made through ps_cu.
 */
void ps_capture_mode_relax(void);

/* Relaxes the thread for good: it is one of Penstock's own. */
void ps_capture_mode_relax_for_good(void);

#endif
