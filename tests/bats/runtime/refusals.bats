#!/usr/bin/env bats
# What the driver, or the machine, goes on refusing while work is under way: waits for copies, mappings, contexts and threads of Penstock's own. The results
# are right, nothing is unmapped or used again under work whose end nobody knows, nothing hangs, and what is said is true.

load ../../lib/helper
load ../../lib/small_trainer

setup() {
    # A fault makes a program slower at most; a minute is a hang.
    helper_setup 20
    requires sim samples jq
    by_turn 2
}

# stands_aside PATTERN: the last run was that of the plain program, one line says why, and so does the report
stands_aside() {
    right_results && said "standing aside, the program runs as without Penstock: .*$1" && sound &&
        contains "$(report stands_aside)" "$1"
}

# --- waits for copies ------------------------------------------------------------------------------------------------------------------------
# slow_trainer: one whose copies to the host take long beside what the host does, so that what is taken to be over too early is seen to be wrong
slow_trainer() {
    TRAINER=("$SAMPLES/mlp" --layers=5 --width=32 --batch=128 --steps=10)
    BATS_FILE_TMPDIR=$WORK # what this one prints is another matter
    SLOW=(CUDASIM_D2H_GBPS=0.05 PENSTOCK_BUDGET=300KiB)
}

# A wait that was refused was taken for a copy that is over, and its slot was given to the next copy: wrong losses, in each run of most of these.
@test "a wait for a copy that is refused is not the copy's end" {
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

@test "where nobody can tell when a copy is over, what it uses is used no more, and it is said" {
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
        at_most 5000000000 "$(report host_wait_ns)" "time waited with $fault"
    done
    at_least 1 "$(report eviction_errors)" "evictions that failed"
}

# waits_for_all: a program whose spans leave and come back, and that waits for the device and for nothing else
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

@test "a copy of which only a part could be queued, and a wait for that part that is refused" {
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

# Pages were unmapped under fills and copies that nobody could wait for: the program ended by a signal.
@test "nothing is unmapped under work that can't be waited for" {
    requires cc
    local fault
    waits_for_all
    for fault in cuStreamSynchronize:{oom@1+,error@1,error@2+,error@3+}; do
        run_probe waits-for-all PENSTOCK_BUDGET=6MiB CUDASIM_D2H_GBPS=0.05 CUDASIM_FAULT="$fault"
        goes_on
        struck
        sound
        # The program's own waits fail here, and it ends as it would.
        run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET=16MiB CUDASIM_FAULT="$fault" "$SAMPLES/hostile" graph 6 4
        at_most 1 "$status" "status with $fault"
    done
    # Where events are refused too, nobody can tell; no slot can be made either, and the program may run out of memory.
    for fault in cuStreamSynchronize:error@1+,cuEventCreate:error@{1,3,6}+; do
        run_probe waits-for-all PENSTOCK_BUDGET=6MiB CUDASIM_D2H_GBPS=0.05 CUDASIM_FAULT="$fault"
        at_most 1 "$status" "status with $fault"
        equal 0 "$(ledger unmapped_accesses)" "unmapped accesses"
    done
}

# An error was told that was none, and the launch waited for all copies to the device.
@test "a reload into pages that are in use on a captured stream: the launch finds its bytes on the host" {
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
    /* The first ones have left. What could give them pages was last used on a stream that is captured by then. */
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

# --- mappings --------------------------------------------------------------------------------------------------------------------------------
# One refusal ended the program: a piece's addresses led nowhere when a launch that names the block was queued.
@test "a mapping that is refused for a moment: a launch that names the block finds each of its pieces" {
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

@test "a mapping that goes on being refused: the same results, or a CUDA error, and it is said" {
    local fault
    for fault in cuMemSetAccess:error@{60,90,120}+ cuMemMap:error@{60,90,120}+; do
        train CUDASIM_FAULT="$fault"
        [ "$status" -eq 0 ] || contains "$output" cudaError
        [ "$status" -ne 0 ] || right_results
        struck
        contains "$output" '^penstock: .*refuse'
        at_most 10000000000 "$(report host_wait_ns)" "time waited with $fault"
    done
}

# --- helper threads --------------------------------------------------------------------------------------------------------------------------
# The thread was parked for ever, silently, and what it does was waited for.
@test "a helper thread that is refused its context tries again" {
    local fault
    for fault in cuCtxSetCurrent:error@{2..6} cuCtxSetCurrent:error@3,cuCtxPushCurrent:error@1 cuCtxSetCurrent:error@3+; do
        train CUDASIM_FAULT="$fault"
        right_results
        sound
        said
        counted evictions
        at_most 5000000000 "$(report host_wait_ns)" "time waited with $fault"
    done
}

@test "helper threads that never get a context: at the start the program runs as without Penstock, later without what they do" {
    local at
    # Those that others wait for begin first, four at once; some of them may have theirs already.
    for at in {2..12}; do
        train CUDASIM_FAULT="cuCtxSetCurrent:error@$at+,cuCtxPushCurrent:error@1+"
        [ "$at" -ne 2 ] || stands_aside "its helper threads can't use the device's context"
        right_results
        sound
        at_most 5000000000 "$(report host_wait_ns)" "time waited, refused from call $at on"
    done
}

# few_threads: a library that lets Penstock's own threads be started up to the FEW-th
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

# A thread that lacked was said to be left out, and what it does was waited for, 30 s each time.
@test "threads that can't be started: the program runs as without Penstock, or without what they do" {
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
        at_most 5000000000 "$(report host_wait_ns)" "time waited with $few threads"
    done
    counted evictions
    # Under `auto` they begin when memory becomes short.
    for few in {0..14}; do
        train "LD_PRELOAD=${SANITIZER:+$SANITIZER:}$PENSTOCK_SO:$WORK/few.so" FEW="$few" PENSTOCK_BUDGET=auto CUDASIM_MEMORY="$(share 140)"
        right_results
        sound
        at_most 5000000000 "$(report host_wait_ns)" "time waited with $few threads, which begin late"
    done
}
