/*
 * Cases of test_orderings. Launches stand in their calls or wait behind a gate, while others move
 * the spans that they use. Or they wait for an event that is used again. Part of test_orderings.c,
 * after orderings_of_grace.h.
 */
#ifndef PS_TESTS_UNIT_ORDERINGS_OF_STANDING_H
#define PS_TESTS_UNIT_ORDERINGS_OF_STANDING_H

#include "base/clock.h"
#include "kernels/made_tables.h"
#include "memory/launches_under_way.h"
#include "tracer/tracer.h"

/* ---- launches that stand in their calls ---- */

#define STANDING_VALUE 3u

/* The caller expects nothing meanwhile. */
static void run_on_a_thread(void *(*run)(void *))
{
    pthread_t thread;
    const int created = pthread_create(&thread, NULL, run, NULL);

    if (!created)
        pthread_join(thread, NULL);
    EXPECT_INT(0, created);
}

/*
 * A span that a launch named, whose uses are all over: only its grace keeps it. And a span of which
 * another thread makes many launches.
 */
static struct {
    CUdeviceptr used, other;
    struct ps_stream *beside;
} standing;

static void *launch_many_and_evict(void *unused)
{
    (void)unused;
    EXPECT_INT(0, driver.set_current(ps_device.context));
    stream = standing.beside;
    for (unsigned i = 0; i < 2 * GRACE; i++)
        end_use(begin_use(standing.other));
    ps_registry_lock();
    ps_demand_eviction_evict(1);
    ps_registry_unlock();
    return NULL;
}

static void name_before_standing(void)
{
    ps_grace_open(GRACE);
    ps_demand_eviction_open(GRACE);
    make_slots(2);
    standing.used = allocate();
    standing.other = allocate();
    fill(standing.other, STANDING_VALUE + 1);
    fill(standing.used, STANDING_VALUE);
    EXPECT_INT(0, ps_stream_tick(stream));
    EXPECT_INT(0, ps_cu.cuStreamSynchronize(stream->handle));
    standing.beside = new_stream();
}

static void launch_many_beside(void)
{
    struct ps_stream *own = stream;

    run_on_a_thread(launch_many_and_evict);
    stream = own;
}

/* A launch that may use the span stands in its driver call. */
static void stand_in_the_call(void)
{
    name_before_standing();
    ps_launches_under_way_begins();
    uint64_t began = ps_grace_launch_begins(stream);
    launch_many_beside();
    EXPECT_INT(PS_RESIDENT, ps_address_span(standing.used)->residency);
    read_unseen(standing.used, began);
    ps_launches_under_way_ends();
    expect_read(STANDING_VALUE);
    launch_many_beside();
    EXPECT(ps_grace_is_over(ps_address_span(standing.used)));
}

/* The launch has been called, and its spans are being looked up. */
static void stand_before_the_call(void)
{
    const struct ps_span *span;

    name_before_standing();
    ps_launches_under_way_begins();
    keep_the_device_busy();
    launch_many_beside();
    span = ps_address_span(standing.used);
    EXPECT(span->grace.left_in);
    uint64_t began = ps_grace_launch_begins(stream);
    ps_registry_lock();
    EXPECT(!span->busy && span->residency != PS_EVICTING && span->backing != PS_BACKING_NONE);
    ps_registry_unlock();
    read_unseen(standing.used, began);
    ps_launches_under_way_ends();
    struct ps_uses uses = {.count = 0};
    ps_registry_lock();
    ps_grace_add_uses(span, &uses);
    ps_registry_unlock();
    EXPECT(uses.count && uses.use[0].stream == stream);
    expect_read(STANDING_VALUE);
}

static pthread_barrier_t both;

static void *launch_in_turn(void *unused)
{
    (void)unused;
    for (unsigned turn = 0; turn < TURNS; turn++) {
        ps_launches_under_way_begins();
        pthread_barrier_wait(&both);
        pthread_barrier_wait(&both);
        ps_launches_under_way_ends();
    }
    return NULL;
}

/*
 * Two threads' launches always overlap: one of the two is under way at any time, but none for long.
 */
