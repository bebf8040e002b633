/*
 * The simulated device: managed memory. Where its pages count, what makes them move, and what the
 * driver tells of them. test_cudasim_memory.c has the allocation itself.
 */
#include "unit_device.h"

#define MIB (1u << 20)
#define PAGE 4096u
#define MEMORY "8388608" /* of the device, 8 MiB */

static const CUmemLocation on_device = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
static const CUmemLocation on_host = {.type = CU_MEM_LOCATION_TYPE_HOST};

static struct unit_device device;
static CUstream stream;

static void open_stream(void)
{
    open_device(&device);
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static CUdeviceptr managed(size_t bytes)
{
    CUdeviceptr address = 0;
    EXPECT_OK(cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL));
    return address;
}

/* Waits for the stream, and returns the bytes of the device that are taken. */
static size_t taken(void)
{
    size_t left = 0, total = 0;
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_OK(cuMemGetInfo(&left, &total));
    return total - left;
}

static int attribute(CUmem_range_attribute asked, CUdeviceptr address, size_t bytes)
{
    int value = -100;
    EXPECT_OK(cuMemRangeGetAttribute(&value, sizeof value, asked, address, bytes));
    return value;
}

/* Prefetches take the device's bytes and give them back; a part of a page counts as a page. */
static void prefetches_move_pages(void)
{
    open_stream();
    CUdeviceptr a = managed(2 * MIB), b = managed(PAGE + 1);
    EXPECT_U64(0, taken());
    EXPECT_OK(cuMemPrefetchAsync(a, 2 * MIB, on_device, 0, stream));
    EXPECT_U64(2 * MIB, taken());
    EXPECT_OK(cuMemPrefetchAsync(a, 2 * MIB, on_device, 0, stream));
    EXPECT_U64(2 * MIB, taken());
    EXPECT_OK(cuMemPrefetchAsync(a + MIB - 1, 2, on_host, 0, stream));
    EXPECT_U64(2 * MIB - 2 * PAGE, taken());
    EXPECT_OK(cuMemPrefetchAsync(b, PAGE + 1, on_device, 0, stream));
    EXPECT_U64(2 * MIB, taken());
    EXPECT_OK(cuMemFree(b));
    EXPECT_U64(2 * MIB - 2 * PAGE, taken());
    EXPECT_OK(cuMemPrefetchAsync(a, 2 * MIB, on_host, 0, stream));
    EXPECT_U64(0, taken());
    EXPECT_OK(cuMemPrefetchAsync(a, 2 * MIB, on_device, 0, stream));
    EXPECT_OK(cuMemFree(a));
    EXPECT_U64(0, taken());
}

