#!/usr/bin/env bats
# Textures over linear memory: kernels fetch by a handle that names no parameter's address, so the
# memory stays where it is while the texture exists. tests/bats/memory/ordering-rules.bats shows
# that this fails without the rule.

load ../../lib/helper
load ../../lib/small_trainer

setup() { helper_setup 60; requires sim samples jq; }

@test "kernels fetch the right bytes through textures, under every budget, guard and tracer" {
    local budget guard tracer
    while IFS=: read -r budget guard tracer; do
        hostile texture PENSTOCK_BUDGET=$budget PENSTOCK_GUARD=$guard PENSTOCK_TRACER=$tracer
        { goes_on && sound untouched && said; } || { echo "under $budget, $guard, $tracer" >&2 && return 1; }
    done < <(some_of 3 {0,12MiB,24MiB,200MiB}:{auto,host,unmap}:{hook,cupti})
}

# Textures over spans 0 to 3, of both kinds, by the driver and by the runtime. The other spans push
# out those that may leave. A span that is away can't be read at its address under the guard
# `unmap`.
@test "a texture's memory stays while the texture exists, and may leave after its end or refusal" {
    requires cc
    build_probe textures <<'END'
#include <dlfcn.h>
#include <sys/uio.h>

#define COUNT 14

static void *span[COUNT];
static cudaStream_t stream;

static int is_there(const void *address)
{
    char byte;
    struct iovec to = {&byte, 1}, from = {(void *)address, 1};

    return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1;
}

/* Returns whether span i is there after all spans from 4 on were used. */
static int stays(int i)
{
    for (int k = 4; k < COUNT; k++) EXPECT(holds(span[k], 50 + k, stream));
    return is_there(span[i]);
}

int main(void)
{
    CUresult (*create)(CUtexObject *, const CUDA_RESOURCE_DESC *, const CUDA_TEXTURE_DESC *, const CUDA_RESOURCE_VIEW_DESC *);
    CUresult (*destroy)(CUtexObject);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CUDA_RESOURCE_DESC linear = {.resType = CU_RESOURCE_TYPE_LINEAR}, rows = {.resType = CU_RESOURCE_TYPE_PITCH2D};
    struct cudaResourceDesc of_runtime = {.resType = cudaResourceTypeLinear}, rows_of_runtime = {.resType = cudaResourceTypePitch2D};
    const CUDA_TEXTURE_DESC plain = {0};
    const struct cudaTextureDesc plain_of_runtime = {0};
    CUtexObject by_driver[2], refused;
    cudaTextureObject_t by_runtime[2];

    *(void **)&create = dlsym(driver, "cuTexObjectCreate");
    *(void **)&destroy = dlsym(driver, "cuTexObjectDestroy");
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < COUNT; i++) span[i] = new_span(50 + i, stream);
    CHECK(cudaStreamSynchronize(stream));

    linear.res.linear.devPtr = (CUdeviceptr)span[0];
    linear.res.linear.sizeInBytes = span_size();
    rows.res.pitch2D.devPtr = (CUdeviceptr)span[1];
    rows.res.pitch2D.width = rows.res.pitch2D.pitchInBytes = 4096;
    rows.res.pitch2D.height = 4;
    of_runtime.res.linear.devPtr = span[2];
    of_runtime.res.linear.sizeInBytes = span_size();
    rows_of_runtime.res.pitch2D.devPtr = (char *)span[3] + 4096; /* in its middle */
    rows_of_runtime.res.pitch2D.width = rows_of_runtime.res.pitch2D.pitchInBytes = 4096;
    rows_of_runtime.res.pitch2D.height = 4;
    for (int i = 0; i < 4; i++) EXPECT(!stays(i));
    EXPECT(create(&by_driver[0], &linear, &plain, NULL) == CUDA_SUCCESS);
    EXPECT(create(&by_driver[1], &rows, &plain, NULL) == CUDA_SUCCESS);
    CHECK(cudaCreateTextureObject(&by_runtime[0], &of_runtime, &plain_of_runtime, NULL));
    CHECK(cudaCreateTextureObject(&by_runtime[1], &rows_of_runtime, &plain_of_runtime, NULL));
    for (int i = 0; i < 4; i++) EXPECT(stays(i) && *(unsigned char *)span[i] == 50 + i);

    /* The span may leave after the last of its two textures is destroyed. */
    EXPECT(create(&refused, &linear, &plain, NULL) == CUDA_SUCCESS);
    EXPECT(destroy(refused) == CUDA_SUCCESS && stays(0));
    EXPECT(destroy(by_driver[0]) == CUDA_SUCCESS && !stays(0) && stays(1));
    EXPECT(destroy(by_driver[0]) == CUDA_ERROR_INVALID_VALUE && stays(1));
    EXPECT(destroy(by_driver[1]) == CUDA_SUCCESS && !stays(1) && stays(2));
    CHECK(cudaDestroyTextureObject(by_runtime[0]));
    EXPECT(!stays(2) && stays(3));
    CHECK(cudaDestroyTextureObject(by_runtime[1]));
    EXPECT(!stays(3));

    /* The sixth and the seventh creation are refused. */
    EXPECT(create(&refused, &linear, &plain, NULL) != CUDA_SUCCESS && !stays(0));
    EXPECT(cudaCreateTextureObject(&by_runtime[0], &of_runtime, &plain_of_runtime, NULL) != cudaSuccess && !stays(2));
    EXPECT(create(NULL, &linear, &plain, NULL) == CUDA_ERROR_INVALID_VALUE && create(&refused, NULL, &plain, NULL) == CUDA_ERROR_INVALID_VALUE);
    linear.resType = CU_RESOURCE_TYPE_ARRAY;
    EXPECT(create(&refused, &linear, &plain, NULL) == CUDA_ERROR_NOT_SUPPORTED);

    for (int i = 0; i < COUNT; i++) EXPECT(holds(span[i], 50 + i, stream));
    for (int i = 0; i < COUNT; i++) CHECK(cudaFree(span[i]));
    CHECK(cudaStreamDestroy(stream));
    puts("ok");
    return 0;
}
END
    textured() {
        run_probe textures PENSTOCK_BUDGET=$((6 * PROBE_SPAN)) PENSTOCK_GUARD=unmap PENSTOCK_TRACER="$1" PENSTOCK_GRACE=0 \
            CUDASIM_FAULT=cuTexObjectCreate:error@6,cuTexObjectCreate:error@7 \
            CUDASIM_SCHED="$([ "$2" = threads ] && echo threads || echo seeded)" CUDASIM_SEED="${2/threads/0}"
        goes_on && sound && said && at_most "$(quiet_or 5 0)" "$(report accesses_on_slot)" "accesses on slots"
    }
    local tracer sched
    for tracer in cupti hook; do
        for sched in threads 1 2 3; do
            # On a busy machine a span may get no pages in time. Then it is on its slot, where the
            # processor can't read.
            textured $tracer $sched || { [ "$(quiet_or busy quiet)" = busy ] && textured $tracer $sched; } ||
                { echo "$tracer, $sched" >&2 && return 1; }
        done
    done
}