static void launches_that_overlap(void)
{
    pthread_t thread;
    uint64_t number;
    unsigned old = 0;

    ps_grace_open(GRACE);
    CUdeviceptr address = allocate();
    EXPECT_INT(0, pthread_barrier_init(&both, NULL, 2));
    EXPECT_INT(0, pthread_create(&thread, NULL, launch_in_turn, NULL));
    for (unsigned turn = 0; turn < TURNS; turn++) {
        pthread_barrier_wait(&both);
        number = ps_registry.launch_number;
        ps_launches_under_way_begins();
        EXPECT(ps_launches_under_way_is_any(number, number));
        pthread_barrier_wait(&both);
        end_use(begin_use(address));
        ps_launches_under_way_ends();
        old += number > 1 && ps_launches_under_way_is_any(0, number - 2);
    }
    pthread_join(thread, NULL);
    EXPECT_U64(0, old);
    EXPECT(!ps_launches_under_way_is_any(0, UINT64_MAX));
}

#define STANDING_AT_A_TIME 100u

static void *stand_with_others(void *unused)
{
    (void)unused;
    ps_launches_under_way_begins();
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both);
    ps_launches_under_way_ends();
    return NULL;
}

/* More launches at a time than are known individually: none is forgotten. */
static void launches_without_number(void)
{
    pthread_t thread[STANDING_AT_A_TIME];
    CUdeviceptr address = allocate();

    EXPECT_INT(0, pthread_barrier_init(&both, NULL, STANDING_AT_A_TIME + 1));
    for (unsigned i = 0; i < STANDING_AT_A_TIME; i++)
        EXPECT_INT(0, pthread_create(&thread[i], NULL, stand_with_others, NULL));
    pthread_barrier_wait(&both);
    end_use(begin_use(address));
    EXPECT(ps_launches_under_way_is_any(1, 1)); /* one of them might have begun later */
    pthread_barrier_wait(&both);
    for (unsigned i = 0; i < STANDING_AT_A_TIME; i++)
        pthread_join(thread[i], NULL);
    EXPECT(!ps_launches_under_way_is_any(0, UINT64_MAX));
}

static void *end_in_a_launch(void *unused)
{
    (void)unused;
    EXPECT_INT(0, driver.set_current(ps_device.context));
    ps_tracer_begin(stream->handle, false);
    ps_tracer_graph(NULL);
    EXPECT(ps_launches_under_way_is_any(0, UINT64_MAX));
    return NULL;
}

/* A thread ends in its call. */
static void thread_ends_in_launch(void)
{
    run_on_a_thread(end_in_a_launch);
    EXPECT(!ps_launches_under_way_is_any(0, UINT64_MAX));
}

static pthread_key_t ends_later;

static void end_in_a_launch_again(void *unused)
{
    end_in_a_launch(unused);
}

static void *end_twice(void *unused)
{
    pthread_setspecific(ends_later, &ends_later);
    return end_in_a_launch(unused);
}

/*
 * A thread ends in another call, which a library makes at the thread's end, after the core's own
 * work there.
 */
static void thread_ends_in_last_launch(void)
{
    ps_tracer_begin(stream->handle, false); /* the core's key is there, and comes first */
    EXPECT_INT(0, pthread_key_create(&ends_later, end_in_a_launch_again));
    run_on_a_thread(end_twice);
    EXPECT(!ps_launches_under_way_is_any(0, UINT64_MAX));
}

/*
 * A launch of a kernel that may make tables has ended. It is not examined again when its thread
 * ends: its stream may be gone by then.
 */
static void end_made_once(void)
{
    struct ps_made_call made = {.launch.key = 1, .looks = true};

    ps_made_tables_end(&made, stream->handle, false);
    EXPECT(!made.looks);
}

static void *launch_many(void *unused)
{
    (void)unused;
    EXPECT_INT(0, driver.set_current(ps_device.context));
    for (unsigned i = 0; i < 2 * GRACE; i++)
        end_use(begin_use(standing.other));
    return NULL;
}

/*
 * A launch has stood in its call for long when a span is born. The span is at new addresses or at
 * those of a freed span. The launch is in no grace of the new span.
 */
