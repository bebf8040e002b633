/*
 * Cases of test_orderings: launches that use a span without naming it, by rule or in its grace (grace.h), or when it has been freed. Part of test_orderings.c.
 */
#ifndef PS_TESTS_UNIT_ORDERINGS_OF_GRACE_H
#define PS_TESTS_UNIT_ORDERINGS_OF_GRACE_H

/* ---- what is used unseen ---- */

/* Rules keep a span in its place, since kernels use it without naming it; it was born on a slot, and one such is queued when it comes to pages. */
static void reload_under_unseen_use(void)
{
    CUdeviceptr first = allocate(), second = allocate();
    struct ps_span *held[2] = {begin_use(first), begin_use(second)};
    CUdeviceptr kept = allocate(); /* both others are held: there are no pages */
    uint32_t words[2] = {0, 0};

    ps_registry_lock();
    struct ps_span *span = ps_registry_live_at(kept);
    EXPECT_INT(PS_EVICTED, span->residency);
    span->excluded = true;
    ps_registry_unlock();
    fill(kept, 3);
    end_use(held[1]);
    end_use(held[0]);
    EXPECT_INT(0, ps_residency_free(first, NULL));
    EXPECT_INT(0, ps_stream_tick(stream)); /* what is known of all uses ends here, and is over */
    EXPECT_INT(0, ps_cu.cuStreamSynchronize(stream->handle));
    EXPECT_INT(0, ps_cu.cuMemcpyAsync(busy_bytes, kept, 4, stream->handle));     /* the kernel that doesn't name it */
    fill(kept, 4);                                                               /* there are pages now */
    EXPECT_INT(0, ps_cu.cuMemcpyAsync(busy_bytes + 4, kept, 4, stream->handle)); /* another, behind a launch that names it */
    EXPECT_INT(0, driver.download(words, busy_bytes, sizeof words, stream->handle));
    EXPECT_INT(0, ps_cu.cuStreamSynchronize(stream->handle));
    EXPECT_INT(PS_RESIDENT, span->residency);
    EXPECT_U64(3, words[0]);
    EXPECT_U64(4, words[1]);
    expect_device_is_well();
}

/* A span that is away, filled with 3, a table, with 4, and what took the first one's pages, with 5. */
struct table_beside {
    CUdeviceptr away, table, other;
};

static struct table_beside fill_table_beside(void)
{
    struct table_beside made;

    make_slots(1);
    made.away = allocate();
    fill(made.away, 3);
    made.table = allocate();
    fill(made.table, 4);
    begin_an_eviction();
    wait_until_evicted(made.away);
    made.other = allocate();
    fill(made.other, 5);
    return made;
}

/* A pointer table is freed in stream order; the launch that is given it wants back what it names, and the only pages are the table's. */
static void reload_beside_freed_table(void)
{
    const struct table_beside made = fill_table_beside();
    ps_pointer_tables_copied(made.table, &made.away, sizeof made.away);
    EXPECT_INT(0, ps_residency_free(made.table, stream));
    struct ps_span *spans[] = {ps_registry_at(made.away), ps_registry_at(made.table)};
    size_t count = 2;
    launch = ps_residency_begin_access(spans, &count, stream, &kernel);
    EXPECT_U64(2, count);
    EXPECT_INT(0, driver.download(words_there, made.table, SPAN_BYTES, stream->handle));
    ps_residency_end_access(spans, count, stream, &kernel, launch);
    expect_there(SPAN_BYTES, 4, stream->handle);
    expect_filled_with(made.away, 3);
    expect_device_is_well();
}

