/* The cases of `mapped` without a training: other uses of handles and mappings. */
#ifndef PENSTOCK_SAMPLES_MAPPED_CASES_H
#define PENSTOCK_SAMPLES_MAPPED_CASES_H

#include <unistd.h>

#include <thread>
#include <vector>

#include "mapped_tensors.h"

#define TENSORS 16

/* Together they exceed a small budget. Tensor i has the words of salt i. */
static struct tensor tensors[TENSORS];

static void fill(const struct tensor *tensor, uint32_t salt)
{
    LAUNCH(stream, tensor->count, fill_words, tensor->words, salt, 0, tensor->count);
}

static void expect_tensor(const struct tensor *tensor, uint32_t salt, const char *what)
{
    expect_words(tensor->words, salt, 0, tensor->count, stream, what);
}

static void fill_tensors(uint32_t salt)
{
    for (uint32_t i = 0; i < TENSORS; i++)
        fill(&tensors[i], salt + i);
}

static void expect_tensors(uint32_t salt, const char *what)
{
    for (uint32_t i = 0; i < TENSORS; i++)
        expect_tensor(&tensors[i], salt + i, what);
}

static void new_tensors(uint32_t salt)
{
    for (uint32_t i = 0; i < TENSORS; i++)
        tensors[i] = new_tensor(4 * unit);
    fill_tensors(salt);
}

static void free_tensors(void)
{
    for (const struct tensor &tensor : tensors)
        free_tensor(&tensor);
}

static void unmap(const struct tensor *tensor)
{
    MUST(cuCtxSynchronize);
    MUST(cuMemUnmap, address_of(tensor), tensor->bytes);
}

/*
 * Maps the handle at other addresses of its size. The caller still owns the tensor's former range.
 */
static void map_at(struct tensor *tensor, CUdeviceptr address)
{
    map_handle(address, tensor->bytes, tensor->handle);
    tensor->words = words_at(address);
}

static void copy_tensor(const struct tensor *to, const uint32_t *from)
{
    LAUNCH(stream, to->count, copy_words, to->words, from, to->count);
}

/* ---- handles that move ---- */

static void case_moves(void)
{
    new_tensors(1);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < TENSORS; i++) {
            struct tensor *tensor = &tensors[(5 * i + round) % TENSORS];
            const CUdeviceptr old = address_of(tensor);
            unmap(tensor);
            if (round % 2 == 0)
                MUST(cuMemAddressFree, old, tensor->bytes);
            map_at(tensor, new_range(tensor->bytes));
            if (round % 2 != 0)
                MUST(cuMemAddressFree, old, tensor->bytes);
        }
        expect_tensors(1, "of a handle at other addresses");
    }
    /* All handles, into one range, in reverse order. */
    const size_t bytes = tensors[0].bytes;
    const CUdeviceptr range = new_range(TENSORS * bytes);
    for (const struct tensor &tensor : tensors) {
        unmap(&tensor);
        MUST(cuMemAddressFree, address_of(&tensor), bytes);
    }
    for (size_t i = 0; i < TENSORS; i++)
        map_at(&tensors[i], range + (TENSORS - 1 - i) * bytes);
    expect_tensors(1, "of a handle among others");
    fill_tensors(100);
    expect_tensors(100, "of a handle among others, written there");
    unmap(&tensors[3]);
    unmap(&tensors[4]);
    for (size_t i = 3; i <= 4; i++)
        map_at(&tensors[i], new_range(bytes));
    expect_tensors(100, "of a handle that was among others");
    for (size_t i = 0; i < TENSORS; i++) {
        if (i != 3 && i != 4) {
            unmap(&tensors[i]);
            MUST(cuMemRelease, tensors[i].handle);
        } else {
            free_tensor(&tensors[i]);
        }
    }
    MUST(cuMemAddressFree, range, TENSORS * bytes);
}

