#!/usr/bin/env bats
# The two tracers, CUPTI and functions in front of the driver's: they see the same, and the second needs no CUPTI. Look-ups of what is not ours
# are what they are without Penstock.

load helper
load small_trainer

setup() { helper_setup 60; }

traced_names() { "$ROOT/scripts/exports" list | grep -E '^cu[A-Z]'; }

# build_finder: says in whose library a driver function lies that was looked up by dlsym and, without version and suffix, by cuGetProcAddress
build_finder() {
    build_probe finder <<'END_OF_C'
#include <dlfcn.h>

static const char *library_of(void *function)
{
    Dl_info info;
    return function && dladdr(function, &info) ? strrchr(info.dli_fname, '/') + 1 : "nowhere";
}

/* By the name that cuGetProcAddress takes: what it is called in cuda.h, and the newest. */
static void *by_cuda(void *driver, const char *name)
{
    CUresult (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *) =
        (__typeof__(get))dlsym(driver, "cuGetProcAddress_v2");
    char base[128], *suffix;
    cuuint64_t flags = strstr(name, "_pt") ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    CUdriverProcAddressQueryResult status;
    void *function = NULL;

    snprintf(base, sizeof base, "%s", name);
    if ((suffix = strstr(base, "_pt"))) *suffix = '\0';
    if ((suffix = strstr(base, "_v2"))) *suffix = '\0';
    EXPECT(get && get(base, &function, CUDA_VERSION, flags, &status) == CUDA_SUCCESS);
    return function;
}

int main(int argc, char **argv)
{
    CHECK(cudaFree(NULL));
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    EXPECT(driver);
    for (int i = 1; i < argc; i++) {
        void *plain = dlsym(driver, argv[i]);
        printf("%s %s %s\n", argv[i], library_of(plain), library_of(by_cuda(driver, argv[i])));
    }
    return 0;
}
END_OF_C
}

