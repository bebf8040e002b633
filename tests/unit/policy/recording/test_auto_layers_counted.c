/* Layers whose numbers count the layers before them, in a recorded step. */
#include <stdlib.h>

#include "expect.h"
#include "policy/recording/recorded_step.h"
#include "policy/recording/recorder.h"
#include "trace.h"

static struct trace trace;
static struct ps_recorder *recorder;
static struct ps_recorded_layer layer; /* the layer of the next launches */

static void on_allocated(void *context, uint64_t span, uint64_t bytes)
{
    (void)context;
    ps_recorder_allocated(recorder, span, bytes);
}

static void on_freed(void *context, uint64_t span)
{
    (void)context;
    ps_recorder_freed(recorder, span);
}

static void on_launched(void *context, struct ps_step_launch launch, const uint64_t *span, const uint64_t *bytes, int n)
{
    (void)context;
    ps_recorder_launch(recorder, launch, 0, layer);
    for (int i = 0; i < n; i++)
        ps_recorder_access(recorder, span[i], bytes[i], false);
}

static void begin_recording(void)
{
    recorder = calloc(1, ps_recorder_bytes());
    if (!recorder)
        abort();
    ps_recorder_init(recorder);
    memset(&trace, 0, sizeof trace);
    trace.allocated = on_allocated;
    trace.freed = on_freed;
    trace.launched = on_launched;
}

/* Makes a step in memory that the caller frees. */
static void *step_of(uint64_t first, uint32_t length, struct penstock_step *step)
{
    struct ps_recorded_details details;
    size_t bytes = 0;

    EXPECT_INT(0, ps_recorded_step_bytes(recorder, first, length, &bytes));
    void *memory = malloc(bytes);
    if (!memory)
        abort();
    EXPECT_INT(0, ps_recorded_step_make(recorder, first, length, memory, step, &details));
    return memory;
}

/*
 * Layers that are counted through all steps, three in each. However the window is turned, they are
 * 0 to 2 from the start of forward.
 */
static void test_whichever_way_the_window_is_turned(void)
{
    struct trainer trainer;
    struct penstock_step step;
    uint64_t begin[3] = {0}, end = 0;
    uint32_t counted = 0;

    begin_recording();
    trainer_init(&trainer, &trace, 3);
    for (uint64_t i = 0; i < 6; i++) {
        for (uint32_t l = 0; l < 3; l++) {
            layer = (struct ps_recorded_layer){.stretch = 1 + 3 * i + l,
                                               .number = counted++,
                                               .direction = PENSTOCK_DIRECTION_FORWARD,
                                               .counted = true};
            if (i == 3)
                begin[l] = trace.launches;
            trainer_forward(&trainer, l, 50, 1);
        }
        for (uint32_t l = 3; l-- > 0;)
            trainer_backward(&trainer, l);
        trainer_update(&trainer);
        trainer_zero(&trainer);
        end = i == 3 ? trace.launches : end;
    }
    const uint32_t length = (uint32_t)(end - begin[0]);
    for (uint32_t turned = 0; turned < length; turned++) {
        void *memory = step_of(begin[0] + turned, length, &step);
        for (uint32_t l = 0; l < length; l++) {
            uint64_t at = begin[0] + (turned + l) % length;
            EXPECT_U64((at >= begin[1]) + (at >= begin[2]), step.layer[step.launch[l].layer].number);
        }
        free(memory);
    }
    free(recorder);
    trace_destroy(&trace);
}

int main(void)
{
    test_whichever_way_the_window_is_turned();
    return expect_status();
}
