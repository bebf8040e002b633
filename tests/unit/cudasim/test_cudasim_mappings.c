/*
 * The simulated device: the driver's answers about handles and their mappings, handles that are
 * exported as file descriptors, and host memory that only the device may touch.
 */
#include <unistd.h>

#include "processor_access.h"
#include "unit_mappings.h"

static struct unit_device device;

static const CUmemAllocationProp shareable_properties = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    .allocFlags = {.gpuDirectRDMACapable = 1},
};

static uint32_t first_word(CUdeviceptr address)
{
    uint32_t word = 0;
    EXPECT_OK(cuMemcpyDtoH(&word, address, sizeof word));
    return word;
}

static size_t free_bytes(void)
{
    size_t free_now = 0, total = 0;
    EXPECT_OK(cuMemGetInfo(&free_now, &total));
    return free_now;
}

static void a_handle_keeps_what_it_was_asked_for(void)
{
    open_device(&device);
    CUmemGenericAllocationHandle handle = create(&shareable_properties, GRANULE);
    CUmemAllocationProp properties;
    memset(&properties, 0xff, sizeof properties);
    EXPECT_OK(cuMemGetAllocationPropertiesFromHandle(&properties, handle));
    EXPECT(!memcmp(&properties, &shareable_properties, sizeof properties));
    EXPECT_OK(cuMemRelease(handle));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemGetAllocationPropertiesFromHandle(&properties, handle));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemGetAllocationPropertiesFromHandle(NULL, handle));
}

static void access_is_that_of_the_mapping(void)
{
    open_device(&device);
    CUdeviceptr space = reserve(2 * GRANULE);
    CUmemGenericAllocationHandle handle = create(&device_properties, GRANULE);
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    CUmemAccessDesc access = {.location = here, .flags = CU_MEM_ACCESS_FLAGS_PROT_READ};
    unsigned long long flags = 99;
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemGetAccess(&flags, &here, space));
    EXPECT_OK(cuMemMap(space, GRANULE, 0, handle, 0));
    EXPECT_OK(cuMemGetAccess(&flags, &here, space));
    EXPECT_U64(CU_MEM_ACCESS_FLAGS_PROT_NONE, flags);
    EXPECT_OK(cuMemSetAccess(space, GRANULE, &access, 1));
    EXPECT_OK(cuMemGetAccess(&flags, &here, space + GRANULE - 1));
    EXPECT_U64(CU_MEM_ACCESS_FLAGS_PROT_READ, flags);
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemGetAccess(&flags, &here, space + GRANULE));
    EXPECT_OK(cuMemUnmap(space, GRANULE));
    EXPECT_OK(cuMemMap(space, GRANULE, 0, handle, 0));
    EXPECT_OK(cuMemGetAccess(&flags, &here, space));
    EXPECT_U64(CU_MEM_ACCESS_FLAGS_PROT_NONE, flags);
}

static void a_mapped_address_leads_to_its_handle(void)
{
    open_device(&device);
    CUdeviceptr space = reserve(2 * GRANULE);
    const size_t before = free_bytes();
    CUmemGenericAllocationHandle handle = create(&device_properties, GRANULE), again = 0;
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemRetainAllocationHandle(&again, (void *)space));
    map(space, handle, GRANULE);
    EXPECT_OK(cuMemRetainAllocationHandle(&again, (void *)(space + GRANULE - 1)));
    EXPECT_U64(handle, again);
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemRetainAllocationHandle(&again, (void *)(space + GRANULE)));
    EXPECT_OK(launch_fill(&device, space, GRANULE_WORDS, 3, NULL));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_OK(cuMemRelease(handle));
    map(space + GRANULE, handle, GRANULE); /* there is one more reference */
    EXPECT_OK(cuMemRelease(handle));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemRelease(handle));
    EXPECT_OK(cuMemRetainAllocationHandle(&again, (void *)space)); /* the mappings alone keep it now */
    EXPECT_U64(handle, again);
    EXPECT_OK(cuMemUnmap(space, 2 * GRANULE));
    EXPECT_U64(before - GRANULE, free_bytes());
    map(space, again, GRANULE);
    EXPECT_U64(3, first_word(space));
    EXPECT_OK(cuMemUnmap(space, GRANULE));
    EXPECT_OK(cuMemRelease(again));
    EXPECT_U64(before, free_bytes());
}

