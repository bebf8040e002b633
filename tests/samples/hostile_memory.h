/* Cases of `hostile`: calls that allocate, free and query memory. Part of hostile.cu. */
#ifndef PENSTOCK_SAMPLES_HOSTILE_MEMORY_H
#define PENSTOCK_SAMPLES_HOSTILE_MEMORY_H

static void case_interior_free(void)
{
    struct span_set set = new_span_set();

    expect_result(cudaErrorInvalidValue, cudaFree(set.span[0] + 1024), "cudaFree of an interior pointer");
    expect_result(cudaErrorInvalidValue, cudaFree(set.span[0] + span_words() - 1), "cudaFree of a span's last word");
    check_and_free_spans(&set, "after frees of interior pointers");
}

static void case_unknown_free(void)
{
    struct span_set set = new_span_set();
    int here = 0;

    expect_result(cudaErrorInvalidValue, cudaFree(reinterpret_cast<void *>(0x1000)),
                  "cudaFree of an address that is nothing");
    expect_result(cudaErrorInvalidValue, cudaFree(&here), "cudaFree of a host variable");
    expect_result(cudaSuccess, cudaFree(nullptr), "cudaFree of null");
    check_and_free_spans(&set, "after frees of unknown pointers");
}

static void case_double_free(void)
{
    struct span_set set = new_span_set();
    uint32_t *span = new_span();

    expect_result(cudaSuccess, cudaFree(span), "cudaFree");
    expect_result(cudaErrorInvalidValue, cudaFree(span), "cudaFree for the second time");
    check_and_free_spans(&set, "after a double free");
}

static void case_huge(void)
{
    struct span_set set = new_span_set();
    void *data = nullptr;

    expect_result(cudaErrorMemoryAllocation, cudaMalloc(&data, size_t(1) << 46), "cudaMalloc of 64 TiB");
    expect_result(cudaErrorMemoryAllocation, cudaMalloc(&data, SIZE_MAX / 2), "cudaMalloc of half of all addresses");
    expect_result(cudaErrorMemoryAllocation, cudaMallocAsync(&data, size_t(1) << 46, set.stream),
                  "cudaMallocAsync of 64 TiB");
    expect_result(cudaSuccess, cudaMalloc(&data, 0), "cudaMalloc of nothing");
    expect_result(cudaSuccess, cudaFree(new_span()), "an allocation after a refused one");
    check_and_free_spans(&set, "after refused allocations");
}

/*
 * The allocation is refused, or served with memory from elsewhere. Served memory works like any
 * other, up to its last byte.
 */
static void case_beyond_device(void)
{
    struct span_set set = new_span_set();
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    void *data = nullptr;

    CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));

    const size_t words = (total_bytes + (64u << 20)) / sizeof(uint32_t);
    const cudaError_t result = cudaMalloc(&data, words * sizeof(uint32_t));

    if (result != cudaSuccess) {
        expect_result(cudaErrorMemoryAllocation, result, "cudaMalloc of more than the device");
    } else {
        uint32_t *last = static_cast<uint32_t *>(data) + words - span_words();

        LAUNCH(set.stream, span_words(), fill_words, static_cast<uint32_t *>(data), 50, 0, span_words());
        LAUNCH(set.stream, span_words(), fill_words, last, 51, 0, span_words());
        expect_words(static_cast<uint32_t *>(data), 50, 0, span_words(), set.stream,
                     "the start of more than the device");
        expect_words(last, 51, 0, span_words(), set.stream, "the end of more than the device");
        CHECK(cudaFree(data));
    }
    check_and_free_spans(&set, "after an allocation beyond the device");
}

static void case_meminfo(void)
{
    struct span_set set = new_span_set();
    size_t first_total = 0;

    for (size_t i = 0; i <= span_count; i++) {
        size_t free_bytes = 0;
        size_t total_bytes = 0;

        CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
        first_total = i == 0 ? total_bytes : first_total;
        expect(free_bytes <= total_bytes, "%zu bytes free of %zu", free_bytes, total_bytes);
        expect(total_bytes == first_total, "the device has %zu bytes, before it had %zu", total_bytes, first_total);
        if (i == span_count)
            break;
        expect_words(set.span[i], static_cast<uint32_t>(i), 0, span_words(), set.stream, "beside cudaMemGetInfo");
        CHECK(cudaFree(set.span[i]));
    }
    CHECK(cudaStreamDestroy(set.stream));
}

