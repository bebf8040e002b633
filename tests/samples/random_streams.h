/*
 * Streams of a random program, and the known order between them. Part of random_orders.cu and
 * random_overlap.cu.
 *
 * Every piece of work has a number on its stream. Each stream has a clock, with one number for
 * every stream. All work there up to that number comes before this stream's next work. So a program
 * waits only where nothing orders two pieces of work yet. It relies on order through a third
 * stream, or by the rules of the legacy default stream.
 */
#ifndef PENSTOCK_SAMPLES_RANDOM_STREAMS_H
#define PENSTOCK_SAMPLES_RANDOM_STREAMS_H

#include <memory>
#include <random>
#include <vector>

#include "green.h"
#include "orders.h"

#define MOST_DEVICES 2

static bool all_kinds; /* streams, memory and graphs are of all kinds, not only of the usual ones */

static bool green_streams; /* some streams of the first device are of green contexts */

enum stream_kind { NON_BLOCKING, BLOCKING, PER_THREAD, LEGACY };

typedef std::vector<uint64_t> order_clock;

/*
 * An event that stands for the moment of its record. Its event may be recorded again when the last
 * reference is gone.
 */
struct moment {
    cudaEvent_t event;
    int device; /* the event's */
    order_clock clock;

    moment(void);
    moment(const moment &) = delete;
    moment &operator=(const moment &) = delete;
    ~moment();
};

typedef std::shared_ptr<struct moment> moment_ref;

struct random_stream {
    cudaStream_t handle;
    enum stream_kind kind;
    int device;
    bool reserved; /* chosen by name only */
    bool destroyed;
    order_clock clock;
    moment_ref end; /* of a destroyed stream */
    bool green;
};

/* A piece of work, known by its number or by a moment after it. */
struct work {
    int stream; /* -1: a stream of another thread */
    uint64_t number;
    moment_ref after; /* may be NULL; made when another stream must wait */
};

struct random_streams {
    std::mt19937_64 random;
    std::vector<struct random_stream> all;
};

static inline uint64_t below(struct random_streams *streams, uint64_t bound)
{
    return streams->random() % bound;
}

static inline bool one_in(struct random_streams *streams, uint64_t n)
{
    return below(streams, n) == 0;
}

/* ---- devices ---- */
static thread_local int device_here; /* the thread's current device */

static inline void go_to(int device)
{
    if (device != device_here)
        CHECK(cudaSetDevice(device));
    device_here = device;
}

/* Goes to a device, and back at the end of the scope. */
class at_device
{
  public:
    explicit at_device(int device) : before(device_here)
    {
        go_to(device);
    }
    at_device(const at_device &) = delete;
    at_device &operator=(const at_device &) = delete;
    ~at_device()
    {
        go_to(before);
    }

  private:
    const int before;
};

/* ---- moments ---- */
static std::mutex events_lock;
static std::vector<cudaEvent_t> spare_events[MOST_DEVICES]; /* an event belongs to a device */

inline moment::moment(void) : event(nullptr), device(device_here)
{
    const std::lock_guard<std::mutex> guard(events_lock);
    std::vector<cudaEvent_t> *spare = &spare_events[device];

    if (spare->empty()) {
        CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        return;
    }
    event = spare->back();
    spare->pop_back();
}

inline moment::~moment()
{
    const std::lock_guard<std::mutex> guard(events_lock);

    spare_events[device].push_back(event);
}

static inline void destroy_events(void)
{
    for (std::vector<cudaEvent_t> &spare : spare_events) {
        for (cudaEvent_t event : spare)
            CHECK(cudaEventDestroy(event));
        spare.clear();
    }
}

/* ---- order ---- */
static inline uint64_t number_in(const order_clock &clock, size_t stream)
{
    return stream < clock.size() ? clock[stream] : 0;
}

static inline void learn(order_clock *clock, const order_clock &other)
{
    if (clock->size() < other.size())
        clock->resize(other.size());
    for (size_t i = 0; i < other.size(); i++)
        (*clock)[i] = std::max((*clock)[i], other[i]);
}

static inline bool waits_for_legacy(const struct random_stream *stream)
{
    return stream->kind == BLOCKING || stream->kind == PER_THREAD;
}

/*
 * The legacy stream's next work comes after all work of blocking streams so far. Their next work
 * comes after all of its work so far.
 */
static inline void learn_from_legacy_rules(struct random_streams *streams, int at)
{
    struct random_stream *stream = &streams->all[static_cast<size_t>(at)];

    for (const struct random_stream &other : streams->all) {
        if (other.destroyed || other.device != stream->device)
            continue;
        if ((stream->kind == LEGACY && waits_for_legacy(&other)) || (waits_for_legacy(stream) && other.kind == LEGACY))
            learn(&stream->clock, other.clock);
    }
}

