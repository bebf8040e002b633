/*
 * The simulated device: reservations, handles, mappings, limits, poison, faults, plain, pooled and
 * pinned memory, pointer queries.
 */
#include "unit_mappings.h"

static struct unit_device device;

#define POISON 0xfffcdeadu

static const CUmemAllocationProp host_properties = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0},
};

static uint32_t first_word(CUdeviceptr address)
{
    uint32_t word = 0;
    EXPECT_OK(cuMemcpyDtoH(&word, address, sizeof word));
    return word;
}

static void mappings_follow_the_rules(void)
{
    open_device(&device);
    EXPECT_U64(GRANULE, device.granularity);
    CUdeviceptr space = reserve(8 * GRANULE);
    CUmemGenericAllocationHandle handle = create(&device_properties, 2 * GRANULE), bad;
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&bad, GRANULE + 4096, &device_properties, 0));
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(space, GRANULE, GRANULE, handle, 0));
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(space, GRANULE, 0, handle, 0));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemMap(space + 4096, 2 * GRANULE, 0, handle, 0));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemMap(space + 7 * GRANULE, 2 * GRANULE, 0, handle, 0));
    map(space, handle, 2 * GRANULE);
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemMap(space + GRANULE, 2 * GRANULE, 0, handle, 0));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(space, GRANULE));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(space + 4 * GRANULE, GRANULE));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, set_access(space, 4 * GRANULE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(space, 8 * GRANULE));
    EXPECT_OK(cuMemUnmap(space, 2 * GRANULE));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(space, 4 * GRANULE));
    EXPECT_OK(cuMemAddressFree(space, 8 * GRANULE));
    EXPECT_OK(cuMemRelease(handle));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemRelease(handle));
}

static void two_addresses_alias(void)
{
    open_device(&device);
    CUdeviceptr space = reserve(2 * GRANULE);
    CUmemGenericAllocationHandle handle = create(&device_properties, GRANULE);
    map(space, handle, GRANULE);
    map(space + GRANULE, handle, GRANULE);
    EXPECT_OK(launch_fill(&device, space, GRANULE_WORDS, 77, NULL));
    EXPECT_U64(77, first_word(space + GRANULE));
    EXPECT_OK(cuMemUnmap(space, GRANULE));
    EXPECT_U64(77, first_word(space + GRANULE));
    EXPECT_OK(cuMemUnmap(space + GRANULE, GRANULE));
    EXPECT_OK(cuMemRelease(handle));
}

/* Bytes stay with the handle while its addresses are mapped elsewhere. Evictions rely on this. */
static void bytes_move_by_remapping(void)
{
    open_device(&device);
    CUdeviceptr span = reserve(GRANULE), window = reserve(GRANULE);
    CUmemGenericAllocationHandle pages = create(&device_properties, GRANULE), slot = create(&host_properties, GRANULE);
    map(span, pages, GRANULE);
    map(window, slot, GRANULE);
    EXPECT_OK(launch_fill(&device, span, GRANULE_WORDS, 5, NULL));
    EXPECT_OK(cuMemcpyAsync(window, span, GRANULE, NULL));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_OK(cuMemUnmap(span, GRANULE));
    EXPECT_OK(cuMemRelease(pages));
    map(span, slot, GRANULE);
    EXPECT_U64(5, first_word(span));
    unsigned int type = 0;
    EXPECT_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, span));
    EXPECT_U64(CU_MEMORYTYPE_HOST, type);
}

/*
 * Several adjacent handles are copied and overwritten as one range. One call unmaps them, unless it
 * cuts one of them.
 */
