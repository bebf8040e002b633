#!/usr/bin/env bats
# The program's view of its own calls: the hooks are in place, and memory, pools and pointers look
# as they would without Penstock.

load ../../lib/helper
load ../../lib/small_trainer

setup() { helper_setup 60; }

hook_names() { sed -nE 's/^PS_HOOK[A-Z_]*\([^,]*, *([A-Za-z0-9_]+) *,.*/\1/p' "$ROOT/shim/cuda/hooks.def"; }

# --- the hooks ------------------------------------------------------------------------------------
@test "every hook of the list receives a program's calls and look-ups, and hides a real function" {
    requires cc
    build_probe who <<'END'
#include <dlfcn.h>

int main(int argc, char **argv)
{
    Dl_info called, found;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);

    CHECK(cudaFree(NULL)); /* so that the linker keeps the runtime */
    EXPECT(driver);
    for (int i = 1; i < argc; i++) {
        void *symbol = dlsym(RTLD_DEFAULT, argv[i]);
        void *looked_up = dlsym(driver, argv[i]);
        void *runtime = dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
        if (!looked_up && runtime) looked_up = dlsym(runtime, argv[i]);
        EXPECT(symbol && dladdr(symbol, &called));
        EXPECT(looked_up && dladdr(looked_up, &found));
        printf("%s %s %s\n", argv[i], strrchr(called.dli_fname, '/') + 1, strrchr(found.dli_fname, '/') + 1);
    }
    return 0;
}
END
    local names
    mapfile -t names < <(hook_names)
    at_least 15 "${#names[@]}" hooks
    run_penstock "$WORK/who" "${names[@]}"
    ended_with 0
    equal "${#names[@]}" "$(grep -cE '^\w+ libpenstock\.so libpenstock\.so$' <<<"$output")" "hooks in place"
    run_sim "$WORK/who" "${names[@]}"
    ended_with 0
    equal "${#names[@]}" "$(grep -cE '^(cuda[A-Z]\w+ libcudart\.so\S* libcudart\.so|cu[A-Z]\w+ libcuda\.so\S* libcuda\.so)' <<<"$output")" \
        "real functions"
}

@test "a query to the driver past our hooks knows an evicted span under every guard" {
    requires cc
    # The program has the name of a library of NVIDIA's, which hooks leave alone under this tracer.
    build_probe libnv_asks <<'END'
#include <dlfcn.h>

int main(void)
{
    enum { SPANS = 12 };
    CUresult (*one)(void *, CUpointer_attribute, CUdeviceptr);
    CUresult (*range)(CUdeviceptr *, size_t *, CUdeviceptr);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *span[SPANS];
    int host = 0;

    *(void **)&one = dlsym(driver, "cuPointerGetAttribute");
    *(void **)&range = dlsym(driver, "cuMemGetAddressRange_v2");
    EXPECT(one && range);
    for (int i = 0; i < SPANS; i++) span[i] = new_span(i, NULL);
    CHECK(cudaDeviceSynchronize());
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < SPANS; i++) {
            CUdeviceptr address = (CUdeviceptr)(uintptr_t)span[i], found = 0;
            unsigned type = 0;
            size_t bytes = 0;
            EXPECT(one(&found, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address + 64) == CUDA_SUCCESS && found == address + 64);
            EXPECT(one(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS);
            EXPECT(range(&found, &bytes, address + 64) == CUDA_SUCCESS && found == address && bytes == span_size());
            host += type == CU_MEMORYTYPE_HOST;
        }
        for (int i = 0; i < SPANS; i++) EXPECT(holds(span[i], i, NULL));
    }
    printf("away %d\n", host > 0);
    puts("ok");
    return 0;
}
END
    local guard
    for guard in auto host unmap; do
        run_probe libnv_asks PENSTOCK_BUDGET=$((6 * PROBE_SPAN)) PENSTOCK_GUARD=$guard PENSTOCK_TRACER=cupti
        goes_on
        contains "$output" '^away 1$' # some were away at the time of the query
        run_probe libnv_asks PENSTOCK_BUDGET=$((6 * PROBE_SPAN)) PENSTOCK_GUARD=$guard
        goes_on
        contains "$output" '^away 0$' # through our hooks none is seen away
    done
}

@test "meminfo, pools, attributes, pitch and volumes pass the hostile sample's checks under several budgets and guards" {
    requires samples
    local case budget guard
    while IFS=: read -r case budget guard; do
        hostile $case PENSTOCK_BUDGET=$budget PENSTOCK_GUARD=$guard
        goes_on
        said
        sound
    done < <(some_of 2 {meminfo,pool,attributes,pitch,volume,churn}:{0,12MiB,unlimited}:{host,unmap})
}

