/*
 * Durations of a recorded step: the measured ones, the guesses for the others, and the host's
 * times.
 */
#include <stdlib.h>

#include "expect.h"
#include "policy/recording/recorded_step.h"
#include "policy/recording/recorder.h"

#define SPAN 1
#define ROUND 6u

/*
 * A launch of a made-up step: its stream, its kernel, and its times on the device and on the host;
 * 0: unknown.
 */
struct made_launch {
    uint64_t kernel;
    uint32_t stream;
    uint64_t ns, host_ns;
};

static struct ps_recorder *recorder;
static uint64_t launches;

static void begin(void)
{
    free(recorder);
    recorder = calloc(1, ps_recorder_bytes());
    if (!recorder)
        abort();
    ps_recorder_init(recorder);
    ps_recorder_allocated(recorder, SPAN, 4096);
    launches = 0;
}

static void run_round(const struct made_launch *launch)
{
    for (uint32_t i = 0; i < ROUND; i++) {
        struct ps_recorded_layer none = {.number = PENSTOCK_NEVER};
        ps_recorder_launch(recorder, (struct ps_step_launch){.fingerprint = launch[i].kernel}, launch[i].stream, none);
        ps_recorder_access(recorder, SPAN, 4096, false);
        if (launch[i].ns)
            ps_recorder_duration(recorder, launches, launch[i].ns);
        if (launch[i].host_ns)
            ps_recorder_host(recorder, launch[i].host_ns);
        launches++;
    }
}

/* Makes a step from the latest round, in memory that the caller frees. */
static void *make_step(struct penstock_step *step, struct ps_recorded_details *details)
{
    size_t bytes = 0;

    EXPECT_INT(0, ps_recorded_step_bytes(recorder, launches - ROUND, ROUND, &bytes));
    void *memory = malloc(bytes);
    if (!memory)
        abort();
    EXPECT_INT(0, ps_recorded_step_make(recorder, launches - ROUND, ROUND, memory, step, details));
    return memory;
}

/* Expects these durations in the latest round. `guessed` has an x for each guess. */
static void expect_durations(const uint64_t *ns, const char *guessed)
{
    struct penstock_step step;
    struct ps_recorded_details details;
    void *memory = make_step(&step, &details);

    for (uint32_t i = 0; i < ROUND; i++) {
        EXPECT_U64(ns[i], step.launch[i].duration_ns);
        EXPECT_INT(guessed[i] != 'x', details.timed[i]);
    }
    free(memory);
}

static void test_what_was_not_timed_is_taken_for_one_of_its_kind(void)
{
    begin();
    run_round((struct made_launch[]){
        {1, 0, 1000, 0}, {2, 0, 0, 0}, {1, 0, 3000, 0}, {2, 0, 8000, 0}, {1, 0, 0, 0}, {3, 0, 0, 0}});
    expect_durations((uint64_t[]){1000, 8000, 3000, 8000, 2000, 4000},
                     ".x..xx"); /* the last launch is the only one of its kind */
}

static void test_the_shorter_of_two_rounds_counts(void)
{
    begin();
    run_round((struct made_launch[]){
        {1, 0, 1000, 0}, {2, 0, 2000, 0}, {3, 0, 500, 0}, {4, 0, 0, 0}, {5, 0, 7000, 0}, {6, 0, 1000, 0}});
    run_round((struct made_launch[]){
        {1, 0, 9000, 0}, {2, 0, 1500, 0}, {3, 0, 0, 0}, {4, 0, 6000, 0}, {6, 0, 8000, 0}, {6, 0, 1000, 0}});
    expect_durations((uint64_t[]){1000, 1500, 500, 6000, 8000, 1000},
                     "......"); /* the last launch but one had another kernel */
}

static void test_nothing_is_known(void)
{
    begin();
    run_round(
        (struct made_launch[]){{1, 0, 0, 0}, {2, 1, 0, 0}, {3, 0, 0, 0}, {4, 0, 0, 0}, {5, 2, 0, 0}, {6, 0, 0, 0}});
    expect_durations((uint64_t[]){0, 0, 0, 0, 0, 0}, "xxxxxx");
}

/*
 * The first stream is timed, the second in parts, the third not at all. Work of the third that
 * delays others shows in the others' times.
 */
static void test_streams_beside_the_one_that_is_timed_take_nothing(void)
{
    begin();
    run_round((struct made_launch[]){
        {1, 0, 1000, 0}, {2, 1, 2000, 0}, {3, 2, 0, 0}, {4, 0, 4000, 0}, {5, 64 + 2, 0, 0}, {6, 1, 0, 0}});
    expect_durations((uint64_t[]){1000, 2000, 0, 4000, 0, 7000 / 3}, ".....x");
}

/*
 * A round in which the host takes these times for its launches; 0: unknown. The kernels' numbers
 * begin at `kernel`.
 */
static void run_host_round(uint64_t kernel, const uint64_t *host_ns)
{
    struct made_launch launch[ROUND];

    for (uint32_t i = 0; i < ROUND; i++)
        launch[i] = (struct made_launch){kernel + i, 0, 1000, host_ns[i]};
    run_round(launch);
}

static void expect_host(const uint64_t *ns)
{
    struct penstock_step step;
    struct ps_recorded_details details;
    void *memory = make_step(&step, &details);

    for (uint32_t i = 0; i < ROUND; i++)
        EXPECT_U64(ns[i], step.launch[i].host_ns);
    free(memory);
}

static void test_the_host_takes_what_it_does_as_a_rule(void)
{
    begin();
    ps_recorder_host(recorder, 5); /* there is no launch yet */
    run_host_round(1, (uint64_t[]){70, 20, 30, 0, 50, 60});
    expect_host((uint64_t[]){70, 20, 30, 0, 50, 60});
    run_host_round(1, (uint64_t[]){10, 90, 30, 0, 0, 60});
    expect_host((uint64_t[]){10, 20, 30, 0, 50, 60}); /* the lower of two */
    run_host_round(1, (uint64_t[]){40, 80, 30, 7, 90, 60});
    expect_host((uint64_t[]){40, 80, 30, 7, 50, 60});
    for (unsigned round = 0; round < 3; round++)
        run_host_round(1, (uint64_t[]){99, 15, 30, 8, 90, 60});
    expect_host((uint64_t[]){99, 15, 30, 8, 90, 60}); /* five rounds count */
    run_host_round(4, (uint64_t[]){1, 2, 3, 4, 5, 6});
    expect_host((uint64_t[]){1, 2, 3, 4, 5, 6}); /* other kernels had these places before */
}

int main(void)
{
    test_what_was_not_timed_is_taken_for_one_of_its_kind();
    test_the_shorter_of_two_rounds_counts();
    test_nothing_is_known();
    test_streams_beside_the_one_that_is_timed_take_nothing();
    test_the_host_takes_what_it_does_as_a_rule();
    free(recorder);
    return expect_status();
}