static void a_range_of_whole_mappings_goes_at_once(void)
{
    open_device(&device);
    CUdeviceptr span = reserve(4 * GRANULE), other = reserve(4 * GRANULE);
    CUmemGenericAllocationHandle slots[3] = {create(&host_properties, 2 * GRANULE), create(&host_properties, GRANULE),
                                             create(&host_properties, GRANULE)};
    CUmemGenericAllocationHandle pages = create(&device_properties, 4 * GRANULE);
    map(span, slots[0], 2 * GRANULE);
    map(span + 2 * GRANULE, slots[1], GRANULE);
    map(span + 3 * GRANULE, slots[2], GRANULE);
    map(other, pages, 4 * GRANULE);
    EXPECT_OK(launch_fill(&device, span, 4 * GRANULE_WORDS, 7, NULL));
    EXPECT_OK(cuMemcpyAsync(other, span, 4 * GRANULE, NULL));
    EXPECT_OK(cuCtxSynchronize());
    for (size_t i = 0; i < 4; i++)
        EXPECT_U64(7, first_word(other + i * GRANULE));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(span, GRANULE));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(span + GRANULE, 2 * GRANULE));
    EXPECT_U64(7, first_word(span + GRANULE)); /* the refused call undoes nothing */
    EXPECT_OK(cuMemUnmap(span, 4 * GRANULE));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(span, 4 * GRANULE));
    map(span, pages, 4 * GRANULE);
    EXPECT_OK(cuMemUnmap(span, 4 * GRANULE));
    map(span, slots[2], GRANULE); /* the bytes of one of them are still there */
    EXPECT_U64(7, first_word(span));
}

static void released_pages_stay_until_unmapped(void)
{
    open_device(&device);
    size_t free_before, free_mapped, free_after, total;
    EXPECT_OK(cuMemGetInfo(&free_before, &total));
    EXPECT_U64((size_t)1 << 20, total);
    CUdeviceptr space = reserve(GRANULE);
    CUmemGenericAllocationHandle handle = create(&device_properties, GRANULE);
    map(space, handle, GRANULE);
    EXPECT_OK(cuMemRelease(handle));
    EXPECT_OK(cuMemGetInfo(&free_mapped, &total));
    EXPECT_U64(free_before - GRANULE, free_mapped);
    EXPECT_OK(cuMemsetD32(space, 1, 1));
    EXPECT_U64(1, first_word(space));
    EXPECT_OK(cuMemUnmap(space, GRANULE));
    EXPECT_OK(cuMemGetInfo(&free_after, &total));
    EXPECT_U64(free_before, free_after);
}

static void limits_hold(void)
{
    open_device(&device);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr plain;
    EXPECT_CUDA(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, (1 << 20) + GRANULE, &device_properties, 0));
    EXPECT_OK(cuMemCreate(&handle, 12 * GRANULE, &device_properties, 0));
    EXPECT_CUDA(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&plain, 5 * GRANULE));
    EXPECT_OK(cuMemAlloc(&plain, 4 * GRANULE));
    EXPECT_CUDA(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, GRANULE, &device_properties, 0));
    EXPECT_OK(cuMemFree(plain));
    EXPECT_OK(cuMemCreate(&handle, GRANULE, &device_properties, 0));
    EXPECT_OK(cuMemCreate(&handle, 4 * GRANULE, &host_properties, 0));
    EXPECT_CUDA(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, GRANULE, &host_properties, 0));
    CUdeviceptr space;
    EXPECT_CUDA(CUDA_ERROR_OUT_OF_MEMORY, cuMemAddressReserve(&space, (size_t)1 << 62, 0, 0, 0));
}

static void new_memory_is_poison(void)
{
    open_device(&device);
    CUdeviceptr space = reserve(GRANULE), plain, pooled, again;
    map(space, create(&device_properties, GRANULE), GRANULE);
    EXPECT_U64(POISON, first_word(space));
    EXPECT_U64(POISON, first_word(space + GRANULE - 4));
    EXPECT_OK(cuMemAlloc(&plain, 1000));
    EXPECT_U64(POISON, first_word(plain));
    EXPECT_OK(cuMemAllocAsync(&pooled, 4096, NULL));
    EXPECT_OK(cuMemsetD32Async(pooled, 1, 1024, NULL));
    EXPECT_OK(cuMemFreeAsync(pooled, NULL));
    EXPECT_OK(cuMemAllocAsync(&again, 4096, NULL));
    EXPECT_U64(pooled, again);
    EXPECT_U64(POISON, first_word(again));
}

