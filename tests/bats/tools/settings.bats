#!/usr/bin/env bats
# PENSTOCK_* variables that can't be used: the command refuses to start. The preloaded library
# prints a line and uses the default.

load ../../lib/helper

check_settings() { run env "$@" "$BUILD/penstock-settings" check; }

# names VARIABLE=VALUE [ACCEPTED]: the only line of output names the variable, the value and the
# accepted values.
names() {
    equal 1 "${#lines[@]}" lines
    [[ "$output" == "penstock: $1: "* ]] || equal "penstock: $1: ..." "$output"
    [ -z "${2:-}" ] || contains "$output" "$2"
}

@test "valid settings are accepted silently" {
    for setting in BUDGET=48GiB BUDGET=1.5GB BUDGET=60% BUDGET=0 BUDGET=auto BUDGET=unlimited BUDGET=1073741824 HOST_BUDGET=40% \
        MIN_SPAN=64KiB GUARD=unmap GUARD=host GUARD=auto TRACER=auto TRACER=cupti TRACER=hook POLICY=lru POLICY=plan LAYERS=nvtx:'layer *' 'RULES=exclude layer=3; include size>=4MiB' KEEP_LAST=0 GRACE=0 LOG=warn,residency:debug DISABLE=1 ALLOC_CONF=0 REPORT=report.json REPORT= TRACE=trace.json TRACE= TRACE=/dev/null \
        TEST_ANYTHING=x; do
        check_settings "PENSTOCK_$setting"
        ended_with 0
        equal '' "$output" "said about $setting"
    done
}

@test "a bad setting is named with the accepted values" {
    local setting
    for setting in BUDGET=lots BUDGET=-1 BUDGET= BUDGET=nan BUDGET=48G BUDGET=101% BUDGET=1GiBs BUDGET=99999999TiB \
        BUDGET=18446744073709551616 HOST_BUDGET=unlimited RESERVE=-1MiB MIN_SPAN=0 MIN_SPAN=5%; do
        check_settings "PENSTOCK_$setting"
        ended_with 2
        names "PENSTOCK_$setting" 'expected bytes with a unit \('
    done
    for setting in GUARD=dog:'expected auto, host or unmap' TRACER=strace:'expected auto, cupti or hook' POLICY=fifo:'expected plan, layers, lru or the absolute path' \
        LAYERS=cupti:'expected auto, api, none, nvtx:PATTERN' KEEP_LAST=-1:'expected a number of layers' \
        RULES=omit:'wrong at character 1 \("omit"\); expected rules separated by ;' GRACE=-1:'expected a number of kernel launches' \
        LOG=loud:'expected error, warn, info or debug' DISABLE=yes:'expected 0 or 1' ALLOC_CONF=2:'expected 0 or 1'; do
        check_settings "PENSTOCK_${setting%%:*}"
        ended_with 2
        names "PENSTOCK_${setting%%:*}" "${setting#*:}"
    done
}

# wrong_value ACCEPTED: prints a value that a setting with this text refuses, with the same text.
wrong_value() {
    case $1 in
    *'can be written to' | *'can be appended to') echo /dev/null/nowhere ;;
    'the absolute path of '*) echo somewhere/else ;;
    'the path of '*) head -c 5000 /dev/zero | tr '\0' x ;; # any path that is not too long is accepted
    *) echo '?' ;;
    esac
}

@test "the line for each bad setting names variable, value, accepted values and remedy" {
    local name default accepted value remedy
    while IFS=$'\037' read -r name _ default accepted _; do
        value=$(wrong_value "$accepted")
        check_settings "$name=$value"
        ended_with 2
        remedy="; correct it, or unset it"
        [ -z "$default" ] || remedy+=" for the default, $default"
        equal 1 "${#lines[@]}" lines
        [[ "$output" == "penstock: $name=${value:0:100}"*": "*"expected $accepted"*"$remedy" ]] || equal "$name: expected $accepted ...$remedy" "$output"
        # The preloaded library prints the same line, and its consequence.
        [ "$name" != PENSTOCK_BUDGET ] && [ "$name" != PENSTOCK_RULES ] || {
            local line=$output
            train "$name=$value"
            ended_with 0
            equal 1 "$(grep -cF "$line; going on without it" <<<"$output")" "lines about $name"
        }
    done < <("$BUILD/penstock-settings" list | tr '\t' '\037')
}

