#!/usr/bin/env bats
# Permanent refusals by the driver or the machine while work is under way: of waits for copies,
# mappings, contexts and Penstock's own threads. The results are right. Nothing is unmapped or
# reused under work whose end is unknown, nothing hangs, and the lines are true.

load ../../lib/helper
load ../../lib/small_trainer

setup() {
    # A fault at most slows a program; a minute is a hang.
    helper_setup 20
    requires sim samples jq
    by_turn 2
}

# stands_aside PATTERN: the last run was the plain program's; one line gives the reason, and so does
# the report.
stands_aside() {
    right_results && said "standing aside, the program runs as without Penstock: .*$1" && sound &&
        contains "$(report stands_aside)" "$1"
}

# --- waits for copies -----------------------------------------------------------------------------
# slow_trainer: its copies to the host are slow beside the host's work, so a copy that is taken to
# be over too early shows.
slow_trainer() {
    TRAINER=("$SAMPLES/mlp" --layers=5 --width=32 --batch=128 --steps=10)
    BATS_FILE_TMPDIR=$WORK # this trainer prints other output
    SLOW=(CUDASIM_D2H_GBPS=0.05 PENSTOCK_BUDGET=300KiB)
}

# A refused wait used to count as the end of the copy, and its slot went to the next copy: wrong
# losses in each run of most of these.
@test "a refused wait for a copy does not count as the copy's end" {
    local fault setting
    slow_trainer
    for fault in cuEventSynchronize:{error@2,error@1+,error@5+,oom@20+}; do
        for setting in PENSTOCK_POLICY=plan PENSTOCK_POLICY=lru PENSTOCK_GUARD=host CUDASIM_SCHED=seeded; do
            train "${SLOW[@]}" "$setting" CUDASIM_FAULT=$fault
            right_results
            struck
            sound
            said
            equal 0 "$(report eviction_errors)" "evictions that failed with $fault, $setting"
            counted evictions
        done
    done
}

@test "when the end of a copy can't be known, its memory is not reused, and one line reports it" {
    local fault
    slow_trainer
    for fault in cuEventSynchronize:error@{1,5,20}+,cuEventQuery:error@{1,60,300}+; do
        train "${SLOW[@]}" CUDASIM_FAULT="$fault"
        right_results
        struck
        sound
        [ "$(report eviction_errors)" -eq 0 ] || contains "$output" \
            "^penstock: standing aside from now on: the driver can't tell when copies to the host are over"
        at_most 1 "$(grep -c 'standing aside' <<<"$output")" "lines about it"
        at_most "$(patience 5)000000000" "$(report host_wait_ns)" "time waited with $fault"
    done
    at_least 1 "$(report eviction_errors)" "evictions that failed"
}

# waits_for_all: a program whose spans leave and come back, and that waits for the device and for
# nothing else.
waits_for_all() {
    build_probe waits-for-all <<'END'
#define COUNT 160

static unsigned char host[COUNT][65536];

int main(void)
{
    void *span[COUNT];

    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < COUNT; i++) span[i] = new_span(i, NULL);
        for (int i = 0; i < COUNT; i++) CHECK(cudaMemsetAsync((char *)span[i] + turn, 255 - i, 1, NULL));
        CHECK(cudaDeviceSynchronize());
        for (int i = 0; i < COUNT; i++) CHECK(cudaMemcpyAsync(host[i], span[i], span_size(), cudaMemcpyDeviceToHost, NULL));
        CHECK(cudaDeviceSynchronize());
        for (int i = 0; i < COUNT; i++)
            for (int at = 0; at < 65536; at++) EXPECT(host[i][at] == (at == turn ? 255 - i : i));
        for (int i = 0; i < COUNT; i++) CHECK(cudaFree(span[i]));
    }
    CHECK(cudaDeviceSynchronize());
    puts("ok");
    return 0;
}
END
}

