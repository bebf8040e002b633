#include "memory/registry_lock.h"

#include <pthread.h>
#include <time.h>

#include "base/clock.h"
#include "base/per_device.h"
#include "cuda/helper_thread.h"

#define SOON_NS 100000000u /* as registry_lock.h says */

static PS_PER_DEVICE struct {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* like `called`, set up by ps_registry_lock_open for the monotonic clock */
    pthread_cond_t called[PS_HELPERS];
} first_dev = {.lock = PTHREAD_MUTEX_INITIALIZER};
#define dev (&PS_HERE(first_dev))

void ps_registry_lock_open(void)
{
    pthread_condattr_t monotonic;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&dev->changed, &monotonic);
    for (unsigned i = 0; i < PS_HELPERS; i++)
        pthread_cond_init(&dev->called[i], &monotonic);
    pthread_condattr_destroy(&monotonic);
}

void ps_registry_lock(void)
{
    pthread_mutex_lock(&dev->lock);
}

bool ps_registry_lock_soon(void)
{
    const uint64_t since = ps_now_ns();

    do {
        if (!pthread_mutex_trylock(&dev->lock))
            return true;
    } while (ps_sleep_within(since, SOON_NS, 100000));
    return false;
}

void ps_registry_unlock(void)
{
    pthread_mutex_unlock(&dev->lock);
}

static void wait_for(pthread_cond_t *condition, uint64_t timeout_ns)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(timeout_ns / 1000000000u);
    until.tv_nsec += (long)(timeout_ns % 1000000000u);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(condition, &dev->lock, &until);
}

void ps_registry_wait_changed(uint64_t timeout_ns)
{
    wait_for(&dev->changed, timeout_ns);
}

void ps_registry_rest(enum ps_helper helper, uint64_t timeout_ns)
{
    wait_for(&dev->called[helper], timeout_ns);
}

void ps_registry_call(enum ps_helper helper)
{
    pthread_cond_signal(&dev->called[helper]);
}

void ps_registry_call_all(void)
{
    for (unsigned i = 0; i < PS_HELPERS; i++)
        pthread_cond_signal(&dev->called[i]);
}

void ps_registry_changed(void)
{
    pthread_cond_broadcast(&dev->changed);
}

/* The driver refuses the thread its context. [unlocked] */
static void thread_is_gone(void *ctx)
{
    struct ps_lazy_thread *thread = ctx;

    ps_registry_lock();
    thread->started = false;
    thread->failed = true;
    ps_registry_changed();
    ps_registry_unlock();
}

bool ps_registry_thread_is_there(struct ps_lazy_thread *thread, const char *name, void (*run)(void))
{
    if (!thread->started && !thread->failed) {
        thread->started = !ps_helper_thread_start(name, run, thread_is_gone, thread);
        thread->failed = !thread->started;
    }
    return thread->started;
}
