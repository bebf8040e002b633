/*
 * Fills (cuMemset...). All are queued. A call without a stream waits only for a fill of pinned host
 * memory.
 */
#include "engine.h"
#include "entries.h"
#include "memory.h"

static CUresult fill_box(struct cudasim_fill fill, CUstream handle, bool asynchronous)
{
    if (!fill.box.width || !fill.box.height)
        return CUDA_SUCCESS;
    if (!fill.to.address || fill.to.address % fill.value_bytes || fill.to.pitch % fill.value_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (fill.box.height > 1 && fill.to.pitch < fill.box.width)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    CUstream stream;
    CUresult result = cudasim_stream_with_room(handle, &stream);
    struct cudasim_operation *operation = cudasim_operation_new(CUDASIM_OPERATION_FILL);
    bool wait = !asynchronous && !cudasim_is_device(fill.to.address);
    if (result == CUDA_SUCCESS && !operation)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS && cudasim_is_pageable(fill.to.address))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS) {
        if (operation)
            cudasim_operation_free(operation);
    } else {
        operation->fill = fill;
        operation->call = cudasim_call_name();
        result = cudasim_submit(operation, stream);
        if (result == CUDA_SUCCESS && wait)
            result = cudasim_wait_position(stream->context, cudasim_stream_end(stream));
    }
    cudasim_unlock();
    return result;
}

static struct cudasim_fill rows(CUdeviceptr to, size_t pitch, uint32_t value, unsigned int value_bytes, size_t count,
                                size_t height)
{
    size_t width = count * value_bytes;
    return (struct cudasim_fill){
        .box = {width, height, 1},
        .to = {(uintptr_t)to, height == 1 ? width : pitch, pitch * height},
        .value = value,
        .value_bytes = value_bytes,
    };
}

CUresult cudasim_cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
    return fill_box(rows(dstDevice, 0, uc, 1, N, 1), NULL, false);
}

CUresult cudasim_cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
    return fill_box(rows(dstDevice, 0, us, 2, N, 1), NULL, false);
}

CUresult cudasim_cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
    return fill_box(rows(dstDevice, 0, ui, 4, N, 1), NULL, false);
}

CUresult cudasim_cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height)
{
    return fill_box(rows(dstDevice, dstPitch, uc, 1, Width, Height), NULL, false);
}

CUresult cudasim_cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                                  size_t Height)
{
    return fill_box(rows(dstDevice, dstPitch, us, 2, Width, Height), NULL, false);
}

CUresult cudasim_cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height)
{
    return fill_box(rows(dstDevice, dstPitch, ui, 4, Width, Height), NULL, false);
}

CUresult cudasim_cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
    return fill_box(rows(dstDevice, 0, uc, 1, N, 1), hStream, true);
}

CUresult cudasim_cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream)
{
    return fill_box(rows(dstDevice, 0, us, 2, N, 1), hStream, true);
}

CUresult cudasim_cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream)
{
    return fill_box(rows(dstDevice, 0, ui, 4, N, 1), hStream, true);
}

CUresult cudasim_cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                                   size_t Height, CUstream hStream)
{
    return fill_box(rows(dstDevice, dstPitch, uc, 1, Width, Height), hStream, true);
}

CUresult cudasim_cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                                    size_t Height, CUstream hStream)
{
    return fill_box(rows(dstDevice, dstPitch, us, 2, Width, Height), hStream, true);
}

CUresult cudasim_cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                                    size_t Height, CUstream hStream)
{
    return fill_box(rows(dstDevice, dstPitch, ui, 4, Width, Height), hStream, true);
}
