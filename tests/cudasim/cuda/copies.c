/*
 * Copies. A copy's direction, and so its engine, follows from the mappings of its two sides, not
 * from the call's name. Ordinary host memory is staged as the driver stages it. A source is read
 * before the call returns. A call with such a destination returns when the bytes have arrived. A
 * source that need not be read in stream order (cuda.h: CUmemcpySrcAccessOrder) is read at the
 * call, as early as allowed.
 */
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "entries.h"
#include "guard.h"
#include "ledger.h"
#include "memory.h"

static bool empty(const struct cudasim_box *box)
{
    return !box->width || !box->height || !box->depth;
}

static void pack_source(void *argument)
{
    const struct cudasim_copy *copy = argument;
    unsigned char *to = copy->staging;
    for (size_t plane = 0; plane < copy->box.depth; plane++)
        for (size_t row = 0; row < copy->box.height; row++, to += copy->box.width)
            memcpy(to, (const void *)(copy->from.address + plane * copy->from.slice_pitch + row * copy->from.pitch),
                   copy->box.width);
}

/* Replaces a source by staging memory that holds its bytes packed. */
static CUresult stage_source(struct cudasim_copy *copy)
{
    const struct cudasim_box *box = &copy->box;
    uintptr_t fault_address;
    copy->staging = malloc(box->width * box->height * box->depth);
    if (!copy->staging)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!cudasim_guarded(pack_source, copy, &fault_address)) {
        free(copy->staging);
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    copy->from = (struct cudasim_side){(uintptr_t)copy->staging, box->width, box->width * box->height};
    return CUDA_SUCCESS;
}

/* Returns whether the call returns only after the copy is over. */
static bool must_wait(enum cudasim_direction direction, bool asynchronous, bool to_pageable, bool from_staged)
{
    if (asynchronous)
        return to_pageable && direction != CUDASIM_DIRECTION_H2D;
    return direction != CUDASIM_DIRECTION_D2D && !from_staged;
}

static bool is_ahead(CUmemcpySrcAccessOrder order)
{
    return order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL || order == CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
}

static CUresult queue_copy(struct cudasim_copy copy, CUstream stream, bool asynchronous, CUmemcpySrcAccessOrder order)
{
    bool to_pageable = cudasim_is_pageable(copy.to.address);
    bool from_pageable = cudasim_is_pageable(copy.from.address);
    CUresult result = CUDA_SUCCESS;
    struct cudasim_position tail;
    copy.direction = cudasim_direction_of(copy.to.address, copy.from.address);
    bool stage = from_pageable && copy.direction == CUDASIM_DIRECTION_H2D;
    if (stage && !asynchronous) {
        /* The documented order: the call waits for the stream first, and then reads the source. */
        result = cudasim_stream_tail(stream, &tail);
        if (result == CUDA_SUCCESS)
            result = cudasim_wait_position(stream->context, tail);
        if (result != CUDA_SUCCESS)
            return result;
    }
    bool capturing = stream->capture != NULL;
    if (stage || (is_ahead(order) && !capturing))
        result = stage_source(&copy);
    if (result != CUDA_SUCCESS)
        return result;
    struct cudasim_operation *operation = cudasim_operation_new(CUDASIM_OPERATION_COPY);
    if (!operation) {
        free(copy.staging);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    operation->copy = copy;
    operation->call = cudasim_call_name();
    cudasim_ledger_bytes(copy.direction, asynchronous, copy.box.width * copy.box.height * copy.box.depth);
    result = cudasim_submit(operation, stream);
    if (result == CUDA_SUCCESS && !capturing &&
        must_wait(copy.direction, asynchronous, to_pageable || from_pageable, stage))
        result = cudasim_wait_position(stream->context, cudasim_stream_end(stream));
    return result;
}

static CUresult copy_box_in_order(struct cudasim_copy copy, CUstream handle, bool asynchronous,
                                  CUmemcpySrcAccessOrder order)
{
    if (empty(&copy.box))
        return CUDA_SUCCESS;
    if (!copy.to.address || !copy.from.address)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    CUstream stream;
    CUresult result = cudasim_stream_with_room(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = queue_copy(copy, stream, asynchronous, order);
    cudasim_unlock();
    return result;
}

static CUresult copy_box(struct cudasim_copy copy, CUstream handle, bool asynchronous)
{
    return copy_box_in_order(copy, handle, asynchronous, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
}

static struct cudasim_copy linear(uintptr_t to, uintptr_t from, size_t bytes)
{
    return (struct cudasim_copy){.box = {bytes, 1, 1}, .to = {to, bytes, bytes}, .from = {from, bytes, bytes}};
}

static CUresult copy_linear(uintptr_t to, uintptr_t from, size_t bytes, CUstream handle, bool asynchronous)
{
    return copy_box(linear(to, from, bytes), handle, asynchronous);
}

CUresult cudasim_cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
    return copy_linear((uintptr_t)dst, (uintptr_t)src, ByteCount, NULL, false);
}

CUresult cudasim_cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
    return copy_linear((uintptr_t)dst, (uintptr_t)src, ByteCount, hStream, true);
}

CUresult cudasim_cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
                              size_t ByteCount)
{
    (void)dstContext;
    (void)srcContext;
    return copy_linear((uintptr_t)dstDevice, (uintptr_t)srcDevice, ByteCount, NULL, false);
}