static void expect_type(const void *data, enum cudaMemoryType wanted, const char *what)
{
    struct cudaPointerAttributes found = {};

    if (!expect_result(cudaSuccess, cudaPointerGetAttributes(&found, data), what))
        return;
    expect(found.type == wanted, "%s: type %d, expected %d", what, static_cast<int>(found.type),
           static_cast<int>(wanted));
    if (wanted == cudaMemoryTypeDevice) {
        expect(found.devicePointer == data, "%s: device pointer %p, expected %p", what, found.devicePointer, data);
        expect(found.device == 0, "%s: device %d", what, found.device);
    }
}

static void case_attributes(void)
{
    struct span_set set = new_span_set();
    void *pinned = nullptr;
    void *small = nullptr;
    int here = 0;

    CHECK(cudaMallocHost(&pinned, span_bytes));
    CHECK(cudaMalloc(&small, 256));
    /* Some of the spans are evicted by now, and the program still sees the same attributes. */
    for (size_t i = 0; i < span_count; i++) {
        expect_type(set.span[i], cudaMemoryTypeDevice, "a span");
        expect_type(set.span[i] + 1000, cudaMemoryTypeDevice, "an interior pointer");
    }
    expect_type(small, cudaMemoryTypeDevice, "a small allocation");
    expect_type(pinned, cudaMemoryTypeHost, "pinned memory");
    expect_type(&here, cudaMemoryTypeUnregistered, "a host variable");
    CHECK(cudaFree(small));
    CHECK(cudaFreeHost(pinned));
    check_and_free_spans(&set, "after pointer queries");
}

static void case_managed(void)
{
    struct span_set set = new_span_set();
    void *data = nullptr;

    CHECK_OR_SKIP(cudaMallocManaged(&data, span_bytes));
    expect_type(data, cudaMemoryTypeManaged, "managed memory");
    LAUNCH(set.stream, span_words(), copy_words, static_cast<uint32_t *>(data), set.span[1], span_words());
    CHECK(cudaStreamSynchronize(set.stream));
    expect(wrong_words(static_cast<uint32_t *>(data), 1, 0, span_words()) == 0, "managed memory has wrong words");
    CHECK(cudaFree(data));
    check_and_free_spans(&set, "beside managed memory");
}

static void case_pitch(void)
{
    const size_t width = 3000 * sizeof(uint32_t);
    const size_t height = 500;
    struct span_set set = new_span_set();
    uint32_t *host = static_cast<uint32_t *>(malloc(width * height));
    size_t pitch = 0;
    void *data = nullptr;

    REQUIRE(host != nullptr, "no host memory");
    CHECK_OR_SKIP(cudaMallocPitch(&data, &pitch, width, height));
    expect(pitch >= width, "pitch %zu for rows of %zu", pitch, width);
    CHECK(cudaMemset2DAsync(data, pitch, 0x5a, width, height, set.stream));
    for (size_t i = 0; i < 3000 * height; i++)
        host[i] = word_at(77, i);
    CHECK(cudaMemcpy2DAsync(data, pitch, host, width, width, height / 2, cudaMemcpyHostToDevice, set.stream));
    CHECK(cudaStreamSynchronize(set.stream));
    memset(host, 0, width * height);
    CHECK(cudaMemcpy2DAsync(host, width, data, pitch, width, height, cudaMemcpyDeviceToHost, set.stream));
    CHECK(cudaStreamSynchronize(set.stream));
    expect(wrong_words(host, 77, 0, 3000 * (height / 2)) == 0, "rows that were copied are wrong");
    for (size_t i = 3000 * (height / 2); i < 3000 * height; i++)
        if (!expect(host[i] == 0x5a5a5a5a, "word %zu is %08x after a memset to 5a", i, host[i]))
            break;
    CHECK(cudaFree(data));
    free(host);
    check_and_free_spans(&set, "beside pitched memory");
}

static void case_volume(void)
{
    struct span_set set = new_span_set();
    struct cudaExtent extent = make_cudaExtent(1000 * sizeof(uint32_t), 100, 10);
    const size_t words = 1000 * 100 * 10;
    uint32_t *host = static_cast<uint32_t *>(malloc(words * sizeof(*host)));
    struct cudaPitchedPtr volume = {};
    struct cudaMemcpy3DParms copy = {};

    REQUIRE(host != nullptr, "no host memory");
    CHECK_OR_SKIP(cudaMalloc3D(&volume, extent));
    for (size_t i = 0; i < words; i++)
        host[i] = word_at(78, i);
    copy.srcPtr = make_cudaPitchedPtr(host, extent.width, extent.width, extent.height);
    copy.dstPtr = volume;
    copy.extent = extent;
    copy.kind = cudaMemcpyHostToDevice;
    CHECK_OR_SKIP(cudaMemcpy3DAsync(&copy, set.stream));
    CHECK(cudaStreamSynchronize(set.stream));
    memset(host, 0, words * sizeof(*host));
    copy.dstPtr = copy.srcPtr;
    copy.srcPtr = volume;
    copy.kind = cudaMemcpyDeviceToHost;
    CHECK_OR_SKIP(cudaMemcpy3DAsync(&copy, set.stream));
    CHECK(cudaStreamSynchronize(set.stream));
    expect(wrong_words(host, 78, 0, words) == 0, "a volume came back changed");
    CHECK(cudaFree(volume.ptr));
    free(host);
    check_and_free_spans(&set, "beside a volume");
}

