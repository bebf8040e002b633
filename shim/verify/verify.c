#include "verify/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/counters.h"
#include "base/json.h"
#include "base/log.h"
#include "base/observers.h"
#include "base/state.h"
#include "base/text_hash.h"
#include "cuda/capture.h"
#include "cuda/driver.h"
#include "kernels/layouts.h"
#include "memory/registry.h"
#include "plan/following.h"
#include "plan/learning.h"
#include "policy/recording/classes.h"
#include "tracer/tracer.h"
#include "verify/task.h"
#include "verify/unmapped_launch.h"

/*
 * A launch waits this many seconds for another thread's launch to end. A kernel may wait for one
 * that is launched later, as collectives of several devices in one process do. Then the second goes
 * ahead, and it can't be told which of the two faulted.
 */
#define TURN_S 2
/* If no plan is followed, the run is over after this number of steps for each one asked for. */
#define STEPS_WITHOUT_PLAN 20
/*
 * If no step is learnt, steps are counted from all known kernels. That is done once in this number
 * of launches.
 */
#define LAUNCHES_A_COUNT 256

static struct ps_verify_task task;
static uint32_t grace;
static int seen = -1; /* the file of findings */
/* Held while an event is written. A leaf; it may be taken with the registry lock held. */
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

/*
 * Lets one launch run at a time. It guards the variables up to the next comment on a line of its
 * own.
 */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool over;     /* all was seen, or a launch has faulted */
static uint64_t last_learnt; /* number of the latest launch that is learnt from */
static uint64_t launches_seen, launches_idle_unmapped;
static struct {
    uint64_t learnt, told, followed;
} steps;
static bool passed; /* the last watched launch has passed */

/* The number of launches of each kernel, by name. Guarded by `counting`. */
struct kernel {
    char *name;
    uint64_t count;
};
#define KERNELS 8192u /* never more than half full */
static struct kernel kernels[KERNELS];
static uint32_t kernel_count;
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

/*
 * The launches of the watched kernel, and all spans that were born. Guarded by the registry lock.
 */
struct watched {
    uint64_t occurrence, learnt, launch; /* launch: of all launches seen */
};
static struct watched *watched;
static size_t watched_count, watched_room;
struct birth {
    uint64_t number, bytes, nth, born;
};
static struct birth *births;
static size_t birth_count, birth_room;

/* The launch that this thread is queuing. */
static __thread struct {
    bool is, has_turn, settled, unmapped;
    CUstream stream;
    const char *kernel;
    uint64_t occurrence;
} mine;

/* ---- set-up ---- */

static int open_seen(const char *task_path)
{
    char path[PS_SETTINGS_PATH_BYTES + 8];

    snprintf(path, sizeof path, "%s.seen", task_path);
    seen = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    return seen < 0 ? -errno : 0;
}

/* ---- telling ---- */

struct event {
    struct ps_json json;
    char buffer[4096];
};

/* Each finding is written at once, since the program may be ended at any time. */
static void begin_event(struct event *event, const char *name)
{
    pthread_mutex_lock(&writing);
    ps_json_init_sink(&event->json, event->buffer, sizeof event->buffer, ps_json_sink_fd, &seen);
    ps_json_begin_object(&event->json, NULL);
    ps_json_string(&event->json, "event", name);
}

static void end_event(struct event *event)
{
    ps_json_end(&event->json);
    int r = ps_json_finish(&event->json);
    pthread_mutex_unlock(&writing);
    if (!r)
        return;
    int saved_errno = errno;
    errno = -r;
    ps_log_warn_once(REPORT, "the findings for `penstock verify` could not be written "
                             "(%m): free some space for its temporary files (TMPDIR)");
    errno = saved_errno;
}

static void write_layer(struct ps_json *json, uint32_t number, const char *name, enum penstock_direction direction)
{
    static const char *const directions[] = {[PENSTOCK_DIRECTION_NONE] = NULL,
                                             [PENSTOCK_DIRECTION_FORWARD] = "forward",
                                             [PENSTOCK_DIRECTION_BACKWARD] = "backward"};

    ps_json_begin_object(json, "layer");
    if (number == PENSTOCK_NEVER)
        ps_json_null(json, "number");
    else
        ps_json_u64(json, "number", number);
    ps_json_string(json, "name", name);
    ps_json_string(json, "direction", directions[direction]);
    ps_json_end(json);
}

static uint64_t steps_so_far(void)
{
    return steps.learnt > steps.told ? steps.learnt : steps.told;
}

static void write_progress(struct ps_json *json)
{
    ps_json_u64(json, "launches", launches_seen);
    ps_json_u64(json, "launches_idle_unmapped", launches_idle_unmapped);
    ps_json_u64(json, "steps", steps_so_far());
    ps_json_u64(json, "steps_followed", steps.followed);
    ps_json_u64(json, "evictions", ps_counted(evictions));
}

/* ---- launches ---- */

