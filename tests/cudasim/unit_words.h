/*
 * Shared by tests of orders: the device, memory of some words, streams and events. Included once,
 * after unit_device.h.
 */
#ifndef CUDASIM_UNIT_WORDS_H
#define CUDASIM_UNIT_WORDS_H

static struct unit_device device;

#define WORDS 4096u
#define BYTES (WORDS * sizeof(uint32_t))

static CUdeviceptr allocate(void)
{
    CUdeviceptr address = 0;
    EXPECT_OK(cuMemAlloc(&address, BYTES));
    return address;
}

static CUstream new_stream(unsigned int flags)
{
    CUstream stream = NULL;
    EXPECT_OK(cuStreamCreate(&stream, flags));
    return stream;
}

static CUevent new_event(void)
{
    CUevent event = NULL;
    EXPECT_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

/* Waits for everything. Returns the number of words at the address that have the value. */
static uint32_t words_with(CUdeviceptr address, uint32_t value)
{
    static uint32_t words[WORDS];
    uint32_t found = 0;
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_OK(cuMemcpyDtoH(words, address, BYTES));
    for (uint32_t i = 0; i < WORDS; i++)
        found += words[i] == value;
    return found;
}

#endif