@test "a look-up gives our function of that name under hook; under cupti those that trace are the driver's" {
    requires cc
    build_finder
    local names
    mapfile -t names < <(traced_names)
    at_least 60 "${#names[@]}" "functions in front of the driver's"
    run_penstock PENSTOCK_TRACER=hook "$WORK/finder" "${names[@]}"
    ended_with 0
    equal "${#names[@]}" "$(grep -cE '^\w+ libpenstock\.so libpenstock\.so$' <<<"$output")" "functions of ours"
    local hooks
    hooks=$(sed -nE 's/^PS_HOOK_CUDA(_MEMORY)?\([^,]*, *(\w+) *,.*/\2/p' "$ROOT/shim/hooks.def" | wc -l)
    at_least 20 "$hooks" "hooks"
    run_penstock PENSTOCK_TRACER=cupti "$WORK/finder" "${names[@]}" cuCtxGetCurrent
    ended_with 0
    equal $((${#names[@]} - hooks + 1)) "$(grep -cE '^\w+ libcuda\.so\S* ' <<<"$output")" "functions of the driver's" # by name without version it may be a hook
    equal "$hooks" "$(grep -cE '^\w+ libpenstock\.so libpenstock\.so$' <<<"$output")" "functions of ours under cupti"
    # What we have no function for stays the driver's.
    run_penstock PENSTOCK_TRACER=hook "$WORK/finder" cuCtxGetCurrent cuEventRecord cuEventRecord_ptsz
    ended_with 0
    equal 3 "$(grep -cE '^\w+ libcuda\.so\S* libcuda\.so\S*$' <<<"$output")" "functions of the driver's"
    run_penstock PENSTOCK_TRACER=hook PENSTOCK_DISABLE=1 "$WORK/finder" "${names[@]}"
    equal "${#names[@]}" "$(grep -cE '^\w+ libcuda\.so\S* libcuda\.so\S*$' <<<"$output")" "functions of the driver's, disabled"
}

# seen_by TRACER COMMAND...: runs it under a tracer; launches and copies that were seen, then what it printed
seen_by() {
    local tracer=$1
    shift
    run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET="${BYTES:-24MiB}" "PENSTOCK_TRACER=$tracer" "$@"
    ended_with 0 || return 1
    equal "$tracer" "$(report tracer)" tracer || return 1
    equal 0 "$(report launches_without_layout)" "launches that could not be read" || return 1
    printf '%s launches, %s copies\n' "$(report launches)" "$(report copies_seen)"
    grep -v '^penstock: ' <<<"$output"
}

@test "both tracers see the same launches and copies, as many as there were" {
    local way
    BYTES=$(share 55)
    for way in '' --streams=2 '--streams=2 --threads=2' --alloc=async '--halves=2 --alloc=async' --shapes=3 --skew; do
        # shellcheck disable=SC2086 # several words
        seen_by cupti "${TRAINER[@]}" $way >cupti || { cat cupti && return 1; }
        # shellcheck disable=SC2086
        seen_by hook "${TRAINER[@]}" $way >hook || { cat hook && return 1; }
        at_least 1 "$(report evictions)" "evictions"
        diff cupti hook
        contains "$(cat hook)" '^[1-9][0-9]+ launches, [1-9][0-9]* copies$'
        [ "$DEVICE" != sim ] || equal "$(ledger kernels_run) launches" "$(head -n 1 hook | sed 's/,.*//')" "launches on the device"
    done
}

@test "both tracers see the same of programs that are no trainers" {
    local case
    for case in views struct-parameter few-pointers many-pointers copies default-stream stream-destroy free-in-use free-async-in-use churn; do
        seen_by cupti "$SAMPLES/hostile" $case 8 4 >cupti || { cat cupti && return 1; }
        seen_by hook "$SAMPLES/hostile" $case 8 4 >hook || { cat hook && return 1; }
        diff cupti hook || { echo "of $case" >&2 && return 1; }
    done
    sound untouched
}

@test "with CUPTI taken, a tool that is announced, or no CUPTI at all, launches are seen all the same" {
    requires sim
    train CUDASIM_CUPTI_TAKEN=1 PENSTOCK_TRACER=hook
    right_results
    said
    equal hook "$(report tracer)" tracer
    counted evictions
    for announced in CUDA_INJECTION64_PATH=/opt/tool.so NSYS_PROFILING_SESSION_ID=7 NV_SANITIZER_INJECTION_PORT_BASE=1; do
        train CUDASIM_CUPTI_TAKEN=1 "$announced"
        right_results
        said
        equal hook "$(report tracer)" "tracer with $announced"
        counted evictions
    done
    train PENSTOCK_CUPTI= CUDA_INJECTION64_PATH=/opt/tool.so PENSTOCK_TRACER=cupti
    right_results
    equal cupti "$(report tracer)" "tracer that was asked for"
    train PENSTOCK_TRACER=auto
    equal cupti "$(report tracer)" "tracer where nothing is announced"
}

@test "a tool that takes CUPTI unannounced: Penstock stands aside and says what would help" {
    requires sim
    train CUDASIM_CUPTI_TAKEN=1
    right_results
    said 'another tool .* has subscribed to CUPTI.*PENSTOCK_TRACER=hook'
}

@test "under auto's budget tracing starts late, by hooks too" {
    requires sim
    local need
    need=$(share 100)
    train PENSTOCK_TRACER=hook PENSTOCK_BUDGET=auto PENSTOCK_RESERVE=$((need / 5)) CUDASIM_MEMORY=$((need * 9 / 10)) PENSTOCK_LOG=info
    right_results
    contains "$output" 'launches are traced from now on: three quarters'
    equal hook "$(report tracer)" tracer
    counted evictions
}

@test "a program that is linked with the driver, or finds it by dlsym, is seen" {
    requires cc
    # The wheels' toolkit has no stub of the driver: the driver itself will do.
    build_probe driver_calls "-L$SIM" -l:libcuda.so.1 <<'END_OF_C'
#include <dlfcn.h>

int main(void)
{
    enum { SPANS = 12, ROUNDS = 4 };
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CUresult (*fill)(CUdeviceptr, unsigned char, size_t, CUstream) = (__typeof__(fill))dlsym(driver, "cuMemsetD8Async");
    CUresult (*copy)(CUdeviceptr, CUdeviceptr, size_t) = (__typeof__(copy))dlsym(driver, "cuMemcpy_ptds");
    void *span[SPANS], *other;

    EXPECT(fill && copy);
    CHECK(cudaMalloc(&other, span_size()));
    for (int i = 0; i < SPANS; i++) span[i] = new_span(i, NULL);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < SPANS; i++) {
            EXPECT(cuMemsetD8_v2((CUdeviceptr)other, 200, span_size()) == CUDA_SUCCESS);
            EXPECT(fill((CUdeviceptr)span[i], (unsigned char)(i + round), span_size(), NULL) == CUDA_SUCCESS);
            EXPECT(copy((CUdeviceptr)other, (CUdeviceptr)span[i], span_size()) == CUDA_SUCCESS);
            EXPECT(holds(other, i + round, NULL));
        }
    puts("ok");
    return 0;
}
END_OF_C
    local tracer seen=
    for tracer in cupti hook; do
        run_probe driver_calls PENSTOCK_TRACER=$tracer PENSTOCK_BUDGET=$((6 * PROBE_SPAN))
        goes_on
        sound untouched
        counted evictions
        [ -z "$seen" ] || equal "$seen" "$(report copies_seen)" "copies seen"
        seen=$(report copies_seen)
    done
    # Four calls each time round, and each span's first.
    equal $((12 * 4 * 4 + 12)) "$seen" "copies and fills"
}

@test "captures begun and ended by the program are seen by hooks as by CUPTI" {
    local case
    for case in $("$SAMPLES/hostile" --list | awk '/captur|graph/ { print $1 }'); do
        seen_by hook "$SAMPLES/hostile" "$case" 8 4
    done
}

# --- dlsym ---------------------------------------------------------------------------------------------------------------------------------------
@test "dlsym means to its caller what it means without Penstock" {
    requires cc
    # The caller's place in the order of libraries decides what is next, and the last error is the caller's own.
    gcc -shared -fPIC -x c - -o libsecond.so <<<'const char *who(void) { return "second"; }'
    gcc -D_GNU_SOURCE -shared -fPIC -x c - -o libfirst.so <<'END_OF_C'
#include <dlfcn.h>
const char *who(void) { return "first"; }
const char *next(void) { const char *(*f)(void) = (const char *(*)(void))dlsym(RTLD_NEXT, "who"); return f ? f() : "nobody"; }
END_OF_C
    build_probe asks "-L$WORK" -Wl,--no-as-needed -lfirst -lsecond "-Wl,-rpath,$WORK" <<'END_OF_C'
#include <dlfcn.h>
extern const char *who(void), *next(void);

int main(void)
{
    void *library = dlopen("libm.so.6", RTLD_NOW);
    const char *error;

    dlerror();
    EXPECT(!strcmp(who(), "first") && !strcmp(next(), "second"));
    EXPECT(dlsym(RTLD_DEFAULT, "who") == (void *)who && dlsym(library, "cos"));
    EXPECT(!dlerror());
    EXPECT(!dlsym(library, "cuNoSuchThing") && (error = dlerror()) && strstr(error, "cuNoSuchThing"));
    EXPECT(!dlsym(library, "no_such_thing") && (error = dlerror()) && strstr(error, "no_such_thing"));
    EXPECT(!dlsym(RTLD_NEXT, "cuNoSuchThing") && dlerror());
    EXPECT(!dlerror());
    puts("ok");
    return 0;
}
END_OF_C
    local tracer
    for tracer in cupti hook; do
        run_penstock PENSTOCK_TRACER=$tracer "$WORK/asks"
        ended_with 0
        contains "$output" '^ok$'
    done
}