/* Returns the entry of a kernel's name, or NULL if there is no room. [counting] */
static struct kernel *kernel_named(const char *name)
{
    for (uint64_t i = ps_text_hash(name);; i++) {
        struct kernel *kernel = &kernels[i % KERNELS];
        if (kernel->name && !strcmp(kernel->name, name))
            return kernel;
        if (kernel->name)
            continue;
        if (kernel_count == KERNELS / 2 || !(kernel->name = strdup(name)))
            return NULL;
        kernel_count++;
        return kernel;
    }
}

/*
 * Gives this thread's launch a name and a number, which are the same in every run of this program.
 */
static void name_launch(CUfunction function)
{
    const char *name = function ? ps_layouts_kernel_name(function) : "(graph)";

    pthread_mutex_lock(&counting);
    struct kernel *kernel = kernel_named(name ? name : "(unknown)");
    mine.kernel = kernel ? kernel->name : "(unknown)";
    mine.occurrence = kernel ? kernel->count++ : 0;
    pthread_mutex_unlock(&counting);
}

static bool is_watched(void)
{
    return task.kernel && !strcmp(task.kernel, mine.kernel);
}

static void note_watched(void)
{
    ps_registry_lock();
    struct watched *grown = ps_grown_array(watched, watched_count, &watched_room, 1024, sizeof *grown);
    if (grown) {
        watched = grown;
        watched[watched_count++] = (struct watched){mine.occurrence, last_learnt, launches_seen};
    }
    ps_registry_unlock();
}

/*
 * Reports a fault. `queued_before`: the failed work is a copy or fill that was on the stream before
 * the launch.
 */
static void tell_fault(CUresult error, bool queued_before)
{
    struct ps_traced_launch traced = ps_tracer_launch();
    struct event event;

    over = true;
    if (!mine.unmapped)
        ps_verify_take_evicted();
    begin_event(&event, "fault");
    ps_json_string(&event.json, "kernel", mine.kernel);
    ps_json_u64(&event.json, "occurrence", mine.occurrence);
    ps_json_bool(&event.json, "queued_before", queued_before);
    ps_json_bool(&event.json, "alone", mine.has_turn);
    ps_json_u64(&event.json, "error", (uint64_t)error);
    write_layer(&event.json, traced.layer.number, traced.layer.name, traced.layer.direction);
    write_progress(&event.json);
    ps_verify_write_spans(&event.json);
    end_event(&event);
}

static void tell(const char *name)
{
    struct event event;

    begin_event(&event, name);
    write_progress(&event.json);
    if (mine.unmapped)
        ps_verify_write_spans(&event.json);
    end_event(&event);
}

/*
 * Counts steps again, by the learner's count and by that of the report's closing line. Returns
 * false if no step has ended since.
 */
static bool steps_have_ended(void)
{
    struct ps_steps_summary learnt;
    struct ps_following_summary followed;
    uint64_t before = steps.learnt + steps.told;

    if (launches_seen % LAUNCHES_A_COUNT == 0)
        steps.told = ps_tracer_steps();
    ps_registry_lock();
    ps_learning_summary(&learnt);
    steps.learnt = learnt.steps;
    if (steps.learnt + steps.told != before) {
        ps_following_summary(&followed);
        steps.followed = followed.steps;
    }
    ps_registry_unlock();
    return steps.learnt + steps.told != before;
}

/* Returns whether the run has come as far as the task asks. */
static bool is_far_enough(void)
{
    if (launches_seen >= task.launches)
        return true;
    if (!steps_have_ended() || (task.kernel && !passed))
        return false;
    if (task.strips)
        return steps.learnt >= task.last;
    return steps.followed >= task.steps || steps_so_far() / (ps_learning_is_on() ? STEPS_WITHOUT_PLAN : 1) > task.steps;
}

/*
 * Waits for this launch's turn. Returns false if another launch keeps the turn; this one then goes
 * ahead.
 */
static bool take_turn(void)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += TURN_S;
    return !pthread_mutex_timedlock(&turn, &until);
}

static bool is_to_be_unmapped(void)
{
    if (task.strips)
        return steps.learnt >= task.first;
    return task.bare && is_watched() && mine.occurrence >= task.first && mine.occurrence <= task.last;
}

static void see_launch(CUstream stream, CUfunction function, void **parameters, void **extra)
{
    /*
     * A captured launch does not run now. During any capture, a wait for a stream may break the
     * capture.
     */
    if (over || ps_capture_anywhere())
        return;
    mine.is = true;
    mine.unmapped = false;
    mine.stream = stream;
    mine.has_turn = take_turn();
    name_launch(function);
    launches_seen++;
    struct ps_traced_launch traced = ps_tracer_launch();
    if (traced.is_learnt)
        last_learnt = traced.number;
    if (is_watched())
        note_watched();
    /*
     * Two clocks: copies and fills queued before the launch are over, so a later failure is the
     * launch's.
     */
    CUresult result = ps_cu.cuStreamSynchronize(stream);
    if (ps_cuda_is_fault(result) && !over)
        tell_fault(result, true);
    if (over)
        return;
    ps_verify_settle(task.guard);
    mine.settled = true;
    /* No span is unmapped for a blind launch, since it may use any span. */
    mine.unmapped = mine.has_turn && !traced.is_blind && is_to_be_unmapped();
    /* Memory is searched only if the task is about one kernel. */
    if (mine.unmapped && ps_verify_unmap_idle(&task, grace, task.strips ? NULL : function, parameters, extra))
        launches_idle_unmapped++;
}

