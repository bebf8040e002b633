/*
 * Driver functions that succeed and do nothing, for unit tests of modules that ask for device
 * memory. A test puts those that its subject calls into ps_cu, with functions of its own for the
 * calls that it checks.
 */
#ifndef PENSTOCK_TESTS_UNIT_STUB_DRIVER_H
#define PENSTOCK_TESTS_UNIT_STUB_DRIVER_H

#include <stdint.h>
#include <string.h>

#include "cuda/driver.h"

#define STUB_RESERVATION (UINT64_C(1) << 45)

static inline CUresult CUDAAPI stub_reserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted,
                                            unsigned long long flags)
{
    (void)bytes;
    (void)alignment;
    (void)wanted;
    (void)flags;
    *address = STUB_RESERVATION;
    return CUDA_SUCCESS;
}

static inline CUresult CUDAAPI stub_release(CUmemGenericAllocationHandle handle)
{
    (void)handle;
    return CUDA_SUCCESS;
}

static inline CUresult CUDAAPI stub_unmap(CUdeviceptr address, size_t bytes)
{
    (void)address;
    (void)bytes;
    return CUDA_SUCCESS;
}

static inline CUresult CUDAAPI stub_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                                               size_t count)
{
    (void)address;
    (void)bytes;
    (void)access;
    (void)count;
    return CUDA_SUCCESS;
}

static inline CUresult CUDAAPI stub_set_current(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}

static inline CUresult CUDAAPI stub_exchange_mode(CUstreamCaptureMode *mode)
{
    (void)mode;
    return CUDA_SUCCESS;
}

/* Puts all of them into ps_cu. Called before a test puts in its own. */
static inline void stub_driver(void)
{
    ps_cu.cuMemAddressReserve = stub_reserve;
    ps_cu.cuMemRelease = stub_release;
    ps_cu.cuMemUnmap = stub_unmap;
    ps_cu.cuMemSetAccess = stub_set_access;
    ps_cu.cuCtxSetCurrent = stub_set_current;
    ps_cu.cuThreadExchangeStreamCaptureMode = stub_exchange_mode;
}

/* The same, and then the functions that the test has of its own; the others are NULL. */
static inline void stub_driver_with(const struct ps_real_cuda *own)
{
    void *function[sizeof *own / sizeof(void *)], *all[sizeof *own / sizeof(void *)];

    stub_driver();
    memcpy(function, own, sizeof *own);
    memcpy(all, &ps_cu, sizeof ps_cu);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        all[i] = function[i] ? function[i] : all[i];
    memcpy(&ps_cu, all, sizeof ps_cu);
}

#endif
