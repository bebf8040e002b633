/*
 * Penstock's life in the process: nothing until the program's first CUDA allocation, then managing or standing aside, and a report at the end.
 */
#ifndef PS_PROCESS_H
#define PS_PROCESS_H

#include <stdbool.h>

/*
 * Whether allocations are managed. The first call sets everything up, on the calling thread (which has made its first CUDA call);
 * others wait for it. False for good when something that is needed is missing: then one line has said what. Any thread; not inside Penstock.
 */
bool ps_process_is_managing(void);

/*
 * The thread goes to the device of its current context, which is set up if it is another than the devices so far and nobody captures a stream. False: that
 * context isn't managed. A device that can't be is said once; a further context of a managed one is CUDA's. While ps_process_has_begun(). Any thread.
 */
bool ps_process_enter_device(void);

/* The same as the first without setting up: for calls that only look. */
bool ps_process_has_begun(void);

/*
 * The runtime binds a context to a thread in its first real call; a thread whose first calls are all ours has none yet. Gives it one. Cheap
 * after the first time.
 */
void ps_process_bind_thread(void);

/* What the hooks do once a device is set up, and in a forked child before anything else there: one function each, named by a constructor. */
void ps_process_when_device_is_set_up(void (*call)(void));
void ps_process_when_forked(void (*call)(void));

#endif