/* The same, but another launch on the stream comes in between and wants the pages, and all others are held. */
static void reload_before_freed_table(void)
{
    const struct table_beside made = fill_table_beside();
    ps_pointer_tables_copied(made.table, &made.other, sizeof made.other);
    struct ps_span *freed = ps_registry_at(made.table);
    EXPECT_INT(0, ps_residency_free(made.table, stream));
    struct ps_span *spans[] = {ps_registry_at(made.away), ps_registry_at(made.other)};
    size_t count = 2, one = 1;
    launch = ps_residency_begin_access(spans, &count, stream, &kernel);
    EXPECT_INT(0, driver.fill(made.away, 6, SPAN_BYTES / sizeof(uint32_t), stream->handle));
    ps_residency_end_access(spans, count, stream, &kernel, launch);
    launch = ps_residency_begin_access(&freed, &one, stream, &kernel);
    EXPECT_U64(1, one);
    EXPECT_INT(0, driver.download(words_there, made.table, SPAN_BYTES, stream->handle));
    ps_residency_end_access(&freed, one, stream, &kernel, launch);
    expect_there(SPAN_BYTES, 4, stream->handle);
    expect_filled_with(made.away, 6);
    expect_device_is_well();
}

/* ---- launches of a grace ---- */

#define GRACE 64u

/* A span that a launch named has left in the grace that began with it. */
static CUdeviceptr left_in_its_grace(uint32_t value)
{
    ps_grace_open(GRACE);
    ps_reacting_open(GRACE);
    make_slots(1);
    CUdeviceptr span = allocate();
    fill(span, value);
    begin_an_eviction();
    wait_until_evicted(span);
    return span;
}

/* A launch of the grace has written to its slot when a call that is no launch (one of NCCL's) wants it. */
static void hold_what_left_in_grace(void)
{
    CUdeviceptr address = left_in_its_grace(3);
    struct ps_span *span = ps_registry_at(address);
    size_t count = 1;

    keep_the_device_busy();
    uint64_t began = ps_grace_launch_begins(stream);
    EXPECT_INT(0, driver.fill(address, 7, span->bytes / sizeof(uint32_t), stream->handle));
    ps_grace_launch_ends(stream, began);
    ps_residency_hold(&span, &count);
    ps_residency_let_go(&span, count, stream);
    expect_filled_with(address, 7);
    expect_device_is_well();
}

static struct ps_stream *new_stream(void)
{
    CUstream handle = NULL;

    EXPECT_INT(0, driver.stream_create(&handle, CU_STREAM_NON_BLOCKING));
    return ps_stream_find(handle, false);
}

/* The first words of the span, downloaded by a launch that does not name it. */
static void read_unseen(CUdeviceptr address, uint64_t began)
{
    EXPECT_INT(0, driver.download(words_there, address, PAGE, stream->handle));
    ps_grace_launch_ends(stream, began);
}

static void expect_read(uint32_t value)
{
    expect_there(PAGE, value, stream->handle);
    expect_device_is_well();
}

/* It has come back for another stream when a launch of the grace reads it on the first one. */
static void reload_in_grace_for_another_stream(void)
{
    CUdeviceptr address = left_in_its_grace(3);
    struct ps_stream *first = stream;

    stream = new_stream();
    keep_the_device_busy();
    end_use(begin_use(address));
    stream = first;
    read_unseen(address, ps_grace_launch_begins(stream));
    expect_read(3);
}

/* A launch of the grace is about to be queued, by another thread, when it is to come back. */
static void reload_in_grace_beside_launch(void)
{
    CUdeviceptr address = left_in_its_grace(3);
    struct ps_stream *first = stream;

    uint64_t began = ps_grace_launch_begins(stream);
    struct ps_stream *other = stream = new_stream();
    keep_the_device_busy();
    struct ps_span *span = begin_use(address);
    stream = first;
    read_unseen(address, began);
    stream = other;
    end_use(span);
    stream = first;
    expect_read(3);
}

/* Spans leave in their grace many times, and no launch comes that may use what it does not name. */
static void leave_in_grace_again_and_again(void)
{
    ps_grace_open(GRACE);
    ps_reacting_open(GRACE);
    make_slots(2);
    CUdeviceptr address = allocate();
    for (uint32_t i = 0; i < 2 * GRACE; i++) {
        fill(address, i);
        begin_an_eviction();
        wait_until_evicted(address);
    }
    expect_filled_with(address, 2 * GRACE - 1);
    expect_device_is_well();
}

#define TURNS 2000u

/* Another thread's launches, one in each turn. */
static struct {
    struct ps_stream *stream;
    atomic_uint turn, done;
} beside;