static void an_unmapped_address_faults(void)
{
    open_device(&device);
    CUdeviceptr space = reserve(2 * GRANULE);
    map(space, create(&device_properties, GRANULE), GRANULE);
    EXPECT_OK(launch_fill(&device, space, GRANULE_WORDS + 1, 1, NULL));
    EXPECT_CUDA(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    CUdeviceptr plain;
    EXPECT_CUDA(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc(&plain, 4));
}

/* Reads its words over and over until params[1], a pinned word, is set. */
static void run_read_until(const struct cudasim_launch *launch, void *const *params)
{
    (void)launch;
    const volatile uint32_t *words = *(const volatile uint32_t *const *)params[0];
    const uint32_t *gate = *(const uint32_t *const *)params[1];
    uint32_t *started = *(uint32_t *const *)params[2];
    __atomic_store_n(started, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(gate, __ATOMIC_SEQ_CST))
        (void)words[0];
}

static const struct cudasim_param read_until_params[] = {{0, 8}, {8, 8}, {16, 8}};
static const struct cudasim_kernel read_until_code = {CUDASIM_KERNEL_ABI, 3, read_until_params, run_read_until};

/*
 * Unmapping does not wait for a running kernel: the kernel meets the hole. Only the threads
 * scheduler has kernels that last.
 */
static void unmapping_does_not_wait(void)
{
    open_device(&device);
    CUkernel kernel = cudasim_register_kernel("read_until", &read_until_code, NULL, 0);
    CUdeviceptr space = reserve(GRANULE);
    map(space, create(&device_properties, GRANULE), GRANULE);
    uint32_t *words;
    EXPECT_OK(cuMemHostAlloc((void **)&words, 2 * sizeof *words, 0));
    words[0] = words[1] = 0;
    uint32_t *gate = &words[0], *started = &words[1];
    void *params[] = {&space, &gate, &started};
    EXPECT_OK(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    while (!__atomic_load_n(started, __ATOMIC_SEQ_CST))
        usleep(100);
    EXPECT_OK(cuMemUnmap(space, GRANULE));
    EXPECT_CUDA(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

static void a_reset_gives_memory_back(void)
{
    open_device(&device);
    CUdeviceptr plain, pooled;
    size_t free_bytes, total;
    EXPECT_OK(cuMemAlloc(&plain, GRANULE));
    EXPECT_OK(cuMemAllocAsync(&pooled, GRANULE, CU_STREAM_PER_THREAD));
    EXPECT_OK(launch_fill(&device, plain + GRANULE, 1, 0, NULL));
    EXPECT_CUDA(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    EXPECT_OK(cuDevicePrimaryCtxReset(0));
    EXPECT_OK(cuDevicePrimaryCtxRetain(&device.context, 0));
    EXPECT_OK(cuMemGetInfo(&free_bytes, &total));
    EXPECT_U64(total, free_bytes);
    EXPECT_OK(cuMemAllocAsync(&pooled, GRANULE, CU_STREAM_PER_THREAD));
    EXPECT_U64(POISON, first_word(pooled));
}

static void a_read_only_address_refuses_writes(void)
{
    open_device(&device);
    CUdeviceptr space = reserve(GRANULE);
    map(space, create(&device_properties, GRANULE), GRANULE);
    EXPECT_OK(set_access(space, GRANULE, CU_MEM_ACCESS_FLAGS_PROT_READ));
    EXPECT_U64(POISON, first_word(space));
    EXPECT_OK(cuMemsetD32(space, 0, 4));
    EXPECT_CUDA(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

static void freed_memory_faults(void)
{
    open_device(&device);
    CUdeviceptr plain;
    EXPECT_OK(cuMemAlloc(&plain, GRANULE));
    EXPECT_OK(cuMemFree(plain));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemFree(plain));
    EXPECT_OK(launch_fill(&device, plain, 1, 1, NULL));
    EXPECT_CUDA(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

static void pools_reuse_in_stream_order_only(void)
{
    open_device(&device);
    CUmemoryPool pool;
    cuuint64_t keep = UINT64_MAX, reserved = 0, used = 1;
    EXPECT_OK(cuDeviceGetDefaultMemPool(&pool, 0));
    EXPECT_OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    CUstream first, second;
    uint32_t *gate;
    EXPECT_OK(cuMemHostAlloc((void **)&gate, sizeof *gate, 0));
    *gate = 0;
    EXPECT_OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    CUdeviceptr one, two, three;
    EXPECT_OK(cuMemAllocAsync(&one, GRANULE, first));
    EXPECT_OK(cuStreamWaitValue32(first, (CUdeviceptr)(uintptr_t)gate, 1, CU_STREAM_WAIT_VALUE_EQ));
    EXPECT_OK(cuMemFreeAsync(one, first));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(one, first));
    /* The free has not run. Another stream must not get the block; its own stream may. */
    EXPECT_OK(cuMemAllocAsync(&two, GRANULE, second));
    EXPECT(two != one);
    EXPECT_OK(cuMemAllocAsync(&three, GRANULE, first));
    EXPECT_U64(one, three);
    __atomic_store_n(gate, 1, __ATOMIC_SEQ_CST);
    EXPECT_OK(cuMemFreeAsync(two, second));
    EXPECT_OK(cuMemFreeAsync(three, first));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    EXPECT_OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    EXPECT_U64(2 * GRANULE, reserved);
    EXPECT_U64(0, used);
    EXPECT_OK(cuMemPoolTrimTo(pool, 0));
    EXPECT_OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    EXPECT_U64(0, reserved);
    EXPECT_OK(cuMemFreeHost(gate));
}

static void pointers_are_described(void)
{
    open_device(&device);
    CUdeviceptr plain, base, unmapped = reserve(GRANULE);
    size_t size;
    unsigned int type = 0;
    static uint32_t pageable;
    EXPECT_OK(cuMemAlloc(&plain, 1000));
    EXPECT_OK(cuMemGetAddressRange(&base, &size, plain + 500));
    EXPECT_U64(plain, base);
    EXPECT_U64(1000, size);
    EXPECT_CUDA(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &size, plain + 1000));
    EXPECT_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, plain));
    EXPECT_U64(CU_MEMORYTYPE_DEVICE, type);
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, unmapped));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
                cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)&pageable));
    EXPECT_OK(cuMemHostRegister(&pageable, sizeof pageable, 0));
    EXPECT_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)&pageable));
    EXPECT_U64(CU_MEMORYTYPE_HOST, type);
    EXPECT_CUDA(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister(&pageable, sizeof pageable, 0));
    EXPECT_OK(cuMemHostUnregister(&pageable));
    EXPECT_CUDA(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(&pageable));
}