static void case_swaps(void)
{
    const unsigned rounds = 16;

    new_tensors(1);
    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned i = 0; i + 1 < TENSORS; i += 1 + round % 4) {
            struct tensor *one = &tensors[i], *other_one = &tensors[i + 1];
            const CUdeviceptr first = address_of(one), second = address_of(other_one);
            unmap(one);
            unmap(other_one);
            map_at(one, second);
            map_at(other_one, first);
        }
        expect_tensors(1 + round, "of handles that changed places");
        fill_tensors(2 + round);
    }
    expect_tensors(1 + rounds, "after the last change");
    free_tensors();
}

/*
 * Handles in one range, with a tensor over all of them. Its middle is unmapped and replaced, in one
 * call and in several.
 */
static void case_range(void)
{
    const size_t handles = TENSORS, bytes = whole_granules(2 * unit * sizeof(uint32_t)),
                 each = bytes / sizeof(uint32_t);
    const CUdeviceptr range = new_range(handles * bytes);
    const size_t end = handles - 3;
    uint32_t *const words = words_at(range);

    for (size_t i = 0; i < handles; i++) {
        const CUmemGenericAllocationHandle handle = new_handle(bytes);
        MUST(cuMemMap, range + i * bytes, bytes, 0, handle, 0);
        MUST(cuMemRelease, handle);
    }
    let_access(range, handles * bytes);
    for (uint32_t round = 0; round < 4; round++) {
        LAUNCH(stream, handles * each, fill_words, words, round, 0, handles * each);
        for (size_t at = each / 2; at + each <= handles * each; at += each)
            expect_words(words + at, round, at, each, stream, "of a tensor over two handles");
        expect_words(words, round, 0, handles * each, stream, "of a tensor over all handles");
        MUST(cuCtxSynchronize);
        if (round % 2 == 0)
            MUST(cuMemUnmap, range + 3 * bytes, (end - 3) * bytes);
        for (size_t i = 3; i < end; i++) {
            const CUmemGenericAllocationHandle handle = new_handle(bytes);
            if (round % 2 != 0)
                MUST(cuMemUnmap, range + i * bytes, bytes);
            map_handle(range + i * bytes, bytes, handle);
            MUST(cuMemRelease, handle);
        }
        LAUNCH(stream, (end - 3) * each, fill_words, words + 3 * each, 50 + round, 0, (end - 3) * each);
        expect_words(words, round, 0, 3 * each, stream, "before what is new");
        expect_words(words + 3 * each, 50 + round, 0, (end - 3) * each, stream, "of what is new");
        expect_words(words + end * each, round, end * each, 3 * each, stream, "behind what is new");
    }
    MUST(cuCtxSynchronize);
    MUST(cuMemUnmap, range, handles * bytes);
    MUST(cuMemAddressFree, range, handles * bytes);
}

/*
 * Handles side by side. When they are made, there are freed allocations that are a little larger.
 * There are more of these than the program ever used at once.
 */
static void case_lengths(void)
{
    const size_t handles = 4, bytes = whole_granules(29 << 20), each = bytes / sizeof(uint32_t);
    const CUdeviceptr range = new_range(handles * bytes);
    void *block[4];

    for (size_t mib = 32; mib > 29; mib--) {
        for (void *&one : block)
            CHECK(cudaMalloc(&one, mib << 20));
        for (void *one : block)
            CHECK(cudaFree(one));
    }
    for (size_t i = 0; i < handles; i++) {
        const CUmemGenericAllocationHandle handle = new_handle(bytes);
        map_handle(range + i * bytes, bytes, handle);
        MUST(cuMemRelease, handle);
    }
    LAUNCH(stream, handles * each, fill_words, words_at(range), 7, 0, handles * each);
    expect_words(words_at(range), 7, 0, handles * each, stream, "of handles side by side");
    MUST(cuCtxSynchronize);
    MUST(cuMemUnmap, range, handles * bytes);
    MUST(cuMemAddressFree, range, handles * bytes);
}

