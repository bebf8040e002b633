/*
 * The cases of `mapped` that print the driver's answers about mapped addresses, handles and wrong
 * calls.
 */
#ifndef PENSTOCK_SAMPLES_MAPPED_ASKS_H
#define PENSTOCK_SAMPLES_MAPPED_ASKS_H

#include "mapped_cases.h"

static const char *yes(bool holds)
{
    return holds ? "yes" : "no";
}

static void print_access(CUdeviceptr address)
{
    CUmemLocation here = {};
    unsigned long long flags = 99;

    here.type = CU_MEM_LOCATION_TYPE_DEVICE;
    const CUresult result = DRIVER(cuMemGetAccess, &flags, &here, address);
    printf("  access: %s %llu\n", name_of(result), flags);
}

static void print_pointer(CUdeviceptr base, size_t offset)
{
    const CUdeviceptr address = base + offset;
    CUdeviceptr start = base, own = 0;
    size_t bytes = 0;
    unsigned value = 99;
    int ordinal = 99;

    printf("at %zu of %zu\n", offset / mappings.granularity, mappings.granularity);
    CUresult result = DRIVER(cuMemGetAddressRange_v2, &start, &bytes, address);
    printf("  address range: %s, from %lld, %zu bytes\n", name_of(result), static_cast<long long>(start - base), bytes);
    start = base;
    bytes = 0;
    result = DRIVER(cuPointerGetAttribute, &start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address);
    printf("  range start: %s, %lld\n", name_of(result), static_cast<long long>(start - base));
    result = DRIVER(cuPointerGetAttribute, &bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address);
    printf("  range size: %s, %zu\n", name_of(result), bytes);
    result = DRIVER(cuPointerGetAttribute, &value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    printf("  memory type: %s, %u\n", name_of(result), value);
    result = DRIVER(cuPointerGetAttribute, &ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
    printf("  device: %s, %d\n", name_of(result), ordinal);
    result = DRIVER(cuPointerGetAttribute, &own, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address);
    printf("  device pointer: %s, itself: %s\n", name_of(result), yes(own == address));
    value = 99;
    result = DRIVER(cuPointerGetAttribute, &value, CU_POINTER_ATTRIBUTE_MAPPED, address);
    printf("  mapped: %s, %u\n", name_of(result), value);
    print_access(address);
}

static void print_properties(CUmemGenericAllocationHandle handle)
{
    CUmemAllocationProp got;

    memset(&got, 0, sizeof(got));
    const CUresult result = DRIVER(cuMemGetAllocationPropertiesFromHandle, &got, handle);
    printf("properties: %s, type %d, handle types %d, location %d %d, compression %d, by cards %d, usage %d\n",
           name_of(result), got.type, got.requestedHandleTypes, got.location.type, got.location.id,
           got.allocFlags.compressionType, got.allocFlags.gpuDirectRDMACapable, got.allocFlags.usage);
}

/*
 * Retains the handle by one of its addresses. Each call returns the same handle and adds a
 * reference.
 */
static void asks_for_the_handle(void)
{
    struct tensor tensor = new_tensor(4 * unit);
    CUmemGenericAllocationHandle again[3] = {};

    fill(&tensor, 5);
    for (CUmemGenericAllocationHandle &handle : again) {
        const CUresult result = DRIVER(cuMemRetainAllocationHandle, &handle, tensor.words + 777);
        printf("retained: %s, the same: %s\n", name_of(result), yes(handle == tensor.handle));
    }
    MUST(cuMemRelease, tensor.handle);
    MUST(cuMemRelease, again[0]);
    MUST(cuMemRelease, again[1]);
    print_properties(again[2]);
    unmap(&tensor);
    printf("not mapped: %s\n", name_of(DRIVER(cuMemRetainAllocationHandle, &again[0], tensor.words)));
    map_handle(address_of(&tensor), tensor.bytes, again[2]);
    expect_tensor(&tensor, 5, "of a handle that was retained");
    MUST(cuMemRelease, again[2]);
    expect_tensor(&tensor, 5, "of a handle that was released");
    int descriptor = -1;
    printf("exported when released: %s\n", name_of(DRIVER(cuMemExportToShareableHandle, &descriptor, again[2],
                                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)));
    const CUresult result = DRIVER(cuMemRetainAllocationHandle, &tensor.handle, tensor.words);
    printf("retained when released: %s\n", name_of(result));
    print_properties(tensor.handle);
    free_tensor(&tensor);
}

static void case_asks(void)
{
    const size_t bytes = whole_granules(2 * unit * sizeof(uint32_t));
    const CUdeviceptr range = new_range(4 * bytes);
    const CUmemGenericAllocationHandle large = new_handle(2 * bytes), small = new_handle(bytes);

    print_properties(large);
    print_pointer(range, 0);
    MUST(cuMemMap, range, 2 * bytes, 0, large, 0);
    print_pointer(range, bytes);
    let_access(range, 2 * bytes);
    map_handle(range + 2 * bytes, bytes, small);
    LAUNCH(stream, 3 * bytes / sizeof(uint32_t), fill_words, words_at(range), 3, 0, 3 * bytes / sizeof(uint32_t));
    new_tensors(1); /* so that memory leaves under a small budget */
    for (size_t at = 0; at < 4 * bytes; at += bytes) {
        print_pointer(range, at);
        print_pointer(range, at + bytes - 4);
    }
    MUST(cuCtxSynchronize);
    printf("read only: %s\n", name_of(set_access(range, 2 * bytes, CU_MEM_ACCESS_FLAGS_PROT_READ)));
    print_access(range);
    expect_words(words_at(range), 3, 0, 3 * bytes / sizeof(uint32_t), stream, "of what can be read");
    fill_tensors(40);
    print_access(range);
    expect_words(words_at(range), 3, 0, 3 * bytes / sizeof(uint32_t), stream, "of what can be read, again");
    let_access(range, 3 * bytes);
    print_access(range);
    asks_for_the_handle();
    expect_tensors(40, "of the other tensors");
    free_tensors();
    MUST(cuCtxSynchronize);
    MUST(cuMemUnmap, range, 2 * bytes);
    print_pointer(range, 0);
    print_pointer(range, 2 * bytes);
    MUST(cuMemUnmap, range + 2 * bytes, bytes);
    MUST(cuMemRelease, large);
    MUST(cuMemRelease, small);
    MUST(cuMemAddressFree, range, 4 * bytes);
}

#define SAY(name, ...) printf("%s: %s\n", #name "(" #__VA_ARGS__ ")", name_of(DRIVER(name, __VA_ARGS__)))

static void case_errors(void)
{
    const size_t bytes = whole_granules(4 * unit * sizeof(uint32_t)), granule = mappings.granularity;
    CUmemGenericAllocationHandle handle = 0, other_handle = new_handle(bytes);
    CUmemAllocationProp wrong = mappings.properties;
    CUdeviceptr range = 0, nowhere = static_cast<CUdeviceptr>(1) << 20;
    struct tensor tensor = new_tensor(4 * unit);
    const CUdeviceptr own = address_of(&tensor);
    int descriptor = -1;

    fill(&tensor, 6);
    MUST(cuCtxSynchronize);
    SAY(cuMemCreate, &handle, 0, &mappings.properties, 0);
    SAY(cuMemCreate, &handle, granule + granule / 2, &mappings.properties, 0);
    SAY(cuMemCreate, &handle, bytes, &mappings.properties, 1);
    SAY(cuMemCreate, &handle, bytes, nullptr, 0);
    SAY(cuMemCreate, nullptr, bytes, &mappings.properties, 0);
    wrong.location.id = 77;
    SAY(cuMemCreate, &handle, bytes, &wrong, 0);
    wrong = mappings.properties;
    wrong.type = CU_MEM_ALLOCATION_TYPE_INVALID;
    SAY(cuMemCreate, &handle, bytes, &wrong, 0);
    SAY(cuMemCreate, &handle, static_cast<size_t>(1) << 50, &mappings.properties, 0);
    SAY(cuMemAddressReserve, &range, 0, 0, 0, 0);
    SAY(cuMemAddressReserve, &range, granule / 2 + 1, 0, 0, 0);
    SAY(cuMemAddressReserve, &range, bytes, 3 * granule, 0, 0);
    SAY(cuMemAddressReserve, nullptr, bytes, 0, 0, 0);
    MUST(cuMemAddressReserve, &range, 4 * bytes, 0, 0, 0);
    SAY(cuMemMap, nowhere, bytes, 0, other_handle, 0);
    SAY(cuMemMap, own, bytes, 0, other_handle, 0);
    SAY(cuMemMap, range + 1, bytes, 0, other_handle, 0);
    SAY(cuMemMap, range, 0, 0, other_handle, 0);
    SAY(cuMemMap, range, 2 * bytes, 0, other_handle, 0);
    SAY(cuMemMap, range, bytes, 0, other_handle, 1);
    SAY(cuMemMap, range + 4 * bytes - granule, bytes, 0, other_handle, 0);
    SAY(cuMemUnmap, range, bytes);
    SAY(cuMemUnmap, nowhere, bytes);
    SAY(cuMemUnmap, own, 0);
    SAY(cuMemUnmap, own, granule);
    SAY(cuMemUnmap, own + granule, bytes - granule);
    printf("set access of nothing: %s\n", name_of(set_access(range, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)));
    printf("set access of too much: %s\n", name_of(set_access(own, 2 * bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)));
    SAY(cuMemSetAccess, own, bytes, nullptr, 1);
    SAY(cuMemAddressFree, nowhere, bytes);
    SAY(cuMemAddressFree, range, bytes);
    SAY(cuMemAddressFree, range + bytes, 3 * bytes);
    SAY(cuMemAddressFree, own, bytes);
    SAY(cuMemRelease, 0);
    SAY(cuMemExportToShareableHandle, nullptr, other_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    SAY(cuMemExportToShareableHandle, &descriptor, other_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1);
    wrong = mappings.properties;
    wrong.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    MUST(cuMemCreate, &handle, bytes, &wrong, 0);
    SAY(cuMemExportToShareableHandle, &descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    printf("cudaFree: %s\n", cudaGetErrorName(cudaFree(tensor.words)));
    cudaGetLastError();
    expect_tensor(&tensor, 6, "after many errors");
    MUST(cuMemRelease, handle);
    MUST(cuMemRelease, other_handle);
    MUST(cuMemAddressFree, range, 4 * bytes);
    free_tensor(&tensor);
    SAY(cuMemUnmap, own, bytes);
    SAY(cuMemAddressFree, own, bytes);
}

/*
 * Binds memory to multicast objects and endpoints that don't exist. The calls are refused, and the
 * memory is unchanged.
 */
static void case_multicast(void)
{
    const auto bind_memory = driver<decltype(&cuMulticastBindMem)>("cuMulticastBindMem");
    const auto bind_address = driver<decltype(&cuMulticastBindAddr)>("cuMulticastBindAddr");
    /* Since CUDA 13.1 and 13.3. */
    using bind_memory_for = CUresult (*)(CUmemGenericAllocationHandle, CUdevice, size_t, CUmemGenericAllocationHandle,
                                         size_t, size_t, unsigned long long);
    using bind_address_for =
        CUresult (*)(CUmemGenericAllocationHandle, CUdevice, size_t, CUdeviceptr, size_t, unsigned long long);
    using bind_memory_to = CUresult (*)(cuuint32_t, CUdevice, cuuint64_t, CUmemGenericAllocationHandle, cuuint64_t,
                                        cuuint64_t, unsigned long long);
    using bind_address_to = CUresult (*)(cuuint32_t, CUdevice, cuuint64_t, void *, cuuint64_t, unsigned long long);
    const auto memory_for = driver<bind_memory_for>("cuMulticastBindMem_v2");
    const auto address_for = driver<bind_address_for>("cuMulticastBindAddr_v2");
    const auto memory_to = driver<bind_memory_to>("cuLogicalEndpointBindMem");
    const auto address_to = driver<bind_address_to>("cuLogicalEndpointBindAddr");

    new_tensors(1);
    for (uint32_t i = 0; i + 5 < TENSORS; i += 7) {
        const struct tensor *of = &tensors[i];
        printf("memory: %s\n", name_of(bind_memory(0, 0, of[0].handle, 0, of[0].bytes, 0)));
        printf("address: %s\n", name_of(bind_address(0, 0, address_of(&of[1]), of[1].bytes, 0)));
        if (memory_for && address_for) {
            printf("memory, for a device: %s\n", name_of(memory_for(0, 0, 0, of[2].handle, 0, of[2].bytes, 0)));
            printf("address, for a device: %s\n", name_of(address_for(0, 0, 0, address_of(&of[3]), of[3].bytes, 0)));
        }
        if (memory_to && address_to) {
            printf("memory, to an endpoint: %s\n", name_of(memory_to(0, 0, 0, of[4].handle, 0, of[4].bytes, 0)));
            printf("address, to an endpoint: %s\n", name_of(address_to(0, 0, 0, of[5].words, of[5].bytes, 0)));
        }
    }
    expect_tensors(1, "after what was refused");
    fill_tensors(20);
    expect_tensors(20, "written after what was refused");
    free_tensors();
}

/* Reserves addresses with flags, at an address in use, and at a free one with an alignment. */
static void case_hint(void)
{
    const size_t alignment = 64 * mappings.granularity;
    struct tensor tensor = new_tensor(4 * unit), second = tensor, third = tensor;
    CUdeviceptr range = 0;

    new_tensors(20);
    fill(&tensor, 4);
    printf("flags: %s\n", name_of(DRIVER(cuMemAddressReserve, &range, tensor.bytes, 0, 0, 1)));
    MUST(cuMemAddressReserve, &range, tensor.bytes, 0, address_of(&tensor), 0);
    printf("elsewhere: %s\n", yes(range != address_of(&tensor)));
    second.handle = new_handle(second.bytes);
    map_at(&second, range);
    MUST(cuMemAddressReserve, &range, third.bytes, alignment, static_cast<CUdeviceptr>(0x600000000000), 0);
    printf("aligned: %s\n", yes(range % alignment == 0));
    third.handle = new_handle(third.bytes);
    map_at(&third, range);
    fill(&second, 5);
    fill(&third, 6);
    expect_tensors(20, "of the others");
    expect_tensor(&tensor, 4, "of the first");
    expect_tensor(&second, 5, "of the second");
    expect_tensor(&third, 6, "of the third");
    free_tensor(&tensor);
    free_tensor(&second);
    free_tensor(&third);
    free_tensors();
}

#endif
