/*
 * Copies and fills of linear memory, written once for both default streams: see
 * default_stream_legacy.c. Not a header of declarations.
 *
 * The driver call is chosen as the real runtime chooses it: by the direction that the program
 * names. "Default" and host-to-host go to the calls that take unified addresses.
 */

static bool direction_is_known(enum cudaMemcpyKind kind)
{
    return (int)kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault;
}

static CUresult copy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
    if (count == 0)
        return CUDA_SUCCESS;
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return cuMemcpyHtoD(cudasim_device_address(dst), src, count);
    case cudaMemcpyDeviceToHost:
        return cuMemcpyDtoH(dst, cudasim_device_address(src), count);
    case cudaMemcpyDeviceToDevice:
        return cuMemcpyDtoD(cudasim_device_address(dst), cudasim_device_address(src), count);
    default:
        return cuMemcpy(cudasim_device_address(dst), cudasim_device_address(src), count);
    }
}

static CUresult copy_async(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    if (count == 0)
        return CUDA_SUCCESS;
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return cuMemcpyHtoDAsync(cudasim_device_address(dst), src, count, stream);
    case cudaMemcpyDeviceToHost:
        return cuMemcpyDtoHAsync(dst, cudasim_device_address(src), count, stream);
    case cudaMemcpyDeviceToDevice:
        return cuMemcpyDtoDAsync(cudasim_device_address(dst), cudasim_device_address(src), count, stream);
    default:
        return cuMemcpyAsync(cudasim_device_address(dst), cudasim_device_address(src), count, stream);
    }
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
    CUresult result = cudasim_runtime_begin(__func__);
    if (!direction_is_known(kind))
        return cudasim_runtime_fail(cudaErrorInvalidMemcpyDirection);
    return cudasim_runtime_end(result == CUDA_SUCCESS ? copy(dst, src, count, kind) : result);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    CUresult result = cudasim_runtime_begin(__func__);
    if (!direction_is_known(kind))
        return cudasim_runtime_fail(cudaErrorInvalidMemcpyDirection);
    return cudasim_runtime_end(result == CUDA_SUCCESS ? copy_async(dst, src, count, kind, stream) : result);
}

/*
 * Copies to and from a symbol are copies to and from its place. The direction must fit. A copy of
 * the other direction is refused before the driver is asked.
 */
cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *src, size_t count, size_t offset,
                               enum cudaMemcpyKind kind)
{
    void *to;
    cudaError_t error =
        cudasim_symbol_begin(__func__, symbol, count, offset, count == 0 || cudasim_leads_to_symbol(kind), &to);
    if (error != cudaSuccess)
        return error;
    return cudasim_runtime_end(copy(to, src, count, kind));
}

cudaError_t cudaMemcpyFromSymbol(void *dst, const void *symbol, size_t count, size_t offset, enum cudaMemcpyKind kind)
{
    void *from;
    cudaError_t error =
        cudasim_symbol_begin(__func__, symbol, count, offset, count == 0 || cudasim_leads_from_symbol(kind), &from);
    if (error != cudaSuccess)
        return error;
    return cudasim_runtime_end(copy(dst, from, count, kind));
}

cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *src, size_t count, size_t offset,
                                    enum cudaMemcpyKind kind, cudaStream_t stream)
{
    void *to;
    cudaError_t error =
        cudasim_symbol_begin(__func__, symbol, count, offset, count == 0 || cudasim_leads_to_symbol(kind), &to);
    if (error != cudaSuccess)
        return error;
    return cudasim_runtime_end(copy_async(to, src, count, kind, stream));
}

cudaError_t cudaMemcpyFromSymbolAsync(void *dst, const void *symbol, size_t count, size_t offset,
                                      enum cudaMemcpyKind kind, cudaStream_t stream)
{
    void *from;
    cudaError_t error =
        cudasim_symbol_begin(__func__, symbol, count, offset, count == 0 || cudasim_leads_from_symbol(kind), &from);
    if (error != cudaSuccess)
        return error;
    return cudasim_runtime_end(copy_async(dst, from, count, kind, stream));
}