# --- pools ----------------------------------------------------------------------------------------
@test "the default pool's figures match its allocations, to the byte" {
    requires cc
    build_probe pool <<'END'
#define COUNT 48

static uint64_t value(cudaMemPool_t pool, enum cudaMemPoolAttr attribute)
{
    uint64_t figure = 0;

    CHECK(cudaMemPoolGetAttribute(pool, attribute, &figure));
    return figure;
}

int main(void)
{
    static void *span[COUNT];
    cudaStream_t stream;
    cudaMemPool_t pool;
    uint64_t zero = 0, used = 0;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    for (int i = 0; i < COUNT; i++) {
        /*
         * Odd sizes: used memory is counted in units of 512 bytes, as for the pool's own
         * allocations.
         */
        size_t bytes = span_size() + (size_t)i * 300;
        CHECK(cudaMallocAsync(&span[i], bytes, stream));
        used += (bytes + 511) / 512 * 512;
        EXPECT(value(pool, cudaMemPoolAttrUsedMemCurrent) == used);
        EXPECT(value(pool, cudaMemPoolAttrReservedMemCurrent) >= used);
        EXPECT(value(pool, cudaMemPoolAttrUsedMemHigh) == used);
    }
    CHECK(cudaFreeAsync(span[0], stream));
    EXPECT(value(pool, cudaMemPoolAttrUsedMemCurrent) == used - span_size());
    EXPECT(value(pool, cudaMemPoolAttrUsedMemHigh) == used);
    EXPECT(value(pool, cudaMemPoolAttrReservedMemHigh) >= used);
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &zero));
    EXPECT(value(pool, cudaMemPoolAttrUsedMemHigh) == used - span_size());
    for (int i = 1; i < COUNT; i++) CHECK(cudaFreeAsync(span[i], stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(value(pool, cudaMemPoolAttrUsedMemCurrent) == 0);
    /* Pages whose span is still being copied out at its free go when the copy is over. */
    for (int tries = 0; tries < 500 && value(pool, cudaMemPoolAttrReservedMemCurrent) >= span_size(); tries++) {
        CHECK(cudaMemPoolTrimTo(pool, 0));
        usleep(10000);
    }
    EXPECT(value(pool, cudaMemPoolAttrReservedMemCurrent) < span_size());
    puts("ok");
    return 0;
}
END
    local budget
    for budget in 0 $((20 * PROBE_SPAN)) unlimited; do
        run_probe pool PENSTOCK_BUDGET=$budget
        goes_on
        said
    done
}

@test "a pool that the program made stays the program's" {
    requires cc jq
    build_probe own <<'END'
int main(void)
{
    struct cudaMemPoolProps properties = {.allocType = cudaMemAllocationTypePinned, .location = {.type = cudaMemLocationTypeDevice}};
    cudaMemPool_t pool, usual;
    void *span;

    CHECK(cudaMemPoolCreate(&pool, &properties));
    CHECK(cudaDeviceGetDefaultMemPool(&usual, 0));
    CHECK(cudaMallocAsync(&span, span_size(), NULL)); /* Penstock starts here */
    CHECK(cudaFreeAsync(span, NULL));
    CHECK(cudaMallocFromPoolAsync(&span, span_size(), pool, NULL));
    CHECK(cudaFreeAsync(span, NULL));
    CHECK(cudaMallocFromPoolAsync(&span, span_size(), usual, NULL));
    CHECK(cudaFreeAsync(span, NULL));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemPoolDestroy(pool));
    puts("ok");
    return 0;
}
END
    run_probe own
    goes_on
    said
    equal 2 "$(report allocations)" "spans"
    equal 1 "$(report passthrough.own_pool)" "allocations from the program's own pool"
}

