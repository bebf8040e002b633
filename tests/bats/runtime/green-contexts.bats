#!/usr/bin/env bats
# Green contexts: memory that is used on their streams moves as other memory does, also where one is
# current, and stays right when they go away.

load ../../lib/helper
load ../../lib/small_trainer

setup() { helper_setup 60; requires sim samples jq; }

@test "memory used in green contexts is managed and right, under every budget, guard, tracer and scheduler" {
    local case budget guard tracer scheduler
    export CUDASIM_PATIENCE_MS=60000 # its streams wait for words that its threads write
    while IFS=: read -r case budget guard tracer scheduler; do
        hostile $case PENSTOCK_BUDGET=$budget PENSTOCK_GUARD=$guard PENSTOCK_TRACER=$tracer CUDASIM_SCHED=$scheduler
        { goes_on && sound untouched && counted evictions && lacks "$output" 'the driver refused'; } ||
            { echo "$case under $budget, $guard, $tracer, $scheduler" >&2 && return 1; }
    done < <(some_of 3 {green-streams,green-current,green-first}:{8MiB,16MiB}:{host:hook,unmap:cupti}:{threads,seeded})
}

@test "a program that never leaves the green context, and destroys it at the end, is managed" {
    build_probe inside "-L$SIM" -l:libcuda.so.1 <<'END'
int main(void)
{
    CUdevResource all;
    CUdevResourceDesc descriptor;
    CUgreenCtx green;
    CUcontext context, is;
    void *span[48];

    EXPECT(cuInit(0) == CUDA_SUCCESS);
    EXPECT(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS);
    EXPECT(cuDevResourceGenerateDesc(&descriptor, &all, 1) == CUDA_SUCCESS);
    EXPECT(cuGreenCtxCreate(&green, descriptor, 0, CU_GREEN_CTX_DEFAULT_STREAM) == CUDA_SUCCESS);
    EXPECT(cuCtxFromGreenCtx(&context, green) == CUDA_SUCCESS);
    EXPECT(cuCtxSetCurrent(context) == CUDA_SUCCESS);
    for (int i = 0; i < 48; i++)
        span[i] = new_span(i, NULL);
    EXPECT(cuCtxGetCurrent(&is) == CUDA_SUCCESS && is == context); /* it is current as before */
    for (int i = 0; i < 48; i++)
        EXPECT(holds(span[i], i, NULL));
    for (int i = 0; i < 48; i++)
        CHECK(cudaFree(span[i]));
    /* The last retain of the primary context is the green one's. */
    EXPECT(cuGreenCtxDestroy(green) == CUDA_SUCCESS);
    puts("ok");
    return 0;
}
END
    run_probe inside
    goes_on
    sound
    counted evictions
}