CUresult cudasim_cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                                   CUcontext srcContext, size_t ByteCount, CUstream hStream)
{
    (void)dstContext;
    (void)srcContext;
    return copy_linear((uintptr_t)dstDevice, (uintptr_t)srcDevice, ByteCount, hStream, true);
}

CUresult cudasim_cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
    return copy_linear((uintptr_t)dstDevice, (uintptr_t)srcHost, ByteCount, NULL, false);
}

CUresult cudasim_cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
    return copy_linear((uintptr_t)dstHost, (uintptr_t)srcDevice, ByteCount, NULL, false);
}

CUresult cudasim_cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
    return copy_linear((uintptr_t)dstDevice, (uintptr_t)srcDevice, ByteCount, NULL, false);
}

CUresult cudasim_cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream)
{
    return copy_linear((uintptr_t)dstDevice, (uintptr_t)srcHost, ByteCount, hStream, true);
}

CUresult cudasim_cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    return copy_linear((uintptr_t)dstHost, (uintptr_t)srcDevice, ByteCount, hStream, true);
}

CUresult cudasim_cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    return copy_linear((uintptr_t)dstDevice, (uintptr_t)srcDevice, ByteCount, hStream, true);
}

/* ---- two and three dimensions ---- */

static CUresult base_address(CUmemorytype type, const void *host, CUdeviceptr device, uintptr_t *address)
{
    switch (type) {
    case CU_MEMORYTYPE_HOST:
        *address = (uintptr_t)host;
        return CUDA_SUCCESS;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
        *address = (uintptr_t)device;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED; /* arrays */
    }
}

static CUresult copy_2d(const CUDA_MEMCPY2D *request, CUstream handle, bool asynchronous)
{
    if (!request)
        return CUDA_ERROR_INVALID_VALUE;
    uintptr_t to, from;
    CUresult result = base_address(request->dstMemoryType, request->dstHost, request->dstDevice, &to);
    if (result == CUDA_SUCCESS)
        result = base_address(request->srcMemoryType, request->srcHost, request->srcDevice, &from);
    if (result != CUDA_SUCCESS)
        return result;
    size_t to_pitch = request->dstPitch ? request->dstPitch : request->WidthInBytes;
    size_t from_pitch = request->srcPitch ? request->srcPitch : request->WidthInBytes;
    if (to_pitch < request->WidthInBytes + request->dstXInBytes ||
        from_pitch < request->WidthInBytes + request->srcXInBytes)
        return CUDA_ERROR_INVALID_VALUE;
    struct cudasim_copy copy = {
        .box = {request->WidthInBytes, request->Height, 1},
        .to = {to + request->dstY * to_pitch + request->dstXInBytes, to_pitch, to_pitch * request->Height},
        .from = {from + request->srcY * from_pitch + request->srcXInBytes, from_pitch, from_pitch * request->Height},
    };
    return copy_box(copy, handle, asynchronous);
}

CUresult cudasim_cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy)
{
    return copy_2d(pCopy, NULL, false);
}

CUresult cudasim_cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *pCopy)
{
    return copy_2d(pCopy, NULL, false);
}

CUresult cudasim_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
    return copy_2d(pCopy, hStream, true);
}

