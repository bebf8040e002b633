#include "cuda/helper_thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/per_device.h"
#include "cuda/capture_mode.h"
#include "cuda/device_memory.h"
#include "cuda/driver.h"

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

/*
 * The tries of a new thread to make its device's context current. Each pause is twice as long as
 * the one before. The driver may refuse for a moment.
 */
#define TRIES 10
#define FIRST_PAUSE_NS 1000000u

/* Threads that begin together or not at all. */
struct team {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned awaited; /* threads that have not said yet whether they can begin */
    unsigned members; /* threads that still use this structure */
    bool works;       /* all threads that have said so far can begin */
    bool decided;
};

/* A new thread's work and device. */
struct task {
    const char *name;
    void (*run)(void);
    void (*gone)(void *ctx);
    void *ctx;
    ptrdiff_t at;
    bool calls_driver;
    struct team *team;
};

/* Makes the device's context current. Returns 0 or -errno. */
static int bind_context(void)
{
    struct timespec pause = {.tv_nsec = FIRST_PAUSE_NS};

    for (int i = 0; i < TRIES; i++) {
        if (ps_cu.cuCtxSetCurrent(ps_device.context) == CUDA_SUCCESS ||
            ps_cu.cuCtxPushCurrent(ps_device.context) == CUDA_SUCCESS)
            return 0;
        nanosleep(&pause, NULL);
        pause.tv_nsec *= 2;
    }
    return -EIO;
}

/* Tells the team whether this thread can begin. Returns whether it shall begin. */
static bool join_team(struct team *team, bool can)
{
    pthread_mutex_lock(&team->lock);
    team->works &= can;
    team->awaited--;
    pthread_cond_broadcast(&team->changed);
    while (!team->decided)
        pthread_cond_wait(&team->changed, &team->lock);
    const bool works = team->works;
    team->members--;
    pthread_cond_broadcast(&team->changed);
    pthread_mutex_unlock(&team->lock);
    return works;
}

static void *begin(void *given)
{
    const struct task task = *(struct task *)given;

    free(given);
    is_one = true;
    ps_inside = 1;
    ps_here = task.at;
    const int r = task.calls_driver ? bind_context() : 0;
    if ((task.team && !join_team(task.team, !r)) || !task.run)
        return NULL;
    if (r) {
        ps_log_error(PROCESS,
                     "the thread %s can't use the device's context, so its work is not done; see `penstock doctor`",
                     task.name);
        if (task.gone)
            task.gone(task.ctx);
        return NULL;
    }
    if (task.calls_driver)
        ps_capture_mode_relax_for_good();
    task.run();
    return NULL;
}

static int start(const struct task *what, pthread_t *thread)
{
    sigset_t all, before;
    struct task *task = malloc(sizeof *task);

    if (!task)
        return -ENOMEM;
    *task = *what;
    task->at = ps_here;
    sigfillset(&all);
    /*
     * Signals for the thread's own faults stay unblocked. If they were blocked, a fault would end
     * the process without any handler.
     */
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    sigdelset(&all, SIGTRAP);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = pthread_create(thread, NULL, begin, task);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r) {
        free(task);
        return -r;
    }
    if (what->name)
        pthread_setname_np(*thread, what->name);
    return 0;
}

int ps_helper_thread_start(const char *name, void (*run)(void), void (*gone)(void *ctx), void *ctx)
{
    pthread_t thread;
    int r = start(&(struct task){.name = name, .run = run, .gone = gone, .ctx = ctx, .calls_driver = true}, &thread);

    if (!r) {
        pthread_detach(thread);
        return 0;
    }
    int saved_errno = errno;
    errno = -r;
    ps_log_error(
        PROCESS,
        "the thread %s can't be started (%m), so its work is not done; raise the limit of processes (ulimit -u)", name);
    errno = saved_errno;
    return r;
}

int ps_helper_thread_start_apart(const char *name, void (*run)(void))
{
    pthread_t thread;
    int r = start(&(struct task){.name = name, .run = run}, &thread);

    if (!r)
        pthread_detach(thread);
    else
        ps_log_info(
            PROCESS,
            "the thread %s can't be started (error %d), so its work is not done; raise the limit of processes (ulimit -u)",
            name, -r);
    return r;
}

int ps_helper_threads_start_together(const struct ps_helper_task *helpers, unsigned count)
{
    struct team team = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .works = true};
    pthread_t thread[PS_HELPERS_TOGETHER_MAX];
    unsigned begun = 0;
    int r = 0;

    team.awaited = team.members = count;
    while (begun < count && !r) {
        const struct ps_helper_task *h = &helpers[begun];
        r = start(&(struct task){.name = h->name, .run = h->run, .calls_driver = h->run != NULL, .team = &team},
                  &thread[begun]);
        begun += !r;
    }
    pthread_mutex_lock(&team.lock);
    team.awaited -= count - begun;
    team.members -= count - begun;
    while (team.awaited)
        pthread_cond_wait(&team.changed, &team.lock);
    if (!r && !team.works)
        r = -EIO;
    team.works = !r;
    team.decided = true;
    pthread_cond_broadcast(&team.changed);
    while (team.members) /* the team is a variable of this function */
        pthread_cond_wait(&team.changed, &team.lock);
    pthread_mutex_unlock(&team.lock);
    for (unsigned i = 0; i < begun; i++) {
        if (r || !helpers[i].run)
            pthread_join(thread[i], NULL); /* the program can have the thread's place in its limit again */
        else
            pthread_detach(thread[i]);
    }
    return r;
}
