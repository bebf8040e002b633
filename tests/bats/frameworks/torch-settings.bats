#!/usr/bin/env bats
# The environment settings by which Penstock makes torch's tensors visible, and when it leaves torch
# alone.

load ../../lib/helper
load ../../lib/small_trainer

setup() { helper_setup 60; }

# torch_settings [VARIABLE=VALUE]...: prints the two variables that a program under Penstock finds.
torch_settings() {
    run_penstock "$@" sh -c 'echo "${PYTORCH_CUDA_ALLOC_CONF-(unset)} ${PYTORCH_ALLOC_CONF-(unset)}"'
    ended_with 0
}

@test "torch is told to use the backend whose tensors are visible, and the user's other options stay" {
    local visible=backend:cudaMallocAsync other=max_split_size_mb:128,expandable_segments:True
    torch_settings
    equal "$visible $visible" "$output" "with neither set"
    torch_settings PYTORCH_CUDA_ALLOC_CONF= PYTORCH_ALLOC_CONF=
    equal "$visible $visible" "$output" "with both empty"
    torch_settings PYTORCH_CUDA_ALLOC_CONF=$other
    equal "$visible,$other $visible,$other" "$output" "with other options in the old name"
    torch_settings PYTORCH_ALLOC_CONF=$other
    equal "$visible,$other $visible,$other" "$output" "with other options in the new name"
    torch_settings PYTORCH_CUDA_ALLOC_CONF=$other PYTORCH_ALLOC_CONF=garbage_collection_threshold:0.5
    equal "$visible,$other $visible,garbage_collection_threshold:0.5" "$output" "with other options in both"
}

# torch's chunk_cat frees a table, in stream order, ahead of the kernel that reads it. The case
# freed-table of tests/bats/tracer/pointer-tables.bats does the same.
@test "when torch was told its backend, small memory freed on a stream is reused by that stream alone" {
    echo 'int torch_is_here;' | gcc -shared -fPIC -Wl,-soname,libc10_cuda.so -o libc10_cuda.so -x c -
    build_probe pools -Wl,--no-as-needed -L. -l:libc10_cuda.so -Wl,-rpath,"$PWD" <<'END'
int main(void)
{
    enum cudaMemPoolAttr asked[] = {cudaMemPoolReuseFollowEventDependencies, cudaMemPoolReuseAllowOpportunistic, cudaMemPoolReuseAllowInternalDependencies};
    cudaMemPool_t pool;
    void *span;

    CHECK(cudaMallocAsync(&span, span_size(), NULL));
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    for (int i = 0; i < 3; i++) {
        int allowed = -1;
        CHECK(cudaMemPoolGetAttribute(pool, asked[i], &allowed));
        printf("%d ", allowed);
    }
    CHECK(cudaFreeAsync(span, NULL));
    puts("ok");
    return 0;
}
END
    run_probe pools
    contains "$output" '^0 0 0 ok$'
    run_probe pools PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync
    contains "$output" '^1 1 1 ok$'
    sed 's/libc10_cuda\.so/libc10_cudb.so/g' libc10_cuda.so >libc10_cudb.so
    sed -i 's/libc10_cuda\.so/libc10_cudb.so/g' pools # a program without torch
    run_probe pools
    contains "$output" '^1 1 1 ok$'
}

@test "a backend that the user chose stays, in either variable and in any spelling" {
    local chosen
    for chosen in backend:native backend:cudaMallocAsync max_split_size_mb:64,backend:native "backend : native" "backend:native,roundup_power2_divisions:4"; do
        torch_settings "PYTORCH_CUDA_ALLOC_CONF=$chosen"
        equal "$chosen (unset)" "$output"
        torch_settings "PYTORCH_ALLOC_CONF=$chosen"
        equal "(unset) $chosen" "$output"
        torch_settings "PYTORCH_ALLOC_CONF=$chosen" PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:32
        equal "max_split_size_mb:32 $chosen" "$output"
    done
}

# python_settings ARGUMENT...: prints torch's settings in a Python started with these arguments; the
# first is the script.
python_settings() {
    run_penstock python3 "$@"
    ended_with 0
}