@test "allocations outside the default pool come from the pool that plain CUDA would use" {
    requires sim cc jq
    # The wheels' toolkit has no stub of the driver, so the simulated driver itself is linked.
    build_probe chosen "-L$SIM" -l:libcuda.so.1 <<'END'
static unsigned long long used_of(cudaMemPool_t pool)
{
    unsigned long long used = 0;
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    return used;
}
static void take(int by_driver, void **address, size_t bytes, cudaMemPool_t pool)
{
    if (by_driver && pool)
        EXPECT(cuMemAllocFromPoolAsync((CUdeviceptr *)address, bytes, pool, NULL) == CUDA_SUCCESS);
    else if (by_driver)
        EXPECT(cuMemAllocAsync((CUdeviceptr *)address, bytes, NULL) == CUDA_SUCCESS);
    else if (pool)
        CHECK(cudaMallocFromPoolAsync(address, bytes, pool, NULL));
    else
        CHECK(cudaMallocAsync(address, bytes, NULL));
}
int main(void)
{
    struct cudaMemPoolProps properties = {.allocType = cudaMemAllocationTypePinned, .location = {.type = cudaMemLocationTypeDevice}};
    cudaMemPool_t own, usual;
    void *memory[3], *first = new_span(1, NULL);

    CHECK(cudaMemPoolCreate(&own, &properties));
    CHECK(cudaDeviceGetDefaultMemPool(&usual, 0));
    for (int by_driver = 0; by_driver < 2; by_driver++) {
        unsigned long long before = used_of(usual);
        if (by_driver)
            EXPECT(cuDeviceSetMemPool(0, own) == CUDA_SUCCESS);
        else
            CHECK(cudaDeviceSetMemPool(0, own));
        take(by_driver, &memory[0], 1024, usual);
        EXPECT(used_of(own) == 0 && used_of(usual) >= before + 1024);
        take(by_driver, &memory[1], span_size(), NULL);
        EXPECT(used_of(own) >= span_size());
        take(by_driver, &memory[2], span_size(), usual);
        EXPECT(used_of(own) < 2 * span_size());
        for (int i = 0; i < 3; i++) CHECK(cudaFreeAsync(memory[i], NULL));
        CHECK(cudaDeviceSetMemPool(0, usual));
        take(by_driver, &memory[0], span_size(), NULL);
        EXPECT(used_of(own) == 0);
        CHECK(cudaFreeAsync(memory[0], NULL));
        CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaFree(first));
    puts("ok");
    return 0;
}
END
    run_sim PROBE_SPAN=$PROBE_SPAN ./chosen
    goes_on
    run_probe chosen
    goes_on
    said
    equal 5 "$(report allocations)" "spans"
    equal 2 "$(report passthrough.own_pool)" "allocations from the program's own pool"
}

# --- pointers -------------------------------------------------------------------------------------
@test "evicted spans look like device memory in every query, under both guards" {
    requires cc jq
    # The wheels' toolkit has no stub of the driver, so the simulated driver itself is linked.
    build_probe pointers "-L$SIM" -l:libcuda.so.1 <<'END'
#define COUNT 64

int main(void)
{
    static char *span[COUNT];
    cudaStream_t stream;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < COUNT; i++) span[i] = new_span(i, stream);
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < COUNT; i++) {
        struct cudaPointerAttributes attributes = {0};
        unsigned type = 0, type_too = 0;
        int device = -1, device_too = -1;
        CUdeviceptr start = 0, inside = (CUdeviceptr)span[i] + 1000, same = 0;
        size_t bytes = 0;
        unsigned long long id = 0;
        CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
        void *values[] = {&type_too, &device_too};

        CHECK(cudaPointerGetAttributes(&attributes, (void *)inside));
        EXPECT(attributes.type == cudaMemoryTypeDevice && attributes.device == 0);
        EXPECT(attributes.devicePointer == (void *)inside && !attributes.hostPointer);
        EXPECT(!cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside) && type == CU_MEMORYTYPE_DEVICE);
        EXPECT(!cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside) && device == 0);
        EXPECT(!cuPointerGetAttribute(&same, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside) && same == inside);
        EXPECT(!cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside) && start == (CUdeviceptr)span[i]);
        EXPECT(!cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside) && bytes == span_size());
        EXPECT(!cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, inside));
        EXPECT(!cuPointerGetAttributes(2, which, values, inside) && type_too == CU_MEMORYTYPE_DEVICE && device_too == 0);
        start = bytes = 0;
        EXPECT(!cuMemGetAddressRange(&start, &bytes, inside) && start == (CUdeviceptr)span[i] && bytes == span_size());
        /* An address beyond the end is not this span's. */
        EXPECT(cuMemGetAddressRange(&start, &bytes, (CUdeviceptr)span[i] + span_size()) || start != (CUdeviceptr)span[i]);
    }
    char *gone = span[0];
    for (int i = 0; i < COUNT; i++) CHECK(cudaFree(span[i]));
    struct cudaPointerAttributes attributes = {0};
    cudaError_t result = cudaPointerGetAttributes(&attributes, gone);
    printf("freed: %d\n", result != cudaSuccess || attributes.type != cudaMemoryTypeDevice || attributes.devicePointer == gone);
    puts("ok");
    return 0;
}
END
    local guard
    for guard in host unmap; do
        run_probe pointers PENSTOCK_GUARD=$guard
        goes_on
        said
        counted evictions
    done
}

