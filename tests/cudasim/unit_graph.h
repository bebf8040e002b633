/*
 * Shared by unit tests of the simulated device's graphs: a device with 1,024 words of zero, two
 * streams, two events, and an empty graph.
 */
#ifndef UNIT_GRAPH_H
#define UNIT_GRAPH_H

#include "unit_device.h"

static struct unit_device device;
static CUdeviceptr words;
static CUstream stream, side;
static CUevent fork_event, join_event;
static CUgraph graph;

static inline void open_words(void)
{
    open_device(&device);
    EXPECT_OK(cuMemAlloc(&words, 4096));
    EXPECT_OK(cuMemsetD32(words, 0, 1024));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuEventCreate(&fork_event, CU_EVENT_DISABLE_TIMING));
    EXPECT_OK(cuEventCreate(&join_event, CU_EVENT_DISABLE_TIMING));
    EXPECT_OK(cuGraphCreate(&graph, 0));
}

/* Waits for the stream, and returns the word. */
static inline uint32_t word(unsigned at)
{
    uint32_t value = 0;
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_OK(cuMemcpyDtoH(&value, words + 4 * at, sizeof value));
    return value;
}

#endif