static void born_beside_standing(void)
{
    name_before_standing();
    ps_launches_under_way_begins();
    for (unsigned i = 0; i < 2; i++) {
        run_on_a_thread(launch_many);
        CUdeviceptr born = allocate();
        atomic_store(&ps_address_span(born)->grace.known, true); /* a table names it */
        run_on_a_thread(launch_many);
        EXPECT(ps_grace_is_over(ps_address_span(born)));
        EXPECT_INT(0, ps_allocation_free(born, NULL));
        expect_device_is_well();
    }
    ps_launches_under_way_ends();
}

static atomic_bool has_begun;

static void *launch_while_shown(void *unused)
{
    (void)unused;
    uint64_t began = ps_grace_launch_begins(beside.stream);
    atomic_store(&has_begun, true);
    ps_grace_launch_ends(beside.stream, began);
    return NULL;
}

/*
 * The driver is shown stand-in pages at the span's addresses, while another thread's launch may use
 * the span by a table.
 */
static void look_in_grace(void)
{
    static const struct ps_access_kind look = {.keeps_no_address = true, .capturing = true, .only_looked = true};
    CUdeviceptr address = left_in_its_grace(3);
    struct ps_span *span = ps_address_span(address);
    pthread_t thread;
    size_t count = 1;

    beside.stream = new_stream();
    ps_grace_launch_ends(stream, ps_grace_launch_begins(stream)); /* has made sure that the span is on its slot */
    ps_access_begin(&span, &count, stream, &look);
    EXPECT(span->stand_ins.mapped);
    const int created = pthread_create(&thread, NULL, launch_while_shown, NULL);
    usleep(20000);
    const bool begun = atomic_load(&has_begun);
    ps_access_end(&span, count, stream, &look, PS_LAUNCH_NOT_LEARNT);
    if (!created)
        pthread_join(thread, NULL);
    EXPECT_INT(0, created);
    EXPECT(!begun);
    EXPECT(atomic_load(&has_begun));
    read_unseen(address, ps_grace_launch_begins(stream));
    expect_read(3);
}

static void *launch_blindly(void *span)
{
    unsigned held = 0;

    ps_residency_begin_access_to_all(beside.stream);
    atomic_store(&has_begun, true);
    while (!held) {
        usleep(1000);
        ps_registry_lock();
        held = ((struct ps_span *)span)->holds.launching;
        ps_registry_unlock();
    }
    ps_residency_end_access_to_all(beside.stream);
    return NULL;
}

/*
 * The driver looks at a span that a launch without known spans has led to its slot. The look waits
 * for the end of that launch, and then finds the slot free.
 */
static void look_beside_blind_launch(void)
{
    static const struct ps_access_kind look = {.keeps_no_address = true, .capturing = true, .only_looked = true};
    struct ps_span *span = ps_address_span(left_in_its_grace(3));
    pthread_t thread;
    size_t count = 1;

    beside.stream = new_stream();
    ps_grace_launch_ends(stream, ps_grace_launch_begins(stream));
    const int created = pthread_create(&thread, NULL, launch_blindly, span);
    while (!created && !atomic_load(&has_begun))
        usleep(1000);
    ps_access_begin(&span, &count, stream, &look);
    EXPECT(span->stand_ins.mapped);
    ps_access_end(&span, count, stream, &look, PS_LAUNCH_NOT_LEARNT);
    EXPECT_U64(0, span->holds.launching);
    EXPECT_U64(0, span->holds.idle);
    EXPECT(!span->holds.on_slot);
    if (EXPECT_INT(0, created))
        pthread_join(thread, NULL);
}

/* ---- behind a gate ---- */

typedef CUresult (*wait_value)(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags);

/* Work given to the stream from here on waits until the gate is opened. */
static void shut(CUstream on)
{
    wait_value wait;

    EXPECT_INT(0, driver.fill(busy_bytes, 0, 1, busy_stream));
    EXPECT_INT(0, ps_cu.cuStreamSynchronize(busy_stream));
    if (EXPECT(is_there((void **)&wait, "cuStreamWaitValue32_v2")))
        EXPECT_INT(0, wait(on, busy_bytes, 1, CU_STREAM_WAIT_VALUE_EQ));
}

