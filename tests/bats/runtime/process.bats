#!/usr/bin/env bats
# Penstock as part of a program's process: forks, exits of every kind, signals, unloaded libraries,
# and programs that never call CUDA.

load ../../lib/helper
load ../../lib/small_trainer

setup() { helper_setup 30; }

# A program that trains a little, prints "working" and then ends as its first argument says.
build_ender() {
    build_probe ender -fexceptions <<'END'
#include <pthread.h>
#include <signal.h>

static void *exit_here(void *unused)
{
    exit(5);
}

static void own_handler(int signal_number)
{
    static const char text[] = "own handler\n";

    if (write(1, text, sizeof text - 1) < 0) _exit(9);
    exit(6);
}

/*
 * Uses twice as many spans as the budget holds, and leaves queued work that no call has waited for.
 */
static void work(void)
{
    static void *span[64];
    cudaStream_t stream;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < 64; i++) span[i] = new_span(i, stream);
    for (int i = 0; i < 64; i++) CHECK(cudaMemsetAsync(span[i], 1, span_size(), stream));
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    pthread_t thread;

    if (!strcmp(how, "handled")) signal(SIGTERM, own_handler);
    if (!strcmp(how, "ignored")) signal(SIGTERM, SIG_IGN);
    work();
    puts("working");
    fflush(stdout);
    if (!strcmp(how, "handled-late")) signal(SIGTERM, own_handler);
    if (!strncmp(how, "handled", 7) || !strcmp(how, "ignored")) raise(SIGTERM);
    if (!strcmp(how, "quick_exit")) quick_exit(4);
    if (!strcmp(how, "_exit")) _exit(3);
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "exec")) execlp("sh", "sh", "-c", "exit 8", NULL);
    if (!strcmp(how, "thread") && !pthread_create(&thread, NULL, exit_here, NULL)) pthread_join(thread, NULL);
    if (!strcmp(how, "wait")) sleep(30);
    return 7;
}
END
}

# ends STATUS HOW: the program ends so, and prints only the closing line.
ends() {
    run_probe ender "$2"
    ended_with "$1"
    said
}

# reports HOW STATUS: the program also writes the complete report.
reports() {
    rm -f "$REPORT"
    ends "$2" "$1"
    equal 1 "$(grep -cE "$CLOSING" <<<"$output")" "closing lines ($1)"
    jq -e '.allocations == 64 and .passthrough.small == 0' "$REPORT"
}
run_probe() {
    local name=$1
    shift
    run_penstock PENSTOCK_MIN_SPAN="$SPAN_FROM" PENSTOCK_BUDGET="$((32 * PROBE_SPAN))" "PROBE_SPAN=$PROBE_SPAN" "$WORK/$name" "$@"
}

# --- ends of the program --------------------------------------------------------------------------
@test "a program that exits in the middle of a step keeps its status and writes the report" {
    requires cc jq
    build_ender
    reports return 7
    reports thread 5
    reports quick_exit 4
}

@test "an exit that runs no handlers is as quick as ever and writes no report" {
    requires cc
    build_ender
    run_probe ender _exit
    ended_with 3
    lacks "$output" '^penstock'
    [ ! -e "$REPORT" ]
}

@test "exec in the middle of a step runs the new program, without a report of the old one" {
    requires cc
    build_ender
    run_probe ender exec
    ended_with 8
    lacks "$output" '^penstock'
}

# killed_by SIGNAL NUMBER: the program is killed from outside while it works, and ends by that
# signal with line and report.
killed_by() {
    local pid environment
    rm -f "$REPORT" said.txt
    mapfile -t environment < <(device_environment)
    # A process of its own, as an interactive shell starts it: in the background of a script SIGINT
    # and SIGQUIT would be ignored.
    env "${environment[@]}" "LD_PRELOAD=${SANITIZER:+$SANITIZER:}$PENSTOCK_SO" "PENSTOCK_REPORT=$REPORT" PENSTOCK_MIN_SPAN="$SPAN_FROM" \
        PENSTOCK_BUDGET="$((32 * PROBE_SPAN))" PROBE_SPAN="$PROBE_SPAN" \
        env --default-signal=INT,QUIT,HUP,TERM,ABRT ./ender wait >said.txt 2>&1 3>&- &
    pid=$!
    wait_until 10 grep -q working said.txt
    kill "-$1" "$pid"
    status=0
    wait "$pid" || status=$?
    output=$(cat said.txt)
    ended_with $((128 + $2))
    equal 1 "$(grep -cE "$CLOSING" said.txt)" "closing lines after SIG$1"
    jq -e '.allocations == 64' "$REPORT"
}

