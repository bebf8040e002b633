#include "helper_thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "capture.h"
#include "device.h"
#include "log.h"
#include "per_device.h"
#include "real_cuda.h"

__thread unsigned ps_inside __attribute__((tls_model("initial-exec")));

void ps_helper_thread_park(void)
{
    for (;;)
        pause();
}

static __thread bool is_one __attribute__((tls_model("initial-exec")));

bool ps_helper_thread_is_one(void)
{
    return is_one;
}

/* What a new thread is to do, and at which device. */
struct task {
    void (*run)(void);
    ptrdiff_t at;
    bool calls_driver;
};

static void *begin(void *given)
{
    const struct task task = *(struct task *)given;

    free(given);
    is_one = true;
    ps_inside = 1;
    ps_here = task.at;
    if (task.calls_driver) {
        if (ps_cu.cuCtxSetCurrent(ps_device.context) != CUDA_SUCCESS)
            ps_helper_thread_park();
        ps_capture_relax_thread();
    }
    task.run();
    return NULL;
}

static int start(const char *name, void (*run)(void), bool calls_driver)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t thread;
    struct task *task = malloc(sizeof *task);

    if (!task)
        return -ENOMEM;
    *task = (struct task){run, ps_here, calls_driver};
    sigfillset(&all);
    /* A fault of the thread's own is nobody else's signal: blocked, it would end the process past every handler. */
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    sigdelset(&all, SIGTRAP);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int r = pthread_create(&thread, &attributes, begin, task);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r) {
        free(task);
        int saved_errno = errno;
        errno = r;
        ps_log_error(PROCESS, "the thread %s can't be started (%m); what it does is left out: raise the limit of processes (ulimit -u)",
                     name);
        errno = saved_errno;
        return -r;
    }
    pthread_setname_np(thread, name);
    return 0;
}

int ps_helper_thread_start(const char *name, void (*run)(void))
{
    return start(name, run, true);
}

int ps_helper_thread_start_apart(const char *name, void (*run)(void))
{
    return start(name, run, false);
}
