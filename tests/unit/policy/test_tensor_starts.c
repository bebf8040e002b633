/*
 * Cuts: the likely end of an access, by the accesses above it and by the ends of copies. Also when
 * starts are forgotten.
 */
#include <stdlib.h>

#include "expect.h"
#include "policy/tensor_starts.h"

#define ROOM 64u
#define UNIT 4096u

static struct ps_tensor_start memory[ROOM];
static struct ps_tensor_starts starts;

static void start(void)
{
    ps_tensor_starts_init(&starts, memory, ROOM);
}

static void use(uint64_t at)
{
    ps_tensor_starts_begin(&starts);
    ps_tensor_starts_note(&starts, at, 0);
}

static void use_times(uint64_t at, unsigned times)
{
    while (times--)
        use(at);
}

static void copy(uint64_t at, uint64_t end)
{
    ps_tensor_starts_begin(&starts);
    ps_tensor_starts_note(&starts, at, end);
}

static uint64_t end_of(uint64_t at)
{
    return ps_tensor_starts_end_of(&starts, at, UNIT);
}

static void test_next_above(void)
{
    start();
    EXPECT_U64(0, end_of(100));
    use(100 * UNIT);
    EXPECT_U64(0, end_of(100 * UNIT));
    EXPECT_U64(100 * UNIT, end_of(99 * UNIT));
    EXPECT_U64(100 * UNIT, end_of(0));
    use(300 * UNIT);
    use(200 * UNIT);
    EXPECT_U64(200 * UNIT, end_of(100 * UNIT));
    EXPECT_U64(300 * UNIT, end_of(200 * UNIT));
    EXPECT_U64(0, end_of(300 * UNIT));
    EXPECT_U64(300 * UNIT, end_of(250 * UNIT));
    EXPECT_INT(3, (long)starts.count);
    use(200 * UNIT);
    EXPECT_INT(3, (long)starts.count);
}

/* Views of one tensor that begin within a unit show no end. */
static void test_near_ones(void)
{
    start();
    use(100 * UNIT);
    use(100 * UNIT + 128);
    use(100 * UNIT + 256);
    EXPECT_U64(0, end_of(100 * UNIT));
    use(101 * UNIT);
    EXPECT_U64(101 * UNIT, end_of(100 * UNIT));
    use(103 * UNIT);
    EXPECT_U64(103 * UNIT, end_of(100 * UNIT + 128));
}

static void test_known_ends(void)
{
    start();
    use(100 * UNIT);
    use(110 * UNIT);
    copy(100 * UNIT, 120 * UNIT);
    EXPECT_U64(120 * UNIT, end_of(100 * UNIT));
    EXPECT_U64(100 * UNIT, end_of(99 * UNIT));
    /* A copy of a part shows no end: the earlier end or the next start counts. */
    copy(100 * UNIT, 105 * UNIT);
    EXPECT_U64(120 * UNIT, end_of(100 * UNIT));
    copy(110 * UNIT, 111 * UNIT);
    use(130 * UNIT);
    EXPECT_U64(130 * UNIT, end_of(110 * UNIT));
    /* No start above, but the end of a copy. */
    copy(130 * UNIT, 140 * UNIT);
    EXPECT_U64(140 * UNIT, end_of(130 * UNIT));
    /* An end that no copy has shown again for long is dropped, although the start is used. */
    for (unsigned i = 0; i < 3000; i++) {
        use(100 * UNIT);
        use(110 * UNIT);
    }
    EXPECT_U64(110 * UNIT, end_of(100 * UNIT));
    copy(100 * UNIT, 105 * UNIT);
    use(110 * UNIT);
    copy(100 * UNIT, 115 * UNIT);
    EXPECT_U64(115 * UNIT, end_of(100 * UNIT));
}

static void test_forgotten(void)
{
    start();
    use(100 * UNIT);
    use(110 * UNIT);
    use_times(200 * UNIT, 1000);
    EXPECT_U64(110 * UNIT, end_of(100 * UNIT));
    use_times(200 * UNIT, 100);
    EXPECT_U64(200 * UNIT, end_of(100 * UNIT));
    /* The return of one start proves nothing about others. */
    use(100 * UNIT);
    EXPECT_U64(200 * UNIT, end_of(100 * UNIT));
    use(110 * UNIT);
    EXPECT_U64(110 * UNIT, end_of(100 * UNIT));
    /*
     * Several returns show that such a time is not long. Return times of up to 2,048 accesses make
     * twice as many a long time.
     */
    use_times(200 * UNIT, 1100);
    use(100 * UNIT);
    use(110 * UNIT);
    EXPECT_U64(2048, starts.return_time);
    use_times(200 * UNIT, 4000);
    EXPECT_U64(110 * UNIT, end_of(100 * UNIT));
    use_times(200 * UNIT, 200);
    EXPECT_U64(200 * UNIT, end_of(100 * UNIT));
    /* The start is gone for good. */
    use_times(200 * UNIT, 400000);
    EXPECT_INT(1, (long)starts.count);
}

