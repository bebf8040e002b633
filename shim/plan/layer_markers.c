#include "plan/layer_markers.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/per_device.h"
#include "plan/layer_names.h"
#include "policy/glob.h"

#define DEPTH_MAX 64   /* nested ranges of one thread that are kept */
#define STARTED_MAX 64 /* started ranges that are kept open in the process */

struct mark {
    const void *domain; /* NVTX's handle; NULL: the default domain; &api: a layer of the API */
    bool counts;        /* false: the range's name does not match the pattern */
    uint32_t number;
    enum penstock_direction direction;
    const char *name;
    uint64_t id;  /* of a started range */
    bool counted; /* as in struct ps_recorded_layer */
};

/* The ranges that the calling thread has open. No other thread reads them. */
struct thread_marks {
    uint32_t depth;
    uint32_t beyond;  /* ranges that found no room in `stack` and have not ended */
    uint64_t stretch; /* the latest boundary of this thread */
    struct mark stack[DEPTH_MAX];
};

static const char api; /* its address is the API's domain */

static _Atomic enum ps_layers_from from = PS_LAYERS_AUTO;
static char pattern[PS_SETTINGS_PATTERN_BYTES]; /* constant once `from` has been set */
static pthread_once_t opened = PTHREAD_ONCE_INIT;

static __thread struct thread_marks *mine __attribute__((tls_model("initial-exec")));
static pthread_key_t key;
static pthread_once_t key_made = PTHREAD_ONCE_INIT;

/* Boundaries of the whole process, numbered as they come; 1 is before the first. */
static _Atomic uint64_t boundaries = 1;
static _Atomic uint64_t steps_ended; /* steps that the program has marked as ended */
/* the steps of these that the device's learner has taken */
static PS_PER_DEVICE _Atomic uint64_t first_steps_taken;

static struct {
    _Atomic uint64_t markers, unbalanced, too_deep, steps;
} figures;

/* Marks of no thread: started ranges, and the layer that the latest matching kernel began. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mark started[STARTED_MAX]; /* guarded by the lock, the innermost last */
static uint32_t started_count;           /* guarded by the lock */
static uint64_t last_id;                 /* guarded by the lock */
static struct mark at_kernel;            /* guarded by the lock */
/* Guarded by the lock: the steps that had ended when the layer began. */
static uint64_t at_kernel_steps;
/* A started range is open, or a kernel has begun a layer. */
static atomic_bool process_marks;
static _Atomic uint64_t process_stretch; /* the latest boundary of the process */

static uint64_t next_boundary(void)
{
    return atomic_fetch_add_explicit(&boundaries, 1, memory_order_relaxed) + 1;
}

#define count(figure) atomic_fetch_add_explicit(&figures.figure, 1, memory_order_relaxed)

/*
 * A thread of the parent may have held a lock at the fork; it can't release it in the child.
 * Renewing the locks is safe: the data that they guard are only ever looked at.
 */
static void in_forked_child(void)
{
    pthread_mutex_init(&lock, NULL);
    ps_layer_names_in_child();
}

static void heed_forks_once(void)
{
    pthread_atfork(NULL, NULL, in_forked_child);
}

static void heed_forks(void)
{
    static pthread_once_t heeded = PTHREAD_ONCE_INIT;

    pthread_once(&heeded, heed_forks_once);
}

static const struct ps_layer_source *wanted; /* for the call under pthread_once */

static void open_once(void)
{
    heed_forks();
    memcpy(pattern, wanted->pattern, sizeof pattern);
    atomic_store_explicit(&from, wanted->from, memory_order_release);
}

void ps_layer_markers_open(const struct ps_layer_source *source)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

    pthread_mutex_lock(&one_at_a_time);
    wanted = source;
    pthread_once(&opened, open_once);
    pthread_mutex_unlock(&one_at_a_time);
}

enum ps_layers_from ps_layer_markers_from(void)
{
    return atomic_load_explicit(&from, memory_order_acquire);
}

struct ps_layer_markers_figures ps_layer_markers_figures(void)
{
    return (struct ps_layer_markers_figures){
        .markers = atomic_load(&figures.markers),
        .unbalanced = atomic_load(&figures.unbalanced),
        .too_deep = atomic_load(&figures.too_deep),
        .steps = atomic_load(&figures.steps),
    };
}

/* ---- a thread's own ---- */

static void make_key(void)
{
    pthread_key_create(&key, free);
}