@test "torch keeps its own allocator when the program names a mode of torch.compile that needs it" {
    requires python cc
    local asked='import os, subprocess, sys; print(os.environ.get("PYTORCH_CUDA_ALLOC_CONF")); sys.argv[1:2] == ["run"] and subprocess.run(sys.argv[2:])'
    local visible=backend:cudaMallocAsync own=backend:native
    echo "$asked" >plain.py
    printf '%s\nmodel = dict(mode="reduce-overhead")\n' "$asked" >graphs.py
    printf '%s\nmodel = dict(mode="max-autotune")\n' "$asked" >tuned.py
    printf '%s\nmodel = dict(mode="max-autotune-no-cudagraphs")\n' "$asked" >without.py
    printf '%s\nmodel = {"mode" : '"'max-autotune'"'}\n' "$asked" >table.py
    printf '%s\nmodes = ("default", "reduce-overhead"), "mode", "max-autotune-"\n' "$asked" >choices.py
    printf 'max-autotune' >short.py
    python_settings plain.py
    equal $visible "$output"
    python_settings graphs.py
    equal $own "$output"
    python_settings tuned.py
    equal $own "$output"
    python_settings without.py
    equal $visible "$output"
    python_settings table.py
    equal $own "$output"
    python_settings choices.py
    equal $visible "$output"
    python_settings plain.py short.py choices.py
    equal $visible "$output"
    python_settings plain.py --compile-mode reduce-overhead
    equal $own "$output"
    python_settings plain.py --compile-mode=max-autotune-no-cudagraphs
    equal $visible "$output"
    run_penstock python3 missing.py
    ended_with 2 # Python's own status: it finds no such file either
    # A launcher's children inherit its settings. The files of a program that is not Python are not
    # read.
    python_settings plain.py run python3 graphs.py
    equal "$own $own" "${output//$'\n'/ }"
    run_penstock sh -c 'echo $PYTORCH_CUDA_ALLOC_CONF' graphs.py
    equal $visible "$output"
    # The user's setting wins.
    run_penstock PYTORCH_CUDA_ALLOC_CONF=$visible python3 graphs.py
    equal $visible "$output"
    # One line reports it, in a process that has memory to manage.
    cat >uses.py <<'END'
import ctypes, os
runtime, address = ctypes.CDLL("libcudart.so.13"), ctypes.c_void_p()
assert runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(1 << 20)) == 0
assert runtime.cudaFree(address) == 0
END
    run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM python3 uses.py
    ended_with 0
    said
    run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM python3 uses.py reduce-overhead
    ended_with 0
    said 'reduce-overhead: names a mode of torch.compile .*PYTORCH_CUDA_ALLOC_CONF=backend:'
}