@test "no allocation has the buffer id of a freed one, or of one of the driver's" {
    requires sim cc
    build_probe numbers "-L$SIM" -l:libcuda.so.1 <<'END'
static unsigned long long number_of(const void *address)
{
    unsigned long long one = 0, other = 0;
    CUpointer_attribute which = CU_POINTER_ATTRIBUTE_BUFFER_ID;
    void *value = &other;

    EXPECT(!cuPointerGetAttribute(&one, CU_POINTER_ATTRIBUTE_BUFFER_ID, (CUdeviceptr)address));
    EXPECT(!cuPointerGetAttributes(1, &which, &value, (CUdeviceptr)address) && one == other);
    return one;
}

int main(void)
{
    enum { TIMES = 70000 }; /* more lives of a structure than its counter tells apart */
    char *first = new_span(1, NULL), *other = new_span(2, NULL), *small, *again;
    unsigned long long number = number_of(first);
    int same = 0;

    CHECK(cudaMalloc((void **)&small, 512));
    EXPECT(number != number_of(other) && number != number_of(small));
    EXPECT(number == number_of(first + span_size() / 2));
    for (int i = 0; i < TIMES; i++) {
        CHECK(cudaFree(first));
        CHECK(cudaMalloc((void **)&again, span_size()));
        same += again == first;
        if (i % 4096 == 0 || i == 65535 || i == 65534) EXPECT(number_of(again) != number);
        first = again;
    }
    EXPECT(same > TIMES / 2 && number_of(first) != number);
    EXPECT(number >> 63 && !(number_of(small) >> 63));
    puts("ok");
    return 0;
}
END
    run_probe numbers
    goes_on
    # The pieces of a block have the block's id.
    run_probe numbers PROBE_SPAN=$((8 << 20)) "PENSTOCK_RULES=pieces size>=1MiB"
    goes_on
}

# --- other ways to allocate -----------------------------------------------------------------------
# Makes by design what happens to a thread that is delayed between an allocation and its fill: the
# span leaves as the driver made it, and is written when it is back. If the write went to the old
# place and was lost, as with a wrong order, it would hold poison at the end.
@test "a span that leaves before its first write holds what is written later" {
    requires cc jq
    build_probe late <<'END'
int main(void)
{
    void *late[4], *other[40];

    for (int i = 0; i < 4; i++) CHECK(cudaMallocAsync(&late[i], span_size(), NULL));
    for (int i = 0; i < 40; i++) other[i] = new_span(i, NULL);
    for (int i = 0; i < 4; i++) CHECK(cudaMemsetAsync(late[i], 100 + i, span_size(), NULL));
    for (int i = 0; i < 40; i++) EXPECT(holds(other[i], i, NULL));
    for (int i = 0; i < 4; i++) EXPECT(holds(late[i], 100 + i, NULL));
    puts("ok");
    return 0;
}
END
    local more=() seed
    for seed in 0 1 2 3; do
        [ "$seed" = 0 ] || more=(CUDASIM_SCHED=seeded "CUDASIM_SEED=$seed")
        run_probe late "${more[@]}"
        goes_on
        sound untouched
        [ "$DEVICE" = sim ] || break
        at_least 4 "$(ledger poison_copied)" "pages of poison that were copied" # else this shows nothing
    done
}

@test "the per-thread default stream's entry points keep its order" {
    requires cc jq
    build_probe ptsz -DCUDA_API_PER_THREAD_DEFAULT_STREAM <<'END'
#include <pthread.h>

#define COUNT 24

static void *train(void *number)
{
    int salt = (int)(intptr_t)number;
    void *span[COUNT];

    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < COUNT; i++) {
            CHECK(cudaMallocAsync(&span[i], span_size(), NULL));
            CHECK(cudaMemsetAsync(span[i], salt + i, span_size(), NULL));
        }
        for (int i = 0; i < COUNT; i++) {
            EXPECT(holds(span[i], salt + i, NULL));
            CHECK(cudaFreeAsync(span[i], NULL));
        }
    }
    return NULL;
}

