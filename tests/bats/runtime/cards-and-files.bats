#!/usr/bin/env bats
# Memory that hardware outside the GPU reaches: network cards and files' storage. A span given to
# them stays in place for them. Where a span can't be given, one line names the remedy.

load ../../lib/helper
load ../../lib/small_trainer

setup() { helper_setup 60; }

PLAIN="plain size>=$PROBE_SPAN size<=$PROBE_SPAN"

# said_what_helps CALL: that line is the only one.
said_what_helps() { said "$1: an allocation of $PROBE_SPAN bytes .*PENSTOCK_RULES='$PLAIN'"; }

# build_card: a card that was given the first of several spans as a dma-buf. The simulated driver's
# dma-buf shows the pages, past the mapping. So the test sees whether the card reads the program's
# writes while all other spans push each other out. GIVEN=away: the span has been moved to the host
# before.
build_card() {
    build_probe card <<'END'
#include <dlfcn.h>

#define COUNT 12

/* Returns the first and the last byte of the span as the card sees them, or -1 if they differ. */
static int seen(int card, off_t start)
{
    unsigned char first = 0, last = 0;

    EXPECT(pread(card, &first, 1, start) == 1 && pread(card, &last, 1, start + (off_t)span_size() - 1) == 1);
    return first == last ? first : -1;
}

int main(void)
{
    CUresult (*export)(void *, CUdeviceptr, size_t, CUmemRangeHandleType, unsigned long long);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    cudaStream_t stream;
    void *span[COUNT];
    int card = -1;

    *(void **)&export = dlsym(driver, "cuMemGetHandleForAddressRange");
    EXPECT(export);
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < COUNT; i++) span[i] = new_span(50 + i, stream);
    if (!strcmp(getenv("GIVEN"), "away"))
        for (int i = 1; i < COUNT; i++) EXPECT(holds(span[i], 50 + i, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(export(&card, (CUdeviceptr)span[0], span_size(), CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) == CUDA_SUCCESS && card >= 0);
    off_t start = lseek(card, 0, SEEK_CUR);
    EXPECT(seen(card, start) == 50); /* a card waits for no stream */
    for (int round = 0; round < 6; round++) {
        CHECK(cudaMemsetAsync(span[0], 100 + round, span_size(), stream));
        for (int i = 1; i < COUNT; i++) CHECK(cudaMemsetAsync(span[i], round + i, span_size(), stream));
        for (int i = 1; i < COUNT; i++) EXPECT(holds(span[i], round + i, stream));
        CHECK(cudaStreamSynchronize(stream));
        EXPECT(seen(card, start) == 100 + round);
        unsigned char byte = (unsigned char)(200 + round);
        EXPECT(pwrite(card, &byte, 1, start) == 1);
        CHECK(cudaMemcpy(&byte, span[0], 1, cudaMemcpyDeviceToHost));
        EXPECT(byte == 200 + round); /* and the card writes there, too */
    }
    close(card);
    for (int i = 0; i < COUNT; i++) CHECK(cudaFree(span[i]));
    CHECK(cudaDeviceSynchronize());
    puts("ok");
    return 0;
}
END
}

@test "a span given to a card as a dma-buf stays on its pages, after a reload if it was away" {
    requires sim cc
    build_card
    local guard given sched
    for guard in auto host unmap; do
        for given in there away; do
            for sched in threads 1 2 3 4; do
                run_probe card PENSTOCK_BUDGET=$((5 * PROBE_SPAN)) PENSTOCK_GUARD=$guard GIVEN=$given \
                    CUDASIM_SCHED="$([ $sched = threads ] && echo threads || echo seeded)" CUDASIM_SEED=${sched/threads/0} CUDASIM_H2D_GBPS=1
                goes_on
                said
                sound untouched
                counted evictions
                [ $given != away ] || counted demand_reloads
            done
        done
    done
}

@test "a card does not write to pages that the former owner still writes" {
    requires sim cc
    build_probe reused <<'END'
#include <dlfcn.h>

int main(void)
{
    CUresult (*export)(void *, CUdeviceptr, size_t, CUmemRangeHandleType, unsigned long long);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *former, *span;
    unsigned char byte = 77;
    int card = -1;

    *(void **)&export = dlsym(driver, "cuMemGetHandleForAddressRange");
    for (int i = 0; i < 4; i++) {
        CHECK(cudaMalloc(&former, span_size()));
        CHECK(cudaMemsetAsync(former, 9, span_size(), NULL));
        CHECK(cudaFree(former));
        CHECK(cudaMalloc(&span, span_size()));
        EXPECT(span == former);
        EXPECT(export(&card, (CUdeviceptr)span, span_size(), CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) == CUDA_SUCCESS);
        EXPECT(pwrite(card, &byte, 1, lseek(card, 0, SEEK_CUR)) == 1);
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaMemcpy(&byte, span, 1, cudaMemcpyDeviceToHost));
        EXPECT(byte == 77);
        close(card);
        CHECK(cudaFree(span));
    }
    puts("ok");
    return 0;
}
END
    local seed
    for seed in 1 2 3 4 5 6; do
        run_probe reused CUDASIM_SCHED=seeded CUDASIM_SEED=$seed
        goes_on
        said
    done
}