static struct thread_marks *marks_of_this_thread(void)
{
    if (mine)
        return mine;
    pthread_once(&key_made, make_key);
    mine = calloc(1, sizeof *mine);
    if (mine)
        pthread_setspecific(key, mine);
    return mine;
}

static void push(const struct mark *mark)
{
    struct thread_marks *marks = marks_of_this_thread();

    if (!marks || marks->depth == DEPTH_MAX) {
        if (marks)
            marks->beyond++;
        count(too_deep);
        return;
    }
    marks->stack[marks->depth++] = *mark;
    if (!mark->counts)
        return;
    marks->stretch = next_boundary();
    count(markers);
}

/*
 * Ends the innermost range of the domain: ranges of two domains may overlap without being nested.
 */
static void pop(const void *domain)
{
    struct thread_marks *marks = mine;

    if (marks && marks->beyond) {
        marks->beyond--;
        return;
    }
    for (uint32_t i = marks ? marks->depth : 0; i-- > 0;) {
        if (marks->stack[i].domain != domain)
            continue;
        if (marks->stack[i].counts)
            marks->stretch = next_boundary();
        memmove(&marks->stack[i], &marks->stack[i + 1], (marks->depth - i - 1) * sizeof marks->stack[0]);
        marks->depth--;
        return;
    }
    count(unbalanced);
}

static int depth_in(const void *domain)
{
    int depth = 0;

    for (uint32_t i = 0; mine && i < mine->depth; i++)
        depth += mine->stack[i].domain == domain;
    return depth;
}

/* Returns the innermost mark that counts, or NULL. */
static const struct mark *innermost(const struct mark *stack, uint32_t depth)
{
    while (depth-- > 0)
        if (stack[depth].counts)
            return &stack[depth];
    return NULL;
}

/* ---- the API ---- */

static bool api_counts(void)
{
    enum ps_layers_from now = ps_layer_markers_from();

    return now == PS_LAYERS_AUTO || now == PS_LAYERS_API;
}

void ps_layer_markers_begin(const char *name, uint32_t number, enum penstock_direction direction)
{
    struct mark mark = {.domain = &api, .counts = api_counts(), .number = number, .direction = direction};

    if (mark.counts && name) {
        heed_forks();
        const struct ps_layer_name *kept = ps_layer_name_keep(name);
        mark.name = kept ? kept->text : NULL;
    }
    push(&mark);
}

void ps_layer_markers_end(void)
{
    pop(&api);
}

void ps_layer_markers_step(void)
{
    count(steps);
    ps_layer_names_step();
    atomic_fetch_add_explicit(&steps_ended, 1, memory_order_release);
}

bool ps_layer_markers_take_step(void)
{
    uint64_t ended = atomic_load_explicit(&steps_ended, memory_order_relaxed);

    return ended != atomic_load_explicit(&PS_HERE(first_steps_taken), memory_order_relaxed) &&
           atomic_exchange(&PS_HERE(first_steps_taken), ended) != ended;
}

/* ---- NVTX ---- */

static struct mark mark_of_range(const void *domain, const char *name)
{
    struct mark mark = {.domain = domain, .number = PENSTOCK_NEVER};

    if (ps_layer_markers_from() != PS_LAYERS_NVTX || !name || !ps_glob_matches(pattern, name))
        return mark;
    struct ps_layer_name *kept = ps_layer_name_keep(name);
    if (!kept) {
        count(too_deep);
        return mark;
    }
    mark.counts = true;
    mark.name = kept->text;
    mark.number = kept->number;
    mark.direction = kept->direction != PENSTOCK_DIRECTION_NONE ? kept->direction : ps_layer_name_next_direction(kept);
    return mark;
}

int ps_layer_markers_range_push(const void *domain, const char *name)
{
    struct mark mark = mark_of_range(domain, name);
    int depth = depth_in(domain);

    push(&mark);
    return depth;
}

int ps_layer_markers_range_pop(const void *domain)
{
    pop(domain);
    return depth_in(domain);
}

uint64_t ps_layer_markers_range_start(const char *name)
{
    struct mark mark = mark_of_range(NULL, name);

    pthread_mutex_lock(&lock);
    uint64_t id = mark.id = ++last_id;
    if (mark.counts && started_count < STARTED_MAX) {
        started[started_count++] = mark;
        atomic_store_explicit(&process_stretch, next_boundary(), memory_order_relaxed);
        atomic_store_explicit(&process_marks, true, memory_order_release);
        count(markers);
    } else if (mark.counts) {
        count(too_deep);
    }
    pthread_mutex_unlock(&lock);
    return id;
}