/*
 * A step of any length: a start used once a step stays. A start that the step no longer uses is
 * forgotten some steps later.
 */
static void test_steps(void)
{
    const unsigned lengths[] = {10, 300, 5000};

    for (unsigned l = 0; l < 3; l++) {
        bool kept = true;
        start();
        for (unsigned step = 0; step < 8; step++) {
            use(100 * UNIT);
            use(110 * UNIT);
            for (unsigned i = 2; i < lengths[l]; i++)
                use((200 + i % 8 * 10) * UNIT);
            kept &= step < 5 || end_of(100 * UNIT) == 110 * UNIT;
        }
        EXPECT(kept);
        unsigned step = 0;
        for (; step < 300 && end_of(100 * UNIT) == 110 * UNIT; step++)
            for (unsigned i = 1; i < lengths[l]; i++)
                use((200 + i % 8 * 10) * UNIT);
        EXPECT((step + 1) * lengths[l] >= 1024 && (step <= 5 || step * lengths[l] <= 1400));
    }
}

static void test_no_room(void)
{
    unsigned made = 0;

    start();
    for (unsigned i = 0; i < 4 * ROOM; i++) {
        const uint32_t before = starts.count;
        use((1000 - i) * UNIT);
        made += starts.count <= before;
        EXPECT(starts.count <= ROOM && (i < ROOM || starts.count >= ROOM * 3 / 4 - 1));
        /* The latest starts are there, in order. */
        for (unsigned k = 0; k < starts.count; k++)
            EXPECT_U64((1000 - i + k) * UNIT, starts.start[k].at);
    }
    EXPECT_U64((1000 - 4 * ROOM + 2) * UNIT, end_of((1000 - 4 * ROOM + 1) * UNIT));
    EXPECT_U64(0, end_of((1000 - 3 * ROOM) * UNIT));
    /* Each time room is made, it is for many starts, because each pass goes through all. */
    EXPECT(made && made <= 3 * 4 + 2);
}

/* Compared with a list of all uses, while no start is old enough to be forgotten. */
static void test_against_list(void)
{
    uint64_t used[48];
    uint32_t seed = 1;

    for (unsigned round = 0; round < 50; round++) {
        start();
        for (unsigned n = 0; n < 48; n++) {
            seed = seed * 1664525u + 1013904223u;
            used[n] = (uint64_t)(seed >> 20) * 512;
            use(used[n]);
            seed = seed * 1664525u + 1013904223u;
            uint64_t at = (uint64_t)(seed >> 20) * 512, expected = 0;
            for (unsigned i = 0; i <= n; i++)
                if (used[i] >= at + UNIT && (!expected || used[i] < expected))
                    expected = used[i];
            EXPECT_U64(expected, end_of(at));
        }
    }
}

static void test_runs(void)
{
    start();
    use(1000 * UNIT); /* another's, far above */
    use(100 * UNIT);
    EXPECT_U64(1000 * UNIT, end_of(100 * UNIT));
    use(102 * UNIT);
    EXPECT_U64(1000 * UNIT, end_of(102 * UNIT));
    /*
     * It is a run from the third start on. No stride of a run is more than four times as long as
     * the one before.
     */
    use(104 * UNIT);
    EXPECT_U64(112 * UNIT, end_of(104 * UNIT));
    use(110 * UNIT);
    EXPECT_U64(134 * UNIT, end_of(110 * UNIT));
    use(140 * UNIT);
    EXPECT_U64(1000 * UNIT, end_of(140 * UNIT));
    /* A nearer start is the end, and so is a copy's end. */
    EXPECT_U64(110 * UNIT, end_of(104 * UNIT));
    use(1100 * UNIT);
    use(200 * UNIT);
    use(202 * UNIT);
    use(204 * UNIT);
    copy(204 * UNIT, 300 * UNIT);
    EXPECT_U64(1000 * UNIT, end_of(204 * UNIT));
    /* The start is young for a while. */
    use(206 * UNIT);
    EXPECT_U64(214 * UNIT, end_of(206 * UNIT));
    use_times(1100 * UNIT, 600);
    EXPECT_U64(1000 * UNIT, end_of(206 * UNIT));
    /* Interleaved views are no run. A run that goes down needs no guess. */
    start();
    use(1000 * UNIT);
    for (unsigned i = 0; i < 8; i++)
        use(100 * UNIT + i * 128);
    EXPECT_U64(1000 * UNIT, end_of(100 * UNIT + 7 * 128));
    for (unsigned i = 0; i < 8; i++)
        use((900 - 2 * i) * UNIT);
    EXPECT_U64(888 * UNIT, end_of(886 * UNIT));
    /* Cuts used at long intervals are no run. */
    for (unsigned i = 0; i < 4; i++) {
        use((500 + i) * UNIT);
        use_times(1000 * UNIT, 200);
    }
    EXPECT_U64(886 * UNIT, end_of(503 * UNIT));
}

int main(void)
{
    test_next_above();
    test_near_ones();
    test_known_ends();
    test_forgotten();
    test_steps();
    test_no_room();
    test_against_list();
    test_runs();
    return expect_status();
}