@test "for a setting needed before registration the error is the driver's, and one line names a working remedy" {
    requires sim cc
    build_probe asks "-L$SIM" -l:libcuda.so.1 <<'END'
int main(void)
{
    unsigned on = 1, off = 0;
    void *span[12];

    for (int i = 0; i < 12; i++) span[i] = new_span(i, NULL);
    for (int i = 0; i < 12; i++) EXPECT(holds(span[i], i, NULL));
    printf("off: %d\n", cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (CUdeviceptr)span[0]) == CUDA_SUCCESS);
    if (getenv("ON"))
        for (int i = 0; i < 12; i++)
            printf("on: %d\n", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (CUdeviceptr)span[i]));
    for (int i = 0; i < 12; i++) EXPECT(holds(span[i], i, NULL));
    puts("ok");
    return 0;
}
END
    local guard
    for guard in host unmap; do
        run_probe asks PENSTOCK_BUDGET=$((5 * PROBE_SPAN)) PENSTOCK_GUARD=$guard
        goes_on
        said
        run_probe asks PENSTOCK_BUDGET=$((5 * PROBE_SPAN)) PENSTOCK_GUARD=$guard ON=1
        goes_on
        equal 12 "$(grep -c '^on: 801$' <<<"$output")" "answers of the driver's, not supported"
        said_what_helps cuPointerSetAttribute
        counted evictions
    done
    run_probe asks PENSTOCK_RULES="$PLAIN" ON=1
    goes_on
    said
    equal 12 "$(grep -c '^on: 0$' <<<"$output")" "answers of the driver's"
}

