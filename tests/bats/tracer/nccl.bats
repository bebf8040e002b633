#!/usr/bin/env bats
# NCCL: its calls are accesses to their buffers, which no kernel's parameters show, from before NCCL
# launches until it has launched. Memory that NCCL keeps stays where it is. And how NCCL's functions
# are found.

load ../../lib/helper
load ../../lib/small_trainer

setup() { helper_setup 60; requires sim samples jq; }

# collectives CASE [VARIABLE=VALUE]...: runs a case of the sample under Penstock, six spans of 1 MiB
# with device memory for five.
collectives() {
    local case=$1
    shift
    run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET=5MiB "$@" "$SAMPLES/collectives" "$case" 6 1
}

cases() { with_device "$SAMPLES/collectives" --list | awk '{ print $1 }'; }

nccl_names() { sed -nE 's/^PS_NCCL_(CALL|TRANSFER)\((\w+),.*/\2/p' "$ROOT/shim/cuda/nccl.def"; }

# build_nccl_probe NAME [OPTION]...: as build_probe, with NCCL's interface and, unless options are
# given, linked with NCCL.
build_nccl_probe() {
    local name=$1
    shift
    build_probe "$name" "-I$ROOT" -include "$ROOT/tests/cudasim/nccl/nccl.h" "-L$SIM" "-Wl,-rpath-link=$SIM" "${@:--l:libnccl.so.2}"
}

# --- right results --------------------------------------------------------------------------------
@test "every case computes the same as without Penstock, under scarce and ample memory, two guards and both tracers" {
    local case budget guard tracer budgets='0 4MiB 100MiB'
    ! is_short || budgets=4MiB
    for case in $(cases); do
        run_sim "$SAMPLES/collectives" "$case" 6 1
        goes_on || { echo "$case without Penstock" >&2 && return 1; }
        printf '%s\n' "$output" >plain
        for budget in $budgets; do
            for guard in auto unmap; do
                tracer=cupti
                [ $guard != auto ] || tracer=hook
                collectives "$case" PENSTOCK_BUDGET=$budget PENSTOCK_GUARD=$guard PENSTOCK_TRACER=$tracer
                { goes_on && diff plain <(grep -v '^penstock: ' <<<"$output") && sound untouched && said_with_room; } ||
                    { echo "$case under $budget, $guard, $tracer" >&2 && return 1; }
                counted nccl_calls
            done
        done
    done
}

@test "gradients are summed correctly under plans" {
    collectives buckets PENSTOCK_BUDGET=7MiB
    goes_on
    sound untouched
    # The step is found and followed with its collectives in it.
    at_least 3 "$(report plan.steps)" "steps under a plan"
    at_least 1 "$(report plan.evictions)" "planned evictions"
    equal 27 "$(report nccl_calls)" "calls of NCCL's"
}

@test "calls hold their spans even before tracing starts, and tracing may start in any of them" {
    local case
    for case in $(cases); do
        collectives "$case" PENSTOCK_BUDGET=auto PENSTOCK_RESERVE=1MiB CUDASIM_MEMORY=64MiB
        goes_on
        equal 0 "$(report evictions)" "$case: evictions with memory enough"
        counted nccl_calls
        collectives "$case" PENSTOCK_BUDGET=auto PENSTOCK_RESERVE=1MiB CUDASIM_MEMORY=8MiB PENSTOCK_GUARD=unmap
        goes_on || { echo "$case where tracing begins late" >&2 && return 1; }
        sound untouched
    done
}

@test "buffers that don't fit the device are used on their slots" {
    collectives group PENSTOCK_BUDGET=1MiB PENSTOCK_GUARD=unmap
    goes_on
    sound untouched
    counted accesses_on_slot
}

@test "communicators that don't block work, however late their thread is" {
    local delay case
    for delay in 0 200 20000; do
        for case in nonblocking watched threads; do
            collectives $case CUDASIM_NCCL_DELAY_US=$delay PENSTOCK_GUARD=unmap
            goes_on || { echo "$case, $delay us late" >&2 && return 1; }
            sound untouched
            [ $case = threads ] || counted evictions
        done
    done
}