int main(void)
{
    pthread_t thread[3];

    for (intptr_t i = 0; i < 3; i++) EXPECT(pthread_create(&thread[i], NULL, train, (void *)(i * 40)) == 0);
    for (int i = 0; i < 3; i++) pthread_join(thread[i], NULL);
    puts("ok");
    return 0;
}
END
    run nm -D ptsz
    contains "$output" 'U cudaMallocAsync_ptsz'
    contains "$output" 'U cudaFreeAsync_ptsz'
    run_probe ptsz
    goes_on
    said
    sound untouched # as above: another thread's eviction may take the span of a thread that is delayed between an allocation and its fill
    equal 216 "$(report allocations)" spans
    counted evictions
    if [ "$DEVICE" = sim ]; then
        local seed
        for seed in 1 2 3 4 5; do
            run_probe ptsz CUDASIM_SCHED=seeded CUDASIM_SEED=$seed
            goes_on
            sound untouched # the seed orders the device's work, not the threads
        done
    fi
}

@test "a thread does not inherit the per-thread stream of a thread that has ended" {
    requires cc
    build_probe heirs -DCUDA_API_PER_THREAD_DEFAULT_STREAM <<'END'
#include <pthread.h>
#include <semaphore.h>

static sem_t gate;
static unsigned char *seen;

static void CUDART_CB wait_at_gate(void *unused)
{
    (void)unused;
    sem_wait(&gate);
}

static void *read_and_free(void *address)
{
    void *span;

    CHECK(cudaMallocAsync(&span, span_size(), NULL));
    CHECK(cudaMemsetAsync(span, 7, span_size(), NULL));
    CHECK(cudaLaunchHostFunc(NULL, wait_at_gate, NULL));
    CHECK(cudaMemcpyAsync(seen, span, span_size(), cudaMemcpyDeviceToHost, NULL));
    CHECK(cudaFreeAsync(span, NULL));
    *(void **)address = span;
    return NULL;
}

static void *take_and_fill(void *address)
{
    void *span;

    CHECK(cudaMallocAsync(&span, span_size(), NULL));
    CHECK(cudaMemsetAsync(span, 9, span_size(), NULL));
    *(void **)address = span;
    return NULL;
}

int main(void)
{
    void *first, *second;
    pthread_t thread, heir;

    sem_init(&gate, 0, 0);
    CHECK(cudaMallocHost((void **)&seen, span_size()));
    EXPECT(!pthread_create(&thread, NULL, read_and_free, &first) && !pthread_join(thread, NULL));
    EXPECT(!pthread_create(&heir, NULL, take_and_fill, &second) && !pthread_join(heir, NULL));
    EXPECT(pthread_equal(thread, heir));
    usleep(20000); /* long enough for any work that does not wait */
    sem_post(&gate);
    CHECK(cudaDeviceSynchronize());
    for (size_t i = 0; i < span_size(); i++) EXPECT(seen[i] == 7);
    CHECK(cudaFree(second));
    CHECK(cudaFreeHost(seen));
    puts(first == second ? "ok, the same" : "ok, another");
    return 0;
}
END
    local tracer
    for tracer in cupti hook; do
        run_probe heirs PENSTOCK_TRACER=$tracer
        ended_with 0
        contains "$output" '^ok, another$' # it waits for no thread's stream, whichever thread had it
        said
        sound
    done
}

@test "with more streams than Penstock tracks, the last one's work is waited for like the first one's" {
    requires cc
    build_probe many_streams <<'END'
enum { STREAMS = 1040, SPANS = 12 };

static void CUDART_CB nap(void *unused)
{
    (void)unused;
    usleep(10000);
}

int main(void)
{
    static cudaStream_t stream[STREAMS];
    void *span[SPANS];

    for (int i = 0; i < SPANS; i++) CHECK(cudaMalloc(&span[i], span_size()));
    for (int i = 0; i < STREAMS; i++) {
        CHECK(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
        CHECK(cudaMemsetAsync(span[0], 1, 4096, stream[i]));
    }
    CHECK(cudaDeviceSynchronize());
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < SPANS; i++) {
            CHECK(cudaLaunchHostFunc(stream[STREAMS - 1], nap, NULL));
            CHECK(cudaMemsetAsync(span[i], turn * 20 + i + 1, span_size(), stream[STREAMS - 1]));
        }
        for (int i = 0; i < SPANS; i++) EXPECT(holds(span[i], turn * 20 + i + 1, stream[STREAMS - 1]));
    }
    for (int i = 0; i < STREAMS; i++) CHECK(cudaStreamDestroy(stream[i]));
    for (int i = 0; i < SPANS; i++) CHECK(cudaFree(span[i]));
    puts("ok");
    return 0;
}
END
    local tracer
    for tracer in cupti hook; do
        run_probe many_streams PENSTOCK_TRACER=$tracer PENSTOCK_BUDGET=$((4 * PROBE_SPAN))
        goes_on
        said
        sound untouched
        counted evictions
    done
}