# build_storage: a libcufile that keeps the pages of registered memory, past every hook, as the real
# driver does. Without STORAGE=1 it refuses mapped memory, as the real one does.
build_storage() {
    build_probe libcufile.so.0 -shared -fPIC -Wl,-soname,libcufile.so.0 "-L$SIM" -l:libcuda.so.1 <<'END'
#include <dlfcn.h>

typedef struct {
    int err;
    CUresult cu_err;
} answer;

static int pages = -1;

static void *past(const char *name)
{
    void *(*real)(void *, const char *) = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");

    if (!real) real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return real(dlopen("libcuda.so.1", RTLD_NOW), name);
}

answer cuFileBufRegister(const void *address, size_t bytes, int flags);
answer cuFileBufRegister(const void *address, size_t bytes, int flags)
{
    __typeof__(&cuMemGetHandleForAddressRange) export = past("cuMemGetHandleForAddressRange");
    __typeof__(&cuMemRetainAllocationHandle) retain = past("cuMemRetainAllocationHandle");
    CUmemGenericAllocationHandle handle;

    if (retain(&handle, (void *)address) == CUDA_SUCCESS) {
        EXPECT(cuMemRelease(handle) == CUDA_SUCCESS);
        if (!getenv("STORAGE")) return (answer){5013, 0};
    }
    return (answer){flags || export(&pages, (CUdeviceptr)address, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) ? 5011 : 0, 0};
}

answer cuFileBufDeregister(const void *address);
answer cuFileBufDeregister(const void *address)
{
    return (answer){address && !close(pages) ? 0 : 5024, 0};
}

int storage_sees(void);
int storage_sees(void)
{
    unsigned char byte = 0;

    EXPECT(pread(pages, &byte, 1, lseek(pages, 0, SEEK_CUR)) == 1);
    return byte;
}
END
    build_probe files "$@" <<'END'
#include <dlfcn.h>

#define COUNT 12

typedef struct {
    int err;
    CUresult cu_err;
} answer;
answer cuFileBufRegister(const void *address, size_t bytes, int flags);
answer cuFileBufDeregister(const void *address);
int storage_sees(void);

/* Uses all other spans, so that the first one has been idle longest. */
static void use_others(void **span, int value)
{
    for (int i = 1; i < COUNT; i++) CHECK(cudaMemset(span[i], value + i, span_size()));
    for (int i = 1; i < COUNT; i++) EXPECT(holds(span[i], value + i, NULL));
}

int main(void)
{
#ifdef LINKED
    __typeof__(&cuFileBufRegister) keep = cuFileBufRegister;
    __typeof__(&cuFileBufDeregister) give_back = cuFileBufDeregister;
    __typeof__(&storage_sees) sees = storage_sees;
#else
    void *cufile = dlopen("libcufile.so.0", RTLD_NOW);
    __typeof__(&cuFileBufRegister) keep = (__typeof__(keep))dlsym(cufile, "cuFileBufRegister");
    __typeof__(&cuFileBufDeregister) give_back = (__typeof__(give_back))dlsym(cufile, "cuFileBufDeregister");
    __typeof__(&storage_sees) sees = (__typeof__(sees))dlsym(cufile, "storage_sees");
#endif
    void *span[COUNT];
    unsigned type = 0;

    for (int i = 0; i < COUNT; i++) span[i] = new_span(50 + i, NULL);
    use_others(span, 0);
    int result = keep(span[0], span_size(), 0).err;
    printf("kept: %d\n", result);
    for (int round = 0; !result && round < 5 && getenv("STORAGE"); round++) {
        CHECK(cudaMemset(span[0], 100 + round, span_size()));
        use_others(span, round);
        EXPECT(sees() == 100 + round);
    }
    if (!result) printf("given back: %d\n", give_back(span[0]).err);
    use_others(span, 7);
    /* Asks past our hooks whether the span has left. */
    void *(*real)(void *, const char *) = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (!real) real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    __typeof__(&cuPointerGetAttribute) ask = (__typeof__(ask))real(dlopen("libcuda.so.1", RTLD_NOW), "cuPointerGetAttribute");
    printf("left: %d\n", ask(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)span[0]) != CUDA_SUCCESS || type == CU_MEMORYTYPE_HOST);
    puts("ok");
    return 0;
}
END
}

@test "memory registered with cuFile stays on its pages until it is given back, and a refusal names the remedy" {
    requires sim cc
    local linked
    for linked in no yes; do
        if [ $linked = yes ]; then
            build_storage -DLINKED -L. -l:libcufile.so.0 "-L$SIM" -l:libcuda.so.1 "-Wl,-rpath,$WORK"
        else
            build_storage "-Wl,-rpath,$WORK"
        fi
        run_probe files PENSTOCK_BUDGET=$((5 * PROBE_SPAN)) PENSTOCK_GUARD=unmap STORAGE=1
        goes_on
        said
        contains "$output" '^kept: 0$'
        contains "$output" '^given back: 0$'
        contains "$output" '^left: 1$'
        counted evictions
        run_probe files PENSTOCK_BUDGET=$((5 * PROBE_SPAN))
        goes_on
        contains "$output" '^kept: 5013$'
        said_what_helps cuFileBufRegister
        run_probe files PENSTOCK_RULES="$PLAIN"
        goes_on
        contains "$output" '^kept: 0$'
        said
    done
}

