/*
 * The driver's functions that benchmarks call directly, found as the runtime finds them. Included
 * once, after bench.h.
 */
#ifndef PENSTOCK_TESTS_BENCH_DRIVER_H
#define PENSTOCK_TESTS_BENCH_DRIVER_H

#include <cuda.h>

#define DRIVER(call) REQUIRE((call) == CUDA_SUCCESS, "%s failed", #call)

static struct {
    decltype(&cuMemAddressReserve) reserve;
    decltype(&cuMemCreate) create;
    decltype(&cuMemMap) map;
    decltype(&cuMemSetAccess) set_access;
    decltype(&cuMemUnmap) unmap;
    decltype(&cuMemRelease) release;
    decltype(&cuStreamWaitValue32) wait_value;
} cu;

template <typename Function> static void find(Function *function, const char *name)
{
    void *found = nullptr;
    cudaDriverEntryPointQueryResult status;

    CHECK(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &status));
    REQUIRE(found, "%s: not there", name);
    *function = reinterpret_cast<Function>(found);
}

static void find_driver()
{
    find(&cu.reserve, "cuMemAddressReserve");
    find(&cu.create, "cuMemCreate");
    find(&cu.map, "cuMemMap");
    find(&cu.set_access, "cuMemSetAccess");
    find(&cu.unmap, "cuMemUnmap");
    find(&cu.release, "cuMemRelease");
    find(&cu.wait_value, "cuStreamWaitValue32");
}

#endif
