/*
 * The time of a program's own copy beside a stream of large copies, and the rate of the large ones
 * while they let it through. This needs a GPU, whose copy engines stay with a stream as long as its
 * copies follow one another (shim/cuda/copy_gate.h). On the simulated device the program runs, but
 * its figures mean nothing.
 *
 *   bench_turns [MIB [ROUNDS]]
 *
 * MIB is the size of the large copies' memory (512), and ROUNDS the number of repetitions (9).
 *
 * Prints a line of JSON for each case: the direction, the size of the large copies' pieces, and
 * whether they wait for a word; the size of the program's own copy, and the median and longest time
 * of it in ms; and the rate of the large copies meanwhile, in GB/s.
 */
#include <cuda.h>

#include "../samples/kernel.h"
#include "bench.h"
#include "driver.h"

#define ROUNDS_MAX 1000
#define OWN_MAX ((size_t)4 << 20)
#define NS_PER_MS 1e6

struct turns_case {
    size_t piece; /* bytes; 0: no large copies */
    bool looks;   /* each piece first waits for a word in host memory, which already has the value */
};

static const struct turns_case cases[] = {
    {0, false},
    {(size_t)128 << 20, false},
    {(size_t)16 << 20, false},
    {(size_t)128 << 20, true},
    {(size_t)32 << 20, true},
    {(size_t)16 << 20, true},
};

struct memory {
    char *device, *host, *own_device, *own_host;
    size_t bytes;
    unsigned *word;
};

static void queue_copy(const struct memory *memory, bool out, size_t at, size_t bytes, cudaStream_t stream)
{
    CHECK(cudaMemcpyAsync((out ? memory->host : memory->device) + at, (out ? memory->device : memory->host) + at, bytes,
                          out ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, stream));
}

/*
 * Copies all of the large memory once, as the case says. `begun` is recorded after the first piece.
 */
static void queue_all(const struct memory *memory, const struct turns_case *beside, bool out, cudaStream_t stream,
                      cudaEvent_t begun)
{
    const size_t piece = beside->piece < memory->bytes ? beside->piece : memory->bytes;

    for (size_t at = 0; at < memory->bytes; at += piece) {
        if (beside->looks)
            DRIVER(cu.wait_value(stream, (CUdeviceptr)(uintptr_t)memory->word, 0, CU_STREAM_WAIT_VALUE_EQ));
        queue_copy(memory, out, at, memory->bytes - at < piece ? memory->bytes - at : piece, stream);
        if (at == 0)
            CHECK(cudaEventRecord(begun, stream));
    }
}

static void measure(const struct memory *memory, const struct turns_case *beside, bool out, size_t own_bytes,
                    int rounds)
{
    static double took[ROUNDS_MAX], rates[ROUNDS_MAX];
    cudaStream_t large, own;
    cudaEvent_t begun, over;

    CHECK(cudaStreamCreateWithFlags(&large, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&begun));
    CHECK(cudaEventCreate(&over));
    for (int i = 0; i < rounds; i++) {
        float ms = 0;

        if (beside->piece) {
            queue_all(memory, beside, out, large, begun);
            CHECK(cudaEventRecord(over, large));
            CHECK(cudaEventSynchronize(begun));
        }
        const uint64_t since = bench_now_ns();
        CHECK(cudaMemcpyAsync(out ? memory->own_host : memory->own_device, out ? memory->own_device : memory->own_host,
                              own_bytes, out ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, own));
        CHECK(cudaStreamSynchronize(own));
        took[i] = (double)(bench_now_ns() - since) / NS_PER_MS;
        CHECK(cudaStreamSynchronize(large));
        if (beside->piece)
            CHECK(cudaEventElapsedTime(&ms, begun, over));
        const size_t piece = beside->piece < memory->bytes ? beside->piece : memory->bytes;
        rates[i] = ms > 0 ? (double)(memory->bytes - piece) / (ms * NS_PER_MS) : 0;
    }
    qsort(took, (size_t)rounds, sizeof *took, bench_compare);
    qsort(rates, (size_t)rounds, sizeof *rates, bench_compare);
    printf(
        "{\"way\": \"%s\", \"piece_mib\": %zu, \"looks\": %s, \"own_bytes\": %zu, \"own_ms\": %.3f, \"own_most_ms\": %.3f, \"gbps\": %.1f}\n",
        out ? "D2H" : "H2D", beside->piece >> 20, beside->looks ? "true" : "false", own_bytes, took[rounds / 2],
        took[rounds - 1], rates[rounds / 2]);
    fflush(stdout);
    CHECK(cudaEventDestroy(begun));
    CHECK(cudaEventDestroy(over));
    CHECK(cudaStreamDestroy(large));
    CHECK(cudaStreamDestroy(own));
}

int main(int argc, char **argv)
{
    struct memory memory = {};
    const int rounds = argc > 2 ? bench_number(argv[2]) : 9;

    memory.bytes = (size_t)(argc > 1 ? bench_number(argv[1]) : 512) << 20;
    REQUIRE(rounds <= ROUNDS_MAX, "at most %d rounds", ROUNDS_MAX);
    CHECK(cudaMalloc(reinterpret_cast<void **>(&memory.device), memory.bytes));
    CHECK(cudaMalloc(reinterpret_cast<void **>(&memory.own_device), OWN_MAX));
    CHECK(cudaMallocHost(reinterpret_cast<void **>(&memory.host), memory.bytes));
    CHECK(cudaMallocHost(reinterpret_cast<void **>(&memory.own_host), OWN_MAX));
    CHECK(cudaMallocHost(reinterpret_cast<void **>(&memory.word), sizeof *memory.word));
    *memory.word = 0;
    find_driver();
    for (bool out : {true, false})
        for (size_t own_bytes : {(size_t)4096, OWN_MAX})
            for (const struct turns_case &beside : cases)
                measure(&memory, &beside, out, own_bytes, rounds);
    return 0;
}