/* ---- more than one name for the same bytes ---- */

static void case_twice(void)
{
    new_tensors(1);
    for (uint32_t i = 0; i < TENSORS; i += 5) {
        struct tensor *tensor = &tensors[i], second = *tensor;
        map_at(&second, new_range(second.bytes));
        expect_tensor(&second, 1 + i, "at the second address");
        fill(tensor, 30 + i);
        expect_tensor(&second, 30 + i, "written at the first address");
        fill(&second, 60 + i);
        expect_tensor(tensor, 60 + i, "written at the second address");
        fill_tensors(100);
        expect_tensor(&second, 100 + i, "written at the first address, with the others");
        copy_tensor(&tensors[1], second.words);
        expect_tensor(&tensors[1], 100 + i, "copied from the second address");
        const CUdeviceptr first = address_of(tensor);
        unmap(tensor);
        expect_tensor(&second, 100 + i, "when the first address is gone");
        MUST(cuMemAddressFree, first, tensor->bytes);
        *tensor = second;
        fill_tensors(1);
    }
    expect_tensors(1, "with one address again");
    free_tensors();
}

/*
 * Handles in one range, of which the first and a middle one are mapped twice: Penstock leaves those
 * to CUDA. Tensors begin in such memory and reach into the handles behind it, or lie across it.
 */
static void case_holes(void)
{
    const size_t bytes = whole_granules(4 * unit * sizeof(uint32_t)), each = bytes / sizeof(uint32_t), handles = 6;
    const CUdeviceptr range = new_range(handles * bytes), second = new_range(bytes), third = new_range(bytes);
    uint32_t *const words = words_at(range);

    new_tensors(1);
    for (size_t i = 0; i < handles; i++) {
        const CUmemGenericAllocationHandle handle = new_handle(bytes);
        map_handle(range + i * bytes, bytes, handle);
        if (i == 0 || i == 3)
            map_handle(i == 0 ? second : third, bytes, handle);
        MUST(cuMemRelease, handle);
    }
    for (uint32_t round = 0; round < 8; round++) {
        const size_t first = round % 2 ? 0 : each / 2, count = handles * each - first;
        LAUNCH(stream, count, fill_words, words + first, round, first, count);
        fill_tensors(1);
        expect_words(words + 2 * each, round, 2 * each, each, stream, "of a handle behind one that is CUDA's own");
        LAUNCH(stream, count, add_to_words, words + first, 1, count);
        fill_tensors(1);
        LAUNCH(stream, count, add_to_words, words + first, UINT32_MAX, count);
        for (size_t i = 1; i < handles; i++)
            expect_words(words + i * each, round, i * each, each, stream, "of a tensor that begins in CUDA's own");
        expect_words(words_at(second) + first, round, first, each - first, stream, "at the second address");
        expect_words(words_at(third), round, 3 * each, each, stream, "at the third address");
    }
    MUST(cuCtxSynchronize);
    MUST(cuMemUnmap, range, handles * bytes);
    MUST(cuMemUnmap, second, bytes);
    MUST(cuMemUnmap, third, bytes);
    MUST(cuMemAddressFree, range, handles * bytes);
    MUST(cuMemAddressFree, second, bytes);
    MUST(cuMemAddressFree, third, bytes);
    expect_tensors(1, "beside a range with memory of CUDA's own");
    free_tensors();
}

/*
 * The first handle of a range is the second device's. Penstock leaves it to CUDA. A tensor begins
 * there and reaches into the first device's handles, which are mapped before it.
 */
