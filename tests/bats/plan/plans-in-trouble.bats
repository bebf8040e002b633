#!/usr/bin/env bats
# While a plan is followed: driver calls that fail, and every kind of exit with reloads due, under
# way and waited for.

load ../../lib/helper
load ../../lib/small_trainer

setup() {
    helper_setup 30
    requires sim samples jq
    TRAINER=("$SAMPLES/mlp" --layers=6 --width=64 --batch=256 --steps=9)
}

# train_with_plan [VARIABLE=VALUE]...: trains with right results and at least three steps under a
# plan. On a busy machine the plan may come late: then it trains again.
train_with_plan() {
    local tries
    for tries in 1 2 3 4 5; do
        train "$@"
        right_results || return 1
        [ "$(report plan.steps)" -lt 3 ] || return 0
    done
    at_least 3 "$(report plan.steps)" "steps under a plan after $tries trainings"
}

# calls NAME: prints how often a run of nine steps, most of them under a plan, makes the call.
calls() {
    [ -s "$BATS_FILE_TMPDIR/calls" ] || {
        train_with_plan && ledger calls >"$BATS_FILE_TMPDIR/calls"
    }
    jq -e ".$1" "$BATS_FILE_TMPDIR/calls"
}

# survives FAULT CALL: injects the fault after three fifths, then four fifths, of the calls of that
# name: amid planned steps.
survives() {
    local fault=$1 call=$2 fifths all at tries
    all=$(calls "$call")
    for fifths in 3 4; do
        at=$((all * fifths / 5))
        for tries in 1 2 3; do # a busy machine, whose plan comes late, may make fewer calls
            train "CUDASIM_FAULT=$call${3:-}:$fault@$at"
            right_results || return 1
            [ "$(ledger faults_injected)" -eq 0 ] || break
        done
        at_least 1 "$(report plan.evictions)" "$call: evictions by plans" || return 1
        struck && sound untouched || return 1
    done
}

@test "after a copy that fails once, the results stay right" { survives error cuMemcpyAsync; }

@test "an event that can't be created or queried, once, is survived" {
    survives error cuEventCreate
    survives error cuEventQuery
}

@test "a mapping that fails once is survived" {
    survives error cuMemMap
    survives error cuMemSetAccess
}

@test "pages that can't be made, or are made late, once, are survived" {
    survives oom cuMemCreate
    survives delay cuMemCreate
}

@test "without the threads that reload and preallocate, launches wait for no thread's turn" {
    requires cc plain
    # The library's first threads plan, finish evictions, guard, begin evictions and make slots. The
    # threads that reload, with a plan and without, and that make spans do not start.
    gcc -std=gnu11 -Wall -shared -fPIC -x c -o few.so - <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    static int started;
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    Dl_info caller;

    if (dladdr(__builtin_return_address(0), &caller) && strstr(caller.dli_fname, "libpenstock") && ++started > 14)
        return EAGAIN;
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return real(thread, attributes, run, argument);
}
END
    local thread
    train PENSTOCK_LIVE=0 "LD_PRELOAD=${SANITIZER:+$SANITIZER:}$PENSTOCK_SO:$WORK/few.so"
    ended_with 0
    equal "$(plain | grep -v '^allocated')" "$(grep -v '^penstock: ' <<<"$output")" "losses and gradients"
    for thread in reload fetch pages; do contains "$output" "^penstock: the thread penstock-$thread can't be started " || return 1; done
    at_least 3 "$(report plan.steps)" "steps under a plan"
    counted plan.evictions
    equal 0 "$(report plan.reloads)" "reloads by the thread that there is not"
    counted demand_reloads
}

@test "without device times steps are planned by their order, and the plan is followed" {
    train_with_plan CUDASIM_FAULT=cuEventElapsedTime:error@1+
    struck 10
    equal 0 "$(report plan.plain_step_ns)" "nanoseconds that were told"
    counted plan.evictions
    sound untouched
}

@test "without a measured link steps are planned with default bandwidths" {
    # The measurement reserves the next address range after Penstock's own two.
    train_with_plan CUDASIM_FAULT=cuMemAddressReserve:error@3
    struck
    sound untouched
}