static CUresult copy_3d(const CUDA_MEMCPY3D *request, CUstream handle, bool asynchronous)
{
    if (!request)
        return CUDA_ERROR_INVALID_VALUE;
    uintptr_t to, from;
    CUresult result = base_address(request->dstMemoryType, request->dstHost, request->dstDevice, &to);
    if (result == CUDA_SUCCESS)
        result = base_address(request->srcMemoryType, request->srcHost, request->srcDevice, &from);
    if (result != CUDA_SUCCESS)
        return result;
    size_t to_pitch = request->dstPitch ? request->dstPitch : request->WidthInBytes;
    size_t from_pitch = request->srcPitch ? request->srcPitch : request->WidthInBytes;
    if (to_pitch < request->WidthInBytes + request->dstXInBytes ||
        from_pitch < request->WidthInBytes + request->srcXInBytes)
        return CUDA_ERROR_INVALID_VALUE;
    size_t to_slice = to_pitch * (request->dstHeight ? request->dstHeight : request->Height);
    size_t from_slice = from_pitch * (request->srcHeight ? request->srcHeight : request->Height);
    struct cudasim_copy copy = {
        .box = {request->WidthInBytes, request->Height, request->Depth},
        .to = {to + request->dstZ * to_slice + request->dstY * to_pitch + request->dstXInBytes, to_pitch, to_slice},
        .from = {from + request->srcZ * from_slice + request->srcY * from_pitch + request->srcXInBytes, from_pitch,
                 from_slice},
    };
    return copy_box(copy, handle, asynchronous);
}

CUresult cudasim_cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy)
{
    return copy_3d(pCopy, NULL, false);
}

CUresult cudasim_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
    return copy_3d(pCopy, hStream, true);
}

/* ---- batches: the copies run one after the other, which is an allowed order ---- */

CUresult cudasim_cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t size, CUmemcpyAttributes *attr,
                                             CUstream hStream)
{
    if (!size || !attr || !attr->srcAccessOrder)
        return CUDA_ERROR_INVALID_VALUE;
    return copy_box_in_order(linear((uintptr_t)dst, (uintptr_t)src, size), hStream, true, attr->srcAccessOrder);
}

CUresult cudasim_cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                                       CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream)
{
    CUresult result = CUDA_SUCCESS;
    if (!dsts || !srcs || !sizes || !count || !attrs || !attrsIdxs || !numAttrs || attrsIdxs[0] || !hStream)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0, set = 0; i < count && result == CUDA_SUCCESS; i++) {
        while (set + 1 < numAttrs && attrsIdxs[set + 1] <= i)
            set++;
        result = cudasim_cuMemcpyWithAttributesAsync(dsts[i], srcs[i], sizes[i], &attrs[set], hStream);
    }
    return result;
}

static struct cudasim_side side_of(const CUmemcpy3DOperand *operand, CUextent3D extent)
{
    size_t pitch = operand->op.ptr.rowLength ? operand->op.ptr.rowLength : extent.width;
    size_t rows = operand->op.ptr.layerHeight ? operand->op.ptr.layerHeight : extent.height;
    return (struct cudasim_side){(uintptr_t)operand->op.ptr.ptr, pitch, pitch * rows};
}

static bool is_sound(const CUmemcpy3DOperand *operand, CUextent3D extent)
{
    return (!operand->op.ptr.rowLength || operand->op.ptr.rowLength >= extent.width) &&
           (!operand->op.ptr.layerHeight || operand->op.ptr.layerHeight >= extent.height);
}

CUresult cudasim_cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags,
                                         CUstream hStream)
{
    CUresult result = CUDA_SUCCESS;
    if (!numOps || !opList || flags || !hStream)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < numOps && result == CUDA_SUCCESS; i++) {
        const CUDA_MEMCPY3D_BATCH_OP *op = &opList[i];
        struct cudasim_copy copy = {
            .box = {op->extent.width, op->extent.height, op->extent.depth},
            .to = side_of(&op->dst, op->extent),
            .from = side_of(&op->src, op->extent),
        };
        if (op->src.type != CU_MEMCPY_OPERAND_TYPE_POINTER || op->dst.type != CU_MEMCPY_OPERAND_TYPE_POINTER)
            return CUDA_ERROR_NOT_SUPPORTED; /* arrays */
        if (empty(&copy.box) || !op->srcAccessOrder || !is_sound(&op->dst, op->extent) ||
            !is_sound(&op->src, op->extent))
            return CUDA_ERROR_INVALID_VALUE;
        result = copy_box_in_order(copy, hStream, true, op->srcAccessOrder);
    }
    return result;
}

CUresult cudasim_cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags, CUstream hStream)
{
    return cudasim_cuMemcpy3DBatchAsync_v2(1, op, flags, hStream);
}
