/*
 * The trace's ring: each record comes out once, whole and in its thread's order. A record without
 * room is refused.
 */
#include "residency/event_ring.h"

#include <pthread.h>
#include <sched.h>

#include "expect.h"

#define THREADS 4u
#define PUTS 30000u

static struct ps_event_ring ring;

static struct ps_event_record record(uint64_t thread, uint64_t n)
{
    return (struct ps_event_record){
        .kind = PS_EVENT_WAIT, .thread = (int32_t)thread, .begin_ns = n, .end_ns = ~n, .levels.held = n ^ thread};
}

static bool is_whole(const struct ps_event_record *r)
{
    return r->kind == PS_EVENT_WAIT && r->end_ns == ~r->begin_ns &&
           r->levels.held == (r->begin_ns ^ (uint64_t)r->thread);
}

static void test_full(void)
{
    struct ps_event_record r;

    EXPECT_INT(0, ps_event_ring_open(&ring, 8));
    EXPECT(!ps_event_ring_take(&ring, &r));
    for (uint64_t round = 0; round < 5; round++) { /* anywhere in the ring */
        for (uint64_t i = 0; i < 8; i++) {
            r = record(1, round * 100 + i);
            EXPECT(ps_event_ring_put(&ring, &r));
        }
        r = record(1, 99);
        EXPECT(!ps_event_ring_put(&ring, &r));
        for (uint64_t i = 0; i < 8; i++) {
            EXPECT(ps_event_ring_take(&ring, &r));
            EXPECT(is_whole(&r));
            EXPECT_U64(round * 100 + i, r.begin_ns);
        }
        EXPECT(!ps_event_ring_take(&ring, &r));
        r = record(1, 98); /* one place further */
        EXPECT(ps_event_ring_put(&ring, &r) && ps_event_ring_take(&ring, &r));
    }
    ps_event_ring_close(&ring);
}

static atomic_uint putting; /* threads that have not put their last record */

struct putter {
    uint64_t thread, refused;
};

static void *put_many(void *given)
{
    struct putter *putter = given;

    for (uint64_t n = 1; n <= PUTS; n++) {
        struct ps_event_record r = record(putter->thread, n);
        if (!ps_event_ring_put(&ring, &r))
            putter->refused++;
        if (n % 64 == 0)
            sched_yield();
    }
    atomic_fetch_sub(&putting, 1);
    return NULL;
}

/* Takes all records. Each thread's come in its order, none twice. */
static uint64_t take_all(uint64_t *latest, uint64_t *wrong)
{
    struct ps_event_record r;
    uint64_t taken = 0;

    while (ps_event_ring_take(&ring, &r)) {
        taken++;
        if (!is_whole(&r) || (uint64_t)r.thread >= THREADS || r.begin_ns <= latest[r.thread])
            ++*wrong;
        else
            latest[r.thread] = r.begin_ns;
    }
    return taken;
}

static void test_threads(size_t capacity, bool taken_at_the_end)
{
    struct putter putter[THREADS];
    pthread_t thread[THREADS];
    uint64_t latest[THREADS] = {0}, taken = 0, refused = 0, wrong = 0;

    EXPECT_INT(0, ps_event_ring_open(&ring, capacity));
    atomic_store(&putting, THREADS);
    for (uint64_t t = 0; t < THREADS; t++) {
        putter[t] = (struct putter){.thread = t};
        EXPECT_INT(0, pthread_create(&thread[t], NULL, put_many, &putter[t]));
    }
    while (!taken_at_the_end && atomic_load(&putting)) {
        taken += take_all(latest, &wrong);
        sched_yield();
    }
    for (uint64_t t = 0; t < THREADS; t++) {
        EXPECT_INT(0, pthread_join(thread[t], NULL));
        refused += putter[t].refused;
    }
    taken += take_all(latest, &wrong);
    EXPECT_U64(0, wrong);
    EXPECT_U64((uint64_t)THREADS * PUTS, taken + refused);
    if (taken_at_the_end)
        EXPECT_U64(capacity, taken);
    ps_event_ring_close(&ring);
}

int main(void)
{
    test_full();
    test_threads(64, false);     /* sometimes full */
    test_threads(131072, false); /* never */
    test_threads(1024, true);
    return expect_status();
}
