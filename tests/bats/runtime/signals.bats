#!/usr/bin/env bats
# PENSTOCK_SIGNAL: a report upon a signal, while the program runs.

load ../../lib/helper
load ../../lib/small_trainer
load ../../lib/live_loop

@test "a signal writes the report, and the program goes on undisturbed" {
    requires cc
    build_loop
    local name
    for name in USR2 HUP SIGUSR1; do
        rm -f "$REPORT"
        loop_waits PENSTOCK_SIGNAL=$name read
        kill "-$name" "$PID"
        wait_until 5 test -s "$REPORT"
        cp "$REPORT" early.json
        jq -e '.allocations == 64 and .frees == 0 and .evictions > 0' early.json
        kill "-$name" "$PID"
        loop_ends
        contains "$output" '^ok, own handler: 0$' # its read() was not interrupted
        said
        equal 1 "$(grep -cE "$CLOSING" <<<"$output")" "closing lines"
        at_least "$(($(jq .copies_seen early.json) + 128))" "$(report copies_seen)" "what was seen until the end ($name)"
    done
}

@test "signals amid training change no loss" {
    local environment i
    plain >expected
    mapfile -t environment < <(device_environment)
    # The steps take long enough for some signals, however late this shell runs.
    in_background trainer CUDASIM_LAUNCH_NS=2000000 PENSTOCK_REPORT="$REPORT" PENSTOCK_SIGNAL=USR2 PENSTOCK_BUDGET="$(share 55)" "${TRAINER[@]}"
    wait_until 10 eval "[ \"\$(json '.processes[0].devices | length' $PID)\" = 1 ]"
    for i in {1..40}; do
        kill -USR2 "$PID" 2>/dev/null || break
        sleep 0.02 # the pace of the signals
    done
    at_least 2 "$i" "signals sent"
    wait "$PID"
    equal "$(grep -v '^allocated' expected)" "$(grep -v '^penstock: ' trainer.txt)" "losses and gradients"
    equal 1 "$(grep -c '^penstock: ' trainer.txt)" "lines said"
    jq -e '.steps == 10' "$REPORT"
    equal "report.json" "$(ls report*)" "files left"
}

@test "the signal ends no process: before the first CUDA call, while Penstock stands aside, or in children" {
    requires cc
    build_loop
    loop_waits PENSTOCK_SIGNAL=USR2 early
    kill -USR2 "$PID"
    wait_until 5 eval '! grep -q "^ShdPnd:.*[89a-f]..$" /proc/$PID/status' # signal 12 is no longer pending
    loop_ends
    contains "$output" '^ok, own handler: 0$'
    said
    rm -f "$REPORT"
    loop_waits PENSTOCK_SIGNAL=USR2 CUDASIM_VMM=0 ''
    kill -USR2 "$PID"
    wait_until 5 jq -e '.stands_aside | length > 0' "$REPORT"
    loop_ends
    contains "$output" '^ok, own handler: 0$'
    rm -f "$REPORT"
    loop_waits PENSTOCK_SIGNAL=USR2 children
    kill -USR2 -- "-$PID"
    wait_until 5 test -s "$REPORT"
    loop_ends
    contains "$output" '^ok, own handler: 0$'
    said
}

@test "a handler of the program's own stays, and one line reports it" {
    requires cc
    build_loop
    local how
    for how in handled ignored; do
        loop_waits PENSTOCK_SIGNAL=USR2 $how
        kill -USR2 "$PID"
        loop_ends
        said 'PENSTOCK_SIGNAL=USR2: the program handles or ignores this signal itself, so no report is written on it'
        [ $how = ignored ] || contains "$output" '^ok, own handler: 12$'
    done
    loop_waits PENSTOCK_SIGNAL=USR2 handled-late
    wait_until 5 grep -q 'PENSTOCK_SIGNAL=USR2: the program now handles or ignores this signal itself, so no more reports are written on it' loop.txt
    kill -USR2 "$PID"
    loop_ends
    contains "$output" '^ok, own handler: 12$'
    loop_waits PENSTOCK_REPORT= PENSTOCK_SIGNAL=USR1 ''
    loop_ends
    said 'PENSTOCK_SIGNAL=USR1: PENSTOCK_REPORT names no file, so the signal writes no report'
}

# A library that delays a signal's report in the middle of its file, as long as a file "stall"
# exists.
build_stall() {
    gcc -shared -fPIC -D_GNU_SOURCE -o stall.so -x c - <<'END'
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

ssize_t write(int fd, const void *bytes, size_t count)
{
    char name[16] = "";

    if (fd > 2 && !pthread_getname_np(pthread_self(), name, sizeof name) && !strcmp(name, "penstock-live")) {
        close(open("stalled", O_CREAT | O_WRONLY, 0600));
        while (access("stall", F_OK) == 0) usleep(20000);
    }
    return syscall(SYS_write, fd, bytes, count);
}
END
}

@test "a slow report upon a signal is not mixed with the one at the end, and does not replace it" {
    requires cc
    build_stall
    build_probe lingers <<'END'
static void linger(void)
{
    while (access("stall", F_OK) == 0) usleep(20000);
    usleep(300000);
}

int main(void)
{
    EXPECT(atexit(linger) == 0); /* runs after Penstock's */
    void *span = new_span(1, NULL);
    puts("waiting");
    fflush(stdout);
    while (access("wait", F_OK) == 0) usleep(20000);
    CHECK(cudaFree(span));
    return 0;
}
END
    touch wait stall
    PAUSE=$WORK/stall.so
    in_background lingers env PENSTOCK_REPORT="$REPORT" PENSTOCK_SIGNAL=USR2 "$WORK/lingers"
    unset PAUSE
    wait_until 10 grep -q waiting lingers.txt
    kill -USR2 "$PID"
    wait_until 10 test -e stalled
    rm wait
    wait_until 10 jq -e '.frees == 1' "$REPORT"
    rm stall
    wait "$PID"
    jq -e '.frees == 1' "$REPORT"
    equal "report.json" "$(compgen -G 'report*')" "files left"
}