@test "a copy that is only partly queued is handled, even when the wait for that part is refused" {
    requires cc
    local fault
    waits_for_all
    for fault in cuMemcpyAsync:error@{1,2,9},cuStreamSynchronize:error@1+ cuEventRecord:error@{100,141,180},cuStreamSynchronize:error@1+; do
        run_probe waits-for-all PENSTOCK_BUDGET=6MiB CUDASIM_D2H_GBPS=0.05 CUDASIM_FAULT="$fault"
        goes_on
        struck
        sound
    done
}

# Pages used to be unmapped under fills and copies that could not be waited for: the program ended
# by a signal.
@test "nothing is unmapped under work that can't be waited for" {
    requires cc
    local fault
    waits_for_all
    for fault in cuStreamSynchronize:{oom@1+,error@1,error@2+,error@3+}; do
        run_probe waits-for-all PENSTOCK_BUDGET=6MiB CUDASIM_D2H_GBPS=0.05 CUDASIM_FAULT="$fault"
        goes_on
        struck
        sound
        # The program's own waits fail here, and it ends as it would without Penstock.
        run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET=16MiB CUDASIM_FAULT="$fault" "$SAMPLES/hostile" graph 6 4
        at_most 1 "$status" "status with $fault"
    done
    # When events are refused too, the end of no work can be known. No slot can be made either, and
    # the program may run out of memory.
    for fault in cuStreamSynchronize:error@1+,cuEventCreate:error@{1,3,6}+; do
        run_probe waits-for-all PENSTOCK_BUDGET=6MiB CUDASIM_D2H_GBPS=0.05 CUDASIM_FAULT="$fault"
        at_most 1 "$status" "status with $fault"
        equal 0 "$(ledger unmapped_accesses)" "unmapped accesses"
    done
}

# A false error used to be reported, and the launch waited for all copies to the device.
@test "when only pages in use on a captured stream are free, the launch finds its bytes on the host" {
    requires cc
    build_probe captured <<'END'
#define BUDGET 32

int main(void)
{
    static unsigned char host[65536];
    void *span[BUDGET + 2];
    cudaStream_t a, c;
    cudaGraph_t graph;

    CHECK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&c, cudaStreamNonBlocking));
    for (int i = 0; i < BUDGET + 2; i++) { CHECK(cudaMallocAsync(&span[i], span_size(), c)); CHECK(cudaMemsetAsync(span[i], i, span_size(), c)); }
    CHECK(cudaDeviceSynchronize());
    /*
     * The first ones have left. The spans that could give them pages were last used on a stream
     * that is captured by then.
     */
    for (int i = BUDGET - 4; i < BUDGET; i++) CHECK(cudaMemsetAsync(span[i], i, span_size(), a));
    for (int i = BUDGET - 4; i < BUDGET; i++) CHECK(cudaFreeAsync(span[i], a));
    CHECK(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
    for (int i = 0; i < 6; i++) CHECK(cudaMemsetAsync((char *)span[i] + 1, 77, 1, c));
    CHECK(cudaStreamEndCapture(a, &graph));
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 6; i++) {
        CHECK(cudaMemcpy(host, span[i], span_size(), cudaMemcpyDeviceToHost));
        EXPECT(host[0] == i && host[1] == 77 && host[65535] == i);
    }
    puts("ok");
    return 0;
}
END
    run_probe captured
    goes_on
    sound
    said
    counted evictions
    equal 0 "$(report reload_errors)" "reloads that failed"
}

# --- mappings -------------------------------------------------------------------------------------
# One refusal used to end the program: a piece's addresses led nowhere when a launch that names the
# block was queued.
@test "after a brief refusal of mappings a launch that names the block finds each of its pieces" {
    local call guard at
    run_sim "$SAMPLES/arena" 6
    ended_with 0
    local plain_losses=$output
    for call in cuMemSetAccess cuMemMap; do
        for guard in auto host; do
            for at in $(some_of 4 {40..220..20}); do
                local several=$call:error@$at,$call:error@$((at + 1)),$call:error@$((at + 2)),$call:error@$((at + 3)),$call:error@$((at + 4))
                for fault in $call:error@$at "$several"; do
                    run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET=832KiB "PENSTOCK_RULES=pieces size>=1MiB" PENSTOCK_GUARD=$guard \
                        CUDASIM_FAULT="$fault" "$SAMPLES/arena" 6
                    ended_with 0
                    equal "$plain_losses" "$(grep -v '^penstock: ' <<<"$output")" "losses with $fault"
                    struck
                    sound untouched
                    lacks "$output" 'standing aside'
                done
            done
        done
    done
}