static void *launch_beside(void *unused)
{
    (void)unused;
    for (unsigned turn = 1; turn <= TURNS; turn++) {
        while (atomic_load(&beside.turn) != turn) {
        }
        uint64_t began = ps_grace_launch_begins(beside.stream);
        for (volatile unsigned i = 0; i < turn % 64; i++) {
        }
        ps_grace_launch_ends(beside.stream, began);
        atomic_store(&beside.done, turn);
    }
    return NULL;
}

static bool is_used_on(const struct ps_span *span, const struct ps_stream *on)
{
    struct ps_uses uses = span->uses;
    bool is = false;

    ps_grace_add_uses(span, &uses);
    for (unsigned i = 0; i < uses.count; i++)
        is |= uses.use[i].stream == on;
    return is;
}

/* A launch of another thread ends when a grace begins anew that it is in: it is among the uses, by the former one or by the next. */
static void launch_beside_new_grace(void)
{
    pthread_t thread;
    unsigned lost = 0;

    ps_grace_open(GRACE);
    CUdeviceptr address = allocate();
    fill(address, 1);
    beside.stream = new_stream();
    EXPECT_INT(0, pthread_create(&thread, NULL, launch_beside, NULL));
    for (unsigned turn = 1; turn <= TURNS; turn++) {
        struct ps_span *span = begin_use(address); /* the launches of earlier turns are in no grace any more */
        end_use(span);
        ps_registry_lock();
        ps_uses_clear(&span->uses);
        ps_registry_unlock();
        atomic_store(&beside.turn, turn);
        for (volatile unsigned i = 0; i < turn / 64 % 64; i++) {
        }
        end_use(begin_use(address));
        while (atomic_load(&beside.done) != turn) {
        }
        ps_registry_lock();
        lost += !is_used_on(span, beside.stream);
        ps_registry_unlock();
    }
    pthread_join(thread, NULL);
    EXPECT_U64(0, lost);
}

/* ---- launches that stand in their calls ---- */

#define STANDING_VALUE 3u

/* Nothing is expected here meanwhile. */
static void run_on_a_thread(void *(*run)(void *))
{
    pthread_t thread;
    const int created = pthread_create(&thread, NULL, run, NULL);

    if (!created)
        pthread_join(thread, NULL);
    EXPECT_INT(0, created);
}

/* A span that a launch named, all of which is over: nothing but its grace keeps it. And one of which another thread makes many launches. */
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
    ps_reacting_evict(1);
    ps_registry_unlock();
    return NULL;
}

static void name_before_standing(void)
{
    ps_grace_open(GRACE);
    ps_reacting_open(GRACE);
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

/* A launch that may use the span stands in the driver's call. */
static void stand_in_the_call(void)
{
    name_before_standing();
    ps_under_way_begins();
    uint64_t began = ps_grace_launch_begins(stream);
    launch_many_beside();
    EXPECT_INT(PS_RESIDENT, ps_registry_at(standing.used)->residency);
    read_unseen(standing.used, began);
    ps_under_way_ends();
    expect_read(STANDING_VALUE);
    launch_many_beside();
    EXPECT(ps_grace_is_over(ps_registry_at(standing.used)));
}

/* It has been called for, and what it names is looked at. */
static void stand_before_the_call(void)
{
    const struct ps_span *span;

    name_before_standing();
    ps_under_way_begins();
    keep_the_device_busy();
    launch_many_beside();
    span = ps_registry_at(standing.used);
    EXPECT(span->left_in_grace);
    uint64_t began = ps_grace_launch_begins(stream);
    ps_registry_lock();
    EXPECT(!span->busy && span->residency != PS_EVICTING && span->backing != PS_BACKING_NONE);
    ps_registry_unlock();
    read_unseen(standing.used, began);
    ps_under_way_ends();
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
        ps_under_way_begins();
        pthread_barrier_wait(&both);
        pthread_barrier_wait(&both);
        ps_under_way_ends();
    }
    return NULL;
}

