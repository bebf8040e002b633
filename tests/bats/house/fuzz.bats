#!/usr/bin/env bats
# The fuzz targets (tests/fuzz): each takes its corpus, and new inputs for some time. When the tested
# code lacks a check, a target fails on an input of its corpus.

load ../../lib/helper

setup() {
    helper_setup
    requires clang python release
}

@test "readers and writers take any input, and their properties hold" {
    local seconds=1 targets
    is_short || seconds=12
    mapfile -t targets < <(find "$ROOT/tests/fuzz" -mindepth 2 -maxdepth 2 -name 'target.*' -printf '%h\n' | sed 's|.*/||' | sort)
    mapfile -t targets < <(some_of 3 "${targets[@]}")
    run "$ROOT/tests/fuzz/run" --seconds $seconds --jobs "$(nproc)" "${targets[@]}"
    ended_with 0
    equal ${#targets[@]} "$(grep -c '^ok ' <<<"$output")" "targets"
    lacks "$output" ': 0 inputs|, 0 in'
    sed -E 's/.* corpus, ([0-9]+) in .*/\1/' <<<"$output" | awk '{ sum += $1 } END { print "# " sum " inputs" }' >&3
}

@test "the corpora are small" {
    at_most 40960 "$(find "$ROOT"/tests/fuzz/*/corpus -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum }')" "bytes"
}

@test "the runner refuses unknown targets and options" {
    run "$ROOT/tests/fuzz/run" no-such-target
    ended_with 2
    contains "$output" 'no-such-target: no such target'
    run "$ROOT/tests/fuzz/run" --seconds long
    ended_with 2
}

# Copies the tree with its objects, to spoil a file: only objects that depend on it are rebuilt.
copy_tree() {
    mkdir -p tree/tests tree/build
    cp -a "$ROOT"/{include,policy,scripts,shim} tree/
    cp -a "$ROOT"/tests/{cudasim,fuzz,lib} tree/tests/
    [ ! -d "$ROOT/build/fuzz/obj" ] || cp -a "$ROOT/build/fuzz" tree/build/fuzz
}

# bites TARGET FILE EXPRESSION: checks that the target fails, and names an input of its corpus, after
# this change (for sed) of the file
bites() {
    local name=$1 file=$2 expression=$3
    [ -d tree ] || copy_tree
    cp -p "tree/$file" right
    sed -i -E "$expression" "tree/$file"
    ! cmp -s right "tree/$file" || { echo "$file: '$expression' changes nothing" && return 1; }
    run env CUDA_HOME="$TOOLKIT" tree/tests/fuzz/run --seconds 0 "$name"
    echo "$name without '$expression': $output"
    cp -p right "tree/$file"
    touch "tree/$file" # newer than what was built from the spoilt one
    ended_with 1 || return 1
    contains "$output" "^FAIL +$name: tests/fuzz/$name/corpus/"
}

# A target, a file, and the change that removes a check from it. Some run with each commit.
spoilt() {
    cat <<'EOT'
advice scripts/command/penstock-advise s/errors="surrogateescape"/errors="strict"/
fatbin tests/cudasim/cudart/fatbin.c s/ \|\| entry\.sm > sm//
findings scripts/command/penstock-verify s/<= bounds\(out\[-1\]\)\[1\] \+ 1/<= bounds(out[-1])[1] + 2/
frameworks shim/hooks/frameworks.c s/if \(chooses_backend\(value\[i\]\)\)/if (false)/
glob policy/glob.c s/ \|\| \*at == '\^'//
host_memory shim/base/host_memory.c s/ \|\| m\.available_kib > m\.total_kib//
json shim/base/json.c s/\*s < 0x20 \|\| //
kernel_names shim/kernels/torch_tensor_lists.c s/ \|\| next != 0//
kernel_params shim/kernels/kernel_params.c s/if \(taken > cursor->left\)/if (false)/
layer_names shim/plan/layer_names.c s/if \(value < PS_LAYERS_UNNUMBERED\)/if (true)/
live_directory shim/base/live_directory.c s/return !strcmp\(same, name\)/return true/
live_page scripts/command/top_pages.c s/if \(p->now\.devices > PS_LIVE_DEVICES_MAX\)/if (false)/
log shim/base/plain_text.c s/ \|\| \(\*s >= 0x7f && \*s < 0xa0\)//
metrics shim/observe/live_json.c s/ && value == UINT64_MAX//
notes shim/base/rank_exchange.c s/a->bytes == own->bytes && //
nvtx shim/tracer/nvtx_layers.c s/\(unsigned long\)wide\[i\] < 0x80/true/
ranks shim/base/ranks.c s/!\(local && ranks\.several\)/!local/
recording policy/recording/text.c s/p->named_by\[span\] == p->launches/false/
reports scripts/command/penstock-report s/text\.replace\("<", "[^"]*"\)/text/
rules policy/span_rules.c s/ \|\| \*last < \*first//
settings shim/base/settings.c s/bytes < low/bytes < low \/ 2/
task shim/verify/task.c s/ \|\|$/ ||/;s/^        task->kernel\)$/        false)/
torch_settings shim/hooks/torch_settings.c s/\*first == '#'/*first == '!'/
trace shim/observe/trace_format.c s/^    end_layer\(device, ns\);//
EOT
}

@test "tested code without one of its checks fails on an input of the corpus" {
    local name file expression lines line
    mapfile -t lines < <(spoilt)
    mapfile -t lines < <(some_of 8 "${lines[@]}")
    for line in "${lines[@]}"; do
        read -r name file expression <<<"$line"
        bites "$name" "$file" "$expression" || return 1
    done
    at_least 3 ${#lines[@]} "spoilt files"
}

@test "each target is among those that are spoilt" {
    equal "$(spoilt | cut -d' ' -f1 | sort)" "$(find "$ROOT/tests/fuzz" -mindepth 2 -maxdepth 2 -name 'target.*' -printf '%h\n' | sed 's|.*/||' | sort)"
}
