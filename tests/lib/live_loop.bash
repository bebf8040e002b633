# shellcheck shell=bash disable=SC2154,SC2034 # status, output and the helper's names
# The functions for tests of observing a program while it runs: a loop that waits for the test, and
# its live page. Loaded after `small_trainer`.

setup() {
    helper_setup 30
    requires sim samples jq plain
    # A directory for this test alone, in memory as live pages need it.
    XDG_RUNTIME_DIR=$(mktemp -d /dev/shm/penstock-test.XXXXXX)
    export XDG_RUNTIME_DIR
    PAGES=$XDG_RUNTIME_DIR/penstock
    STARTED=()
    TRAINER=("${TRAINER[@]/--steps=3/--steps=10}") # the same in every test: `plain` keeps its output for the whole file
}

teardown() {
    local pid
    # Not all jobs are killed: bats has one of its own, which ends a test that takes too long.
    for pid in "${STARTED[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
    rm -rf "$XDG_RUNTIME_DIR"
}

# top ARGUMENT...: runs `penstock top`
# json JQ-FILTER [PID]: prints the filter's result of the JSON that it prints
top() { run "$PENSTOCK" top --library "$PENSTOCK_SO" "$@"; }
json() { "$BUILD/penstock-top" --json ${2:+"$2"} 2>/dev/null | jq -er "$1"; }

# build_loop: builds a program that loops over 64 spans, with room for 32, for some rounds. Then it
# waits for as long as there is a file "wait". Its first argument asks for other actions.
build_loop() {
    local kept=$BATS_FILE_TMPDIR/loop
    [ ! -e "$kept" ] || { ln "$kept" loop && return; }
    build_probe "$kept" <<'END'
#include <signal.h>
#include <sys/wait.h>

static volatile int theirs;

static void own_handler(int number)
{
    theirs = number;
}

static void rounds(int n, void **span, cudaStream_t stream)
{
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 64; i++) CHECK(cudaMemsetAsync(span[i], r, span_size(), stream));
    CHECK(cudaStreamSynchronize(stream));
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    static void *span[64];
    cudaStream_t stream;
    char byte;
    int status, ends[2];

    if (!strcmp(how, "early")) {
        puts("waiting");
        fflush(stdout);
        while (access("wait", F_OK) == 0) usleep(20000);
    }
    if (!strcmp(how, "handled")) signal(SIGUSR2, own_handler);
    if (!strcmp(how, "ignored")) signal(SIGUSR2, SIG_IGN);
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < 64; i++) span[i] = new_span(i, stream);
    rounds(12, span, stream);
    if (!strcmp(how, "handled-late")) signal(SIGUSR2, own_handler);
    if (!strcmp(how, "fork") && fork() == 0) {
        cudaFree(span[0]);
        exit(0); /* through its handlers, as Python's children do */
    }
    if (!strcmp(how, "fork")) EXPECT(wait(&status) > 0 && status == 0);
    if (!strcmp(how, "child-exec") && fork() == 0) execl(argv[0], argv[0], "", NULL);
    if (!strcmp(how, "exec")) execlp("sh", "sh", "-c", "while [ -e wait ]; do sleep 0.05; done", NULL);
    if (!strcmp(how, "children")) { /* a worker, and another program */
        EXPECT(setpgid(0, 0) == 0);
        if (fork() == 0) {
            while (access("wait", F_OK) == 0) usleep(20000);
            exit(0);
        }
        if (fork() == 0) execlp("sh", "sh", "-c", "while [ -e wait ]; do sleep 0.05; done", NULL);
        usleep(200000);
    }
    puts("waiting");
    fflush(stdout);
    if (!strcmp(how, "read")) { /* in a system call that a signal interrupts */
        EXPECT(pipe(ends) == 0);
        if (fork() == 0) {
            while (access("wait", F_OK) == 0) usleep(20000);
            EXPECT(write(ends[1], "x", 1) == 1);
            _exit(0);
        }
        EXPECT(read(ends[0], &byte, 1) == 1);
    }
    while (access("wait", F_OK) == 0) usleep(20000);
    while ((!strcmp(how, "child-exec") || !strcmp(how, "children")) && wait(&status) > 0) EXPECT(status == 0);
    rounds(2, span, stream);
    printf("ok, own handler: %d\n", theirs);
    return 0;
}
END
    ln "$kept" loop
}

# build_pause: builds a library that stops a sample trainer after its last step, for as long as
# there is a file "wait".
build_pause() {
    gcc -shared -fPIC -D_GNU_SOURCE -o pause.so -x c - <<'END'
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

int cudaDeviceSynchronize(void)
{
    static int calls;
    int result = ((int (*)(void))dlsym(RTLD_NEXT, "cudaDeviceSynchronize"))();

    if (++calls < 2) return result; /* before the first step */
    close(open("paused", O_CREAT | O_WRONLY, 0600));
    while (access("wait", F_OK) == 0) usleep(20000);
    return result;
}
END
}

# in_background NAME COMMAND...: starts the command under Penstock, with its output in NAME.txt.
# Sets PID. It ignores no signal, even if the tests were started so (nohup ignores HUP).
in_background() {
    local name=$1 environment
    shift
    mapfile -t environment < <(device_environment)
    env --default-signal "${environment[@]}" "LD_PRELOAD=$PENSTOCK_SO${PAUSE:+:$PAUSE}" PENSTOCK_MIN_SPAN="$SPAN_FROM" PENSTOCK_BUDGET="$((32 * PROBE_SPAN))" PROBE_SPAN="$PROBE_SPAN" \
        "$@" >"$name.txt" 2>&1 3>&- &
    PID=$!
    STARTED+=("$PID")
}

# loop_waits [VARIABLE=VALUE]... [HOW]: starts the loop, and returns when its rounds are over and it
# waits
loop_waits() {
    rm -f loop.txt # of an earlier loop
    touch wait
    in_background loop env "PENSTOCK_REPORT=$REPORT" "${@:1:$#-1}" "$WORK/loop" "${@: -1}"
    wait_until 10 grep -q waiting loop.txt
}

# loop_ends: lets the loop go on, and checks that it ends with status 0; its output is in `output`
loop_ends() {
    rm wait
    status=0
    wait "$PID" || status=$?
    output=$(cat loop.txt)
    ended_with 0
}

# told JQ-FILTER: prints the filter's result of the page of $PID, written at least 250 ms from now.
# In that time it is written twice: the waits of steps appear one look after the one that sees them.
told() {
    local since
    since=$(date +%s%N)
    wait_until 5 eval "[ \$(json '.processes[0].updated_ns' $PID) -gt $((since + 250000000)) ]" >/dev/null
    json "$1" "$PID"
}

pages() { find "$PAGES" -type f 2>/dev/null | wc -l; }