@test "a program killed by a signal writes the report and ends by that signal" {
    requires cc jq
    build_ender
    ulimit -c 0
    killed_by TERM 15
    killed_by INT 2
    killed_by HUP 1
    killed_by QUIT 3
    killed_by ABRT 6
}

@test "abort() reports, and ends the program as usual" {
    requires cc jq
    build_ender
    ulimit -c 0
    reports abort 134
}

@test "a program killed by SIGKILL leaves no report, not even a partial one" {
    requires cc
    build_ender
    local pid environment
    mapfile -t environment < <(device_environment)
    env "${environment[@]}" "LD_PRELOAD=${SANITIZER:+$SANITIZER:}$PENSTOCK_SO" "PENSTOCK_REPORT=$REPORT" ./ender wait >said.txt 2>&1 3>&- &
    pid=$!
    wait_until 10 grep -q working said.txt
    kill -KILL "$pid"
    wait "$pid" || true
    run compgen -G 'report*'
    ended_with 1
}

@test "the program's own handling of signals is kept" {
    requires cc jq
    build_ender
    reports handled 6
    contains "$output" '^own handler$'
    reports handled-late 6
    contains "$output" '^own handler$'
    reports ignored 7
}

@test "the sample's own ends work: exit, exit in a thread, SIGTERM, cudaDeviceReset" {
    requires samples
    hostile exit
    goes_on
    hostile exit-in-thread
    goes_on
    hostile signal
    ended_with 143
    said
    hostile reset
    goes_on
    said 'the program resets the device'
}

# --- children -------------------------------------------------------------------------------------
@test "children that exec, exit or _exit leave the parent's work and report alone" {
    requires samples jq
    hostile fork
    goes_on
    sound
    said
    equal 1 "$(grep -cE "$CLOSING" <<<"$output")" "closing lines"
    equal 8 "$(report frees)" "frees that the parent made"
}

@test "a child forked while other threads allocate can end, free and query without hanging" {
    requires cc jq
    build_probe forker <<'END'
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

static atomic_bool over;

static void *churn(void *unused)
{
    cudaStream_t stream;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    while (!atomic_load(&over)) {
        void *span = new_span(3, stream);
        CHECK(cudaFree(span));
        CHECK(cudaStreamSynchronize(stream)); /* the queue stays short */
    }
    CHECK(cudaStreamDestroy(stream));
    return NULL;
}

int main(void)
{
    pthread_t thread[3];
    struct cudaPointerAttributes attributes;
    size_t free_bytes, total;
    void *span = new_span(5, NULL);
    int status;

    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 3; i++) EXPECT(pthread_create(&thread[i], NULL, churn, NULL) == 0);
    for (int i = 0; i < 60; i++) {
        pid_t child = fork();
        if (child == 0) {
            /* CUDA returns errors in a child. The test requires only that the calls return. */
            alarm(5);
            cudaMemGetInfo(&free_bytes, &total);
            cudaPointerGetAttributes(&attributes, span);
            cudaFree(span);
            exit(11);
        }
        EXPECT(child > 0 && waitpid(child, &status, 0) == child);
        EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 11);
    }
    atomic_store(&over, 1);
    for (int i = 0; i < 3; i++) pthread_join(thread[i], NULL);
    EXPECT(holds(span, 5, NULL));
    puts("ok");
    return 0;
}
END
    run_probe forker
    goes_on
    equal 1 "$(grep -cE "$CLOSING" <<<"$output")" "closing lines"
}

@test "a child that was forked before the first CUDA call is managed independently" {
    requires cc jq
    build_probe early <<'END'
#include <sys/wait.h>

int main(void)
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        void *span = new_span(1, NULL);
        exit(holds(span, 1, NULL) ? 12 : 1);
    }
    EXPECT(child > 0 && waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 12);
    puts("ok");
    return 0;
}
END
    run_probe early
    goes_on
    # The parent made no CUDA call, so the line and the report are the child's.
    equal 1 "$(grep -cE "$CLOSING" <<<"$output")" "closing lines"
    equal 1 "$(report allocations)" allocations
}