static void see_launched(void)
{
    if (!mine.is)
        return;
    mine.is = false;
    /*
     * Two clocks: the host waits for the launch that it has just queued, on the launch's stream, as
     * with CUDA_LAUNCH_BLOCKING=1. An error that was not there before the launch is the launch's.
     */
    CUresult result = over ? CUDA_SUCCESS : ps_cu.cuStreamSynchronize(mine.stream);
    if (ps_cuda_is_fault(result) && !over)
        tell_fault(result, false);
    if (mine.unmapped)
        ps_verify_remap();
    if (mine.settled)
        ps_verify_go_on(task.guard);
    mine.settled = false;
    if (!over && is_watched() && mine.occurrence == task.last) {
        passed = true;
        tell("passed");
    }
    mine.unmapped = false;
    if (!over && is_far_enough()) {
        over = true;
        tell("done");
    }
    if (mine.has_turn)
        pthread_mutex_unlock(&turn);
}

/* Penstock stands aside: the run shows nothing. */
static void see_standing_aside(const char *why)
{
    struct event event;

    begin_event(&event, "aside");
    ps_json_string(&event.json, "why", why);
    end_event(&event);
}

void ps_verify_ended(void)
{
    /* The program may be in a signal handler, on the thread that was just writing. */
    if (over || pthread_mutex_trylock(&writing))
        return;
    pthread_mutex_unlock(&writing);
    tell("ended");
}

/* ---- spans and steps ---- */

static void see_birth(const struct ps_span *span)
{
    struct birth *grown = ps_grown_array(births, birth_count, &birth_room, 4096, sizeof *grown);

    if (!grown)
        return; /* a span without a record is not reported */
    births = grown;
    births[birth_count++] = (struct birth){span->number, span->bytes, span->plan.nth, span->plan.born};
}

static void see_judgement(uint64_t number, const struct ps_span_facts *facts, bool may_move)
{
    struct event event;
    size_t i = birth_count;

    while (i && births[i - 1].number != number)
        i--;
    if (!i)
        return;
    begin_event(&event, "span");
    ps_json_u64(&event.json, "bytes", births[i - 1].bytes);
    ps_json_u64(&event.json, "nth", births[i - 1].nth);
    ps_json_u64(&event.json, "born", births[i - 1].born);
    write_layer(&event.json, facts->layer, facts->name, PENSTOCK_DIRECTION_NONE);
    if (facts->birth == PENSTOCK_NEVER)
        ps_json_null(&event.json, "birth");
    else
        ps_json_u64(&event.json, "birth", facts->birth);
    ps_json_string(&event.json, "class",
                   facts->class_ == PENSTOCK_CLASS_UNKNOWN ? NULL : ps_class_names[facts->class_]);
    ps_json_bool(&event.json, "may_move", may_move);
    end_event(&event);
}

static void see_step(const struct penstock_step *step, uint64_t first)
{
    struct event event;

    begin_event(&event, "step");
    ps_json_u64(&event.json, "launches", step->launches);
    ps_json_begin_array(&event.json, "watched");
    for (size_t i = 0; i < watched_count; i++) {
        if (watched[i].learnt < first || watched[i].learnt - first >= step->launches)
            continue;
        const struct penstock_layer *layer = &step->layer[step->launch[watched[i].learnt - first].layer];
        ps_json_begin_object(&event.json, NULL);
        ps_json_u64(&event.json, "occurrence", watched[i].occurrence);
        ps_json_u64(&event.json, "launches", watched[i].launch);
        write_layer(&event.json, layer->number, layer->name, layer->direction);
        ps_json_end(&event.json);
    }
    ps_json_end(&event.json);
    end_event(&event);
}

/* ---- set-up ---- */

void ps_verify_open(struct ps_settings *settings, const struct ps_ranks *ranks)
{
    if (!*settings->verify)
        return;
    /* The processes of a job do the same work, so only one is checked. */
    if (ranks->several && ranks->rank)
        return;
    int r = ps_verify_task_read(settings->verify, &task);
    if (!r)
        r = open_seen(settings->verify);
    if (r == -EEXIST) {
        ps_log_info(TRACER, "`penstock verify` looks at another process of this command");
        return;
    }
    if (r) {
        errno = -r;
        ps_log_warn(SETTINGS,
                    "PENSTOCK_VERIFY=%s: expected the path of a file that `penstock verify` wrote "
                    "(%m); nothing is checked; unset it: only `penstock verify` sets it",
                    settings->verify);
        return;
    }
    grace = settings->grace;
    settings->guard = task.guard;
    ps_observers.aside = see_standing_aside;
    ps_observers.born = see_birth;
    ps_observers.launch = see_launch;
    ps_observers.launched = see_launched;
    ps_observers.judged = see_judgement;
    ps_observers.step = see_step;
    ps_verify_on = true;
}