# has BACKEND FILE TEXT [ARGUMENT...]: torch gets BACKEND when FILE has TEXT and the arguments name
# FILE. Without arguments FILE is the only one.
has() {
    mkdir -p "$(dirname "$2")"
    printf '%b' "$3" >"$2"
    python_settings plain.py "${@:4:$#}" $([ $# -gt 3 ] || echo "$2")
    equal "$1" "$output" "$2: $3 ${*:4}"
}

@test "torch keeps its own allocator when a program's files ask for CUDA graphs in other ways, or for memory history" {
    requires python
    local visible=backend:cudaMallocAsync own=backend:native line
    echo 'import os; print(os.environ.get("PYTORCH_CUDA_ALLOC_CONF"))' >plain.py
    for line in 'config.triton.cudagraphs = True' 'o = {"triton.cudagraphs": True}' "o = {'triton.cudagraphs':True}" 'f(backend="cudagraphs")' 'compile_mode = "max-autotune"'; do
        has $own script.py "import torch\n    $line"
        has $visible script.py "import torch\n    # $line\n"
    done
    for line in 'triton.cudagraphs = False' 'o = {"triton.cudagraph_trees": True}' 'cudagraphs = True' 'triton.cudagraphs' 'backends = ["inductor", "cudagraphs"]' \
        'mode=reduce-overhead' backend=cudagraphs; do
        has $visible script.py "$line"
    done
    has $own script.py 'import torch\ntorch.cuda.memory._record_memory_history(max_entries=100)'
    has $own script.py '_record_memory_history()'
    has $visible script.py 'if options.profile:\n    torch.cuda.memory._record_memory_history(max_entries=100)'
    has $visible script.py 'def _record_memory_history():'
    has $visible script.py '#torch.cuda.memory._record_memory_history()'
    # A configuration file needs no quotes. A module's file is searched below the working directory.
    for line in config.yaml config.yml --config=config.toml; do
        has $own "${line#*=}" 'model:\n  compile_mode: reduce-overhead # or max-autotune' $line
    done
    has $own config.json '{"torch_compile_mode":\n  "x", "mode": "max-autotune"}' --config config.json
    has $visible config.yaml '# mode: reduce-overhead\nmode: max-autotune-no-cudagraphs\nnodes: reduce-overhead\n' config.yaml
    has $visible config.txt 'mode: reduce-overhead' config.txt
    has $own part/trains.py 'mode="reduce-overhead"' -m part.trains
    has $own part/__main__.py 'mode="reduce-overhead"' --module part
    has $visible part/other.py 'mode="reduce-overhead"' -m part.missing
    python_settings plain.py --compile-backend cudagraphs
    equal $own "$output"
    python_settings plain.py --backend=cudagraphs
    equal $own "$output"
    python_settings plain.py --no-cudagraphs
    equal $visible "$output"
    # Files that must delay no program, and names that are no readable files.
    python3 -c 'print("mode: cudagraphs reduce-overhead triton.cudagraphs " * 80000)' >line.yaml
    LIMIT=20 python_settings plain.py line.yaml
    equal $visible "$output"
    mkfifo pipe.py
    mkdir directory.py
    : >empty.py
    python_settings plain.py pipe.py directory.py empty.py missing.yaml -m
    equal $visible "$output"
    python_settings plain.py -m "$(printf 'x%.0s' {1..400})"
    equal $visible "$output"
}

@test "what a launcher found in a script's files is reported by the process it starts" {
    requires python cc
    cat >uses.py <<'END'
import ctypes, os
if "PYTORCH_CUDA_ALLOC_CONF" in os.environ:
    runtime, address = ctypes.CDLL("libcudart.so.13"), ctypes.c_void_p()
    assert runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(1 << 20)) == 0
    assert runtime.cudaFree(address) == 0
mode="reduce-overhead"
END
    echo 'import subprocess, sys; subprocess.run([sys.executable] + sys.argv[1:], check=True)' >starts.py
    run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM python3 starts.py uses.py
    ended_with 0
    said 'uses.py: names a mode of torch.compile .*PYTORCH_CUDA_ALLOC_CONF=backend:'
}

@test "when torch refuses a feature on the backend that Penstock chose, a line names the setting that helps" {
    requires cc
    # The part of libc10.so, a library linked with it, and a program that opens that library with
    # RTLD_LOCAL, as Python does.
    cat >torch.h <<'END'
#include <cstdint>
#include <stdexcept>
#include <string>
namespace c10::detail {
[[noreturn]] void torchCheckFail(const char *function, const char *file, uint32_t line, const char *message);
[[noreturn]] void torchCheckFail(const char *function, const char *file, uint32_t line, const std::string &message);
}
END
    cat >c10.cpp <<'END'
#include "torch.h"
struct error : std::runtime_error {
    using std::runtime_error::runtime_error;
};
void c10::detail::torchCheckFail(const char *function, const char *file, uint32_t line, const char *message)
{
    throw error(std::string(function) + file + std::to_string(line) + " " + message);
}
void c10::detail::torchCheckFail(const char *function, const char *file, uint32_t line, const std::string &message)
{
    torchCheckFail(function, file, line, ("long: " + message).c_str());
}
END
    cat >user.cpp <<'END'
#include "torch.h"
static const char of[] = "cudaMallocAsync does not yet support ";
extern "C" void fails(const char *what, int times)
{
    for (int i = 0; i < times; i++)
        try {
            if (i % 2)
                c10::detail::torchCheckFail("f", "g", 7, *what ? of + std::string(what) + ". If you need it" : std::string());
            c10::detail::torchCheckFail("f", "g", 8, *what ? (of + std::string(what) + ". If you need it").c_str() : "x");
        } catch (std::runtime_error &error) {
            printf("%s\n", error.what());
        }
}
END
    cat >program.cpp <<'END'
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **arguments)
{
    void *library = dlopen("./libuser.so", RTLD_NOW | RTLD_LOCAL);
    void *fails = library ? dlsym(library, "fails") : nullptr;
    if (fails)
        reinterpret_cast<void (*)(const char *, int)>(fails)(count > 1 ? arguments[1] : "", 3);
    return !fails;
}
END
    g++ -std=c++17 -shared -fPIC -Wl,-soname,libc10.so -o libc10.so c10.cpp
    g++ -std=c++17 -include cstdio -shared -fPIC -o libuser.so user.cpp -L. -l:libc10.so -Wl,-rpath,"$PWD"
    g++ -std=c++17 -o program program.cpp -ldl
    local all="fg8 cudaMallocAsync does not yet support recordHistory. If you need it"
    run_penstock ./program recordHistory
    ended_with 0
    equal "$all"$'\n'"fg7 long: ${all#* }"$'\n'"$all" "$(grep -v '^penstock: ' <<<"$output")" "what is thrown, from either"
    said 'torch has no recordHistory with cudaMallocAsync, which Penstock asked it to use; PYTORCH_CUDA_ALLOC_CONF=backend:native'
    # No line for other errors, nor when the user chose the backend.
    run_penstock ./program
    ended_with 0
    equal "fg8 x fg7 long:  fg8 x" "${output//$'\n'/ }"
    said
    run_penstock PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync ./program recordHistory
    contains "$output" "^$all"
    said
    # The same when the library is linked with the program.
    echo 'extern "C" void fails(const char *, int); int main() { fails("shareIpcHandle", 1); }' | g++ -x c++ -o linked - -x none ./libuser.so -L. -l:libc10.so -Wl,-rpath,"$PWD"
    run_penstock ./linked
    ended_with 0
    said 'torch has no shareIpcHandle with '
}