@test "a card's registration by address (libibverbs) gets its own error, and one line names a working remedy" {
    requires sim cc
    # The kernel gets this answer from the driver itself. The library has a name of NVIDIA's, so it
    # gets the driver's functions.
    build_probe libnvidia_peermem.so -shared -fPIC -Wl,-soname,libnvidia_peermem.so <<'END'
#include <dlfcn.h>

int is_mapped(void *address);
int is_mapped(void *address)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CUresult (*retain)(CUmemGenericAllocationHandle *, void *), (*release)(CUmemGenericAllocationHandle);
    CUmemGenericAllocationHandle handle;

    *(void **)&retain = dlsym(driver, "cuMemRetainAllocationHandle");
    *(void **)&release = dlsym(driver, "cuMemRelease");
    return retain(&handle, address) == CUDA_SUCCESS && release(handle) == CUDA_SUCCESS;
}
END
    build_probe libibverbs.so.1 -shared -fPIC -Wl,-soname,libibverbs.so.1 -L. -l:libnvidia_peermem.so "-Wl,-rpath,$WORK" <<'END'
#include <errno.h>

int is_mapped(void *address);

/*
 * As the kernel with nvidia_peermem: it does not take mapped memory for the GPU's. ACCEPTS=1: it
 * accepts anything.
 */
static void *region_of(void *domain, void *address, size_t bytes, int access)
{
    static int region;

    if (!getenv("ACCEPTS") && is_mapped(address)) {
        errno = EFAULT;
        return NULL;
    }
    return domain && bytes && access == 7 ? &region : NULL;
}

void *ibv_reg_mr(void *domain, void *address, size_t bytes, int access);
void *ibv_reg_mr(void *domain, void *address, size_t bytes, int access)
{
    return region_of(domain, address, bytes, access);
}

void *ibv_reg_mr_iova2(void *domain, void *address, size_t bytes, uint64_t remote, unsigned access);
void *ibv_reg_mr_iova2(void *domain, void *address, size_t bytes, uint64_t remote, unsigned access)
{
    return remote == (uint64_t)address ? region_of(domain, address, bytes, (int)access) : NULL;
}
END
    build_probe registers -L. -l:libibverbs.so.1 "-L$SIM" -l:libcuda.so.1 "-Wl,-rpath,$WORK" <<'END'
#include <errno.h>

void *ibv_reg_mr(void *domain, void *address, size_t bytes, int access);
void *ibv_reg_mr_iova2(void *domain, void *address, size_t bytes, uint64_t remote, unsigned access);

int main(void)
{
    int domain, there = 1;
    void *span = new_span(5, NULL), *host = malloc(4096);

    EXPECT(ibv_reg_mr(&domain, host, 4096, 7)); /* memory that is not the GPU's goes through */
    errno = 0;
    there = getenv("OTHER") ? ibv_reg_mr_iova2(&domain, span, span_size(), (uint64_t)span, 7) != NULL
                            : ibv_reg_mr(&domain, span, span_size(), 7) != NULL;
    printf("there: %d, error %d\n", there, errno);
    EXPECT(holds(span, 5, NULL));
    puts("ok");
    return 0;
}
END
    local call
    for call in ibv_reg_mr ibv_reg_mr_iova2; do
        [ $call = ibv_reg_mr ] || export OTHER=1
        run_probe registers
        goes_on
        contains "$output" '^there: 0, error 14$'
        said_what_helps $call
        run_probe registers PENSTOCK_RULES="$PLAIN"
        goes_on
        contains "$output" '^there: 1, error 0$'
        said
        run_probe registers ACCEPTS=1
        goes_on
        contains "$output" '^there: 1, error 0$'
        said
        # A span without pages must not be given to a card: its present memory will not stay.
        run_probe registers ACCEPTS=1 PENSTOCK_BUDGET=0
        goes_on
        contains "$output" '^there: 0, error 12$'
        said_what_helps $call
    done
}