/* Managed memory is read and written by the host and by the device, at the same addresses. */
static void managed_memory_is_everywhere(void)
{
    CUdeviceptr managed;
    CUstream stream;
    unsigned int type = 0, is_managed = 0;
    open_device(&device);
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&managed, 4096, 0));
    EXPECT_OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    EXPECT_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, managed));
    EXPECT_OK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, managed));
    EXPECT_INT(CU_MEMORYTYPE_DEVICE, type);
    EXPECT_INT(1, is_managed);
    volatile uint32_t *words = (volatile uint32_t *)(uintptr_t)managed;
    EXPECT_U64(0xfffcdead, words[0]);
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(launch_fill(&device, managed, 1024, 7, stream));
    const CUmemLocation place = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    EXPECT_OK(cuMemAdvise(managed, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, place));
    EXPECT_OK(cuMemPrefetchAsync(managed, 4096, place, 0, stream));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(managed, 8192, place, 0, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_U64(7, words[1023]);
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost((void *)(uintptr_t)managed));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemFree(managed + 512));
    EXPECT_OK(cuMemFree(managed));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemFree(managed));
}

/* What is not simulated says so: a program can't take it for done. */
static void other_memory_is_refused(void)
{
    CUarray array;
    const CUDA_ARRAY_DESCRIPTOR shape = {16, 16, CU_AD_FORMAT_FLOAT, 1};
    open_device(&device);
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuArrayCreate(&array, &shape));
}

