# shellcheck shell=bash
# bats finds this file by a link in each folder of tests/bats. It runs once, before the first test
# of a bats call: it prints the versions of the tools, and builds everything that the tests use. A
# failure here fails the whole call.

setup_suite() {
    local root build
    root=$(dirname "$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")")
    build=${PENSTOCK_TEST_BUILD:-build/release}
    [[ "$build" == /* ]] || build=$root/$build
    export PENSTOCK_TEST_BUILD=$build
    PENSTOCK_TEST_TOOLKIT=$("$root/scripts/dev/cuda-home" || true)
    export PENSTOCK_TEST_TOOLKIT PENSTOCK_TEST_TURN=${PENSTOCK_TEST_TURN:-$(turn_of "$root")}
    # Live pages go to a separate directory, apart from those of other programs and other bats
    # calls.
    XDG_RUNTIME_DIR=$(mktemp -d /dev/shm/penstock-suite.XXXXXX)
    export XDG_RUNTIME_DIR
    # `make test` does both itself; a plain `bats tests/bats/ROOM` does neither.
    if [ "${PENSTOCK_TEST_BANNER:-}" != shown ]; then
        "$root/scripts/dev/versions" | sed 's/^/# /' >&3
        make -C "$root" --no-print-directory "-j$(nproc)" "$(variant_of "$build")" everything >&2
    fi
}

teardown_suite() {
    rm -rf "$XDG_RUNTIME_DIR"
}

# turn_of TREE: prints the number of commits, so that successive commits take successive turns. If
# the history is not there, prints the number of the day.
turn_of() {
    if [ "$(git -C "$1" rev-parse --is-shallow-repository 2>/dev/null)" = false ]; then
        git -C "$1" rev-list --count HEAD
    else
        echo $(($(date +%s) / 86400))
    fi
}

# variant_of DIRECTORY: prints the make variables that build this variant
variant_of() {
    case ${1##*/} in
    asan) echo SAN=address ;;
    tsan) echo SAN=thread ;;
    debug) echo DEBUG=1 ;;
    mutant) echo MUTANT=1 ;;
    *) echo DEBUG= ;;
    esac
}