/* Describes a 2D copy in the driver's words. */
static CUDA_MEMCPY2D describe_2d(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                                 enum cudaMemcpyKind kind)
{
    CUDA_MEMCPY2D copy = {
        .srcMemoryType = cudasim_source_type(kind),
        .srcHost = src,
        .srcDevice = cudasim_device_address(src),
        .srcPitch = spitch,
        .dstMemoryType = cudasim_destination_type(kind),
        .dstHost = dst,
        .dstDevice = cudasim_device_address(dst),
        .dstPitch = dpitch,
        .WidthInBytes = width,
        .Height = height,
    };
    return copy;
}

cudaError_t cudaMemcpy2D(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                         enum cudaMemcpyKind kind)
{
    CUresult result = cudasim_runtime_begin(__func__);
    if (!direction_is_known(kind))
        return cudasim_runtime_fail(cudaErrorInvalidMemcpyDirection);
    if (width > dpitch || width > spitch)
        return cudasim_runtime_fail(cudaErrorInvalidPitchValue);
    if (result == CUDA_SUCCESS && width != 0 && height != 0) {
        CUDA_MEMCPY2D copy = describe_2d(dst, dpitch, src, spitch, width, height, kind);
        result = cuMemcpy2DUnaligned(&copy);
    }
    return cudasim_runtime_end(result);
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                              enum cudaMemcpyKind kind, cudaStream_t stream)
{
    CUresult result = cudasim_runtime_begin(__func__);
    if (!direction_is_known(kind))
        return cudasim_runtime_fail(cudaErrorInvalidMemcpyDirection);
    if (width > dpitch || width > spitch)
        return cudasim_runtime_fail(cudaErrorInvalidPitchValue);
    if (result == CUDA_SUCCESS && width != 0 && height != 0) {
        CUDA_MEMCPY2D copy = describe_2d(dst, dpitch, src, spitch, width, height, kind);
        result = cuMemcpy2DAsync(&copy, stream);
    }
    return cudasim_runtime_end(result);
}

/*
 * Describes a 3D copy between linear memory in the driver's words. Positions and widths are bytes,
 * as no array is involved.
 */
static CUDA_MEMCPY3D describe_3d(const struct cudaMemcpy3DParms *p)
{
    CUDA_MEMCPY3D copy = {
        .srcXInBytes = p->srcPos.x,
        .srcY = p->srcPos.y,
        .srcZ = p->srcPos.z,
        .srcMemoryType = cudasim_source_type(p->kind),
        .srcHost = p->srcPtr.ptr,
        .srcDevice = cudasim_device_address(p->srcPtr.ptr),
        .srcPitch = p->srcPtr.pitch,
        .srcHeight = p->srcPtr.ysize,
        .dstXInBytes = p->dstPos.x,
        .dstY = p->dstPos.y,
        .dstZ = p->dstPos.z,
        .dstMemoryType = cudasim_destination_type(p->kind),
        .dstHost = p->dstPtr.ptr,
        .dstDevice = cudasim_device_address(p->dstPtr.ptr),
        .dstPitch = p->dstPtr.pitch,
        .dstHeight = p->dstPtr.ysize,
        .WidthInBytes = p->extent.width,
        .Height = p->extent.height,
        .Depth = p->extent.depth,
    };
    return copy;
}

/* Returns the error in the arguments of a 3D copy; cudaSuccess if there is no error. */
static cudaError_t check_3d(const struct cudaMemcpy3DParms *p)
{
    if (p == NULL)
        return cudaErrorInvalidValue;
    if (!direction_is_known(p->kind))
        return cudaErrorInvalidMemcpyDirection;
    return p->srcArray != NULL || p->dstArray != NULL ? cudaErrorNotSupported : cudaSuccess;
}

static bool is_empty(struct cudaExtent extent)
{
    return extent.width == 0 || extent.height == 0 || extent.depth == 0;
}

cudaError_t cudaMemcpy3D(const struct cudaMemcpy3DParms *p)
{
    CUresult result = cudasim_runtime_begin(__func__);
    cudaError_t wrong = check_3d(p);
    if (wrong == cudaErrorNotSupported)
        return cudasim_runtime_not_supported(__func__);
    if (wrong != cudaSuccess)
        return cudasim_runtime_fail(wrong);
    if (result == CUDA_SUCCESS && !is_empty(p->extent)) {
        CUDA_MEMCPY3D copy = describe_3d(p);
        result = cuMemcpy3D(&copy);
    }
    return cudasim_runtime_end(result);
}