static uint64_t pool_value(cudaMemPool_t pool, enum cudaMemPoolAttr attribute)
{
    uint64_t value = 0;

    CHECK(cudaMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static void case_pool(void)
{
    cudaMemPool_t pool = nullptr;
    cudaStream_t stream = new_stream();
    uint64_t threshold = UINT64_MAX, given_back_by_free = 0;
    void *data[MAX_SPANS] = {};

    CHECK_OR_SKIP(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));

    const uint64_t before = pool_value(pool, cudaMemPoolAttrUsedMemCurrent);

    for (size_t i = 0; i < span_count; i++) {
        CHECK(i % 2 == 0 ? cudaMallocFromPoolAsync(&data[i], span_bytes, pool, stream)
                         : cudaMallocAsync(&data[i], span_bytes, stream));
        LAUNCH(stream, span_words(), fill_words, static_cast<uint32_t *>(data[i]), static_cast<uint32_t>(i), 0,
               span_words());
    }

    const uint64_t used = pool_value(pool, cudaMemPoolAttrUsedMemCurrent) - before;
    const uint64_t reserved = pool_value(pool, cudaMemPoolAttrReservedMemCurrent);

    expect(used >= span_count * span_bytes, "%llu bytes used after allocating %zu",
           static_cast<unsigned long long>(used), span_count * span_bytes);
    expect(reserved >= used, "%llu bytes used of %llu reserved", static_cast<unsigned long long>(used),
           static_cast<unsigned long long>(reserved));
    expect(pool_value(pool, cudaMemPoolAttrUsedMemHigh) >= used, "the high mark is below what is in use");
    for (size_t i = 0; i < span_count; i++) {
        expect_words(static_cast<uint32_t *>(data[i]), static_cast<uint32_t>(i), 0, span_words(), stream,
                     "a span of a pool");
        /* Both calls may free memory of a pool. */
        CHECK(i % 3 == 0 ? cudaFree(data[i]) : cudaFreeAsync(data[i], stream));
        given_back_by_free += i % 3 == 0 ? span_bytes : 0;
    }
    CHECK(cudaStreamSynchronize(stream));

    const uint64_t left = pool_value(pool, cudaMemPoolAttrUsedMemCurrent) - before;

    /*
     * A real pool keeps counting memory that cudaFree returned, with and without Penstock
     * (measured: H200, driver 580.159).
     */
    expect(left <= given_back_by_free, "%llu bytes are still in use after every free",
           static_cast<unsigned long long>(left));
    CHECK(cudaMemPoolTrimTo(pool, 0));
    CHECK(cudaStreamDestroy(stream));
}

/*
 * Allocations of changing sizes, freed in another order than they were made. Each is checked before
 * its free.
 */
static void case_churn(void)
{
    cudaStream_t stream[2] = {new_stream(), new_stream()};
    uint32_t *live[MAX_SPANS] = {};
    size_t words[MAX_SPANS] = {};
    uint32_t salt[MAX_SPANS] = {};

    for (uint32_t turn = 0; turn < 6 * span_count; turn++) {
        const size_t slot = mix_bits(turn) % span_count;
        const cudaStream_t on = stream[turn % 2];

        if (live[slot] != nullptr) {
            expect_words(live[slot], salt[slot], 0, words[slot], on, "an allocation of the churn");
            CHECK(cudaFree(live[slot]));
        }
        words[slot] = span_words() / 2 + mix_bits(turn * 31) % span_words();
        salt[slot] = turn;
        CHECK(cudaMalloc(reinterpret_cast<void **>(&live[slot]), words[slot] * sizeof(uint32_t)));
        LAUNCH(on, words[slot], fill_words, live[slot], salt[slot], 0, words[slot]);
        CHECK(cudaStreamSynchronize(on));
    }
    for (size_t slot = 0; slot < span_count; slot++) {
        if (live[slot] == nullptr)
            continue;
        expect_words(live[slot], salt[slot], 0, words[slot], stream[0], "an allocation of the churn");
        CHECK(cudaFree(live[slot]));
    }
    CHECK(cudaStreamDestroy(stream[0]));
    CHECK(cudaStreamDestroy(stream[1]));
}

#endif