static void open_gate(void)
{
    EXPECT_INT(0, driver.fill(busy_bytes, 1, 1, busy_stream));
    EXPECT_INT(0, ps_cu.cuStreamSynchronize(busy_stream));
}

/* A thread, and whether it has finished. */
static struct {
    pthread_t thread;
    atomic_bool is_through;
    uint64_t since; /* ns */
} one;

static void begin_one(void *(*run)(void *))
{
    EXPECT_INT(0, pthread_create(&one.thread, NULL, run, NULL));
}

static void *wait_for_groups(void *unused)
{
    (void)unused;
    EXPECT_INT(0, driver.set_current(ps_device.context));
    ps_copies_wait_for_reloads();
    atomic_store(&one.is_through, true);
    return NULL;
}

/*
 * Copies of both H2D streams in turn; those of the first one are behind a gate. A thread that
 * reloads ahead does not queue more and more there.
 */
static void reloads_of_two_streams(void)
{
    CUdeviceptr address = allocate();
    struct ps_copies_nth nth;
    CUevent fence;

    fill(address, 1);
    make_slots(1);
    ps_registry_lock();
    struct ps_slot *slot = ps_slab_take(SPAN_BYTES);
    ps_registry_unlock();
    EXPECT_INT(0, ps_cu.cuEventCreate(&fence, CU_EVENT_DISABLE_TIMING));
    shut(stream->handle);
    const struct ps_uses uses = {.use = {{stream, atomic_load(&stream->next)}}, .count = 1};
    for (unsigned i = 1; i <= 4 * PS_RELOADS_A_GROUP; i++)
        EXPECT_INT(0, ps_copies_reload(i % PS_RELOADS_A_GROUP ? PS_COPIES_BEHIND : PS_COPIES_READY, address,
                                       i == 1 ? &uses : NULL, slot, NULL, NULL, fence, &nth));
    begin_one(wait_for_groups);
    usleep(50000);
    EXPECT(!atomic_load(&one.is_through));
    open_gate();
    pthread_join(one.thread, NULL);
    expect_device_is_well();
}

static CUdeviceptr wanted;

static void *use_wanted(void *unused)
{
    (void)unused;
    EXPECT_INT(0, driver.set_current(ps_device.context));
    struct ps_span *span = begin_use(wanted);
    one.since = ps_now_ns();
    atomic_store(&one.is_through, true);
    end_use(span);
    return NULL;
}

/*
 * While a launch waits for pages, the program gives work to a second stream. The first stream has
 * yet to use pages, behind a gate. The launch can't have these any more.
 */
static void second_stream_while_waiting(void)
{
    make_slots(2);
    wanted = allocate();
    fill(wanted, 3);
    begin_an_eviction();
    wait_until_evicted(wanted);
    CUdeviceptr first = allocate(), second = allocate();
    fill(second, 5);
    struct ps_span *held = begin_use(second);
    const uint64_t number = launch;
    shut(stream->handle);
    fill(first, 4);
    begin_one(use_wanted);
    usleep(50000); /* only the first one can leave, behind the gate */
    EXPECT(!atomic_load(&one.is_through));
    ps_residency_let_go(NULL, 0, new_stream());
    EXPECT_INT(0, ps_allocation_free(first, stream));
    usleep(50000);
    EXPECT(!atomic_load(&one.is_through));
    open_gate();
    pthread_join(one.thread, NULL);
    ps_access_end(&held, 1, stream, &kernel, number);
    expect_filled_with(wanted, 3);
    expect_device_is_well();
}

#define RETURNS 12u
#define GIVES_WAY_NS 20000000u /* ns for which a launch gives way to held-up work in vain */

/*
 * A span that left in its grace comes back when work on its slot is over. A launch that would begin
 * meanwhile waits for that, and is not waited for in turn. Returns the first time below `enough`,
 * or else the shortest of several times, in ns: beside busy neighbours a thread may run late.
 */
