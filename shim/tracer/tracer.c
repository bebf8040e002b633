#include "tracer/tracer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes_text.h"
#include "base/counters.h"
#include "base/log.h"
#include "base/ordering_rules.h"
#include "core/access.h"
#include "cuda/capture.h"
#include "cuda/device_memory.h"
#include "cuda/devices.h"
#include "cuda/driver.h"
#include "cuda/green_contexts.h"
#include "cuda/helper_thread.h"
#include "cuda/managed_context.h"
#include "cuda/questions.h"
#include "kernels/grid.h"
#include "kernels/host_tables.h"
#include "kernels/kernel_words.h"
#include "kernels/layouts.h"
#include "kernels/made_tables.h"
#include "kernels/pointer_tables.h"
#include "kernels/stale_pointers.h"
#include "memory/blocks.h"
#include "memory/budget.h"
#include "memory/launches_under_way.h"
#include "memory/registry.h"
#include "plan/layer_markers.h"
#include "plan/learning.h"
#include "policy/steps/step_counter.h"
#include "residency/copies.h"
#include "residency/grace.h"
#include "residency/graph_memory.h"
#include "residency/residency.h"
#include "tracer/graph_tables.h"
#include "tracer/graphs.h"
#include "tracer/maybe_spans.h"

/* The part of the call under way that is on one device. */
struct part {
    unsigned device;
    size_t first, count;             /* its stretch of `spans` */
    size_t first_block, block_count; /* its stretch of the blocks of which it may touch any piece */
    struct ps_maybe_part maybe;
    uint64_t launch; /* the call's number on this device, from begin to end */
};

/* The call under way on this thread, and the spans and blocks that it names. */
struct access {
    struct ps_stream *stream;
    CUstream handle;
    bool per_thread_default;
    bool is_meant;    /* a parameter of a pointer's size names a span, which is no accident */
    bool reads_ahead; /* the call is a copy that may read a span ahead of its stream */
    bool blind;       /* the call's accesses can't be read or listed */
    bool begun;       /* the residency machine holds the spans */
    bool finds_none;  /* the kernel is known to use only the memory that it is given */
    bool unseen;      /* the launch may use memory that it does not name; from begin to end */
    bool names_small; /* the launch is given a span of one unit */
    struct ps_maybe_spans maybe;
    struct ps_made_call made;
    uint64_t began;      /* unseen: the number for ps_grace_launch_ends */
    CUfunction function; /* NULL: a copy, a memset or a graph */
    uint64_t launch;     /* the launch's number on its own device, from begin to end */
    struct ps_access_kind kind;
    size_t count;
    size_t capacity;
    struct ps_span **spans;
    unsigned parts; /* the number of devices that own spans of the call */
    struct part part[PS_DEVICES_MAX];
    struct ps_span *few[32];
    /* An address inside the largest span that the call names elsewhere than at its start. */
    CUdeviceptr inside;
    size_t inside_bytes;             /* the size of that span; 0: no such span */
    struct ps_block_names in_blocks; /* names in blocks, which join `spans` when the call is ready */
};

static __thread struct access *current __attribute__((tls_model("initial-exec")));
static pthread_key_t key;
static pthread_once_t key_made = PTHREAD_ONCE_INIT;

/*
 * For threads that begin when there is no memory. A launch that is not seen finds its spans away,
 * so running out of memory may cost time, but no record.
 */
static struct {
    struct access access;
    atomic_flag taken;
} spare[64];

static struct access *take_spare(void)
{
    for (size_t i = 0; i < sizeof spare / sizeof *spare; i++)
        if (!atomic_flag_test_and_set(&spare[i].taken))
            return &spare[i].access;
    return NULL;
}

static void give_record(struct access *a)
{
    for (size_t i = 0; i < sizeof spare / sizeof *spare; i++)
        if (a == &spare[i].access) {
            *a = (struct access){.count = 0};
            atomic_flag_clear(&spare[i].taken);
            return;
        }
    free(a);
}