/* A prefetch has its place in the stream: pages move only then. */
static void prefetches_are_in_order(void)
{
    uint32_t *gate;
    size_t left = 0, total = 0;
    open_stream();
    CUdeviceptr a = managed(MIB);
    EXPECT_OK(cuMemHostAlloc((void **)&gate, sizeof *gate, 0));
    *gate = 0;
    EXPECT_OK(cuStreamWaitValue32(stream, (CUdeviceptr)(uintptr_t)gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
    EXPECT_OK(cuMemPrefetchAsync(a, MIB, on_device, 0, stream));
    EXPECT_OK(cuMemGetInfo(&left, &total));
    EXPECT_U64(total, left);
    EXPECT_INT(0, attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, a, MIB)); /* asked for, not done */
    __atomic_store_n(gate, 1, __ATOMIC_SEQ_CST);
    EXPECT_U64(MIB, taken());
}

/* Kernels and fills bring what they use, unless it prefers the host. The host goes on using it. */
static void work_brings_pages(void)
{
    CUdeviceptr counted;
    open_stream();
    CUdeviceptr a = managed(MIB), b = managed(MIB), c = managed(MIB);
    volatile uint32_t *words = (volatile uint32_t *)(uintptr_t)a;
    EXPECT_OK(cuMemAlloc(&counted, 512));
    words[1] = 7;
    EXPECT_OK(launch_count(&device, a, 2, 7, counted, stream));
    words[MIB / 4 - 1] = 9; /* beside the kernel, which does not read it */
    EXPECT_U64(MIB + 512, taken());
    uint32_t found = 0;
    EXPECT_OK(cuMemcpyDtoH(&found, counted, sizeof found));
    EXPECT_U64(1, found);
    EXPECT_U64(9, words[MIB / 4 - 1]);
    EXPECT_OK(cuMemsetD32Async(b, 3, 2 * PAGE / 4, stream));
    EXPECT_U64(MIB + 2 * PAGE + 512, taken());
    EXPECT_U64(3, *(volatile uint32_t *)(uintptr_t)b);
    EXPECT_OK(cuMemAdvise(c, MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, on_host));
    EXPECT_OK(launch_fill(&device, c, 4, 5, stream));
    EXPECT_U64(MIB + 2 * PAGE + 512, taken());
    EXPECT_U64(5, *(volatile uint32_t *)(uintptr_t)c);
    EXPECT_OK(cuMemPrefetchAsync(c, MIB, on_device, 0, stream)); /* what is asked for comes all the same */
    EXPECT_U64(2 * MIB + 2 * PAGE + 512, taken());
}

/* Other requests make pages leave, those that were used longest ago first, and keep their bytes. */
static void pages_leave_under_pressure(void)
{
    CUdeviceptr plain, more, pooled;
    open_stream();
    CUdeviceptr a = managed(3 * MIB), b = managed(3 * MIB);
    EXPECT_OK(launch_fill(&device, a, 3 * MIB / 4, 1, stream));
    EXPECT_OK(launch_fill(&device, b, 3 * MIB / 4, 2, stream));
    EXPECT_U64(6 * MIB, taken());
    EXPECT_OK(cuMemAlloc(&plain, 4 * MIB)); /* 2 MiB of `a` leave */
    EXPECT_U64(8 * MIB, taken());
    EXPECT_OK(cuMemPrefetchAsync(b, 3 * MIB, on_device, 0, stream));
    EXPECT_U64(8 * MIB, taken());
    EXPECT_CUDA(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&more, 5 * MIB));
    EXPECT_U64(8 * MIB, taken()); /* a request in vain moves nothing */
    EXPECT_OK(cuMemAllocAsync(&pooled, 4 * MIB, stream));
    EXPECT_U64(8 * MIB, taken());
    EXPECT_OK(launch_fill(&device, a, 1, 7, stream)); /* no room: it is used where it is */
    EXPECT_U64(8 * MIB, taken());
    EXPECT_U64(7, *(volatile uint32_t *)(uintptr_t)a);
    EXPECT_U64(1, ((volatile uint32_t *)(uintptr_t)a)[3 * MIB / 4 - 1]);
    EXPECT_U64(2, ((volatile uint32_t *)(uintptr_t)b)[3 * MIB / 4 - 1]);
    EXPECT_OK(cuMemFree(plain));
    EXPECT_U64(4 * MIB, taken());
}

/* The allocation that was used longest ago leaves, whichever was made first. */
static void the_oldest_leaves(void)
{
    CUdeviceptr plain;
    open_stream();
    CUdeviceptr a = managed(3 * MIB), b = managed(3 * MIB);
    EXPECT_OK(cuMemPrefetchAsync(b, 3 * MIB, on_device, 0, stream));
    EXPECT_OK(launch_fill(&device, a, 1, 1, stream));
    EXPECT_U64(6 * MIB, taken());
    EXPECT_OK(cuMemAlloc(&plain, 4 * MIB));
    EXPECT_OK(cuMemFree(a)); /* all of it is there, and 1 MiB of `b` */
    EXPECT_U64(5 * MIB, taken());
}

/* More than the device holds: as much comes as fits, and other allocations make room. */
static void more_than_the_device(void)
{
    open_stream();
    CUdeviceptr large = managed(12 * MIB), small = managed(MIB);
    EXPECT_OK(cuMemPrefetchAsync(small, MIB, on_device, 0, stream));
    EXPECT_OK(cuMemPrefetchAsync(large, 12 * MIB, on_device, 0, stream));
    EXPECT_U64(8 * MIB, taken());
    EXPECT_OK(cuMemFree(large));
    EXPECT_U64(0, taken());
}

/* Handles of cuMemCreate make pages leave as well. */
static void handles_make_pages_leave(void)
{
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle;
    open_stream();
    CUdeviceptr a = managed(8 * MIB);
    EXPECT_OK(cuMemPrefetchAsync(a, 8 * MIB, on_device, 0, stream));
    EXPECT_U64(8 * MIB, taken());
    EXPECT_OK(cuMemCreate(&handle, 6 * MIB, &properties, 0));
    EXPECT_U64(8 * MIB, taken());
    EXPECT_OK(cuMemFree(a));
    EXPECT_U64(6 * MIB, taken());
    EXPECT_OK(cuMemRelease(handle));
}