@test "NCCL's errors reach the program, and no span is held after them" {
    collectives errors
    goes_on
    sound untouched
    counted evictions
    # The device refuses a launch of NCCL's.
    build_nccl_probe refused <<'END'
int main(void)
{
    enum { SPANS = 40 };
    void *span[SPANS];
    ncclUniqueId id;
    ncclComm_t comm;
    ncclResult_t result;

    for (int i = 0; i < SPANS; i++) span[i] = new_span(1, NULL);
    EXPECT(!ncclGetUniqueId(&id) && !ncclCommInitRank(&comm, 2, id, 0));
    result = ncclAllReduce(span[0], span[0], span_size() / 4, ncclUint32, ncclSum, comm, NULL);
    EXPECT(result == ncclUnhandledCudaError);
    for (int i = 0; i < SPANS; i++) CHECK(cudaMemsetAsync(span[i], 5, span_size(), NULL));
    EXPECT(!ncclAllReduce(span[0], span[0], span_size() / 4, ncclUint32, ncclSum, comm, NULL));
    EXPECT(holds(span[0], 10, NULL) && holds(span[1], 5, NULL));
    EXPECT(!ncclCommDestroy(comm));
    puts("ok");
    return 0;
}
END
    run_probe refused CUDASIM_FAULT=cuLaunchKernel:error@1
    goes_on
    struck
    counted evictions
}

# --- memory that NCCL keeps -----------------------------------------------------------------------
@test "registered buffers keep their pages until they are deregistered or their communicator ends" {
    # As many spans are registered as there is memory for. Then others are made and used. `way`
    # names the end of the registrations.
    build_nccl_probe keeps <<'END'
#include <pthread.h>
#include <unistd.h>

enum { KEPT = 8, SPANS = 24 };

static void *end(void *comm)
{
    CHECK(cudaSetDevice(0));
    EXPECT(!ncclCommDestroy(comm));
    return NULL;
}

int main(int argc, char **argv)
{
    void *span[SPANS], *handle[KEPT];
    ncclWindow_t window[KEPT];
    ncclRedOp_t op[KEPT];
    ncclUniqueId id;
    ncclComm_t comm;
    char way = argv[1][0];

    CHECK(cudaFree(NULL));
    EXPECT(argc == 2 && !ncclGetUniqueId(&id) && !ncclCommInitRank(&comm, 2, id, 0));
    pthread_t thread;
    if (way == 'p') { /* the pointer comes again while another thread's call that ended it is under way */
        const ncclComm_t before = comm;
        CHECK(cudaFree(new_span(0, NULL))); /* Penstock looks at NCCL from the first span on */
        EXPECT(!pthread_create(&thread, NULL, end, comm));
        usleep(300000);
        EXPECT(!ncclCommInitRank(&comm, 2, id, 0) && comm == before);
    }
    for (int i = 0; i < KEPT; i++) {
        span[i] = new_span(i, NULL);
        if (way == 'w' || way == 'W')
            EXPECT(!ncclCommWindowRegister(comm, span[i], span_size(), &window[i], 0));
        else if (way == 'o' || way == 'O')
            EXPECT(!ncclRedOpCreatePreMulSum(&op[i], span[i], ncclUint32, ncclScalarDevice, comm));
        else
            EXPECT(!ncclCommRegister(comm, span[i], span_size(), &handle[i]));
    }
    if (way == 'p') EXPECT(!pthread_join(thread, NULL));
    for (int i = 0; i < KEPT; i++) {
        if (way == 'd') EXPECT(!ncclCommDeregister(comm, handle[i]));
        if (way == 'w') EXPECT(!ncclCommWindowDeregister(comm, window[i]));
        if (way == 'o') EXPECT(!ncclRedOpDestroy(op[i], comm));
    }
    if (way == 'c') EXPECT(!ncclCommDestroy(comm));
    if (way == 'a') EXPECT(!ncclCommAbort(comm));
    for (int i = KEPT; i < SPANS; i++) span[i] = new_span(i, NULL);
    for (int i = 0; i < SPANS; i++) EXPECT(holds(span[i], i, NULL));
    if (way != 'c' && way != 'a') EXPECT(!ncclCommDestroy(comm));
    for (int i = 0; i < SPANS; i++) CHECK(cudaFree(span[i]));
    puts("ok");
    return 0;
}
END
    local way guard delay
    for guard in host unmap; do
        for way in kept W O pointer-comes-again; do
            [ $way = pointer-comes-again ] && delay=2000000 || delay=0
            run_penstock CUDASIM_NCCL_END_US=$delay PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET=$((8 * PROBE_SPAN)) PENSTOCK_GUARD=$guard PROBE_SPAN=$PROBE_SPAN ./keeps $way
            goes_on
            sound untouched
            equal 8 "$(report nccl_registrations)" "registrations"
            equal 0 "$(report evictions)" "evictions ($way, $guard)"
            at_least 16 "$(report spans_born_on_slot)" "spans for which there was no memory left"
        done
        for way in deregistered window-ends op-ends communicator-ends abort; do
            run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET=$((8 * PROBE_SPAN)) PENSTOCK_GUARD=$guard PROBE_SPAN=$PROBE_SPAN ./keeps $way
            goes_on
            sound untouched
            at_least 16 "$(report evictions)" "evictions ($way, $guard)"
        done
    done
}