static void rows_are_copied_and_filled(void)
{
    open_device(&device);
    CUdeviceptr from, to;
    size_t pitch;
    unsigned char rows[5][100], back[5][100];
    EXPECT_OK(cuMemAllocPitch(&from, &pitch, 100, 5, 4));
    EXPECT_OK(cuMemAlloc(&to, pitch * 5));
    for (int y = 0; y < 5; y++)
        memset(rows[y], y + 1, sizeof rows[y]);
    CUDA_MEMCPY2D in = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = rows,
                        .srcPitch = 100,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = from,
                        .dstPitch = pitch,
                        .WidthInBytes = 100,
                        .Height = 5};
    EXPECT_OK(cuMemcpy2D(&in));
    EXPECT_OK(cuMemcpyDtoD(to, from, pitch * 5));
    EXPECT_OK(cuMemsetD2D8(to, pitch, 9, 50, 1));
    CUDA_MEMCPY2D out = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = to,
                         .srcPitch = pitch,
                         .dstMemoryType = CU_MEMORYTYPE_HOST,
                         .dstHost = back,
                         .dstPitch = 100,
                         .WidthInBytes = 100,
                         .Height = 5};
    EXPECT_OK(cuMemcpy2D(&out));
    EXPECT(!memcmp(&rows[1], &back[1], 400));
    /* As many rows as bytes in a row: the box is not one row. */
    EXPECT_OK(cuMemsetD2D8(to, pitch, 7, 5, 5));
    in.WidthInBytes = out.WidthInBytes = 5;
    in.dstDevice = to;
    EXPECT_OK(cuMemcpy2D(&out));
    for (int y = 0; y < 5; y++)
        EXPECT(back[y][0] == 7 && back[y][4] == 7 && (y == 0 || back[y][5] == y + 1));
    EXPECT_OK(cuMemcpy2D(&in));
    EXPECT_OK(cuMemcpy2D(&out));
    for (int y = 0; y < 5; y++)
        EXPECT(back[y][0] == y + 1 && back[y][4] == y + 1);
    EXPECT_INT(9, back[0][49]);
    EXPECT_INT(1, back[0][50]);
}

static void a_device_without_vmm_says_so(void)
{
    int supported = 1;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    EXPECT_OK(cuInit(0));
    EXPECT_OK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    EXPECT_INT(0, supported);
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, (size_t)2 << 20, &device_properties, 0));
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuMemAddressReserve(&address, (size_t)2 << 20, 0, 0, 0));
}

static void host_handles_can_be_missing(void)
{
    CUmemGenericAllocationHandle handle;
    open_device(&device);
    EXPECT_OK(cuMemCreate(&handle, device.granularity, &device_properties, 0));
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, device.granularity, &host_properties, 0));
}

static void no_device_is_an_error(void)
{
    int count;
    EXPECT_CUDA(CUDA_ERROR_NO_DEVICE, cuInit(0));
    EXPECT_CUDA(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
}

#define SMALL "CUDASIM_GRANULARITY", "64K", "CUDASIM_MEMORY", "1MiB", "CUDASIM_HOST_MEMORY", "256KiB"

int main(void)
{
    RUN_CASE(mappings_follow_the_rules, SMALL);
    RUN_CASE(two_addresses_alias, SMALL);
    RUN_CASE(bytes_move_by_remapping, SMALL);
    RUN_CASE(a_range_of_whole_mappings_goes_at_once, SMALL);
    RUN_CASE(released_pages_stay_until_unmapped, SMALL);
    RUN_CASE(limits_hold, SMALL);
    RUN_CASE(new_memory_is_poison, SMALL);
    RUN_CASE(an_unmapped_address_faults, SMALL);
    RUN_CASE(a_read_only_address_refuses_writes, SMALL);
    RUN_CASE(freed_memory_faults, SMALL);
    RUN_CASE(pools_reuse_in_stream_order_only, SMALL);
    RUN_CASE(pointers_are_described, SMALL);
    RUN_CASE(managed_memory_is_everywhere, SMALL);
    RUN_CASE(other_memory_is_refused, SMALL);
    RUN_CASE(rows_are_copied_and_filled, SMALL);
    RUN_CASE(a_reset_gives_memory_back, SMALL);
    const char *const small[] = {SMALL, NULL};
    run_case("unmapping_does_not_wait", unmapping_does_not_wait, small, "threads", 0);
    RUN_CASE(a_device_without_vmm_says_so, "CUDASIM_VMM", "0");
    RUN_CASE(host_handles_can_be_missing, "CUDASIM_HOST_VMM", "0");
    RUN_CASE(no_device_is_an_error, "CUDASIM_NO_DEVICE", "1");
    return expect_status();
}