static void forget(void *access)
{
    struct access *a = access;

    ps_inside++;
    ps_tracer_end(false); /* ends a launch that was under way when the thread ended */
    ps_inside--;
    if (a->spans != a->few)
        free(a->spans);
    ps_block_names_free(&a->in_blocks);
    give_record(a);
    current = NULL; /* a destructor that comes later may launch again */
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
    a = a ? a : take_spare();
    if (!a) {
        ps_log_warn_once(TRACER, "no memory to record a thread's accesses: Penstock can't see what it "
                                 "launches; a lower PENSTOCK_HOST_BUDGET makes the slab smaller");
        return NULL;
    }
    a->spans = a->few;
    a->capacity = sizeof a->few / sizeof *a->few;
    pthread_setspecific(key, a);
    current = a;
    return a;
}

void ps_tracer_begin(CUstream stream, bool per_thread_default)
{
    struct access *a = access_of_this_thread();

    if (!a)
        return;
    a->handle = stream;
    a->per_thread_default = per_thread_default;
    a->count = a->in_blocks.count = a->in_blocks.blocks = 0;
    a->blind = a->begun = a->is_meant = a->reads_ahead = false;
    a->parts = 0;
    a->inside_bytes = 0;
    a->kind = (struct ps_access_kind){0};
    a->finds_none = a->unseen = false;
    a->made.looks = a->names_small = false;
    a->maybe.count = a->maybe.begun = 0;
    a->function = NULL;
}