static void case_far(void)
{
    const size_t bytes = whole_granules(4 * unit * sizeof(uint32_t)), each = bytes / sizeof(uint32_t), handles = 4;
    const size_t first = each / 2, count = handles * each - first;
    uint32_t *there;

    new_tensors(1);
    struct tensor copy = new_tensor(count);
    CHECK(cudaSetDevice(1));
    CHECK(cudaMalloc(&there, bytes));
    mappings.properties.location.id = 1;
    const CUmemGenericAllocationHandle far = new_handle(bytes);
    mappings.properties.location.id = 0;
    CHECK(cudaSetDevice(0));
    const CUdeviceptr range = new_range(handles * bytes);
    uint32_t *const words = words_at(range) + first;
    for (size_t i = handles; i-- > 0;) {
        const CUmemGenericAllocationHandle handle = i ? new_handle(bytes) : far;
        map_handle(range + i * bytes, bytes, handle);
        MUST(cuMemRelease, handle);
    }
    for (uint32_t round = 0; round < 8; round++) {
        LAUNCH(stream, count, fill_words, words, round, first, count);
        fill_tensors(1);
        LAUNCH(stream, count, add_to_words, words, 1, count);
        fill_tensors(1);
        LAUNCH(stream, count, add_to_words, words, UINT32_MAX, count);
        copy_tensor(&copy, words);
        expect_words(copy.words, round, first, count, stream, "of a tensor that begins in far memory");
    }
    MUST(cuCtxSynchronize);
    MUST(cuMemUnmap, range, handles * bytes);
    MUST(cuMemAddressFree, range, handles * bytes);
    expect_tensors(1, "beside a range with far memory");
    CHECK(cudaFree(there));
    free_tensor(&copy);
    free_tensors();
}

KERNEL(copy_by_entry, (uint32_t *__restrict__ out, const uint32_t *const *table, size_t count), (out, table, count))
{
    FOR_EACH_ITEM (i, count)
        out[i] = table[0][i];
}

/* A table leads to a tensor that begins in a handle at two addresses and reaches into others. */
static void case_hole_table(void)
{
    const size_t bytes = whole_granules(4 * unit * sizeof(uint32_t)), each = bytes / sizeof(uint32_t), handles = 4;
    const size_t first = each / 2, count = handles * each - first;
    const CUdeviceptr range = new_range(handles * bytes), second = new_range(bytes);
    uint32_t *const words = words_at(range) + first;
    void *table = nullptr;

    new_tensors(1);
    struct tensor copy = new_tensor(count);
    for (size_t i = 0; i < handles; i++) {
        const CUmemGenericAllocationHandle handle = new_handle(bytes);
        map_handle(range + i * bytes, bytes, handle);
        if (i == 0)
            map_handle(second, bytes, handle);
        MUST(cuMemRelease, handle);
    }
    CHECK(cudaMalloc(&table, 512));
    for (uint32_t round = 0; round < 4; round++) {
        LAUNCH(stream, count, fill_words, words, round, first, count);
        CHECK(cudaMemcpyAsync(table, &words, sizeof(words), cudaMemcpyHostToDevice, stream));
        fill_tensors(1);
        LAUNCH(stream, count, copy_by_entry, copy.words, static_cast<const uint32_t *const *>(table), count);
        expect_words(copy.words, round, first, count, stream, "of a tensor that a table leads to");
    }
    MUST(cuCtxSynchronize);
    MUST(cuMemUnmap, range, handles * bytes);
    MUST(cuMemUnmap, second, bytes);
    MUST(cuMemAddressFree, range, handles * bytes);
    MUST(cuMemAddressFree, second, bytes);
    expect_tensors(1, "beside a range with memory of CUDA's own");
    CHECK(cudaFree(table));
    free_tensor(&copy);
    free_tensors();
}

/*
 * Maps the second half of a handle and its first half. The driver refuses, or the words are right.
 */
