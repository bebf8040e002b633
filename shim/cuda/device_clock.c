#include "cuda/device_clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/per_device.h"
#include "cuda/driver.h"

/*
 * The number of marks. A reload needs two until the writer has seen its end, 10 ms of the link at
 * most. A queued D2H needs one.
 */
#define MARKS 1024u
#define MARKS_A_WORD 64u

#define RENEW_NS 1000000000u
#define RETRY_NS 50000000u
#define READINGS 5
/* A reading with at most this error is good enough. */
#define GOOD_NS 3000u
/*
 * The longest time of a reading. A longer one means other work, of the machine or on the hardware
 * queue that our stream shares. The old anchor is then used for longer.
 */
#define READING_NS 2000000u
/*
 * The most tries for the first anchor. The device has little other work when the program has just
 * begun.
 */
#define FIRST_TRIES 10

/*
 * The most by which the clocks' rates may differ. Quartzes are better; a larger difference is a
 * wrong reading.
 */
#define DRIFT_MAX 0.0002

/*
 * Events for readings: two for the anchors, one for the best reading of a search and one for the
 * latest.
 */
#define READERS 4u
#define NONE READERS

static PS_PER_DEVICE struct {
    struct ps_device_mark *marks;                  /* an array of MARKS; NULL: there is no clock */
    _Atomic uint64_t unused[MARKS / MARKS_A_WORD]; /* a bit for each mark that is free */
    CUstream stream;
    CUevent reader[READERS]; /* constant once they are made */
    uint64_t renew_at;
    _Atomic uint64_t error_ns;

    pthread_mutex_t lock; /* guards the fields below, which only the renewing thread changes */
    struct {
        unsigned reader;    /* the index of its event; NONE: no reading yet */
        uint64_t ns, error; /* the host's time at the event, and its largest error */
    } anchor, last;
    int64_t between; /* ns from `anchor` to `last` by the device's clock */
    double rate;     /* ns of the host's clock for one ns of the device's */
} first_dev = {.lock = PTHREAD_MUTEX_INITIALIZER, .anchor.reader = NONE, .last.reader = NONE, .rate = 1};
#define dev (&PS_HERE(first_dev))

static bool create_event(CUevent *event)
{
    return ps_cu.cuEventCreate(event, CU_EVENT_DEFAULT) == CUDA_SUCCESS;
}

int ps_device_clock_open(void)
{
    struct ps_device_mark *marks = calloc(MARKS, sizeof *marks);
    int least = 0, greatest = 0;
    bool made = marks && ps_cu.cuCtxGetStreamPriorityRange(&least, &greatest) == CUDA_SUCCESS &&
                ps_cu.cuStreamCreateWithPriority(&dev->stream, CU_STREAM_NON_BLOCKING, greatest) == CUDA_SUCCESS;
    unsigned n = 0;

    for (unsigned i = 0; made && i < READERS; i++)
        made = create_event(&dev->reader[i]);
    while (made && n < MARKS && create_event(&marks[n].event))
        n++;
    if (!n) {
        free(marks);
        return -EIO;
    }
    dev->marks = marks;
    for (unsigned i = 0; i < n; i++)
        ps_device_clock_give(&marks[i]);
    for (int i = 0; i < FIRST_TRIES && dev->anchor.reader == NONE; i++) {
        dev->renew_at = 0;
        ps_device_clock_renew();
    }
    return 0;
}

struct ps_device_mark *ps_device_clock_take(void)
{
    for (unsigned w = 0; dev->marks && w < MARKS / MARKS_A_WORD; w++) {
        uint64_t bits = atomic_load_explicit(&dev->unused[w], memory_order_relaxed);
        while (bits)
            if (atomic_compare_exchange_weak_explicit(&dev->unused[w], &bits, bits & (bits - 1), memory_order_acquire,
                                                      memory_order_relaxed)) {
                struct ps_device_mark *mark = &dev->marks[w * MARKS_A_WORD + (unsigned)__builtin_ctzll(bits)];
                mark->recorded = false;
                return mark;
            }
    }
    return NULL;
}

void ps_device_clock_give(struct ps_device_mark *mark)
{
    if (!mark)
        return;
    unsigned i = (unsigned)(mark - dev->marks);
    atomic_fetch_or_explicit(&dev->unused[i / MARKS_A_WORD], 1ull << i % MARKS_A_WORD, memory_order_release);
}

void ps_device_clock_record(struct ps_device_mark *mark, CUstream stream)
{
    if (mark)
        mark->recorded = ps_cu.cuEventRecord(mark->event, stream) == CUDA_SUCCESS;
}