@test "an unknown name is reported, with the setting that was probably meant" {
    check_settings PENSTOCK_BUGDET=48GiB
    ended_with 2
    # shellcheck disable=SC2016
    names PENSTOCK_BUGDET=48GiB 'no such setting; did you mean PENSTOCK_BUDGET\? Rename or unset it; `penstock help settings` lists all$'
    check_settings PENSTOCK_FROBNICATE=1
    ended_with 2
    # shellcheck disable=SC2016
    names PENSTOCK_FROBNICATE=1 'no such setting; unset it; `penstock help settings` lists all$'
    lacks "$output" 'did you mean'
}

@test "a report that can't be written is a problem before anything runs" {
    mkdir here
    for path in "$WORK/nowhere/report.json" "$WORK/here" /dev/null/report.json; do
        check_settings "PENSTOCK_REPORT=$path"
        ended_with 2
        names "PENSTOCK_REPORT=$path" 'a file in a directory that can be written to \([A-Z]'
    done
    touch report.json # an existing report is replaced
    check_settings "PENSTOCK_REPORT=$WORK/report.json"
    ended_with 0
}

@test "a value's characters can't break the line" {
    check_settings "PENSTOCK_BUDGET=$(printf 'a\nb\033[31m')"
    ended_with 2
    equal 1 "${#lines[@]}" lines
    lacks "$output" $'\033'
    check_settings "PENSTOCK_BUDGET=$(head -c 5000 /dev/zero | tr '\0' x)"
    ended_with 2
    at_most 500 "${#output}" "length of the line"
}

@test "each setting's own default is accepted" {
    local name default settings=()
    while IFS=$'\t' read -r name default; do
        settings+=("$name=$default")
    done < <("$BUILD/penstock-settings" list | cut -f 1,3)
    at_least 12 "${#settings[@]}" settings
    check_settings "${settings[@]}"
    ended_with 0
}

@test "the list has five columns, and the Markdown table a row for each setting" {
    run "$BUILD/penstock-settings" list
    ended_with 0
    equal '' "$(awk -F '\t' 'NF != 5 || $1 !~ /^PENSTOCK_[A-Z_]+$/' <<<"$output")" "rows of another shape"
    local rows=${#lines[@]}
    run "$BUILD/penstock-settings" markdown
    ended_with 0
    equal $((rows + 2)) "${#lines[@]}" rows
    equal '' "$(awk -F '|' 'NF != 6' <<<"$output")" "rows with another number of cells"
}

@test "penstock run stops with status 2 before the command starts" {
    PENSTOCK_BUDGET=lots run_command run -- touch started
    ended_with 2
    names PENSTOCK_BUDGET=lots 'expected bytes'
    [ ! -e started ]
    PENSTOCK_REPORT=$WORK/nowhere/report.json run_command run -- touch started
    ended_with 2
    [ ! -e started ]
}

# The smallest trainer: at its first CUDA call the library reads and checks its settings.
train() { run_penstock "$@" "$SAMPLES/mlp" --layers 2 --steps 2; }

@test "the preloaded library names a bad setting once and uses the default" {
    requires samples
    train PENSTOCK_LOG=warn
    ended_with 0
    local good
    good=$(grep -v '^penstock: ' <<<"$output")
    train PENSTOCK_BUDGET=lots PENSTOCK_GRACE=-1 PENSTOCK_BUGDET=3
    ended_with 0
    equal 1 "$(grep -c '^penstock: PENSTOCK_BUDGET=lots: expected bytes with a unit' <<<"$output")" "lines about the budget"
    equal 1 "$(grep -c '^penstock: PENSTOCK_GRACE=-1: expected' <<<"$output")" "lines about the grace"
    equal 1 "$(grep -c '^penstock: PENSTOCK_BUGDET=3: no such setting' <<<"$output")" "lines about the unknown name"
    equal "$good" "$(grep -v '^penstock: ' <<<"$output")" "what the trainer prints"
}

@test "the preloaded library names an unwritable report, and the program ends as usual" {
    requires samples
    train "PENSTOCK_REPORT=$WORK/nowhere/report.json"
    ended_with 0
    contains "$output" "^penstock: PENSTOCK_REPORT=$WORK/nowhere/report.json: expected the path of a file"
}

@test "the preloaded library prints nothing in a program without CUDA, whatever the settings" {
    run_penstock PENSTOCK_BUDGET=lots PENSTOCK_FROBNICATE=1 true
    ended_with 0
    equal '' "$output"
}