static uint64_t come_back_beside_launch(uint64_t enough)
{
    struct ps_stream *own = stream;
    uint64_t shortest = UINT64_MAX;
    pthread_t thread;

    wanted = left_in_its_grace(3);
    beside.stream = new_stream();
    for (uint32_t round = 0; round < RETURNS && shortest >= enough; round++) {
        if (round)
            begin_to_evict_if_resident(wanted); /* beside busy neighbours it may be on its slot still */
        wait_until_evicted(wanted);
        stream = beside.stream;
        CUdeviceptr first = allocate(), second = allocate();
        struct ps_span *held[] = {begin_use(first), begin_use(second)};
        stream = own;
        shut(stream->handle);
        fill(wanted, round); /* on its slot, because both others are held */
        stream = beside.stream;
        end_use(held[1]);
        end_use(held[0]);
        EXPECT_INT(0, ps_allocation_free(first, stream));
        EXPECT_INT(0, ps_allocation_free(second, stream));
        stream = own;
        begin_one(use_wanted);
        usleep(20000);
        const int created = pthread_create(&thread, NULL, launch_while_shown, NULL);
        usleep(20000);
        const uint64_t since = ps_now_ns();
        open_gate();
        pthread_join(one.thread, NULL);
        if (!EXPECT_INT(0, created))
            break;
        pthread_join(thread, NULL);
        shortest = one.since - since < shortest ? one.since - since : shortest;
        expect_filled_with(wanted, round);
    }
    return shortest;
}

static void held_up_by_what_comes_back(void)
{
    EXPECT(come_back_beside_launch(GIVES_WAY_NS * 3 / 4) < GIVES_WAY_NS * 3 / 4);
}

/*
 * The driver must be shown stand-in pages in the grace of a span. A launch of the span waits behind
 * a gate that another thread's launch opens.
 */
static void *open_by_launch(void *unused)
{
    (void)unused;
    EXPECT_INT(0, driver.set_current(ps_device.context));
    usleep(20000);
    uint64_t began = ps_grace_launch_begins(beside.stream);
    one.since = ps_now_ns();
    open_gate();
    ps_grace_launch_ends(beside.stream, began);
    return NULL;
}

static void look_behind_gate(void)
{
    static const struct ps_access_kind look = {.keeps_no_address = true, .capturing = true, .only_looked = true};
    CUdeviceptr address = left_in_its_grace(3);
    struct ps_span *span = ps_address_span(address);
    size_t count = 1;

    beside.stream = new_stream();
    shut(stream->handle);
    uint64_t began = ps_grace_launch_begins(stream);
    EXPECT_INT(0, driver.fill(address, 7, 1, stream->handle));
    ps_grace_launch_ends(stream, began);
    const uint64_t since = ps_now_ns();
    begin_one(open_by_launch);
    ps_access_begin(&span, &count, stream, &look);
    EXPECT(span->stand_ins.mapped);
    ps_access_end(&span, count, stream, &look, PS_LAUNCH_NOT_LEARNT);
    pthread_join(one.thread, NULL);
    EXPECT(one.since - since < 2000000000u);
}

/* ---- events that are used again ---- */

/* Counts the records of `watched`. */
static CUevent watched;
static unsigned watched_records;
static __typeof__(&cuEventRecord) record;

static CUresult CUDAAPI count_record(CUevent event, CUstream on)
{
    watched_records += event == watched;
    return record(event, on);
}

/*
 * An event that stood for the end of an H2D is taken to stand for everything. A launch that waits
 * for it meanwhile must not wait for less than the H2D.
 */
static void reuse_event_of_reload(void)
{
    CUdeviceptr address = allocate();

    fill(address, 1);
    begin_an_eviction();
    wait_until_evicted(address);
    keep_the_device_busy();
    EXPECT_INT(0, ps_residency_reload_ahead(address));
    EXPECT_INT(0, ps_cu.cuEventCreate(&watched, CU_EVENT_DISABLE_TIMING));
    ps_copies_give_event(watched);
    record = ps_cu.cuEventRecord;
    ps_cu.cuEventRecord = count_record;
    EXPECT(ps_copies_after_everything() == watched);
    EXPECT_U64(1, watched_records);
    ps_cu.cuEventRecord = record;
    EXPECT_INT(0, ps_cu.cuEventSynchronize(watched));
    expect_filled_with(address, 1);
    expect_device_is_well();
}

#endif
