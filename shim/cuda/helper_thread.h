/*
 * Penstock's own threads. Each is detached and named. It is at the device of the thread that starts
 * it, and bound to that device's context. The tracer does not see its driver calls. It blocks
 * signals, because the trainer's handlers run on the trainer's threads. It does not block faults of
 * its own.
 */
#ifndef PS_HELPER_THREAD_H
#define PS_HELPER_THREAD_H

#include <stdbool.h>

/*
 * Starts `run` on a new thread; `run` must not return. `name`: at most 15 characters. If the driver
 * goes on refusing the context, the thread calls `gone` with `ctx`, and ends. (`gone` may be NULL.)
 * Other threads must then not wait for its work. Returns 0 or -errno. Called with or without the
 * registry lock; `gone` is called without it.
 */
int ps_helper_thread_start(const char *name, void (*run)(void), void (*gone)(void *ctx), void *ctx);

/* The most threads that start together. */
#define PS_HELPERS_TOGETHER_MAX 16u

/* A thread that starts together with others. `run` must not return; it may be NULL. */
struct ps_helper_task {
    const char *name;
    void (*run)(void);
};

/*
 * Starts several threads that are useful only together, and waits until each has its context. A
 * thread without a `run` starts and ends at once. It shows that the process may have one more
 * thread. Returns 0, or -EAGAIN or -ENOMEM if a thread could not be started. Returns -EIO if a
 * thread got no context. After -errno none of the threads is left. Logs nothing. [unlocked]
 */
int ps_helper_threads_start_together(const struct ps_helper_task *helpers, unsigned count);

/*
 * Starts an optional thread that makes no driver call and is bound to no context. `run` may return.
 * Returns 0 or -errno.
 */
int ps_helper_thread_start_apart(const char *name, void (*run)(void));

/*
 * Parks the calling helper for good, when the driver has gone (the process is ending). Does not
 * return.
 */
void ps_helper_thread_park(void) __attribute__((noreturn));

/* Returns whether the calling thread is one of Penstock's own. */
bool ps_helper_thread_is_one(void);

/*
 * Greater than 0 while the calling thread is inside Penstock. The driver calls that it makes are
 * then Penstock's own and not traced. Entries nest.
 */
extern __thread unsigned ps_inside __attribute__((tls_model("initial-exec")));

#endif
