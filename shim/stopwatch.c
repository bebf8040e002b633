#include "stopwatch.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "log.h"
#include "real_cuda.h"

/* Events and samples kept until they are read; a launch finds no room when the device is further behind than that, and is not timed. */
#define RING 16384u

struct sample {
    CUevent from, to;
    uint64_t launch;
    bool waited;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUevent events[RING]; /* used in turn; each belongs to at most the two samples around it */
static uint64_t next_event;
static struct sample samples[RING / 2];
static uint64_t written, read_so_far; /* samples */
static atomic_bool durations;

static struct ps_stream *main_stream;
static uint64_t on_main, on_others; /* launches lately */
static uint64_t lately = 64;        /* how many that is: few at first, as a program may begin with copies on another stream */
static CUevent wait_began;          /* NULL: no wait since the last launch */
static CUevent last_mark;           /* where the last timed launch ended; NULL: not timed */
static atomic_bool marked;          /* whether there is a last_mark, for those without the lock */

void ps_stopwatch_learn(bool wanted)
{
    atomic_store_explicit(&durations, wanted, memory_order_relaxed);
}

/* Records a mark on the stream. NULL when that can't be done: being captured, gone, no events. [lock held] */
static CUevent mark(struct ps_stream *stream)
{
    CUevent *event = &events[next_event % RING];

    /* An event is used again when the samples that name it have been read: RING events, and at most two for each sample. */
    if (written - read_so_far >= RING / 4)
        return NULL;
    if (!*event && ps_cu.cuEventCreate(event, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
        return NULL;
    if (ps_stream_record(stream, *event))
        return NULL;
    next_event++;
    return *event;
}

static void add(CUevent from, CUevent to, uint64_t launch, bool waited)
{
    if (!from || !to || written - read_so_far == RING / 2)
        return;
    samples[written++ % (RING / 2)] = (struct sample){from, to, launch, waited};
}

/* The main stream is the one that launches most; a program may change its mind. [lock held] */
static bool is_main(struct ps_stream *stream)
{
    if (!main_stream)
        main_stream = stream;
    if (stream == main_stream)
        on_main++;
    else
        on_others++;
    if (on_main + on_others < lately)
        return stream == main_stream;
    if (lately < 4096)
        lately *= 2;
    if (on_others > on_main) {
        main_stream = stream;
        wait_began = last_mark = NULL;
    }
    on_main = on_others = 0;
    return stream == main_stream;
}

void ps_stopwatch_wait_begins(struct ps_stream *stream)
{
    pthread_mutex_lock(&lock);
    if (main_stream && (!stream || stream == main_stream) && !wait_began)
        wait_began = mark(main_stream);
    pthread_mutex_unlock(&lock);
}

void ps_stopwatch_launch_begins(struct ps_stream *stream, uint64_t number)
{
    pthread_mutex_lock(&lock);
    if (is_main(stream) && wait_began) {
        CUevent begins = mark(stream);
        add(wait_began, begins, number, true);
        wait_began = NULL;
        last_mark = begins; /* the launch's own time begins after the wait */
        atomic_store_explicit(&marked, begins != NULL, memory_order_relaxed);
    }
    pthread_mutex_unlock(&lock);
}

void ps_stopwatch_launch_ends(struct ps_stream *stream, uint64_t number)
{
    bool wanted = atomic_load_explicit(&durations, memory_order_relaxed);

    if (!wanted && !atomic_load_explicit(&marked, memory_order_relaxed))
        return;
    pthread_mutex_lock(&lock);
    if (stream == main_stream) {
        CUevent ends = wanted ? mark(stream) : NULL;
        add(last_mark, ends, number, false);
        last_mark = ends;
        atomic_store_explicit(&marked, ends != NULL, memory_order_relaxed);
    }
    pthread_mutex_unlock(&lock);
}

typedef CUresult (*elapsed_fn)(float *ms, CUevent from, CUevent to);

static int elapsed_ns(const struct sample *s, uint64_t *ns)
{
    static elapsed_fn elapsed;
    float ms = 0;

    CUresult r = ps_cu.cuEventQuery(s->to);
    if (r != CUDA_SUCCESS)
        return ps_cuda_errno(r);
    if (!elapsed) /* drivers before 12.8 have the first version alone */
        elapsed = ps_cu.cuEventElapsedTime ? ps_cu.cuEventElapsedTime : (elapsed_fn)ps_real_cuda_symbol("cuEventElapsedTime");
    if (!elapsed)
        return -ENOSYS;
    r = elapsed(&ms, s->from, s->to);
    *ns = ms > 0 ? (uint64_t)(ms * 1e6f) : 0;
    return ps_cuda_errno(r);
}

size_t ps_stopwatch_read(struct ps_stopwatch_sample *out, size_t capacity)
{
    size_t n = 0;

    while (n < capacity) {
        pthread_mutex_lock(&lock);
        bool some = read_so_far != written;
        struct sample s = samples[read_so_far % (RING / 2)];
        pthread_mutex_unlock(&lock);
        if (!some)
            break;
        uint64_t ns = 0;
        int r = elapsed_ns(&s, &ns);
        if (r == -EAGAIN)
            break; /* the device is not there yet */
        if (!r)
            out[n++] = (struct ps_stopwatch_sample){.launch = s.launch, .ns = ns, .waited = s.waited};
        pthread_mutex_lock(&lock);
        read_so_far++;
        pthread_mutex_unlock(&lock);
    }
    return n;
}

size_t ps_stopwatch_outstanding(uint64_t *oldest)
{
    pthread_mutex_lock(&lock);
    size_t n = (size_t)(written - read_so_far);
    *oldest = n ? samples[read_so_far % (RING / 2)].launch : UINT64_MAX;
    pthread_mutex_unlock(&lock);
    return n;
}