static void case_part(void)
{
    struct tensor whole = new_tensor(8 * unit);
    const CUdeviceptr range = new_range(whole.bytes);
    const size_t half = whole.bytes / 2;

    fill(&whole, 9);
    unmap(&whole);
    const CUresult second_half = DRIVER(cuMemMap, range, half, half, whole.handle, 0);
    printf("second half: %s\n", name_of(second_half));
    const CUresult first_half = DRIVER(cuMemMap, range + half, half, 0, whole.handle, 0);
    printf("first half: %s\n", name_of(first_half));
    printf("too much: %s\n", name_of(DRIVER(cuMemMap, range, whole.bytes, half, whole.handle, 0)));
    if (second_half == CUDA_SUCCESS) {
        let_access(range, half);
        expect_words(words_at(range), 9, whole.count / 2, whole.count / 2, stream, "of the second half");
        MUST(cuMemUnmap, range, half);
    }
    if (first_half == CUDA_SUCCESS) {
        let_access(range + half, half);
        expect_words(words_at(range + half), 9, 0, whole.count / 2, stream, "of the first half");
        MUST(cuMemUnmap, range + half, half);
    }
    map_handle(address_of(&whole), whole.bytes, whole.handle);
    expect_tensor(&whole, 9, "as a whole");
    MUST(cuMemAddressFree, range, whole.bytes);
    free_tensor(&whole);
}

/* ---- exported handles ---- */

