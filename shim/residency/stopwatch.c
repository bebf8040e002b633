#include "residency/stopwatch.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/per_device.h"
#include "cuda/driver.h"
#include "residency/events.h"

/*
 * The number of samples kept until they are read. If the device is further behind, a launch finds
 * no room and is not timed.
 */
#define RING 4096u

/*
 * The number of free marks kept for reuse, so that a followed step makes and destroys none. Such a
 * step needs two for each wait that the device has not reached, and those of unread samples. While
 * a step is learnt, it needs one for each launch that the device is behind.
 */
#define FREE_MAX 256u

/*
 * A point on the main stream. An unheld mark is reused, so that a steady program makes no new ones.
 */
struct mark {
    CUevent event;
    unsigned holders; /* samples that begin or end with it, and the pointers below */
    struct mark *next_free;
};

struct sample {
    struct mark *from, *to;
    uint64_t launch;
    bool waited;
};

/* The recent launches of a stream. TALLIES streams are counted. */
#define TALLIES 16u
#define LATELY_MAX 4096u
struct tally {
    struct ps_stream *stream;
    uint64_t launches;
};

static PS_PER_DEVICE struct {
    pthread_mutex_t lock;
    struct mark *free_marks;
    unsigned frees;
    struct sample *samples;        /* RING of them; made with the first */
    uint64_t written, read_so_far; /* samples */
    atomic_bool durations;

    struct ps_stream *main_stream;
    struct tally tally[TALLIES];
    uint64_t tallied; /* launches in all of them */
    /*
     * The number of these to count before the main stream is chosen. It is small at first, since a
     * program may begin with copies on another stream.
     */
    uint64_t lately;
    struct mark *wait_began; /* NULL: no wait since the last launch */
    struct mark *last_mark;  /* where the last timed launch ended; NULL: not timed */
    atomic_bool marked;      /* whether last_mark is set, for readers without the lock */
} first_dev = {.lock = PTHREAD_MUTEX_INITIALIZER, .lately = 64};
#define dev (&PS_HERE(first_dev))

void ps_stopwatch_learn(bool wanted)
{
    atomic_store_explicit(&dev->durations, wanted, memory_order_relaxed);
}

bool ps_stopwatch_learns(void)
{
    return atomic_load_explicit(&dev->durations, memory_order_relaxed);
}

/* Makes `*place` hold the mark (or NULL) instead of its former one. [lock held] */
static void hold(struct mark **place, struct mark *mark)
{
    struct mark *before = *place;

    if (mark)
        mark->holders++;
    *place = mark;
    if (!before || --before->holders)
        return;
    if (dev->frees == FREE_MAX) {
        ps_cu.cuEventDestroy(before->event);
        free(before);
        return;
    }
    dev->frees++;
    before->next_free = dev->free_marks;
    dev->free_marks = before;
}

static void set_last_mark(struct mark *mark)
{
    hold(&dev->last_mark, mark);
    atomic_store_explicit(&dev->marked, mark != NULL, memory_order_relaxed);
}

/*
 * Returns a mark at the stream's present point, for the caller to hold. Returns NULL if the stream
 * is being captured or gone, or if events or room are lacking. [lock held]
 */
static struct mark *mark_now(struct ps_stream *stream)
{
    struct mark *mark = dev->free_marks;

    if (dev->written - dev->read_so_far == RING)
        return NULL;
    if (!mark) {
        mark = calloc(1, sizeof *mark);
        if (mark && ps_cu.cuEventCreate(&mark->event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
            free(mark);
            mark = NULL;
        }
        if (!mark)
            return NULL;
        dev->free_marks = mark;
        dev->frees++;
    }
    if (ps_stream_record(stream, mark->event))
        return NULL;
    dev->free_marks = mark->next_free;
    dev->frees--;
    mark->next_free = NULL;
    return mark;
}

/* [lock held] */
static void add(struct mark *from, struct mark *to, uint64_t launch, bool waited)
{
    if (!from || !to || dev->written - dev->read_so_far == RING)
        return;
    if (!dev->samples && !(dev->samples = calloc(RING, sizeof *dev->samples)))
        return;
    struct sample *sample = &dev->samples[dev->written++ % RING];
    *sample = (struct sample){.launch = launch, .waited = waited};
    hold(&sample->from, from);
    hold(&sample->to, to);
}

/*
 * Returns the recent count of `stream`. A stream without one takes over the smallest count, from 0.
 * [lock held]
 */
static struct tally *tally_of(struct ps_stream *stream)
{
    struct tally *least = &dev->tally[0];