/*
 * An end without a range is no fault here. Ranges that did not match, or found no room, are not in
 * the list.
 */
void ps_layer_markers_range_end(uint64_t id)
{
    pthread_mutex_lock(&lock);
    for (uint32_t i = started_count; i-- > 0;) {
        if (started[i].id != id)
            continue;
        memmove(&started[i], &started[i + 1], (started_count - i - 1) * sizeof started[0]);
        started_count--;
        atomic_store_explicit(&process_stretch, next_boundary(), memory_order_relaxed);
        atomic_store_explicit(&process_marks, started_count != 0, memory_order_release);
        break;
    }
    pthread_mutex_unlock(&lock);
}

/* ---- kernels ---- */

/*
 * A kernel that the pattern names begins a layer, which lasts until the next such kernel. The
 * kernel's name gives the direction. Numbers go up in forward and down again in backward. So the
 * last layer in forward and the first in backward are the same layer. Without a backward pass and
 * without marked steps, numbers go up without end. A recorded step numbers such layers again.
 */
static void meet_kernel(const struct ps_layer_name *name)
{
    pthread_mutex_lock(&lock);
    struct mark next = {.counts = true, .name = name->text, .number = PENSTOCK_NEVER, .direction = name->direction};
    const uint64_t ended = atomic_load_explicit(&steps_ended, memory_order_relaxed);
    bool same_way = at_kernel.direction == next.direction && at_kernel_steps == ended;
    at_kernel_steps = ended;
    next.counted = next.direction == PENSTOCK_DIRECTION_FORWARD;
    if (next.direction == PENSTOCK_DIRECTION_FORWARD)
        next.number = same_way ? at_kernel.number + 1 : 0;
    else if (next.direction == PENSTOCK_DIRECTION_BACKWARD && at_kernel.number != PENSTOCK_NEVER &&
             (!same_way || at_kernel.number > 0))
        next.number = same_way ? at_kernel.number - 1 : at_kernel.number;
    at_kernel = next;
    atomic_store_explicit(&process_stretch, next_boundary(), memory_order_relaxed);
    atomic_store_explicit(&process_marks, true, memory_order_release);
    count(markers);
    pthread_mutex_unlock(&lock);
}

/* ---- questions of the tracer ---- */

static struct ps_recorded_layer layer_of(const struct mark *mark, uint64_t stretch)
{
    if (!mark)
        return (struct ps_recorded_layer){.stretch = stretch, .number = PENSTOCK_NEVER};
    return (struct ps_recorded_layer){.stretch = stretch,
                                      .number = mark->number,
                                      .direction = mark->direction,
                                      .name = mark->name,
                                      .counted = mark->counted};
}

struct ps_recorded_layer ps_layer_markers_now(CUfunction function)
{
    enum ps_layers_from source = ps_layer_markers_from();
    struct ps_recorded_layer layer;

    if (source == PS_LAYERS_KERNEL && function) {
        const struct ps_layer_name *name = ps_layer_name_of_kernel(function, pattern);
        if (name)
            meet_kernel(name);
    }
    uint64_t first = atomic_load_explicit(&boundaries, memory_order_relaxed);
    if (first == 1) /* no marker yet */
        return layer_of(NULL, source == PS_LAYERS_API || source == PS_LAYERS_NONE);

    const struct mark *own = mine ? innermost(mine->stack, mine->depth) : NULL;
    if (own)
        return layer_of(own, mine->stretch);
    if (!atomic_load_explicit(&process_marks, memory_order_acquire)) {
        uint64_t stretch = atomic_load_explicit(&process_stretch, memory_order_relaxed);
        if (mine && mine->stretch > stretch)
            stretch = mine->stretch;
        return layer_of(NULL, stretch ? stretch : 1);
    }
    pthread_mutex_lock(&lock);
    const struct mark *shared = innermost(started, started_count);
    if (!shared && at_kernel.counts)
        shared = &at_kernel;
    layer = layer_of(shared, atomic_load_explicit(&process_stretch, memory_order_relaxed));
    pthread_mutex_unlock(&lock);
    /* This thread may have left a layer of its own since. That is a boundary, too. */
    if (mine && mine->stretch > layer.stretch)
        layer.stretch = mine->stretch;
    return layer;
}