/* Two threads' launches always overlap: one of the two is under way at any time, and none of them for long. */
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
        ps_under_way_begins();
        EXPECT(ps_under_way_is_any(number, number));
        pthread_barrier_wait(&both);
        end_use(begin_use(address));
        ps_under_way_ends();
        old += number > 1 && ps_under_way_is_any(0, number - 2);
    }
    pthread_join(thread, NULL);
    EXPECT_U64(0, old);
    EXPECT(!ps_under_way_is_any(0, UINT64_MAX));
}

#define STANDING_AT_A_TIME 100u

static void *stand_with_others(void *unused)
{
    (void)unused;
    ps_under_way_begins();
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both);
    ps_under_way_ends();
    return NULL;
}

/* More launches at a time than are known one by one: none is forgotten. */
static void launches_without_number(void)
{
    pthread_t thread[STANDING_AT_A_TIME];
    CUdeviceptr address = allocate();

    EXPECT_INT(0, pthread_barrier_init(&both, NULL, STANDING_AT_A_TIME + 1));
    for (unsigned i = 0; i < STANDING_AT_A_TIME; i++)
        EXPECT_INT(0, pthread_create(&thread[i], NULL, stand_with_others, NULL));
    pthread_barrier_wait(&both);
    end_use(begin_use(address));
    EXPECT(ps_under_way_is_any(1, 1)); /* one of them might have begun later */
    pthread_barrier_wait(&both);
    for (unsigned i = 0; i < STANDING_AT_A_TIME; i++)
        pthread_join(thread[i], NULL);
    EXPECT(!ps_under_way_is_any(0, UINT64_MAX));
}

static void *end_in_a_launch(void *unused)
{
    (void)unused;
    EXPECT_INT(0, driver.set_current(ps_device.context));
    ps_trace_begin(stream->handle, false);
    ps_trace_graph(NULL);
    EXPECT(ps_under_way_is_any(0, UINT64_MAX));
    return NULL;
}

