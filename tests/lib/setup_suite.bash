# shellcheck shell=bash
# Linked from each folder of tests/bats, where bats looks for it. Runs once before the first test of a bats call: sees that what the tests use is built, and says with what it was.
# A failure here fails the whole call: a suite that can't be prepared has nothing to report.

setup_suite() {
    local root build digits
    root=$(dirname "$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")")
    build=${PENSTOCK_TEST_BUILD:-build/release}
    [[ "$build" == /* ]] || build=$root/$build
    export PENSTOCK_TEST_BUILD=$build
    PENSTOCK_TEST_TOOLKIT=$("$root/scripts/dev/cuda-home" || true)
    digits=$(git -C "$root" rev-parse --short=4 HEAD 2>/dev/null || true)
    export PENSTOCK_TEST_TOOLKIT PENSTOCK_TEST_TURN=${PENSTOCK_TEST_TURN:-$((16#${digits:-0}))}
    # Where programs put their live pages: not among those of whatever else runs on this machine, of other files of tests too.
    XDG_RUNTIME_DIR=$(mktemp -d /dev/shm/penstock-suite.XXXXXX)
    export XDG_RUNTIME_DIR
    # `make test` has done both already; a plain `bats tests/bats/ROOM` has not.
    if [ "${PENSTOCK_TEST_BANNER:-}" != shown ]; then
        "$root/scripts/dev/versions" | sed 's/^/# /' >&3
        make -C "$root" --no-print-directory "-j$(nproc)" "$(variant_of "$build")" everything >&2
    fi
}

teardown_suite() {
    rm -rf "$XDG_RUNTIME_DIR"
}

# The make variables that build a directory's variant.
variant_of() {
    case ${1##*/} in
    asan) echo SAN=address ;;
    tsan) echo SAN=thread ;;
    debug) echo DEBUG=1 ;;
    mutant) echo MUTANT=1 ;;
    *) echo DEBUG= ;;
    esac
}