@test "rows and volumes are spans, with the device's pitch" {
    requires cc jq
    build_probe shapes <<'END'
int main(void)
{
    void *rows = NULL, *thin = NULL;
    size_t pitch = 0;
    struct cudaPitchedPtr volume = {0};

    CHECK(cudaMallocPitch(&rows, &pitch, 1000, span_size() / 512));
    EXPECT(pitch >= 1000 && pitch % 512 == 0);
    CHECK(cudaMemset2D(rows, pitch, 3, 1000, span_size() / 512));
    CHECK(cudaMalloc3D(&volume, ((struct cudaExtent){700, 10, span_size() / 1024})));
    EXPECT(volume.pitch >= 700 && volume.xsize == 700 && volume.ysize == 10);
    CHECK(cudaMallocPitch(&thin, &pitch, 16, 2)); /* too small for a span */
    CHECK(cudaFree(rows));
    CHECK(cudaFree(volume.ptr));
    CHECK(cudaFree(thin));
    CHECK(cudaDeviceSynchronize());
    puts("ok");
    return 0;
}
END
    run_probe shapes
    goes_on
    said
    sound
    equal 2 "$(report allocations)" spans
    equal 1 "$(report passthrough.small)" "small allocations"
}

@test "sizes under PENSTOCK_MIN_SPAN go to the real allocator and are counted" {
    requires cc jq
    build_probe sizes <<'END'
int main(void)
{
    size_t sizes[] = {1, 4096, 100000, 131071, 131072, 131073, 1 << 20};
    void *memory[7], *ordered[7];

    for (int i = 0; i < 7; i++) {
        CHECK(cudaMalloc(&memory[i], sizes[i]));
        CHECK(cudaMallocAsync(&ordered[i], sizes[i], NULL));
        CHECK(cudaMemset(memory[i], i, sizes[i]));
    }
    for (int i = 0; i < 7; i++) {
        CHECK(cudaFree(memory[i]));
        CHECK(cudaFreeAsync(ordered[i], NULL));
    }
    CHECK(cudaDeviceSynchronize());
    puts("ok");
    return 0;
}
END
    run_penstock PENSTOCK_MIN_SPAN=128KiB ./sizes
    goes_on
    said
    sound
    equal 6 "$(report allocations)" spans
    equal 8 "$(report passthrough.small)" "small allocations"
    [ "$DEVICE" != sim ] || equal "4 4" "$(ledger 'made | "\(.plain) \(.pooled)"')" "allocations by the real functions"
}

@test "sharing memory with another process gets CUDA's error, and one line names a working remedy" {
    requires cc
    build_probe shares <<'END'
int main(void)
{
    cudaIpcMemHandle_t handle;
    void *span = new_span(1, NULL), *other = NULL;

    CHECK(cudaMalloc(&other, 2 * span_size()));
    printf("one: %s\n", cudaGetErrorName(cudaIpcGetMemHandle(&handle, span)));
    cudaGetLastError();
    printf("two: %s\n", cudaGetErrorName(cudaIpcGetMemHandle(&handle, other)));
    EXPECT(holds(span, 1, NULL));
    puts("ok");
    return 0;
}
END
    run_sim PROBE_SPAN=$PROBE_SPAN ./shares
    contains "$output" '^one: cudaSuccess$'
    run_probe shares
    goes_on
    contains "$output" '^one: cudaErrorInvalidValue$'
    said "cudaIpcGetMemHandle: .*PENSTOCK_RULES='plain size>=$PROBE_SPAN size<=$PROBE_SPAN'"
    run_probe shares PENSTOCK_RULES="plain size>=$PROBE_SPAN size<=$PROBE_SPAN"
    goes_on
    contains "$output" '^one: cudaSuccess$'
    contains "$output" '^two: cudaErrorInvalidValue$'
    equal 1 "$(report passthrough.plain)" "allocations left to CUDA"
    equal $((2 * PROBE_SPAN)) "$(report peak_demand_bytes)" "bytes in spans"
}