@test "NCCL is told not to register by itself, unless the user chooses otherwise" {
    run_penstock sh -c 'echo "${NCCL_GRAPH_REGISTER-(unset)}"'
    equal 0 "$output" "where the user says nothing"
    local value
    for value in 0 1 ''; do
        run_penstock "NCCL_GRAPH_REGISTER=$value" sh -c 'echo "($NCCL_GRAPH_REGISTER)"'
        equal "($value)" "$output" "where the user says $value"
    done
    run_penstock PENSTOCK_DISABLE=1 sh -c 'echo "${NCCL_GRAPH_REGISTER-(unset)}"'
    equal '(unset)' "$output" "where Penstock is disabled"
    run_penstock PENSTOCK_ALLOC_CONF=0 sh -c 'echo "${NCCL_GRAPH_REGISTER-(unset)}"'
    equal 0 "$output" "where only torch's settings are to be left alone"
}

# --- how its functions are found ------------------------------------------------------------------
@test "every function of the list receives the program's calls and hides a real function" {
    build_probe who <<'END'
#include <dlfcn.h>

int main(int argc, char **argv)
{
    Dl_info first, found;
    void *nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_GLOBAL);

    EXPECT(nccl);
    for (int i = 1; i < argc; i++) {
        void *symbol = dlsym(RTLD_DEFAULT, argv[i]), *looked_up = dlsym(nccl, argv[i]);
        EXPECT(symbol && dladdr(symbol, &first) && looked_up && dladdr(looked_up, &found));
        printf("%s %s %s\n", argv[i], strrchr(first.dli_fname, '/') + 1, strrchr(found.dli_fname, '/') + 1);
    }
    return 0;
}
END
    local names
    mapfile -t names < <(nccl_names)
    at_least 30 "${#names[@]}" "calls"
    run_penstock ./who "${names[@]}"
    ended_with 0
    equal "${#names[@]}" "$(grep -cE '^\w+ libpenstock\.so libpenstock\.so$' <<<"$output")" "functions of ours"
    run nm -D --defined-only "$SIM/libnccl.so.2"
    local name
    for name in "${names[@]}"; do contains "$output" " T $name\$"; done
}

# Used by each of the next three tests with a look-up or a link of its own.
all_reduces() {
    cat <<'END'
static int all_reduces(ncclResult_t (*reduce)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t),
                       ncclResult_t (*init)(ncclComm_t *, int, ncclUniqueId, int), ncclResult_t (*destroy)(ncclComm_t))
{
    enum { SPANS = 40 };
    void *span[SPANS];
    ncclUniqueId id = {{1}};
    ncclComm_t comm;

    for (int i = 0; i < SPANS; i++) span[i] = new_span(1 + i, NULL);
    EXPECT(!init(&comm, 3, id, 0));
    for (int i = 0; i < SPANS; i++) EXPECT(!reduce(span[i], span[i], span_size() / 4, ncclUint32, ncclSum, comm, NULL));
    for (int i = 0; i < SPANS; i++) EXPECT(holds(span[i], 3 * (1 + i), NULL));
    EXPECT(!destroy(comm));
    return 0;
}
END
}