    for (unsigned i = 0; i < TALLIES; i++) {
        if (dev->tally[i].stream == stream)
            return &dev->tally[i];
        if (dev->tally[i].launches < least->launches)
            least = &dev->tally[i];
    }
    *least = (struct tally){.stream = stream};
    return least;
}

/*
 * Chooses the stream that launches most as the main stream. The choice changes only for a stream
 * that launches clearly more. [lock held]
 */
static void choose_main(void)
{
    const struct tally *most = &dev->tally[0];
    uint64_t of_main = 0;

    for (unsigned i = 0; i < TALLIES; i++) {
        if (dev->tally[i].launches > most->launches)
            most = &dev->tally[i];
        if (dev->tally[i].stream == dev->main_stream)
            of_main = dev->tally[i].launches;
    }
    if (most->launches > of_main + of_main / 4) {
        dev->main_stream = most->stream;
        hold(&dev->wait_began, NULL);
        set_last_mark(NULL);
    }
    memset(dev->tally, 0, sizeof dev->tally);
    dev->tallied = 0;
}

/* [lock held] */
static bool is_main(struct ps_stream *stream)
{
    if (ps_stream_is_foreign(stream))
        return false;
    if (!dev->main_stream)
        dev->main_stream = stream;
    tally_of(stream)->launches++;
    if (++dev->tallied >= dev->lately) {
        choose_main();
        if (dev->lately < LATELY_MAX)
            dev->lately *= 2;
    }
    return stream == dev->main_stream;
}

void ps_stopwatch_wait_begins(struct ps_stream *stream)
{
    pthread_mutex_lock(&dev->lock);
    if (dev->main_stream && (!stream || stream == dev->main_stream) && !dev->wait_began)
        hold(&dev->wait_began, mark_now(dev->main_stream));
    pthread_mutex_unlock(&dev->lock);
}

void ps_stopwatch_launch_begins(struct ps_stream *stream, uint64_t number)
{
    pthread_mutex_lock(&dev->lock);
    if (is_main(stream) && dev->wait_began) {
        struct mark *begins = mark_now(stream);
        add(dev->wait_began, begins, number, true);
        hold(&dev->wait_began, NULL);
        set_last_mark(begins); /* the launch's own time begins after the wait */
    }
    pthread_mutex_unlock(&dev->lock);
}

void ps_stopwatch_launch_ends(struct ps_stream *stream, uint64_t number)
{
    bool wanted = atomic_load_explicit(&dev->durations, memory_order_relaxed);

    if (!wanted && !atomic_load_explicit(&dev->marked, memory_order_relaxed))
        return;
    pthread_mutex_lock(&dev->lock);
    if (stream == dev->main_stream) {
        struct mark *ends = wanted ? mark_now(stream) : NULL;
        add(dev->last_mark, ends, number, false);
        set_last_mark(ends);
    }
    pthread_mutex_unlock(&dev->lock);
}

static int elapsed_ns(const struct sample *s, uint64_t *ns)
{
    int64_t elapsed = 0;
    CUresult r = ps_cu.cuEventQuery(s->to->event);

    if (r != CUDA_SUCCESS)
        return ps_cuda_errno(r);
    int error = ps_cuda_elapsed_ns(s->from->event, s->to->event, &elapsed);
    *ns = elapsed > 0 ? (uint64_t)elapsed : 0;
    return error;
}

size_t ps_stopwatch_read(struct ps_stopwatch_sample *out, size_t capacity)
{
    size_t n = 0;

    while (n < capacity) {
        pthread_mutex_lock(&dev->lock);
        bool some = dev->read_so_far != dev->written;
        struct sample s = {.launch = 0};
        if (some)
            s = dev->samples[dev->read_so_far % RING]; /* the sample holds its marks until it is read */
        pthread_mutex_unlock(&dev->lock);
        if (!some)
            break;
        uint64_t ns = 0;
        int r = elapsed_ns(&s, &ns);
        if (r == -EAGAIN)
            break; /* the device has not reached it yet */
        if (!r && s.waited)
            ps_events_stood_still(s.launch, s.from->event, ns);
        if (!r)
            out[n++] = (struct ps_stopwatch_sample){.launch = s.launch, .ns = ns, .waited = s.waited};
        pthread_mutex_lock(&dev->lock);
        hold(&dev->samples[dev->read_so_far % RING].from, NULL);
        hold(&dev->samples[dev->read_so_far % RING].to, NULL);
        dev->read_so_far++;
        pthread_mutex_unlock(&dev->lock);
    }
    return n;
}

size_t ps_stopwatch_outstanding(uint64_t *oldest)
{
    pthread_mutex_lock(&dev->lock);
    size_t n = (size_t)(dev->written - dev->read_so_far);
    *oldest = n ? dev->samples[dev->read_so_far % RING].launch : UINT64_MAX;
    pthread_mutex_unlock(&dev->lock);
    return n;
}