/* A thread ends in its call. */
static void thread_ends_in_launch(void)
{
    run_on_a_thread(end_in_a_launch);
    EXPECT(!ps_under_way_is_any(0, UINT64_MAX));
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

/* And once more in its call, by what a library does at the thread's end, after what the core does there. */
static void thread_ends_in_last_launch(void)
{
    ps_trace_begin(stream->handle, false); /* the core's key is there, and comes first */
    EXPECT_INT(0, pthread_key_create(&ends_later, end_in_a_launch_again));
    run_on_a_thread(end_twice);
    EXPECT(!ps_under_way_is_any(0, UINT64_MAX));
}

/* A launch of a kernel that may make tables, queued while somebody captures, is not looked at later: its stream may be gone by then. */
static void end_made_in_capture(void)
{
    struct ps_made_launch made = {.key = 1};

    ps_made_tables_end(&made, stream->handle, false, false);
    EXPECT_U64(0, made.key);
}

static void *launch_many(void *unused)
{
    (void)unused;
    EXPECT_INT(0, driver.set_current(ps_device.context));
    for (unsigned i = 0; i < 2 * GRACE; i++)
        end_use(begin_use(standing.other));
    return NULL;
}

/* A launch has stood in its call for long when a span is born, at new addresses or at those of one that was freed: it is in no grace of that one. */
static void born_beside_standing(void)
{
    name_before_standing();
    ps_under_way_begins();
    for (unsigned i = 0; i < 2; i++) {
        run_on_a_thread(launch_many);
        CUdeviceptr born = allocate();
        atomic_store(&ps_registry_at(born)->known, true); /* a table names it */
        run_on_a_thread(launch_many);
        EXPECT(ps_grace_is_over(ps_registry_at(born)));
        EXPECT_INT(0, ps_residency_free(born, NULL));
        expect_device_is_well();
    }
    ps_under_way_ends();
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

/* The driver is shown other pages at the span's addresses, and another thread's launch may use it by a table. */
static void look_in_grace(void)
{
    static const struct ps_access_kind look = {.keeps_no_address = true, .capturing = true, .only_looked = true};
    CUdeviceptr address = left_in_its_grace(3);
    struct ps_span *span = ps_registry_at(address);
    pthread_t thread;
    size_t count = 1;

    beside.stream = new_stream();
    ps_grace_launch_ends(stream, ps_grace_launch_begins(stream)); /* has seen to it that it has come to its slot */
    ps_residency_begin_access(&span, &count, stream, &look);
    EXPECT(span->is_shown);
    const int created = pthread_create(&thread, NULL, launch_while_shown, NULL);
    usleep(20000);
    const bool begun = atomic_load(&has_begun);
    ps_residency_end_access(&span, count, stream, &look, PS_LAUNCH_NOT_LEARNT);
    if (!created)
        pthread_join(thread, NULL);
    EXPECT_INT(0, created);
    EXPECT(!begun);
    EXPECT(atomic_load(&has_begun));
    read_unseen(address, ps_grace_launch_begins(stream));
    expect_read(3);
}

/* ---- behind a gate ---- */

typedef CUresult (*wait_value)(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags);

/* What the stream is given from here on waits until the gate is opened. */
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

/* A thread, and whether it is through. */
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

/* Copies of both H2D streams in turn, those of the first one behind a gate: who reloads ahead does not queue more and more there. */
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
        EXPECT_INT(0, ps_copies_reload(i % PS_RELOADS_A_GROUP ? PS_COPIES_BEHIND : PS_COPIES_READY, address, i == 1 ? &uses : NULL, slot,
                                       NULL, NULL, fence, &nth));
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

/* While a launch waits for pages, the program gives work to a second stream. Pages that the first one is to use, behind a gate, are for the launch no more. */
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
    usleep(50000); /* nothing can leave but the first one, behind the gate */
    EXPECT(!atomic_load(&one.is_through));
    ps_residency_let_go(NULL, 0, new_stream());
    EXPECT_INT(0, ps_residency_free(first, stream));
    usleep(50000);
    EXPECT(!atomic_load(&one.is_through));
    open_gate();
    pthread_join(one.thread, NULL);
    ps_residency_end_access(&held, 1, stream, &kernel, number);
    expect_filled_with(wanted, 3);
    expect_device_is_well();
}

#define ROUNDS 2u
#define GIVES_WAY_NS 20000000u /* to what was held up, where that is in vain */

/*
 * What left in its grace comes back when work on its slot is over. A launch that would begin meanwhile waits for that: it is not waited for in turn. The
 * shortest of some times, in ns.
 */
static uint64_t come_back_beside_launch(void)
{
    struct ps_stream *own = stream;
    uint64_t shortest = UINT64_MAX;
    pthread_t thread;

    wanted = left_in_its_grace(3);
    beside.stream = new_stream();
    for (uint32_t round = 0; round < ROUNDS; round++) {
        if (round)
            begin_an_eviction();
        wait_until_evicted(wanted);
        stream = beside.stream;
        CUdeviceptr first = allocate(), second = allocate();
        struct ps_span *held[] = {begin_use(first), begin_use(second)};
        stream = own;
        shut(stream->handle);
        fill(wanted, round); /* on its slot: both others are held */
        stream = beside.stream;
        end_use(held[1]);
        end_use(held[0]);
        EXPECT_INT(0, ps_residency_free(first, stream));
        EXPECT_INT(0, ps_residency_free(second, stream));
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
    EXPECT(come_back_beside_launch() < GIVES_WAY_NS * 3 / 4);
}

/* The driver is to be shown other pages in the grace of a span, of which a launch waits behind a gate that another thread's launch opens. */
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
    struct ps_span *span = ps_registry_at(address);
    size_t count = 1;

    beside.stream = new_stream();
    shut(stream->handle);
    uint64_t began = ps_grace_launch_begins(stream);
    EXPECT_INT(0, driver.fill(address, 7, 1, stream->handle));
    ps_grace_launch_ends(stream, began);
    const uint64_t since = ps_now_ns();
    begin_one(open_by_launch);
    ps_residency_begin_access(&span, &count, stream, &look);
    EXPECT(span->is_shown);
    ps_residency_end_access(&span, count, stream, &look, PS_LAUNCH_NOT_LEARNT);
    pthread_join(one.thread, NULL);
    EXPECT(one.since - since < 2000000000u);
}

#endif
