#include "tracer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "counters.h"
#include "layers.h"
#include "layouts.h"
#include "log.h"
#include "real_cuda.h"
#include "registry.h"
#include "residency.h"
#include "step.h"

/* What the call under way on this thread names. */
struct access {
    struct ps_stream *stream;
    CUstream handle;
    bool per_thread_default;
    bool blind;          /* a launch whose parameters can't be read */
    bool begun;          /* the residency machine holds the spans */
    CUfunction function; /* NULL: a copy or memset */
    uint64_t launch;     /* its number, from begin to end */
    struct ps_access_kind kind;
    size_t count;
    size_t capacity;
    struct ps_span **spans;
    struct ps_span *few[32];
};

static __thread struct access *current __attribute__((tls_model("initial-exec")));
static pthread_key_t key;
static pthread_once_t key_made = PTHREAD_ONCE_INIT;
static atomic_uint captures;

static void forget(void *access)
{
    struct access *a = access;

    if (a->spans != a->few)
        free(a->spans);
    free(a);
}

static void make_key(void)
{
    pthread_key_create(&key, forget);
}

static struct access *access_of_this_thread(void)
{
    struct access *a = current;

    if (a)
        return a;
    pthread_once(&key_made, make_key);
    a = calloc(1, sizeof *a);
    if (!a) {
        ps_log_warn_once(TRACER, "no memory to note a thread's accesses: what it launches can't be seen");
        return NULL;
    }
    a->spans = a->few;
    a->capacity = sizeof a->few / sizeof *a->few;
    pthread_setspecific(key, a);
    current = a;
    return a;
}

void ps_trace_begin(CUstream stream, bool per_thread_default)
{
    struct access *a = access_of_this_thread();

    if (!a)
        return;
    a->handle = stream;
    a->per_thread_default = per_thread_default;
    a->count = 0;
    a->blind = a->begun = false;
    a->kind = (struct ps_access_kind){0};
    a->function = NULL;
}

static void note(struct access *a, struct ps_span *span)
{
    if (a->count && a->spans[a->count - 1] == span)
        return;
    if (a->count == a->capacity) {
        struct ps_span **more = malloc(2 * a->capacity * sizeof *more);
        if (!more) {
            a->blind = true; /* what can't be listed is treated like what can't be read */
            return;
        }
        memcpy(more, a->spans, a->count * sizeof *more);
        if (a->spans != a->few)
            free(a->spans);
        a->spans = more;
        a->capacity *= 2;
    }
    a->spans[a->count++] = span;
}

void ps_trace_address(CUdeviceptr address)
{
    if (!ps_registry_owns(address))
        return;
    struct ps_span *span = ps_registry_at(address);
    if (span && current)
        note(current, span);
}

/*
 * Every 8-byte word at a multiple of 8 from the parameter's start: pointers inside a by-value structure are aligned so. The reservation's
 * bounds, which are constant, come as arguments: read from memory they would be read again for each word.
 */
static inline void scan(struct access *a, CUdeviceptr base, uint64_t reserved, const unsigned char *bytes, size_t size)
{
    for (size_t at = 0; at + 8 <= size; at += 8) {
        uint64_t word;
        memcpy(&word, bytes + at, sizeof word);
        if (word - base >= reserved)
            continue;
        struct ps_span *span = ps_registry_at(word);
        if (span)
            note(a, span);
    }
}

/* Launch parameters packed by the caller: CU_LAUNCH_PARAM_BUFFER_POINTER and _SIZE, as cuBLAS does. False if they are not there. */
static bool scan_packed(struct access *a, void **extra)
{
    const unsigned char *buffer = NULL;
    const size_t *size = NULL;

    for (size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[i + 1];
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            size = extra[i + 1];
    }
    if (!buffer || !size)
        return false;
    scan(a, ps_registry.base, ps_registry.reserved, buffer, *size);
    return true;
}

static pthread_mutex_t step_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ps_step_counter steps; /* zero is its initial state as ps_step_init makes it */

static void count_step(uint64_t fingerprint)
{
    pthread_mutex_lock(&step_lock);
    ps_step_observe(&steps, fingerprint);
    pthread_mutex_unlock(&step_lock);
}

/* Without the lock: it is asked for at the end, maybe in a signal handler, where a wrong figure is better than a hang. */
unsigned long long ps_trace_steps(void)
{
    return ps_step_count(&steps);
}

void ps_trace_kernel(CUfunction function, uint64_t shape, void **parameters, void **extra)
{
    struct access *a = current;

    ps_count(launches);
    if (!a)
        return;
    a->kind.fingerprint = (uint64_t)(uintptr_t)function + shape * 0x9E3779B97F4A7C15u;
    a->function = function;
    if (!parameters && extra && scan_packed(a, extra))
        return;
    const struct ps_layout *layout = ps_layout_of(function);
    if (layout && (parameters || !layout->count)) {
        const CUdeviceptr base = ps_registry.base;
        const uint64_t reserved = ps_registry.reserved;
        for (uint32_t i = 0; i < layout->count; i++)
            if (parameters[i])
                scan(a, base, reserved, parameters[i], layout->size[i]);
        return;
    }
    ps_count(launches_without_layout);
    ps_log_warn_once(TRACER, "a kernel's parameters can't be read: each such launch holds every span where it is");
    a->blind = true;
}

static bool is_capturing(const struct access *a)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUstream stream = !a->handle && a->per_thread_default ? CU_STREAM_PER_THREAD : a->handle;

    if (!ps_trace_capturing_anywhere() || !ps_cu.cuStreamIsCapturing)
        return false;
    return ps_cu.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void ps_trace_ready(bool is_kernel)
{
    struct access *a = current;

    if (!is_kernel)
        ps_count(copies_seen);
    if (!a || (!a->count && !a->blind))
        return;
    a->stream = ps_stream_find(a->handle, a->per_thread_default);
    if (!a->stream)
        return;
    a->kind.is_kernel = is_kernel;
    a->kind.layer = ps_layers_now(a->function);
    a->kind.capturing = is_capturing(a);
    a->begun = true;
    /* Steps show in the launches that use spans as well as in all; the rest, which may be very short, are spared the work. */
    if (is_kernel)
        count_step(a->kind.fingerprint);
    if (a->blind)
        ps_residency_begin_access_to_all(a->stream);
    else
        a->launch = ps_residency_begin_access(a->spans, &a->count, a->stream, &a->kind);
}

void ps_trace_end(void)
{
    struct access *a = current;

    if (!a || !a->begun)
        return;
    a->begun = false;
    if (a->blind)
        ps_residency_end_access_to_all(a->stream);
    else
        ps_residency_end_access(a->spans, a->count, a->stream, &a->kind, a->launch);
    a->count = 0;
}

void ps_trace_capture_began(void)
{
    atomic_fetch_add(&captures, 1);
}

void ps_trace_capture_ended(void)
{
    unsigned now = atomic_load(&captures);

    while (now && !atomic_compare_exchange_weak(&captures, &now, now - 1)) {
    }
}

bool ps_trace_capturing_anywhere(void)
{
    return atomic_load_explicit(&captures, memory_order_relaxed) != 0;
}

void ps_trace_asked_about(CUdeviceptr address)
{
    ps_residency_asked_about(address);
}
