/*
 * Checks that need a process of their own, as they end the context's life or have an answer of
 * their own on the simulator. The argument says which: illegal-address and cubin hold on either
 * device, missing and unsupported on the simulator only.
 *
 * Compiled by tests/bats/device/cudart.bats; ends as selftest.cu does.
 */
#include <dlfcn.h>
#include <elf.h>

#include <cuda.h>
#include <cupti.h>

#include "selftest.h"

/*
 * Addresses that are reserved and never mapped: a kernel that writes there ends the context's life.
 */
static void an_illegal_address_is_sticky(void)
{
    void *function = NULL;
    CUdeviceptr reserved = 0;
    enum cudaDriverEntryPointQueryResult status;
    float *good = new_floats(1.0f, ITEMS);

    CHECK(cudaGetDriverEntryPointByVersion("cuMemAddressReserve", &function, 10020, cudaEnableDefault, &status));
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long) =
        reinterpret_cast<CUresult (*)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)>(function);
    EXPECT(reserve(&reserved, static_cast<size_t>(1) << 30, 0, 0, 0) == CUDA_SUCCESS);
    fill<<<1, 32>>>(reinterpret_cast<float *>(reserved), 1.0f, 1000);
    EXPECT(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    EXPECT(cudaPeekAtLastError() == cudaErrorIllegalAddress);
    EXPECT(cudaMalloc(&good, BYTES) == cudaErrorIllegalAddress);
    fill<<<1, 32>>>(good, 1.0f, 1000);
    EXPECT(cudaGetLastError() == cudaErrorIllegalAddress);
}

static unsigned cubins_loaded;
static bool cubin_describes_saxpy;

static void CUPTIAPI on_module(void *, CUpti_CallbackDomain, CUpti_CallbackId id, const void *data)
{
    const CUpti_ResourceData *resource = static_cast<const CUpti_ResourceData *>(data);
    if (id != CUPTI_CBID_RESOURCE_MODULE_LOADED)
        return;
    const CUpti_ModuleResourceData *module =
        static_cast<const CUpti_ModuleResourceData *>(resource->resourceDescriptor);
    static const char section[] = ".nv.info.saxpy";
    Elf64_Ehdr header;

    cubins_loaded++;
    EXPECT(module->pCubin != NULL && module->cubinSize > sizeof header);
    memcpy(&header, module->pCubin, sizeof header);
    EXPECT(memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_machine == EM_CUDA);
    if (memmem(module->pCubin, module->cubinSize, section, sizeof section) != NULL)
        cubin_describes_saxpy = true;
}

static void use_both_kernels(void)
{
    float *x = new_floats(2.0f, ITEMS);

    LAUNCH(0, ITEMS, saxpy, x, x, 1.0f, ITEMS);
    EXPECT(count_other_than(x, 4.0f, ITEMS) == 0);
    CHECK(cudaFree(x));
}

/*
 * What nvcc put into this program is what a CUPTI subscriber is shown, once, at the first use of a
 * kernel.
 */
static void the_cubin_is_announced(void)
{
    CUpti_SubscriberHandle subscriber;
    void *cupti = dlopen("libcupti.so.13", RTLD_NOW);
    EXPECT(cupti != NULL);
    if (cupti == NULL)
        return;
    decltype(&cuptiSubscribe) subscribe = reinterpret_cast<decltype(&cuptiSubscribe)>(dlsym(cupti, "cuptiSubscribe"));
    decltype(&cuptiEnableDomain) enable =
        reinterpret_cast<decltype(&cuptiEnableDomain)>(dlsym(cupti, "cuptiEnableDomain"));

    EXPECT(subscribe(&subscriber, on_module, NULL) == CUPTI_SUCCESS);
    EXPECT(enable(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE) == CUPTI_SUCCESS);
    CHECK(cudaFree(NULL));
    use_both_kernels();
    EXPECT(cubins_loaded >= 1);
    EXPECT(cubin_describes_saxpy);
    unsigned loaded = cubins_loaded;
    use_both_kernels();
    EXPECT(cubins_loaded == loaded);
}

/* A kernel with no version for the host: the simulator can't run it, and must not pretend to. */
extern "C" __global__ void device_only(float *out)
{
    out[threadIdx.x] = 1.0f;
}

static void a_kernel_without_host_version_fails(void)
{
    void *args[] = {NULL};
    EXPECT_ERROR(cudaLaunchKernel(reinterpret_cast<const void *>(device_only), dim3(1), dim3(1), args, 0, 0),
                 cudaErrorNoKernelImageForDevice);
    device_only<<<1, 1>>>(NULL);
    EXPECT(cudaGetLastError() != cudaSuccess);
    CHECK(cudaDeviceSynchronize());
}

static void what_is_not_simulated_says_so(void)
{
    cudaArray_t array;
    struct cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaMipmappedArray_t mipmapped;

    CHECK(cudaFree(NULL)); /* the ledger is that of a process that used the device */
    EXPECT(cudaMallocArray(&array, &format, 16, 16) == cudaErrorNotSupported);
    EXPECT(cudaPeekAtLastError() == cudaErrorNotSupported);
    EXPECT_ERROR(cudaMallocMipmappedArray(&mipmapped, &format, make_cudaExtent(16, 16, 1), 1), cudaErrorNotSupported);
}

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";

    if (strcmp(what, "illegal-address") == 0)
        an_illegal_address_is_sticky();
    else if (strcmp(what, "cubin") == 0)
        the_cubin_is_announced();
    else if (strcmp(what, "missing") == 0)
        a_kernel_without_host_version_fails();
    else if (strcmp(what, "unsupported") == 0)
        what_is_not_simulated_says_so();
    else
        EXPECT(!"a known argument");
    return selftest_status();
}