# --- libraries that come and go -------------------------------------------------------------------
@test "a plug-in that brings the CUDA runtime can be closed and opened again" {
    requires cc jq
    build_probe plugin.so -shared -fPIC <<'END'
int train(int value)
{
    void *span = new_span(value, NULL);
    int right = holds(span, value, NULL);

    CHECK(cudaFree(span));
    return right;
}
END
    cat >host.c <<'END'
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    int how = RTLD_NOW | (argc > 1 && !strcmp(argv[1], "global") ? RTLD_GLOBAL : RTLD_LOCAL);

    for (int i = 1; i <= 3; i++) {
        void *plugin = dlopen("./plugin.so", how);
        int (*train)(int) = plugin ? (int (*)(int))dlsym(plugin, "train") : NULL;
        if (!train || !train(i)) {
            fprintf(stderr, "turn %d: %s\n", i, plugin ? "wrong" : dlerror());
            return 1;
        }
        if (dlclose(plugin)) return 1;
    }
    puts("ok");
    return 0;
}
END
    local flags=()
    [ -z "$SANITIZER" ] || flags=("-fsanitize=$([[ "$SANITIZER" == *asan* ]] && echo address || echo thread)")
    gcc "${flags[@]}" -o host host.c -ldl
    local how
    for how in local global; do
        run_probe host $how
        goes_on
        equal 3 "$(report allocations)" "allocations seen ($how)"
    done
}

@test "repeated dlclose of libcuda, libcudart and libpenstock removes nothing" {
    requires cc jq
    build_probe closer <<'END'
#include <dlfcn.h>

int main(int argc, char **argv)
{
    void *span = new_span(1, NULL);
    const char *names[] = {"libcuda.so.1", "libcudart.so.13", "libcupti.so.13", argv[1]};

    for (int i = 0; i < 4; i++)
        for (int again = 0; again < 5; again++) {
            void *library = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD);
            if (library) {
                dlclose(library);
                /*
                 * Once more than it was opened, as a program with a bug does. Never the driver,
                 * whose other users rely on its count.
                 */
                if (i == 3) dlclose(library);
            }
        }
    EXPECT(holds(span, 1, NULL));
    CHECK(cudaFree(span));
    puts("ok");
    return 0;
}
END
    run_probe closer "$PENSTOCK_SO"
    goes_on
    said
    equal 1 "$(report frees)" frees
}

# --- processes that never call CUDA ---------------------------------------------------------------
# same_without COMMAND...: output and status are the same with Penstock and without.
same_without() {
    run_sim "$@"
    local alone=$output alone_status=$status
    run_penstock PENSTOCK_BUDGET=0 "$@"
    equal "$alone_status" "$status" "status of $*"
    equal "$alone" "$output" "output of $*"
    [ ! -e "$REPORT" ] && [ ! -e "$LEDGER" ]
}

@test "a process that never calls CUDA behaves as without Penstock" {
    same_without true
    same_without false
    same_without bash -c 'echo "$BASH_VERSION"; exit 3'
    same_without bash -c 'kill -TERM $$'
    same_without sh -c 'ls / | sort; (exit 4)'
    ! command -v python3 >/dev/null || same_without python3 -c 'import sys, subprocess; subprocess.run(["true"]); print(sys.argv); sys.exit(5)' x
}

@test "a CUDA program that makes no CUDA call behaves as without Penstock" {
    requires samples
    same_without "$SAMPLES/mlp" --help
    same_without "$SAMPLES/mlp" --no-such-option
}

@test "a process that never calls CUDA opens no file beside the library" {
    requires strace plain
    files() { sed -nE 's/.*(open|openat|readlink|connect|socket)\(([^)]*).*/\1 \2/p' "$1" | grep -v "$PENSTOCK_SO" || true; }
    with_device strace -f -o alone.txt true || skip "strace can't trace here"
    with_device strace -f -E "LD_PRELOAD=$PENSTOCK_SO" -o with.txt true
    grep -q "$PENSTOCK_SO" with.txt
    # The loader maps libc earlier or later; the set of opened files is the same.
    equal "$(files alone.txt | sort)" "$(files with.txt | sort)" "files opened"
    lacks "$(cat with.txt)" 'clone3?\(|rt_sigaction\(SIG(TERM|INT|ABRT)'
}

# Takes the minimum of many runs: other load on the machine can only add to a run. The bound is
# several times the measured 0.3 ms.
@test "starting a process costs less than two milliseconds" {
    requires plain python
    cat >cost.py <<'END'
import os, subprocess, sys, time

def least(environment):
    best = None
    for _ in range(60):
        begun = time.perf_counter()
        subprocess.run(["/bin/true"], env=environment)
        taken = time.perf_counter() - begun
        best = taken if best is None else min(best, taken)
    return best

alone = dict(os.environ)
preloaded = dict(os.environ, LD_PRELOAD=sys.argv[1])
print("%d" % (1e6 * (least(preloaded) - least(alone))))
END
    run python3 cost.py "$PENSTOCK_SO"
    ended_with 0
    at_most 2000 "$output" "microseconds that the preloaded library adds to /bin/true"
}