# set_by_script VARIABLE VALUE [SETTING]...: prints both variables as torch would find them when a
# script sets one before it loads torch.
set_by_script() {
    cat >sets.py <<'END'
import ctypes, os, sys
get = ctypes.CDLL(None).getenv
get.restype = ctypes.c_char_p
os.environ[sys.argv[1]] = sys.argv[2]
assert os.environ[sys.argv[1]] == sys.argv[2], "a script finds what it has set"
print(*((get(name) or b"(unset)").decode() for name in (b"PYTORCH_CUDA_ALLOC_CONF", b"PYTORCH_ALLOC_CONF")))
END
    run_penstock "${@:3}" python3 sets.py "$1" "$2"
    ended_with 0
}

@test "a script that sets torch's variables before it loads torch counts like the user's environment" {
    requires python
    local visible=backend:cudaMallocAsync old=PYTORCH_CUDA_ALLOC_CONF new=PYTORCH_ALLOC_CONF own=expandable_segments:True
    set_by_script $old $own
    equal "$visible,$own $visible" "$output"
    set_by_script $new $own
    equal "$visible $visible,$own" "$output"
    set_by_script $old ''
    equal "$visible $visible" "$output"
    # torch 2.11 reads the old name first. A script's choice in one variable must not be overridden
    # by the other.
    set_by_script $old backend:native
    equal "backend:native (unset)" "$output"
    set_by_script $new "backend : native,$own"
    equal "(unset) backend : native,$own" "$output"
    # Restoring the value that was found there is not a choice.
    set_by_script $new $visible
    equal "$visible $visible" "$output"
    set_by_script $old $visible,$own
    equal "$visible,$own $visible" "$output"
    sed -i '1i mode="reduce-overhead"' sets.py
    run_penstock python3 sets.py $new $visible
    equal "(unset) $visible" "$output" "where Penstock chose torch's own"
    set_by_script $new backend:native $old=a:1
    equal "a:1 backend:native" "$output"
    # The user's setting wins.
    set_by_script $old $own PENSTOCK_ALLOC_CONF=0
    equal "$own (unset)" "$output"
    set_by_script $old $own PENSTOCK_DISABLE=1
    equal "$own (unset)" "$output"
    set_by_script $old $own $new=backend:native
    equal "$own backend:native" "$output"
    set_by_script ${old}S $own
    equal "$visible $visible" "$output" "another variable"
}

@test "children of such a script get the settings once, in whichever environment they are started" {
    requires python
    cat >starts.py <<'END'
import os, subprocess
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "a:1"
for environment in (None, dict(os.environ)):
    subprocess.run(["sh", "-c", "echo $PYTORCH_CUDA_ALLOC_CONF"], env=environment, check=True)
END
    run_penstock python3 starts.py
    ended_with 0
    equal "backend:cudaMallocAsync,a:1 backend:cudaMallocAsync,a:1" "${output//$'\n'/ }"
    # When the script names a mode of torch.compile that needs it, torch keeps its own allocator.
    # That is its default, too.
    sed 's/^for/mode="reduce-overhead"\n&/' starts.py >graphs.py
    run_penstock python3 graphs.py
    ended_with 0
    equal "backend:native,a:1 a:1" "${output//$'\n'/ }"
}