cudaError_t cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *p, cudaStream_t stream)
{
    CUresult result = cudasim_runtime_begin(__func__);
    cudaError_t wrong = check_3d(p);
    if (wrong == cudaErrorNotSupported)
        return cudasim_runtime_not_supported(__func__);
    if (wrong != cudaSuccess)
        return cudasim_runtime_fail(wrong);
    if (result == CUDA_SUCCESS && !is_empty(p->extent)) {
        CUDA_MEMCPY3D copy = describe_3d(p);
        result = cuMemcpy3DAsync(&copy, stream);
    }
    return cudasim_runtime_end(result);
}

cudaError_t cudaMemset(void *pointer, int value, size_t count)
{
    CUresult result = cudasim_runtime_begin(__func__);
    if (result == CUDA_SUCCESS && count != 0)
        result = cuMemsetD8(cudasim_device_address(pointer), (unsigned char)value, count);
    return cudasim_runtime_end(result);
}

cudaError_t cudaMemsetAsync(void *pointer, int value, size_t count, cudaStream_t stream)
{
    CUresult result = cudasim_runtime_begin(__func__);
    if (result == CUDA_SUCCESS && count != 0)
        result = cuMemsetD8Async(cudasim_device_address(pointer), (unsigned char)value, count, stream);
    return cudasim_runtime_end(result);
}

cudaError_t cudaMemset2D(void *pointer, size_t pitch, int value, size_t width, size_t height)
{
    CUresult result = cudasim_runtime_begin(__func__);
    if (width > pitch && height > 1)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS && width != 0 && height != 0)
        result = cuMemsetD2D8(cudasim_device_address(pointer), pitch, (unsigned char)value, width, height);
    return cudasim_runtime_end(result);
}

cudaError_t cudaMemset2DAsync(void *pointer, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream)
{
    CUresult result = cudasim_runtime_begin(__func__);
    if (width > pitch && height > 1)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (result == CUDA_SUCCESS && width != 0 && height != 0)
        result = cuMemsetD2D8Async(cudasim_device_address(pointer), pitch, (unsigned char)value, width, height, stream);
    return cudasim_runtime_end(result);
}

/*
 * A 3D fill is a 2D fill of all rows if slices follow each other without rows between. cudaMalloc3D
 * makes them so. Otherwise it is one fill for each slice.
 */
cudaError_t cudaMemset3D(struct cudaPitchedPtr pointer, int value, struct cudaExtent extent)
{
    CUresult result = cudasim_runtime_begin(__func__);
    if (extent.width > pointer.pitch)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (is_empty(extent))
        return cudasim_runtime_end(result);
    bool dense = extent.depth == 1 || pointer.ysize == extent.height;
    size_t rows = dense ? extent.height * extent.depth : extent.height;
    size_t slices = dense ? 1 : extent.depth;
    CUdeviceptr at = cudasim_device_address(pointer.ptr);
    for (size_t i = 0; i < slices && result == CUDA_SUCCESS; i++, at += pointer.pitch * pointer.ysize)
        result = cuMemsetD2D8(at, pointer.pitch, (unsigned char)value, extent.width, rows);
    return cudasim_runtime_end(result);
}

cudaError_t cudaMemset3DAsync(struct cudaPitchedPtr pointer, int value, struct cudaExtent extent, cudaStream_t stream)
{
    CUresult result = cudasim_runtime_begin(__func__);
    if (extent.width > pointer.pitch)
        return cudasim_runtime_fail(cudaErrorInvalidValue);
    if (is_empty(extent))
        return cudasim_runtime_end(result);
    bool dense = extent.depth == 1 || pointer.ysize == extent.height;
    size_t rows = dense ? extent.height * extent.depth : extent.height;
    size_t slices = dense ? 1 : extent.depth;
    CUdeviceptr at = cudasim_device_address(pointer.ptr);
    for (size_t i = 0; i < slices && result == CUDA_SUCCESS; i++, at += pointer.pitch * pointer.ysize)
        result = cuMemsetD2D8Async(at, pointer.pitch, (unsigned char)value, extent.width, rows, stream);
    return cudasim_runtime_end(result);
}