# --- ends -----------------------------------------------------------------------------------------
# A trainer that would run for minutes. A foreign thread in it ends it after ENDER_MS, when plans have
# been followed for some steps. ENDER says how.
# Launches, reloads and evictions are in all stages at that time.
build_ender() {
    gcc -std=gnu11 -D_GNU_SOURCE -Wall -Werror -shared -fPIC -pthread -x c -o ender.so - <<'END'
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *end(void *how)
{
    usleep(1000u * (unsigned)atoi(getenv("ENDER_MS")));
    if (!strcmp(how, "fork")) {
        int status = -1;
        pid_t child = fork();
        if (child == 0) exit(2);
        if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 2) _exit(9);
        usleep(200000);
    }
    if (!strcmp(how, "quick_exit")) quick_exit(4);
    if (!strcmp(how, "_exit")) _exit(3);
    if (!strcmp(how, "abort")) abort();
    exit(5);
}

__attribute__((constructor)) static void begin(void)
{
    pthread_t thread;

    if (getenv("ENDER")) pthread_create(&thread, NULL, end, getenv("ENDER"));
}
END
}

# long_training COMMAND...: runs the trainer for a thousand steps, launched by COMMAND.
long_training() {
    local environment
    mapfile -t environment < <(device_environment)
    env "${environment[@]}" CUDASIM_LAUNCH_NS=100000 "PENSTOCK_REPORT=$REPORT" PENSTOCK_MIN_SPAN="$SPAN_FROM" "PENSTOCK_BUDGET=$budget" \
        "LD_PRELOAD=${SANITIZER:+$SANITIZER:}$PENSTOCK_SO${preload:+:$preload}" "$@" "$SAMPLES/mlp" --layers=6 --width=64 --batch=256 --steps=1000
}

# ends_in_a_plan HOW STATUS COMMAND...: COMMAND ends the training with STATUS after it has followed a
# plan, and the report is complete. The function `in_time MS COMMAND` lets it end after so long, or
# after longer where a busy machine's plan comes late.
ends_in_a_plan() {
    local how=$1 expected=$2 ms
    shift 2
    for ms in 800 1600 3200 6400; do
        rm -f "$REPORT"
        in_time $ms "$@"
        ended_with "$expected" || return 1
        equal 1 "$(grep -cE "$CLOSING" <<<"$output")" "closing lines ($how)" || return 1
        equal 1 "$(grep -c '^penstock' <<<"$output")" "lines ($how)" || return 1
        if [ "$(report plan.steps)" -ge 2 ] && [ "$(report plan.reloads)" -ge 20 ]; then return 0; fi
    done
    at_least 2 "$(report plan.steps)" "$how: steps under a plan" && at_least 20 "$(report plan.reloads)" "$how: reloads by the plan"
}

@test "a process that exits amid a planned step leaves a complete report" {
    requires cc
    build_ender
    ulimit -c 0
    local budget preload=$WORK/ender.so end
    budget=$(share 55)
    in_time() { run long_training timeout --kill-after=5 "$(patience 20)" env "ENDER_MS=$1" "$2"; }
    for end in exit:5 quick_exit:4 abort:134 fork:5; do
        ends_in_a_plan "${end%:*}" "${end#*:}" "ENDER=${end%:*}"
    done
    rm -f "$REPORT"
    run long_training timeout --kill-after=5 "$(patience 20)" env ENDER_MS=800 ENDER=_exit
    ended_with 3
    [ ! -e "$REPORT" ]
}

@test "a process killed by a signal amid a planned step leaves a complete report" {
    local budget preload='' pid number
    ulimit -c 0
    budget=$(share 55)
    in_time() {
        long_training env --default-signal=INT,TERM,ABRT timeout --foreground --preserve-status "--signal=$2" "--kill-after=$(patience 60)" \
            "$(($1 + 700))e-3" env >said.txt 2>&1 3>&- &
        pid=$!
        status=0
        wait "$pid" || status=$?
        output=$(cat said.txt)
    }
    for number in 15 2 6; do
        ends_in_a_plan "signal $number" $((128 + number)) $number
    done
}