static void a_descriptor_is_the_same_memory(void)
{
    open_device(&device);
    CUdeviceptr space = reserve(2 * GRANULE);
    CUmemGenericAllocationHandle handle = create(&shareable_properties, GRANULE), imported = 0;
    int descriptor = -1;
    map(space, handle, GRANULE);
    EXPECT_OK(launch_fill(&device, space, GRANULE_WORDS, 5, NULL));
    EXPECT_OK(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    EXPECT_OK(cuMemImportFromShareableHandle(&imported, (void *)(uintptr_t)(unsigned int)descriptor,
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    EXPECT(!close(descriptor));
    map(space + GRANULE, imported, GRANULE);
    EXPECT_U64(5, first_word(space + GRANULE));
    EXPECT_OK(launch_fill(&device, space + GRANULE, GRANULE_WORDS, 6, NULL));
    EXPECT_U64(6, first_word(space));
    EXPECT_OK(cuMemRelease(handle));
    EXPECT_OK(cuMemRelease(imported));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemRelease(imported));
    EXPECT_OK(cuMemUnmap(space, 2 * GRANULE));
}

/* Handle and mapping are gone. The next allocation shows whether the descriptor is gone too. */
static void a_descriptor_keeps_the_memory(void)
{
    open_device(&device);
    CUdeviceptr space = reserve(GRANULE);
    CUmemGenericAllocationHandle handle = create(&shareable_properties, GRANULE), imported = 0;
    int descriptor = -1;
    const size_t without = free_bytes();
    map(space, handle, GRANULE);
    EXPECT_OK(launch_fill(&device, space, GRANULE_WORDS, 7, NULL));
    EXPECT_OK(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    int second = dup(descriptor);
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_OK(cuMemUnmap(space, GRANULE));
    EXPECT_OK(cuMemRelease(handle));
    EXPECT(!close(descriptor));
    EXPECT_OK(cuMemRelease(create(&device_properties, GRANULE)));
    EXPECT_OK(cuMemImportFromShareableHandle(&imported, (void *)(uintptr_t)(unsigned int)second,
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    map(space, imported, GRANULE);
    EXPECT_U64(7, first_word(space));
    EXPECT_OK(cuMemUnmap(space, GRANULE));
    EXPECT_OK(cuMemRelease(imported));
    EXPECT_U64(without, free_bytes());
    EXPECT(!close(second));
    EXPECT_OK(cuMemRelease(create(&device_properties, GRANULE)));
    EXPECT_U64(without + GRANULE, free_bytes());
}

static void descriptors_are_refused(void)
{
    open_device(&device);
    CUmemGenericAllocationHandle handle = create(&device_properties, GRANULE),
                                 shareable = create(&shareable_properties, GRANULE), imported;
    int descriptor = -1, pipe_ends[2];
    CUmemFabricHandle fabric;
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
                cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
                cuMemExportToShareableHandle(&fabric, shareable, CU_MEM_HANDLE_TYPE_FABRIC, 0));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
                cuMemExportToShareableHandle(NULL, shareable, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
                cuMemExportToShareableHandle(&descriptor, shareable, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
                cuMemExportToShareableHandle(&descriptor, 0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    EXPECT_INT(-1, descriptor);
    EXPECT(!pipe(pipe_ends));
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED,
                cuMemImportFromShareableHandle(&imported, (void *)(uintptr_t)(unsigned int)pipe_ends[0],
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemImportFromShareableHandle(&imported, (void *)(uintptr_t)9999,
                                                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
}

static void host_memory_is_the_devices_alone(void)
{
    open_device(&device);
    const CUmemAllocationProp host_properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                 .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0}};
    const CUmemLocation node = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0};
    CUmemAccessDesc processor = {.location = node, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr space = reserve(3 * GRANULE);
    CUmemGenericAllocationHandle one = create(&host_properties, GRANULE), other = create(&host_properties, GRANULE);
    map(space, one, GRANULE);
    map(space + GRANULE, other, GRANULE);
    EXPECT(!processor_may_read(space) && !processor_may_read(space + 2 * GRANULE - 1));

    /* Kernels and copies may use all pages of both. The pages are closed again afterwards. */
    EXPECT_OK(launch_fill(&device, space, 2 * GRANULE_WORDS, 9, NULL));
    EXPECT_U64(9, first_word(space));
    EXPECT_U64(9, first_word(space + 2 * GRANULE - sizeof(uint32_t)));
    EXPECT(!processor_may_read(space) && !processor_may_read(space + 2 * GRANULE - 1));

    /* A location of the host gives the processor access, at that address alone. */
    EXPECT_OK(cuMemSetAccess(space, GRANULE, &processor, 1));
    EXPECT(processor_may_read(space) && processor_may_read(space + GRANULE - 1));
    EXPECT(!processor_may_read(space + GRANULE));
    EXPECT_U64(9, first_word(space));
    processor.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    EXPECT_OK(cuMemSetAccess(space, GRANULE, &processor, 1));
    EXPECT(!processor_may_read(space));
    EXPECT_U64(9, first_word(space));

    /* Device memory can be mapped there later, and an address without memory faults. */
    EXPECT_OK(cuMemUnmap(space, 2 * GRANULE));
    CUmemGenericAllocationHandle on_device = create(&device_properties, GRANULE);
    map(space + GRANULE, on_device, GRANULE);
    EXPECT_OK(launch_fill(&device, space + GRANULE, GRANULE_WORDS, 4, NULL));
    EXPECT_U64(4, first_word(space + GRANULE));
    EXPECT_OK(cuMemUnmap(space + GRANULE, GRANULE));
    EXPECT_OK(cuMemRelease(one));
    EXPECT_OK(cuMemRelease(other));
    EXPECT_OK(cuMemRelease(on_device));
    EXPECT_OK(launch_fill(&device, space, GRANULE_WORDS, 4, NULL));
    EXPECT_CUDA(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

#define SMALL "CUDASIM_GRANULARITY", "64K", "CUDASIM_MEMORY", "1MiB"

int main(void)
{
    RUN_CASE(a_handle_keeps_what_it_was_asked_for, SMALL);
    RUN_CASE(access_is_that_of_the_mapping, SMALL);
    RUN_CASE(a_mapped_address_leads_to_its_handle, SMALL);
    RUN_CASE(a_descriptor_is_the_same_memory, SMALL);
    RUN_CASE(a_descriptor_keeps_the_memory, SMALL);
    RUN_CASE(descriptors_are_refused, SMALL);
    RUN_CASE(host_memory_is_the_devices_alone, SMALL);
    return expect_status();
}