@test "a permanent refusal of mappings gives the same results or a CUDA error, and is reported" {
    local fault
    for fault in cuMemSetAccess:error@{60,90,120}+ cuMemMap:error@{60,90,120}+; do
        train CUDASIM_FAULT="$fault"
        [ "$status" -eq 0 ] || contains "$output" cudaError
        [ "$status" -ne 0 ] || right_results
        struck
        contains "$output" '^penstock: .*refuse'
        at_most "$(patience 10)000000000" "$(report host_wait_ns)" "time waited with $fault"
    done
}

# --- graphs ---------------------------------------------------------------------------------------
# The driver saw host pages, and refused a copy of the graph. After a launch that held every span,
# spans without a launch counted as in use on their slots, and a look waited for them in vain.
@test "the driver sees device pages for a graph whose nodes can't be read" {
    local fault
    for fault in cuGraph{GetNodes,NodeGetType}:error@{1,5} cuGraphMemsetNodeGetParams:error@1 cuGraphNodeGetType:error@1+; do
        run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET=22MiB CUDASIM_FAULT="$fault" "$SAMPLES/hostile" graph-nodes 7 4
        goes_on
        struck
        sound untouched
        at_most "$(patience 5)000000000" "$(report host_wait_ns)" "time waited with $fault"
        lacks "$output" 'the driver may refuse'
    done
}

@test "where the driver does not tell what an address or a graph is, launches keep every span, and results are right" {
    local fault guard
    for fault in cuPointerGetAttribute:{error,oom}@5+ cuGraphGetNodes:notsupported@1+ cuGraphMemcpyNodeGetParams:error@1+ \
        cuGraphGetEdges_v2:oom@1+; do
        for guard in unmap host; do
            run_penstock CUDASIM_GRANULARITY=4096 PENSTOCK_MIN_SPAN=4096 PENSTOCK_BUDGET=22MiB PENSTOCK_GUARD=$guard \
                CUDASIM_FAULT=$fault "$SAMPLES/hostile" table-captured,table-nodes 6 4
            goes_on || { echo "with $fault, $guard" >&2 && return 1; }
            struck
            contains "$output" "the driver does not tell what an address or a graph is .*each launch keeps every span"
        done
    done
    # Refused once, the question is asked again.
    run_penstock CUDASIM_GRANULARITY=4096 PENSTOCK_MIN_SPAN=4096 PENSTOCK_BUDGET=22MiB CUDASIM_FAULT=cuGraphGetNodes:error@1 \
        "$SAMPLES/hostile" table-captured 6 4
    goes_on
    struck
    lacks "$output" "does not tell"
}

# A call of Penstock's own that captures forbid made the program's capture invalid. It happened in 3
# of 16 runs, when the 5th call was a helper thread's. An event of Penstock's became part of the
# capture when the driver did not say that there is one.
@test "a question about captures refused for a moment ends no capture, and a lasting refusal is reported" {
    local fault
    graph() { run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET=16148070 CUDASIM_FAULT="$1" "$SAMPLES/hostile" graph 6 4; }
    for fault in $(some_of 4 {cuThreadExchangeStreamCaptureMode,cuStreamIsCapturing}:error@{1..8}) \
        $(some_of 8 cuThreadExchangeStreamCaptureMode:{error,oom}@{5,5,5,5,5,5,5,5}); do
        graph "$fault"
        goes_on
        struck
        lacks "$output" 'may refuse a capture'
    done
    for fault in {cuThreadExchangeStreamCaptureMode,cuStreamIsCapturing}:error@1+; do
        graph "$fault"
        contains "$output" '^penstock: the driver .* captur.*: the driver may refuse a capture'
    done
}