static void attributes_tell_what_was_asked(void)
{
    const CUmem_range_attribute prefetched = CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION;
    int numbers[3], value = 0;
    open_stream();
    CUdeviceptr a = managed(4 * PAGE);
    EXPECT_INT(CU_DEVICE_INVALID, attribute(prefetched, a, 4 * PAGE));
    EXPECT_OK(cuMemPrefetchAsync(a, 2 * PAGE, on_device, 0, stream));
    EXPECT_INT(CU_DEVICE_INVALID, attribute(prefetched, a, 4 * PAGE));
    EXPECT_INT(0, attribute(prefetched, a, 2 * PAGE));
    EXPECT_OK(cuMemPrefetchAsync(a, 4 * PAGE, on_host, 0, stream));
    EXPECT_INT(CU_DEVICE_CPU, attribute(prefetched, a, 4 * PAGE));
    EXPECT_INT(CU_MEM_LOCATION_TYPE_HOST, attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE, a, 1));
    EXPECT_OK(cuMemAdvise(a, 4 * PAGE, CU_MEM_ADVISE_SET_READ_MOSTLY, on_device));
    EXPECT_INT(1, attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, a, 4 * PAGE));
    EXPECT_OK(cuMemAdvise(a + PAGE, 1, CU_MEM_ADVISE_UNSET_READ_MOSTLY, on_device));
    EXPECT_INT(0, attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, a, 4 * PAGE));
    EXPECT_INT(CU_DEVICE_INVALID, attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, a, PAGE));
    EXPECT_OK(cuMemAdvise(a, 4 * PAGE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, on_device));
    EXPECT_INT(0, attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, a, PAGE));
    EXPECT_OK(cuMemAdvise(a, 4 * PAGE, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, on_device));
    EXPECT_INT(CU_DEVICE_INVALID, attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, a, PAGE));
    EXPECT_OK(cuMemAdvise(a, 4 * PAGE, CU_MEM_ADVISE_SET_ACCESSED_BY, on_device));
    EXPECT_OK(cuMemRangeGetAttribute(numbers, sizeof numbers, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, a, 4 * PAGE));
    EXPECT_INT(0, numbers[0]);
    EXPECT_INT(CU_DEVICE_INVALID, numbers[1]);
    EXPECT_U64(0, taken()); /* advice moves nothing */
    EXPECT_OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0));
    EXPECT_INT(1, value);
}

static void what_is_wrong_is_refused(void)
{
    const CUmemLocation nowhere = {.type = CU_MEM_LOCATION_TYPE_INVALID}, missing = {CU_MEM_LOCATION_TYPE_DEVICE, 9};
    CUdeviceptr plain;
    CUgraph graph;
    int value;
    open_stream();
    CUdeviceptr a = managed(PAGE);
    EXPECT_OK(cuMemAlloc(&plain, PAGE));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(plain, PAGE, on_device, 0, stream));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(a, 0, on_device, 0, stream));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(a, PAGE + 1, on_device, 0, stream));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(a, PAGE, on_device, 1, stream));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(a, PAGE, nowhere, 0, stream));
    EXPECT_CUDA(CUDA_ERROR_INVALID_DEVICE, cuMemPrefetchAsync(a, PAGE, missing, 0, stream));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(plain, PAGE, CU_MEM_ADVISE_SET_READ_MOSTLY, on_device));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(a, PAGE, (CUmem_advise)99, on_device));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
                cuMemRangeGetAttribute(&value, 8, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, a, PAGE));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
                cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, plain, PAGE));
    EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemPrefetchAsync(a, PAGE, on_device, 0, stream));
    EXPECT_OK(cuStreamEndCapture(stream, &graph));
    EXPECT_OK(cuDevicePrimaryCtxReset(0)); /* the allocation goes with its context */
    EXPECT_OK(cuDevicePrimaryCtxRetain(&device.context, 0));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemFree(a));
}

int main(void)
{
    RUN_CASE(prefetches_move_pages, "CUDASIM_MEMORY", MEMORY);
    RUN_CASE(prefetches_are_in_order, "CUDASIM_MEMORY", MEMORY);
    RUN_CASE(work_brings_pages, "CUDASIM_MEMORY", MEMORY);
    RUN_CASE(pages_leave_under_pressure, "CUDASIM_MEMORY", MEMORY);
    RUN_CASE(the_oldest_leaves, "CUDASIM_MEMORY", MEMORY);
    RUN_CASE(more_than_the_device, "CUDASIM_MEMORY", MEMORY);
    RUN_CASE(handles_make_pages_leave, "CUDASIM_MEMORY", MEMORY);
    RUN_CASE(attributes_tell_what_was_asked, "CUDASIM_MEMORY", MEMORY);
    RUN_CASE(what_is_wrong_is_refused, "CUDASIM_MEMORY", MEMORY);
    return expect_status();
}
