/*
 * Penstock's life in the process. Nothing happens until the program's first CUDA allocation. Then
 * Penstock manages memory or stands aside, and it reports at the end.
 */
#ifndef PS_PROCESS_H
#define PS_PROCESS_H

#include <stdbool.h>

/*
 * Returns whether allocations are managed. The first call sets everything up on the calling thread,
 * which has made its first CUDA call; other threads wait for it. False is final: something needed
 * is missing, and one line has said what. Any thread; not inside Penstock.
 */
bool ps_process_is_managing(void);

/*
 * Moves the thread to the device of its current context. A device that is new here is set up,
 * unless a stream is being captured. Returns false if the context isn't managed. A device that
 * can't be managed is reported once; a further context of a managed device is CUDA's. Call it only
 * while ps_process_has_begun(). Any thread.
 */
bool ps_process_enter_device(void);

/* Like ps_process_is_managing(), but sets nothing up: for calls that only look. */
bool ps_process_has_begun(void);

/*
 * Gives the thread a context. The runtime binds a context to a thread in its first real call; a
 * thread whose first calls are all ours has none yet. Cheap after the first time.
 */
void ps_process_bind_thread(void);

/* Names the function that the hooks run once a device is set up. A constructor calls this. */
void ps_process_when_device_is_set_up(void (*call)(void));
/* Names the function that runs first in a forked child. A constructor calls this. */
void ps_process_when_forked(void (*call)(void));

#endif