/* Returns the moment at which all present work of the stream is complete. */
static inline moment_ref moment_on(struct random_streams *streams, int at)
{
    const struct random_stream *stream = &streams->all[static_cast<size_t>(at)];

    if (stream->destroyed)
        return stream->end;
    const at_device there(stream->device);
    moment_ref made = std::make_shared<struct moment>();
    CHECK(cudaEventRecord(made->event, stream->handle));
    made->clock = stream->clock;
    return made;
}

/* The stream's next work comes after `work`. */
static inline void come_after(struct random_streams *streams, int at, struct work *work)
{
    struct random_stream *stream = &streams->all[static_cast<size_t>(at)];

    if (work->stream == at)
        return;
    if (work->stream >= 0 && number_in(stream->clock, static_cast<size_t>(work->stream)) >= work->number)
        return;
    if (work->after == nullptr)
        work->after = moment_on(streams, work->stream);
    CHECK(cudaStreamWaitEvent(stream->handle, work->after->event, 0));
    if (work->stream >= 0)
        learn(&stream->clock, work->after->clock);
}

/*
 * Numbers new work of the stream. Some work gets an event at once; other work gets one when needed.
 */
static inline struct work worked(struct random_streams *streams, int at)
{
    const size_t index = static_cast<size_t>(at);
    struct random_stream *stream = &streams->all[index];

    if (stream->clock.size() <= index)
        stream->clock.resize(index + 1);
    const uint64_t number = ++stream->clock[index];
    return {at, number, one_in(streams, 3) ? moment_on(streams, at) : nullptr};
}

/* ---- green contexts ---- */
#define GREEN_CONTEXTS 2

static std::mutex green_lock;
static CUgreenCtx green_contexts[GREEN_CONTEXTS]; /* guarded by green_lock; made when first needed */

static inline cudaStream_t new_green_stream(size_t number)
{
    const std::lock_guard<std::mutex> guard(green_lock);
    cudaStream_t handle = nullptr;
    CUcontext context;

    if (green_contexts[number] == nullptr)
        green_contexts[number] = new_green_context(&context);
    DRIVER_CALL(cuGreenCtxStreamCreate, &handle, green_contexts[number], CU_STREAM_NON_BLOCKING, 0);
    return handle;
}

static inline void destroy_green_contexts(void)
{
    for (CUgreenCtx &green : green_contexts) {
        if (green != nullptr)
            DRIVER_CALL(cuGreenCtxDestroy, green);
        green = nullptr;
    }
}

/* ---- streams that come and go ---- */

/* Makes a stream of the thread's current device. */
static inline int add_stream(struct random_streams *streams, enum stream_kind kind)
{
    cudaStream_t handle = nullptr;
    bool green = false;

    if (green_streams && kind == NON_BLOCKING && device_here == 0 && one_in(streams, 2)) {
        handle = new_green_stream(below(streams, GREEN_CONTEXTS));
        green = true;
    } else if (kind == NON_BLOCKING || kind == BLOCKING) {
        const unsigned flags = kind == BLOCKING ? cudaStreamDefault : cudaStreamNonBlocking;
        int priority = 0, least, greatest;

        if (all_kinds) {
            CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
            priority = least - static_cast<int>(below(streams, static_cast<uint64_t>(least - greatest) + 1));
        }
        CHECK(cudaStreamCreateWithPriority(&handle, flags, priority));
    } else if (kind == PER_THREAD) {
        handle = cudaStreamPerThread;
    } else if (all_kinds && one_in(streams, 2)) {
        handle = cudaStreamLegacy;
    }
    streams->all.push_back({handle, kind, device_here, false, false, {}, nullptr, green});
    return static_cast<int>(streams->all.size()) - 1;
}

static inline bool is_own(const struct random_stream *stream)
{
    return !stream->destroyed && (stream->kind == NON_BLOCKING || stream->kind == BLOCKING);
}

static inline void destroy_stream(struct random_streams *streams, int at)
{
    struct random_stream *stream = &streams->all[static_cast<size_t>(at)];

    stream->end = moment_on(streams, at);
    stream->destroyed = true;
    CHECK(cudaStreamDestroy(stream->handle));
}

static inline int any_stream(struct random_streams *streams)
{
    for (;;) {
        const size_t at = below(streams, streams->all.size());

        if (!streams->all[at].destroyed && !streams->all[at].reserved)
            return static_cast<int>(at);
    }
}

/* Makes the current device's streams, sometimes more than Penstock tracks separately. */
static inline void prepare_streams(struct random_streams *streams)
{
    const uint64_t count = one_in(streams, 8) ? 18 : 1 + below(streams, 5);

    for (uint64_t i = 0; i < count; i++)
        add_stream(streams, one_in(streams, 3) ? BLOCKING : NON_BLOCKING);
    if (one_in(streams, 3))
        add_stream(streams, PER_THREAD);
    if (one_in(streams, 2))
        add_stream(streams, LEGACY);
}

#endif
