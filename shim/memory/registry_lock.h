/*
 * The lock of a device's registry, and the waits that release it. registry.h says what it guards.
 *
 * Threads: any.
 */
#ifndef PS_REGISTRY_LOCK_H
#define PS_REGISTRY_LOCK_H

#include <stdbool.h>
#include <stdint.h>

/* Prepares the lock of the device that the thread is at for waits. Called by ps_registry_open(). */
void ps_registry_lock_open(void);

/* Lock and unlock the registry of the device that the thread is at. */
void ps_registry_lock(void);
void ps_registry_unlock(void);

/*
 * Tries to lock for up to 100 ms; true: locked. For the report: a signal handler may write it on
 * the thread that holds the lock.
 */
bool ps_registry_lock_soon(void);

/*
 * Waits until a span, page or slot changes, or `timeout_ns` is over; releases the lock meanwhile.
 * [locked]
 */
void ps_registry_wait_changed(uint64_t timeout_ns);

/* Wakes all threads that wait for a change. [locked or not] */
void ps_registry_changed(void);

/*
 * Helper threads without work rest, and each is called by itself. If every change woke them, six
 * would look for work at each change that a launch makes. The launching thread would wait while
 * each takes the lock: a tenth of a ResNet-50 step on an H200.
 */
enum ps_helper {
    PS_HELPER_EVICT,     /* ends evictions */
    PS_HELPER_AT_ONCE,   /* ends evictions whose copies waited for nothing */
    PS_HELPER_GUARD,     /* maps evicted spans to their slots */
    PS_HELPER_SLAB,      /* queues the D2H that wait for slots or for their turn */
    PS_HELPER_SLOTS,     /* makes slots */
    PS_HELPER_RELOAD,    /* reloads ahead */
    PS_HELPER_PAGES,     /* makes spans ahead */
    PS_HELPER_PLAN,      /* plans */
    PS_HELPER_PREFETCH,  /* brings spans back while memory is free */
    PS_HELPER_RETENTION, /* gives back pages kept by page retention */
    PS_HELPERS
};

/* A resting helper looks for work this often without a call. */
#define PS_HELPER_LOOKS_NS 100000000u

/*
 * A helper thread that starts at the first need; callers go on without it if it can't start. Each
 * device has one; the lock guards it.
 */
struct ps_lazy_thread {
    bool started, failed;
};

/*
 * Returns true if the thread runs; the first call starts it. `name` and `run`: as for
 * ps_helper_thread_start(). [locked]
 */
bool ps_registry_thread_is_there(struct ps_lazy_thread *thread, const char *name, void (*run)(void));

/*
 * The calling helper rests until it is called, or `timeout_ns` is over; releases the lock
 * meanwhile. [locked]
 */
void ps_registry_rest(enum ps_helper helper, uint64_t timeout_ns);

/* Calls the helper: it has work. [locked] */
void ps_registry_call(enum ps_helper helper);

/* Calls all helpers: the process ends. [locked] */
void ps_registry_call_all(void);

#endif
