/*
 * The end of the process waits for helper threads that are in the middle of driver calls. It waits
 * however often they wake it, and a second at most. It waits for a held lock for a moment, also on
 * a machine whose sleeps take long.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "comes_to.h"
#include "cuda/devices.h"
#include "expect.h"
#include "memory/registry.h"
#include "memory/shutdown.h"

static atomic_bool is_working, in_driver;
static atomic_long late_ns; /* how much longer each sleep takes than was asked for */

/* Replaces libc's: on a busy machine each sleep takes longer. */
int nanosleep(const struct timespec *asked, struct timespec *left)
{
    struct timespec longer = {asked->tv_sec, asked->tv_nsec + atomic_load(&late_ns)};

    return (int)syscall(SYS_nanosleep, &longer, left);
}

/* A driver call, after which the waiting thread is woken. [locked; releases the lock meanwhile] */
static void call_driver(void)
{
    atomic_store(&in_driver, true);
    ps_registry_unlock();
    usleep(1000);
    ps_registry_lock();
    atomic_store(&in_driver, false);
    ps_registry_changed();
}

static void *work(void *pieces)
{
    ps_registry_lock();
    ps_shutdown_helper_begins();
    atomic_store(&is_working, true);
    while (!ps_shutdown_has_begun())
        ps_registry_wait_changed(1000000u);
    for (int i = 0; !pieces || i < *(int *)pieces; i++)
        call_driver();
    ps_shutdown_park_if_due();
    return NULL;
}

/*
 * Returns the ms that the end waits for a helper thread. The thread makes `*pieces` calls before it
 * looks; NULL: it never looks.
 */
static uint64_t stop_during(int *pieces)
{
    pthread_t thread;

    atomic_store(&is_working, false);
    EXPECT_INT(0, pthread_create(&thread, NULL, work, pieces));
    EXPECT(COMES_TO(atomic_load(&is_working)));
    uint64_t began = ps_now_ns();
    ps_shutdown_begin();
    return (ps_now_ns() - began) / 1000000u;
}

/* The lock is held by this thread, as where a signal handler looks for it. */
static void test_held_lock(void)
{
    atomic_store(&late_ns, 20000000);
    ps_registry_lock();
    uint64_t began = ps_now_ns();
    EXPECT(!ps_registry_lock_soon());
    uint64_t ms = (ps_now_ns() - began) / 1000000u;
    EXPECT(ms >= 100 && ms < 5000);
    ps_registry_unlock();
    EXPECT(ps_registry_lock_soon());
    ps_registry_unlock();
    atomic_store(&late_ns, 0);
}

int main(void)
{
    int pieces = 150;

    ps_registry_lock_open();
    ps_devices_add(NULL);
    test_held_lock();
    uint64_t ms = stop_during(&pieces);
    EXPECT(!atomic_load(&in_driver) || ms >= 1000); /* a busy machine may take this long */
    ms = stop_during(NULL);
    EXPECT(ms >= 1000 && ms < 5000);
    return expect_status();
}