bool ps_device_clock_is_ahead(const struct ps_device_mark *mark)
{
    return mark->recorded && ps_cu.cuEventQuery(mark->event) == CUDA_ERROR_NOT_READY;
}

/*
 * Records the event and reads when it came by the host's clock, with the largest error. Returns
 * false if that takes too long, or the driver refuses.
 */
static bool read_both_clocks(CUevent event, uint64_t *ns, uint64_t *error)
{
    uint64_t before = ps_now_ns(), after = before;
    CUresult r = ps_cu.cuEventRecord(event, dev->stream);

    if (r != CUDA_SUCCESS)
        return false;
    /* Queries the event. A wait would last as long as the device's earlier work. */
    do {
        r = ps_cu.cuEventQuery(event);
        after = ps_now_ns();
    } while (r == CUDA_ERROR_NOT_READY && after - before < READING_NS);
    *ns = before + (after - before) / 2;
    *error = (after - before + 1) / 2;
    return r == CUDA_SUCCESS && after - before < READING_NS;
}

/* Returns a reader that is neither an anchor nor `but`. */
static unsigned free_reader(unsigned but)
{
    unsigned i = 0;

    while (i == dev->anchor.reader || i == dev->last.reader || i == but)
        i++;
    return i;
}

/*
 * Returns the rate between the two anchors if it exceeds their readings' errors, else 1. The error
 * of a wrong rate would grow with time. [lock held]
 */
static double rate_between(void)
{
    int64_t more = (int64_t)(dev->last.ns - dev->anchor.ns) - dev->between, off = more > 0 ? more : -more;

    if (dev->between <= 0 || (uint64_t)off <= dev->anchor.error + dev->last.error ||
        (double)off > DRIFT_MAX * (double)dev->between)
        return 1;
    return 1 + (double)more / (double)dev->between;
}

/* Makes the reading the last anchor. The last anchor before becomes `anchor`. */
static void set_anchor(unsigned reader, uint64_t ns, uint64_t error)
{
    pthread_mutex_lock(&dev->lock);
    if (dev->last.reader != NONE)
        dev->anchor = dev->last;
    dev->last.reader = reader;
    dev->last.ns = ns;
    dev->last.error = error;
    if (dev->anchor.reader == NONE)
        dev->anchor = dev->last;
    if (dev->anchor.reader == reader ||
        ps_cuda_elapsed_ns(dev->reader[dev->anchor.reader], dev->reader[reader], &dev->between))
        dev->between = 0;
    dev->rate = rate_between();
    /*
     * The error of the last anchor, and both anchors' errors again. The rate may be wrong by these
     * over the second until the next renewal.
     */
    uint64_t in_all = 2 * error + dev->anchor.error;
    pthread_mutex_unlock(&dev->lock);
    if (in_all > atomic_load_explicit(&dev->error_ns, memory_order_relaxed))
        atomic_store_explicit(&dev->error_ns, in_all, memory_order_relaxed);
}

void ps_device_clock_renew(void)
{
    unsigned best = NONE;
    uint64_t best_ns = 0, least = UINT64_MAX;

    if (!dev->marks || ps_now_ns() < dev->renew_at)
        return;
    for (int i = 0; i < READINGS && least > GOOD_NS; i++) {
        unsigned reader = free_reader(best);
        uint64_t ns, error;
        if (!read_both_clocks(dev->reader[reader], &ns, &error))
            break; /* an event still under way is recorded again at its next use */
        if (error >= least)
            continue;
        best = reader;
        best_ns = ns;
        least = error;
    }
    dev->renew_at = ps_now_ns() + (best != NONE ? RENEW_NS : RETRY_NS);
    if (best == NONE)
        return;
    set_anchor(best, best_ns, least);
}

bool ps_device_clock_when(CUevent event, uint64_t *ns)
{
    int64_t since = 0;

    pthread_mutex_lock(&dev->lock);
    bool known = dev->anchor.reader != NONE && !ps_cuda_elapsed_ns(dev->reader[dev->anchor.reader], event, &since);
    /* Counts on from `last` if possible, since the readings' errors do not add up there. */
    if (dev->between > 0 && since >= dev->between)
        *ns = dev->last.ns + (uint64_t)(int64_t)((double)(since - dev->between) * dev->rate);
    else
        *ns = dev->anchor.ns + (uint64_t)(int64_t)((double)since * dev->rate);
    pthread_mutex_unlock(&dev->lock);
    return known;
}

bool ps_device_clock_when_marked(const struct ps_device_mark *mark, uint64_t *ns)
{
    return mark && mark->recorded && ps_device_clock_when(mark->event, ns);
}

uint64_t ps_device_clock_error_ns(void)
{
    return atomic_load_explicit(&dev->error_ns, memory_order_relaxed);
}