@test "calls by a program that opens NCCL and looks its functions up are seen" {
    { all_reduces && cat <<'END'; } | build_nccl_probe opens -DNDEBUG
#include <dlfcn.h>

int main(void)
{
    void *nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    EXPECT(nccl);
    all_reduces((__typeof__(&ncclAllReduce))dlsym(nccl, "ncclAllReduce"), (__typeof__(&ncclCommInitRank))dlsym(nccl, "ncclCommInitRank"),
                (__typeof__(&ncclCommDestroy))dlsym(nccl, "ncclCommDestroy"));
    EXPECT(!dlsym(nccl, "ncclNoSuchThing") && dlerror() && dlsym(nccl, "ncclGetUniqueId"));
    puts("ok");
    return 0;
}
END
    local tracer
    for tracer in cupti hook; do
        run_probe opens PENSTOCK_GUARD=unmap PENSTOCK_TRACER=$tracer
        goes_on
        sound
        equal 40 "$(report nccl_calls)" "calls of NCCL's"
        counted evictions
    done
}

@test "calls by an extension module linked with NCCL and loaded as Python loads it are seen" {
    { printf '#include "%s"\n' "$ROOT/tests/lib/probe.h" "$ROOT/tests/cudasim/nccl/nccl.h" && all_reduces && cat <<'END'; } >extension.c
int module(void) { return all_reduces(ncclAllReduce, ncclCommInitRank, ncclCommDestroy); }
END
    gcc -std=gnu11 -D_GNU_SOURCE -shared -fPIC "-I$TOOLKIT/include" -o libextension.so extension.c "-L$SIM" "-Wl,-rpath-link=$SIM" -l:libnccl.so.2
    build_probe python <<'END'
#include <dlfcn.h>

int main(void)
{
    void *extension = dlopen("./libextension.so", RTLD_NOW | RTLD_LOCAL);
    int (*module)(void) = extension ? (int (*)(void))dlsym(extension, "module") : NULL;
    CHECK(cudaFree(NULL));
    EXPECT(module && !module());
    puts("ok");
    return 0;
}
END
    run_probe python PENSTOCK_GUARD=unmap
    goes_on
    sound
    equal 40 "$(report nccl_calls)" "calls of NCCL's"
    counted evictions
}

@test "an NCCL under another name is found by the program's own look-up, and a second one is left alone" {
    gcc -shared -fPIC -Wl,-soname,libelse.so -x c - -o libelse.so <<<'int ncclGroupStart(void) { return 6; }'
    gcc -shared -fPIC -Wl,-soname,libmore.so -x c - -o libmore.so <<<'int ncclGroupStart(void) { return 4; }'
    build_probe else <<'END'
#include <dlfcn.h>

int main(void)
{
    void *first = dlopen("./libelse.so", RTLD_NOW | RTLD_LOCAL), *second = dlopen("./libmore.so", RTLD_NOW | RTLD_LOCAL);
    int (*start)(void) = (int (*)(void))dlsym(first, "ncclGroupStart"), (*more)(void) = (int (*)(void))dlsym(second, "ncclGroupStart");
    Dl_info info;

    EXPECT(start && start() == 6 && more && more() == 4);
    EXPECT(dladdr(start, &info) && strstr(info.dli_fname, "libpenstock"));
    EXPECT(dladdr(more, &info) && strstr(info.dli_fname, "libmore"));
    puts("ok");
    return 0;
}
END
    run_penstock ./else
    goes_on
}

@test "without NCCL no library is loaded, and our functions return an error" {
    build_probe none <<'END'
#include <dlfcn.h>

int main(void)
{
    int (*start)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "ncclGroupStart");
    void *span = new_span(1, NULL);

    EXPECT(!start || start() == 5);
    EXPECT(!dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD));
    EXPECT(holds(span, 1, NULL));
    puts("ok");
    return 0;
}
END
    run_probe none
    goes_on
    equal 0 "$(report nccl_calls)" "calls of NCCL's"
    run bash -c "objdump -p '$PENSTOCK_SO' | grep -c 'NEEDED.*nccl'"
    equal 0 "$output" "NCCL among the libraries that are needed"
}

# --- orders that a device may choose --------------------------------------------------------------
@test "NCCL's results are the same in every seed" {
    mapfile -t names < <("$ROOT/scripts/dev/seeds" --list | grep '^nccl')
    run "$ROOT/scripts/dev/seeds" --build "$BUILD" --library "$PENSTOCK_SO" --first 700001 --seeds $((11 * $PENSTOCK_TEST_SEEDS / 200)) \
        --percent 10-100 "${names[@]}"
    ended_with 0
    tail -n 1 <<<"$output" | sed "s/^/# /" >&3
}
