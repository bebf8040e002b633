/*
 * Penstock's own threads: detached, named, at the device of who starts them and bound to its context, marked so that the tracer does not see their driver calls. Signals are
 * blocked (the trainer's handlers run on the trainer's threads) but for faults of the thread's own.
 */
#ifndef PS_HELPER_THREAD_H
#define PS_HELPER_THREAD_H

#include <stdbool.h>

/*
 * Starts `run` on a new thread; it must not return. 0 or -errno. `name`: at most 15 characters. Where the driver goes on refusing it the context, the new
 * thread calls `gone` (or NULL) with `ctx` instead, and ends: what others wait for of it they must not wait for then. [with the registry lock or without; `gone`
 * without]
 */
int ps_helper_thread_start(const char *name, void (*run)(void), void (*gone)(void *ctx), void *ctx);

/*
 * The same for several that are of use only together: waits until each has its context. As many of those without a `run` are started and end at once, to see that
 * the process may have so many more. 0; -EAGAIN, -ENOMEM: one could not be started; -EIO: one got no context. Then none is there any more. Says nothing.
 * [unlocked]
 */
#define PS_HELPERS_TOGETHER_MAX 16u
struct ps_helper_task {
    const char *name;
    void (*run)(void);
};
int ps_helper_threads_start_together(const struct ps_helper_task *helpers, unsigned count);

/* The same for a thread that makes no driver call, and that can be done without: it is bound to no context. */
int ps_helper_thread_start_apart(const char *name, void (*run)(void));

/* Ends the calling helper's work for good, when the driver has gone (the process is on its way out). Does not return. */
void ps_helper_thread_park(void) __attribute__((noreturn));

/* Whether the calling thread is one of them. */
bool ps_helper_thread_is_one(void);

/*
 * Set while the calling thread is inside Penstock: the driver calls that it makes are ours and not traced. Nests.
 */
extern __thread unsigned ps_inside __attribute__((tls_model("initial-exec")));

#endif