static CUmemGenericAllocationHandle imported_from(int descriptor)
{
    CUmemGenericAllocationHandle handle = 0;

    MUST(cuMemImportFromShareableHandle, &handle, reinterpret_cast<void *>(static_cast<uintptr_t>(descriptor)),
         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    return handle;
}

static int exported(CUmemGenericAllocationHandle handle)
{
    int descriptor = -1;

    MUST(cuMemExportToShareableHandle, &descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    return descriptor;
}

static void expect_same_memory(const struct tensor *one, const struct tensor *same, uint32_t salt)
{
    fill(one, salt);
    expect_tensor(same, salt, "written where it was exported");
    fill(same, salt + 1);
    expect_tensor(one, salt + 1, "written where it was imported");
}

static void case_export(void)
{
    struct tensor fresh = {}, second = {};

    /* Exported before it is mapped. */
    fresh.count = second.count = 4 * unit;
    fresh.bytes = second.bytes = whole_granules(fresh.count * sizeof(uint32_t));
    fresh.handle = new_handle(fresh.bytes);
    int descriptor = exported(fresh.handle);
    second.handle = imported_from(descriptor);
    close(descriptor);
    map_at(&fresh, new_range(fresh.bytes));
    map_at(&second, new_range(second.bytes));
    expect_same_memory(&fresh, &second, 7);
    free_tensor(&fresh);
    expect_tensor(&second, 8, "when the exported handle is gone");
    free_tensor(&second);

    /* Exported after its use, for some tensors long after. */
    new_tensors(1);
    for (uint32_t i = 0; i < TENSORS; i += 5) {
        struct tensor *tensor = &tensors[i];
        descriptor = exported(tensor->handle);
        second.handle = imported_from(descriptor);
        map_at(&second, new_range(second.bytes));
        expect_tensor(&second, 1 + i, "of a handle that was exported after it was used");
        expect_same_memory(tensor, &second, 50 + i);
        fill(tensor, 1 + i);
        fill_tensors(1);
        expect_tensor(&second, 1 + i, "after others were used");
        free_tensor(&second);
        if (i == 5) {
            /* Only the descriptor is left of the memory. */
            free_tensor(tensor);
            tensor->handle = imported_from(descriptor);
            map_at(tensor, new_range(tensor->bytes));
        }
        close(descriptor);
    }
    expect_tensors(1, "in the end");
    free_tensors();
}

/*
 * Handles are exported while another thread captures, in a mode that forbids nothing to this one.
 * Penstock then copies bytes. The capture must not notice, whichever kind of stream it is of.
 */
static void case_export_beside(void)
{
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;

    new_tensors(1);
    for (uint32_t i = 0; i < 4; i++) {
        struct tensor second = tensors[i];
        const struct tensor other = tensors[i + 4];
        cudaStream_t captured;
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t executable = nullptr;
        int descriptor = -1;

        CHECK(cudaStreamCreateWithFlags(&captured, i % 2 == 0 ? cudaStreamNonBlocking : cudaStreamDefault));
        fill(&tensors[i], 70 + i);
        CHECK(cudaStreamBeginCapture(captured, cudaStreamCaptureModeThreadLocal));
        LAUNCH(captured, other.count, fill_words, other.words, 80 + i, 0, other.count);
        std::thread([&] {
            CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
            descriptor = exported(tensors[i].handle);
        }).join();
        const cudaError_t result = cudaStreamEndCapture(captured, &graph);
        expect(result == cudaSuccess, "a capture beside an export: %s", cudaGetErrorName(result));
        second.handle = imported_from(descriptor);
        close(descriptor);
        map_at(&second, new_range(second.bytes));
        expect_tensor(&second, 70 + i, "exported beside a capture");
        free_tensor(&second);
        if (result == cudaSuccess) {
            CHECK(cudaGraphInstantiate(&executable, graph, 0));
            CHECK(cudaGraphLaunch(executable, captured));
            CHECK(cudaStreamSynchronize(captured));
            expect_tensor(&other, 80 + i, "filled by the graph");
            CHECK(cudaGraphExecDestroy(executable));
            CHECK(cudaGraphDestroy(graph));
        }
        CHECK(cudaStreamDestroy(captured));
        fill(&tensors[i], 1 + i);
        fill(&other, 1 + i + 4);
    }
    expect_tensors(1, "in the end");
    free_tensors();
}

/* ---- threads and limits ---- */

static void thread_of_tensors(uint32_t salt)
{
    const cudaStream_t mine = new_stream();
    struct tensor held[6] = {};

    for (uint32_t turn = 0; turn < 30; turn++) {
        struct tensor *tensor = &held[turn % 6];
        if (turn >= 6) {
            expect_words(tensor->words, salt + turn - 6, 0, tensor->count, mine, "of a thread's tensor");
            free_tensor(tensor);
        }
        *tensor = new_tensor((1 + turn % 4) * unit);
        LAUNCH(mine, tensor->count, fill_words, tensor->words, salt + turn, 0, tensor->count);
    }
    CHECK(cudaStreamSynchronize(mine));
    for (const struct tensor &tensor : held)
        free_tensor(&tensor);
    CHECK(cudaStreamDestroy(mine));
}

static void case_threads(void)
{
    new_tensors(1);
    std::thread one(thread_of_tensors, 1000), two(thread_of_tensors, 2000);

    one.join();
    two.join();
    expect_tensors(1, "of what was there before the threads");
    free_tensors();
}

static std::vector<struct tensor> as_many_as_there_are(void)
{
    std::vector<struct tensor> all;
    CUresult result = CUDA_SUCCESS;

    while (all.size() < 4096) {
        struct tensor tensor = {};
        tensor.bytes = whole_granules(4 * unit * sizeof(uint32_t));
        tensor.count = tensor.bytes / sizeof(uint32_t);
        result = DRIVER(cuMemCreate, &tensor.handle, tensor.bytes, &mappings.properties, 0);
        if (result != CUDA_SUCCESS)
            break;
        map_at(&tensor, new_range(tensor.bytes));
        fill(&tensor, static_cast<uint32_t>(all.size()));
        all.push_back(tensor);
    }
    expect(result == CUDA_ERROR_OUT_OF_MEMORY, "a full device: %s", name_of(result));
    for (size_t i = 0; i < all.size(); i++)
        expect_tensor(&all[i], static_cast<uint32_t>(i), "on a full device");
    for (const struct tensor &tensor : all)
        free_tensor(&tensor);
    return all;
}

static void case_full(void)
{
    const size_t first = as_many_as_there_are().size(), again = as_many_as_there_are().size();

    printf("tensors %zu\n", first);
    expect(again >= first, "%zu fit, and then %zu", first, again);
}

#endif