@test "setenv behaves like the C library's for all other variables" {
    requires cc
    build_probe sets <<'END'
#include <errno.h>

int (*set)(const char *, const char *, int) = setenv;

int main(void)
{
    EXPECT(set("PYTORCH_CUDA_ALLOC_CONF", "a:1", 0) == 0 && !strcmp(getenv("PYTORCH_CUDA_ALLOC_CONF"), "backend:cudaMallocAsync"));
    EXPECT(set("PYTORCH_CUDA_ALLOC_CONF", "a:1", 1) == 0 && !strcmp(getenv("PYTORCH_CUDA_ALLOC_CONF"), "backend:cudaMallocAsync,a:1"));
    EXPECT(set("PYTORCH_ALLOC_CONF", "backend:native", 0) == 0 && !strcmp(getenv("PYTORCH_ALLOC_CONF"), "backend:cudaMallocAsync"));
    EXPECT(!strcmp(getenv("PYTORCH_CUDA_ALLOC_CONF"), "backend:cudaMallocAsync,a:1"));
    EXPECT(set("OTHER", "backend", 1) == 0 && !strcmp(getenv("OTHER"), "backend"));
    EXPECT(set("OTHER", "more", 0) == 0 && !strcmp(getenv("OTHER"), "backend"));
    EXPECT(set("", "a", 1) == -1 && errno == EINVAL);
    EXPECT(set("A=B", "a", 1) == -1 && errno == EINVAL);
    EXPECT(set(NULL, "a", 1) == -1 && errno == EINVAL);
    puts("ok");
    return 0;
}
END
    run_probe sets
    contains "$output" '^ok$'
}

@test "PENSTOCK_ALLOC_CONF=0 and PENSTOCK_DISABLE=1 leave torch's settings alone" {
    local off
    for off in PENSTOCK_ALLOC_CONF=0 PENSTOCK_DISABLE=1; do
        torch_settings $off
        equal "(unset) (unset)" "$output" "$off"
        torch_settings $off PYTORCH_CUDA_ALLOC_CONF=a:1 PYTORCH_ALLOC_CONF=b:2
        equal "a:1 b:2" "$output" "$off"
    done
    torch_settings PENSTOCK_ALLOC_CONF=1 PENSTOCK_DISABLE=0
    equal "backend:cudaMallocAsync backend:cudaMallocAsync" "$output"
}

@test "a program started by a program gets the settings once" {
    run_penstock PYTORCH_CUDA_ALLOC_CONF=a:1 sh -c 'sh -c "echo \$PYTORCH_CUDA_ALLOC_CONF \$PYTORCH_ALLOC_CONF"'
    equal "backend:cudaMallocAsync,a:1 backend:cudaMallocAsync,a:1" "$output"
}

@test "a file with one long comment delays no Python, and a file that shrinks meanwhile ends no program" {
    requires python cc
    # Each of these would be a key's value if the line were not a comment.
    python3 -c 'open("long.yaml", "w").write("# " + "mode: reduce-overhead," * 180000)'
    python3 -c 'open("code.py", "w").write("# " + "mode=\"max-autotune\"," * 90000 + "\n" + "triton.cudagraphs = True " * 80000)'
    LIMIT=60
    run_penstock python3 -c 'import os; print(os.environ["PYTORCH_CUDA_ALLOC_CONF"])' long.yaml
    ended_with 0
    equal backend:cudaMallocAsync "$output"
    run_penstock python3 -c 'import os; print(os.environ["PYTORCH_CUDA_ALLOC_CONF"])' code.py
    ended_with 0
    equal backend:native "$output"
    # The file is truncated once its size is known.
    gcc -x c -shared -fPIC -o cut.so - <<'END'
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int fstat(int fd, struct stat *status)
{
    char path[64], file[4096] = "";
    int result = (int)syscall(SYS_fstat, fd, status);

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (readlink(path, file, sizeof file - 1) > 0 && strstr(file, "/long.yaml") && truncate(file, 10) == 0)
        fputs("cut\n", stderr);
    return result;
}
END
    run with_device env LD_PRELOAD="${SANITIZER:+$SANITIZER:}$WORK/cut.so:$PENSTOCK_SO" python3 -c pass long.yaml
    ended_with 0
    equal cut "$output"
    equal 10 "$(stat -c %s long.yaml)" bytes
}