static void note_span(struct access *a, struct ps_span *span)
{
    if (a->count && a->spans[a->count - 1] == span)
        return;
    if (a->count == a->capacity) {
        struct ps_span **more = malloc(2 * a->capacity * sizeof *more);
        if (!more) {
            a->blind = true; /* accesses that can't be listed count as accesses that can't be read */
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

static void note_piece(void *access, struct ps_span *piece)
{
    note_span(access, piece);
}

static void note_in_block(struct access *a, CUdeviceptr address, size_t bytes, bool somewhere)
{
    if (!ps_block_name(&a->in_blocks, address, bytes, somewhere))
        a->blind = true;
}

static PS_ALWAYS_INLINE void note(struct access *a, CUdeviceptr address, size_t bytes, bool somewhere)
{
    struct ps_span *span = ps_address_span(address);

    if (!span && !(span = ps_address_span(address = ps_address_meant(address)))) {
        if (ps_blocks_have_holes())
            note_in_block(a, address, bytes, somewhere);
        return;
    }
    if (ps_blocks_exist() && ps_block_of(span)) {
        note_in_block(a, address, bytes, somewhere);
        return;
    }
    if (address != span->address && span->bytes > a->inside_bytes) {
        a->inside = address;
        a->inside_bytes = span->bytes;
    }
    note_span(a, span);
}

void ps_tracer_address(CUdeviceptr address)
{
    ps_tracer_bytes(address, 0);
}

void ps_tracer_bytes(CUdeviceptr address, size_t bytes)
{
    if (ps_address_is_a_spans(address) && current)
        note(current, address, bytes, false);
}

void ps_tracer_all_spans(void)
{
    const ptrdiff_t before = ps_here;
    struct ps_span *span;

    for (unsigned i = 0; current && i < ps_devices_count(); i++) {
        if (ps_devices_several)
            ps_devices_enter(i);
        ps_registry_lock();
        for (CUdeviceptr at = ps_registry.start; (span = ps_registry_next(at)); at = span->address + span->bytes)
            if (span->life == PS_LIFE_LIVE)
                note(current, span->address, span->bytes, false);
        ps_registry_unlock();
    }
    ps_here = before;
}

void ps_tracer_reads_ahead(CUdeviceptr source)
{
    if (ps_address_is_a_spans(source) && current)
        current->reads_ahead = true;
}

static PS_ALWAYS_INLINE void note_word(void *access, CUdeviceptr word, size_t bytes)
{
    struct access *a = access;

    const struct ps_span *span = ps_address_span(ps_address_meant(word));
    if (bytes == sizeof word && span)
        a->is_meant = true;
    a->names_small |= span && span->bytes <= ps_reservation.granularity;
    note(a, word, 0, false);
}

/* A table names this unit. A table is written to be used, so this is no stale pointer. */
static void note_unit(void *access, CUdeviceptr unit)
{
    struct access *a = access;

    a->is_meant = true;
    note(a, unit, 0, true);
}

/* A launch that may use the unit, and mostly does not, is in no step for that. */
static void note_maybe(void *access, CUdeviceptr unit)
{
    struct access *a = access;
    struct ps_span *span = ps_address_span(unit);

    if (span && ps_blocks_exist() && ps_block_of(span))
        note(a, unit, 0, true);
    else if (span)
        ps_maybe_add(&a->maybe, span);
}

static void note_table(void *access, CUdeviceptr word, size_t bytes)
{
    (void)bytes;
    ps_pointer_tables_name(word, note_unit, note_maybe, access);
}

/*
 * Names the spans that the kernel finds through pointer tables. A program without tables pays only
 * for the first check.
 */
static void note_tables(struct access *a, const struct ps_layout *layout, void **parameters, void **extra)
{
    uint64_t bytes;
    const CUdeviceptr start = ps_pointer_tables_range(&bytes);

    if (bytes && ps_ordering_rule(TABLE_NAMES_SPANS))
        ps_kernel_words_between(start, bytes, layout, parameters, extra, note_table, a);
}

/*
 * Names the spans that tables in variables of modules name. Any kernel may read such a variable,
 * unless it is known to read no memory but what it is given.
 */
static void note_variables(struct access *a)
{
    if (!a->finds_none && ps_pointer_tables_exist_in_variables() && ps_ordering_rule(TABLE_NAMES_SPANS))
        ps_pointer_tables_name_of_variables(note_unit, a);
}

static void note_graph_memory(void *uses, CUdeviceptr word, size_t bytes)
{
    (void)bytes;
    ps_graph_memory_used(((const struct ps_graph_memory_uses *)uses)->capture, word);
}

/* Notes the memory of other graphs that a captured kernel uses. */
static void note_use_of_graph_memory(const struct access *a, const struct ps_layout *layout, void **parameters,
                                     void **extra)
{
    struct ps_graph_memory_uses uses;

    if (!ps_capture_anywhere())
        return;
    uses = ps_graph_memory_look(a->handle, a->per_thread_default);
    if (uses.capture)
        ps_kernel_words_between(uses.start, uses.bytes, layout, parameters, extra, note_graph_memory, &uses);
}

static pthread_mutex_t step_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ps_step_counter steps; /* all zero is the state that ps_step_init makes */

static void count_step(uint64_t fingerprint)
{
    pthread_mutex_lock(&step_lock);
    ps_step_observe(&steps, fingerprint);
    pthread_mutex_unlock(&step_lock);
}

/*
 * Takes no lock. It is called at the end, maybe in a signal handler, where a wrong figure is better
 * than a hang.
 */
unsigned long long ps_tracer_steps(void)
{
    return ps_step_count(&steps);
}

unsigned long long ps_tracer_steps_so_far(void)
{
    static struct ps_step_counter then;

    pthread_mutex_lock(&step_lock);
    then = steps;
    pthread_mutex_unlock(&step_lock);
    return ps_step_count(&then);
}

void ps_tracer_kernel(CUfunction function, struct ps_grid grid, void **parameters, void **extra)
{
    struct access *a = current;

    ps_count(launches);
    if (!a)
        return;
    ps_launches_under_way_begins();
    /* The grid tells launches of one kernel apart. */
    a->kind.fingerprint = (uint64_t)(uintptr_t)function + ps_grid_blocks(grid) * 0x9E3779B97F4A7C15u;
    a->function = function;
    const struct ps_layout *layout = ps_layout_of(function);
    a->kind.keeps_no_address = layout && layout->known == PS_KERNEL_KEEPS_NO_ADDRESS;
    a->finds_none = layout && layout->known != PS_KERNEL_UNKNOWN;
    if (a->finds_none)
        ps_launches_under_way_ends();
    const bool has_lists =
        layout && layout->tensor_lists.lists && ps_kernel_words_of_lists(layout, parameters, grid, note_word, a);
    if (has_lists)
        ps_count(list_launches);
    struct ps_other_words others = {0};
    if (has_lists || ps_kernel_words(layout, parameters, extra, note_word, a, &others)) {
        const struct ps_other_words given = others; /* `others` has no address outside this function */
        ps_made_tables_read();
        /* Before note_tables: a table that this kernel makes replaces what was there. */
        if ((has_lists || others.count || a->names_small) && !a->finds_none && (a->count || a->in_blocks.count) &&
            !ps_capture_has(a->handle, a->per_thread_default))
            ps_made_tables_begin(&a->made, function, layout, parameters, extra);
        note_tables(a, layout, parameters, extra);
        note_variables(a);
        note_use_of_graph_memory(a, layout, parameters, extra);
        ps_host_tables_name(layout, parameters, extra, has_lists ? NULL : &given, note_unit, a);
        return;
    }
    ps_count(launches_without_layout);
    ps_log_warn_once(TRACER, "a kernel's parameters can't be read: each such launch keeps every span "
                             "where it is; the report counts them (launches_without_layout)");
    a->blind = true;
}

/* A graph launch that is captured brings and makes nothing yet. */
static void run_tables(struct access *a, CUgraphExec executable)
{
    if (ps_ordering_rule(TABLE_NAMES_SPANS) && !ps_capture_has(a->handle, a->per_thread_default))
        a->blind |= !ps_graph_tables_run(executable, note_unit, a);
}

void ps_tracer_graph(CUgraphExec executable)
{
    struct access *a = current;

    ps_count(graph_launches);
    if (!a)
        return;
    ps_launches_under_way_begins();
    ps_made_tables_read();
    a->kind.fingerprint = (uint64_t)(uintptr_t)executable * 0x9E3779B97F4A7C15u;
    note_variables(a); /* as they are now: kernels of the graph may read them when it runs */
    const bool known = !ps_ordering_rule(GRAPH_NAMES_SPANS) || ps_graph_name(executable, ps_tracer_bytes, note_unit, a);
    run_tables(a, executable);
    if (known)
        return;
    ps_count(graph_launches_unknown);
    ps_log_warn_once(TRACER,
                     "the nodes of a CUDA graph can't be read: each launch of the graph keeps every span where it is; "
                     "the report counts them (graph_launches_unknown); without graphs more spans can move");
    a->blind = true;
}

/* ---- several devices ---- */

/* Adds the named pieces of blocks to the spans. Returns false if there is no memory. */
static bool resolve_blocks(struct access *a)
{
    bool listed = true;

    if (!ps_devices_several)
        return ps_block_resolve(&a->in_blocks, note_piece, a);
    for (unsigned i = 0; listed && i < ps_devices_count(); i++) {
        ps_devices_enter(i);
        listed = ps_block_resolve(&a->in_blocks, note_piece, a);
    }
    return listed;
}

/* Finds the part's blocks. Blocks were resolved device by device, so they are adjacent. */
static void find_blocks(const struct access *a, struct part *part)
{
    for (size_t i = 0; i < a->in_blocks.blocks; i++) {
        if (ps_address_device(a->in_blocks.block[i]->address) != part->device)
            continue;
        if (!part->block_count++)
            part->first_block = i;
    }
}

/* Groups the spans by device, and keeps the order of naming within each device. */
static void part_by_device(struct access *a)
{
    if (a->blind || !ps_devices_several) {
        a->parts = a->blind ? ps_devices_count() : 1;
        for (unsigned i = 0; i < a->parts; i++)
            a->part[i] =
                (struct part){.device = i, .count = a->count, .block_count = a->blind ? 0 : a->in_blocks.blocks};
        return;
    }
    for (size_t from = 0; from < a->count && a->parts < PS_DEVICES_MAX;) {
        struct part *part = &a->part[a->parts++];
        size_t n = from;

        *part = (struct part){.device = a->spans[from]->device};
        for (size_t i = from; i < a->count; i++) {
            struct ps_span *span = a->spans[i];
            if (span->device != part->device)
                continue;
            memmove(&a->spans[n + 1], &a->spans[n], (i - n) * sizeof(struct ps_span *));
            a->spans[n++] = span;
        }
        part->first = from;
        part->count = n - from;
        find_blocks(a, part);
        from = n;
    }
}

/*
 * Calls `act` at each device of the call, in the device's context. A blind call is at all devices.
 *
 * Two clocks: each device's own copy streams bring its spans. The launch stream waits for their
 * events, whichever device it is of. A span may be held at one device while the thread waits for
 * pages at another. No other thread is stuck then: evictions wait for queued work only. If no
 * eviction helps, spans stay on their slots.
 *
 * A kernel is launched on a stream of the current context; a copy need not be (CUDA's programming
 * guide, "Stream and Event Behavior").
 */
static void at_each_device(struct access *a, void (*act)(struct access *a, struct part *part))
{
    const bool is_there = a->kind.is_kernel && !ps_devices_several && !ps_green_contexts_exist() &&
                          a->stream->context == ps_device.context;
    struct ps_managed_context context;

    for (unsigned i = 0; i < a->parts; i++) {
        if (!is_there)
            context = ps_managed_context_enter_at(a->part[i].device);
        a->kind.blocks = a->in_blocks.block + a->part[i].first_block;
        a->kind.block_count = a->part[i].block_count;
        act(a, &a->part[i]);
        if (!ps_stream_is_foreign(a->stream))
            a->launch = a->part[i].launch;
        if (!is_there)
            ps_managed_context_leave(context);
    }
}

/*
 * Two clocks: the stream waits for the H2D of each named span. But the call may read the span now,
 * or at any time until the stream gets there. Nothing else orders that read after the H2D, so the
 * host waits for the H2D, however long it takes. All work that an H2D waits for is queued already.
 */
static void wait_for_sources(const struct access *a, const struct part *part)
{
    if (a->blind || part->block_count) /* how far the call reads is unknown */
        ps_copies_drain_reloads();
    else
        ps_residency_settle(a->spans + part->first, part->count, false);
}

static void begin_part(struct access *a, struct part *part)
{
    if (a->inside_bytes && a->function && !a->blind)
        ps_block_used_inside(a->inside, a->inside_bytes, a->spans + part->first, part->count);
    if (a->blind)
        ps_residency_begin_access_to_all(a->stream);
    else
        part->launch = ps_access_begin(a->spans + part->first, &part->count, a->stream, &a->kind);
    if (a->blind)
        a->maybe.count = 0;
    part->maybe = ps_maybe_begin(&a->maybe, part->device, a->stream, &a->kind);
    /* A captured call reads nothing now. */
    if (a->reads_ahead && !a->kind.capturing && ps_ordering_rule(READ_AHEAD_WAITS_FOR_RELOAD))
        wait_for_sources(a, part);
    if (a->kind.is_kernel && !a->function && !a->blind)
        ps_graph_look_for_room(a->spans + part->first, part->count);
    if (!a->blind && a->function && !part->count && !part->block_count)
        ps_stale_pointers_named_none(a->kind.fingerprint);
}

static void end_part(struct access *a, struct part *part)
{
    if (a->blind)
        ps_residency_end_access_to_all(a->stream);
    else
        ps_access_end(a->spans + part->first, part->count, a->stream, &a->kind, part->launch);
    ps_maybe_end(&a->maybe, part->maybe, a->stream, &a->kind);
}

/*
 * Begins or ends, for grace.h, a launch that may use memory that it does not name. The launch runs
 * on a stream of the current context, so it belongs to that context's device.
 */
static void at_own_device(struct access *a, bool begins)
{
    const ptrdiff_t before = ps_here;

    if (!ps_devices_several || ps_devices_enter_current() == PS_DEVICES_MANAGED) {
        a->unseen = begins;
        ps_launches_under_way_is_here();
        if (begins)
            a->began = ps_grace_launch_begins(a->stream);
        else
            ps_grace_launch_ends(a->stream, a->began);
    }
    ps_here = before;
}

static void begin_unseen(struct access *a)
{
    if (!a->finds_none && !a->blind && !ps_capture_has(a->handle, a->per_thread_default))
        at_own_device(a, true);
}

static void make_ready(struct access *a, bool is_kernel)
{
    if (a->in_blocks.count && !resolve_blocks(a))
        a->blind = true;
    const bool leads = is_kernel && ps_host_tables_must_lead();
    a->blind |= leads || (is_kernel && ps_questions_are_refused());
    a->kind.only_maybe = !a->count && a->maybe.count;
    for (size_t i = 0; a->kind.only_maybe && i < a->maybe.count; i++)
        note_span(a, a->maybe.span[i]);
    a->maybe.count = a->kind.only_maybe ? 0 : a->maybe.count;
    const bool is_alone = is_kernel && a->function && !a->blind; /* a kernel's launch, not a graph's */
    if (is_alone && (!a->count || a->kind.only_maybe))
        ps_stale_pointers_named_none(a->kind.fingerprint);
    if (!a->count && !a->blind) {
        a->stream = is_kernel && !a->finds_none ? ps_stream_find(a->handle, a->per_thread_default) : NULL;
        if (a->stream) {
            ps_stream_launched_unseen(a->stream);
            begin_unseen(a);
        }
        return;
    }
    a->kind.may_be_stale = is_alone && !a->is_meant && !a->kind.only_maybe && ps_stale_pointers_is(a->kind.fingerprint);
    a->kind.keeps_no_address |= !is_kernel;
    a->stream = ps_stream_find(a->handle, a->per_thread_default);
    if (!a->stream)
        return;
    a->kind.is_kernel = is_kernel;
    a->kind.layer = ps_layer_markers_now(a->function);
    a->kind.capturing = ps_capture_has(a->handle, a->per_thread_default);
    if (a->blind && a->kind.capturing)
        return; /* nothing runs now, and the graph will be unknown as well */
    a->begun = true;
    /*
     * The launches that use spans are enough to find the steps. Other launches, which may be very
     * short, do not pay for this.
     */
    if (is_kernel && !a->kind.only_maybe)
        count_step(a->kind.fingerprint);
    part_by_device(a);
    at_each_device(a, begin_part);
    if (leads)
        ps_host_tables_have_led();
    if (is_kernel)
        begin_unseen(a);
}

void ps_tracer_ready(bool is_kernel)
{
    struct access *a = current;

    if (!is_kernel)
        ps_count(copies_seen);
    if (!a)
        return;
    make_ready(a, is_kernel);
    /* The call uses no unnamed memory, holds every span, or is captured and does not run now. */
    if (!a->unseen)
        ps_launches_under_way_ends();
}

void ps_tracer_ready_to_look(void)
{
    static struct ps_stream none = {.index = PS_STREAMS_MAX};
    struct access *a = current;

    if (!a || (!a->count && !a->in_blocks.count))
        return;
    if (a->in_blocks.count && !resolve_blocks(a))
        a->blind = true;
    if (!a->count || a->blind)
        return;
    a->stream = &none;
    a->kind = (struct ps_access_kind){.keeps_no_address = true, .capturing = true, .only_looked = true};
    a->begun = true;
    part_by_device(a);
    at_each_device(a, begin_part);
}

void ps_tracer_end(bool succeeded)
{
    struct access *a = current;

    if (a && a->made.looks && succeeded)
        ps_made_tables_end(&a->made, a->handle, a->per_thread_default);
    if (a && a->unseen)
        at_own_device(a, false);
    ps_launches_under_way_ends();
    if (!a || !a->begun)
        return;
    a->begun = false;
    at_each_device(a, end_part);
    a->count = 0;
}

struct ps_traced_launch ps_tracer_launch(void)
{
    const struct access *a = current;

    if (!a || !a->begun)
        return (struct ps_traced_launch){.layer.number = PENSTOCK_NEVER};
    return (struct ps_traced_launch){.is_blind = a->blind,
                                     .is_learnt = !a->blind && a->launch != PS_LAUNCH_NOT_LEARNT,
                                     .number = a->launch,
                                     .layer = a->kind.layer};
}

void ps_tracer_asked_about(CUdeviceptr address)
{
    ps_residency_asked_about(address);
}