# --- address space --------------------------------------------------------------------------------
# Penstock reserved half of the space that was left. Then the program's own mappings, or stacks of
# threads, had no place.
@test "with a limited address space most of it stays the program's" {
    requires cc plain
    build_probe addresses <<'END'
int main(void)
{
    void *span[64];
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");

    for (int i = 0; i < 64; i++) span[i] = new_span(i, NULL);
    for (int i = 0; i < 64; i++) EXPECT(holds(span[i], i, NULL));
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, "VmPeak:", 7)) printf("peak %ld\n", atol(line + 7));
    puts("ok");
    return 0;
}
END
    local tebibytes
    for tebibytes in 4 16; do
        run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET=$((32 * PROBE_SPAN)) PROBE_SPAN="$PROBE_SPAN" \
            prlimit --as=$((tebibytes << 40)): ./addresses
        goes_on
        sound
        said
        counted evictions
        # The simulated device takes one TiB.
        at_most $(((tebibytes << 40 >> 1) + (1 << 40))) "$(sed -nE 's/^peak ([0-9]+)$/\1/p' <<<"$output")000" "bytes of addresses"
    done
}

# --- helper threads -------------------------------------------------------------------------------
# The thread used to stop forever without a line, and its work was waited for.
@test "a helper thread that is refused its context tries again" {
    local fault
    for fault in cuCtxSetCurrent:error@{2..6} cuCtxSetCurrent:error@3,cuCtxPushCurrent:error@1 cuCtxSetCurrent:error@3+; do
        train CUDASIM_FAULT="$fault"
        right_results
        sound
        said
        counted evictions
        at_most "$(patience 5)000000000" "$(report host_wait_ns)" "time waited with $fault"
    done
}

@test "helper threads that never get a context are done without; if at the start, Penstock stands aside" {
    local at
    # The threads whose work others wait for begin first, four at once. Some of them may have their
    # context already.
    for at in {2..12}; do
        train CUDASIM_FAULT="cuCtxSetCurrent:error@$at+,cuCtxPushCurrent:error@1+"
        [ "$at" -ne 2 ] || stands_aside "its helper threads can't use the device's context"
        right_results
        sound
        at_most "$(patience 5)000000000" "$(report host_wait_ns)" "time waited, refused from call $at on"
    done
}

# few_threads: a library that lets only the first FEW of Penstock's own threads start.
few_threads() {
    build_probe few.so -shared -fPIC <<'END'
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *given)
{
    static atomic_int started;
    __typeof__(&pthread_create) real = (__typeof__(real))dlsym(RTLD_NEXT, "pthread_create");
    Dl_info info;

    if (dladdr(__builtin_return_address(0), &info) && strstr(info.dli_fname, "libpenstock") &&
        atomic_fetch_add(&started, 1) >= atoi(getenv("FEW")))
        return EAGAIN;
    return real(thread, attributes, run, given);
}
END
}

# A missing thread used to be reported as left out, but its work was waited for, 30 s each time.
@test "when threads can't be started, the program runs without Penstock or without their work" {
    requires cc
    local few
    few_threads
    for few in {0..20}; do
        train "LD_PRELOAD=${SANITIZER:+$SANITIZER:}$PENSTOCK_SO:$WORK/few.so" FEW="$few"
        if [ "$few" -lt 12 ]; then
            stands_aside "its helper threads can't be started, the limit of processes \(ulimit -u\) is too low"
        fi
        right_results
        sound
        at_most "$(patience 5)000000000" "$(report host_wait_ns)" "time waited with $few threads"
    done
    counted evictions
    # Under `auto` the threads begin when memory becomes short.
    for few in {0..14}; do
        train "LD_PRELOAD=${SANITIZER:+$SANITIZER:}$PENSTOCK_SO:$WORK/few.so" FEW="$few" PENSTOCK_BUDGET=auto CUDASIM_MEMORY="$(share 140)"
        right_results
        sound
        at_most "$(patience 5)000000000" "$(report host_wait_ns)" "time waited with $few threads, which begin late"
    done
}
