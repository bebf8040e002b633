#!/usr/bin/env bats
# Set-up, the build's own promises, installation. scripts/dev/prove-bare proves set-up on a bare
# machine; these tests need a finished one.

load ../../lib/helper

# Runs make for this tree and the variant under test, as a person would.
make_here() {
    local variant
    # shellcheck source=tests/lib/setup_suite.bash
    source "$ROOT/tests/lib/setup_suite.bash"
    variant=$(variant_of "$BUILD")
    env -u MAKEFLAGS -u MAKELEVEL make -C "$ROOT" --no-print-directory "$variant" OUT="${BUILD#"$ROOT"/}" "$@"
}

@test "set-up for a second time is silent and quick" {
    run "$ROOT/scripts/dev/setup" build
    ended_with 0
    local started=$SECONDS
    run "$ROOT/scripts/dev/setup" build
    ended_with 0
    equal '' "$output"
    at_most 2 $((SECONDS - started)) seconds
}

@test "set-up without root names the missing packages and stops with status 2" {
    mkdir bin
    ln -s /usr/bin/* bin/
    rm bin/jq
    rm -f bin/id
    printf '#!/bin/sh\necho 1000\n' >bin/id
    chmod +x bin/id
    run env PATH="$WORK/bin" "$ROOT/scripts/dev/setup" build
    ended_with 2
    contains "$output" 'apt-get install -y .*jq'
    equal 1 "${#lines[@]}" "lines"
}

@test "set-up refuses a tier that does not exist" {
    run "$ROOT/scripts/dev/setup" everything
    ended_with 2
}

# Makes a directory with the parts of a toolkit of the given CUDA_VERSION.
fake_toolkit() {
    mkdir -p "$1/bin" "$1/include/nvtx3" "$1/lib64"
    printf '#!/bin/sh\n' >"$1/bin/nvcc"
    chmod +x "$1/bin/nvcc"
    echo "#define CUDA_VERSION $2" >"$1/include/cuda.h"
    touch "$1/include/cupti.h" "$1/include/nvtx3/nvToolsExt.h" "$1/lib64/libcudart.so"
}

@test "the toolkit is CUDA_HOME's if it is complete and of release 13" {
    fake_toolkit right 13000
    fake_toolkit old 12040
    fake_toolkit half 13000
    rm half/include/cupti.h
    equal "$WORK/right" "$(CUDA_HOME=$WORK/right "$ROOT/scripts/dev/cuda-home")"
    for home in old half absent; do
        run env CUDA_HOME="$WORK/$home" PATH="$WORK/right/bin:/usr/bin:/bin" "$ROOT/scripts/dev/cuda-home"
        equal "$WORK/right" "$output" "CUDA_HOME=$home, a good nvcc on PATH"
    done
    mkdir -p half/extras/CUPTI/include
    touch half/extras/CUPTI/include/cupti.h
    equal "$WORK/half" "$(CUDA_HOME=$WORK/half "$ROOT/scripts/dev/cuda-home")"
}

@test "a second make builds nothing" {
    make_here everything
    run make_here everything
    ended_with 0
    lacks "$output" '^ +(CC|LD|AR|NVCC|GEN) '
}

@test "a change of flags rebuilds, and the same flags do not" {
    requires cc nvcc
    cp -r "$ROOT/Makefile" "$ROOT/scripts" "$ROOT/include" "$ROOT/policy" "$ROOT/shim" .
    mkdir -p tests/cudasim tests/bench
    cp "$ROOT/tests/cudasim/build.mk" tests/cudasim/
    cp "$ROOT/tests/bench/build.mk" tests/bench/
    make_lru() { env -u MAKEFLAGS -u MAKELEVEL CUDA_HOME="$TOOLKIT" make "$@" build/release/obj/policy/lru.o; }
    run make_lru V=1
    ended_with 0
    run make_lru
    ended_with 0
    lacks "$output" 'CC .*lru'
    run make_lru CFLAGS='-O1 -g'
    ended_with 0
    contains "$output" 'CC .*lru'
}

@test "variants that don't exist are refused" {
    run make_here SAN=everything help
    ended_with 2
    contains "$output" 'expected address or thread'
    run make -C "$ROOT" DEBUG=1 MUTANT=1 help
    ended_with 2
}

@test "install puts every file in its place, and uninstall removes exactly these" {
    local stage=$WORK/stage prefix=/opt/penstock
    make_here install DESTDIR="$stage" PREFIX=$prefix
    (cd "$stage$prefix" && find . ! -type d | sort) >installed
    cat >wanted <<'EOF'
./bin/penstock
./lib/libpenstock.so
./libexec/penstock/penstock-advise
./lib/libpenstock.so.0
./libexec/penstock/penstock-doctor
./libexec/penstock/penstock-help
./libexec/penstock/penstock-kernels
./libexec/penstock/penstock-plan
./libexec/penstock/penstock-plan-bound
./libexec/penstock/penstock-report
./libexec/penstock/penstock-settings
./libexec/penstock/penstock-summary
./libexec/penstock/penstock-trade
./libexec/penstock/penstock-top
./libexec/penstock/penstock-verify
./libexec/penstock/penstock_command.py
./libexec/penstock/penstock_files.py
./libexec/penstock/penstock_findings.py
./libexec/penstock/penstock_output.py
./libexec/penstock/penstock_reports.py
./libexec/penstock/penstock_text.py
./share/bash-completion/completions/penstock
./share/fish/vendor_completions.d/penstock.fish
./share/man/man1/penstock.1
./share/man/man7/libpenstock.7
./share/penstock/penstock.py
./share/penstock/report-page/chart-licence.txt
./share/penstock/report-page/chart.js
./share/penstock/report-page/page.css
./share/penstock/report-page/page.html
./share/penstock/report-page/page.js
./share/penstock/report-page/section.html
./share/pkgconfig/penstock.pc
./share/zsh/site-functions/_penstock
EOF
    for header in "$ROOT"/include/penstock/*.h; do
        echo "./include/penstock/${header##*/}"
    done >>wanted
    sort -o wanted wanted
    grep -v '^./share/doc/' installed | diff wanted -

    # The documents: the README, and what it leads to.
    [ -e "$stage$prefix/share/doc/penstock/scripts/manual/settings.md" ]
    equal '' "$(broken_links "$stage$prefix/share/doc/penstock")" "links that lead nowhere"

    # Another package's file stays. Our files go, and so do directories that only we used.
    touch "$stage$prefix/lib/libother.so"
    make_here uninstall DESTDIR="$stage" PREFIX=$prefix
    equal ./lib/libother.so "$(cd "$stage$prefix" && find . ! -type d)"
    [ ! -e "$stage$prefix/libexec/penstock" ]
    [ ! -e "$stage$prefix/include/penstock" ]
    [ ! -e "$stage$prefix/share/penstock" ]
    [ ! -e "$stage$prefix/share/doc/penstock" ]
}

@test "the installed command uses the installed library" {
    requires plain
    local stage=$WORK/stage
    make_here install DESTDIR="$stage" PREFIX=/usr
    run "$stage/usr/bin/penstock" --version
    ended_with 0
    contains "$output" '^penstock [0-9]+\.[0-9]+'
    run with_device "$stage/usr/bin/penstock" run --budget 1GiB -- sh -c 'echo "$LD_PRELOAD"'
    ended_with 0
    equal "$stage/usr/lib/libpenstock.so" "${lines[0]}"
    # Through a link, as from another bin directory.
    ln -s "$stage/usr/bin/penstock" penstock
    run with_device ./penstock run -- sh -c 'echo "$LD_PRELOAD"'
    equal "$stage/usr/lib/libpenstock.so" "${lines[0]}"
    equal "$stage/usr/lib/libpenstock.so.0" "$(readlink -f "$stage/usr/lib/libpenstock.so")"
}

@test "the installed command finds its library in each distribution's directory, and accepts one by name" {
    requires plain
    local stage=$WORK/stage directory
    for directory in lib64 lib/penstock lib/x86_64-linux-gnu; do
        make_here install DESTDIR="$stage" PREFIX=/usr LIBDIR=/usr/$directory
        run with_device "$stage/usr/bin/penstock" run -- sh -c 'echo "$LD_PRELOAD"'
        equal "$stage/usr/$directory/libpenstock.so" "${lines[0]}"
        run with_device "$PENSTOCK" run --library "$stage/usr/$directory/libpenstock.so" -- sh -c 'echo "$LD_PRELOAD"'
        equal "$stage/usr/$directory/libpenstock.so.0" "${lines[0]}"
        make_here uninstall DESTDIR="$stage" PREFIX=/usr LIBDIR=/usr/$directory
        equal '' "$(find "$stage" ! -type d)" "left in $directory"
    done
}

@test "the demo reports at its start when it can't run from this place" {
    mkdir 'a place'
    cp -r "$ROOT/Makefile" "$ROOT/scripts" "$ROOT/include" 'a place/'
    run "a place/scripts/dev/demo" --check
    ended_with 1
    contains "$output" "^demo: $WORK/a place: the loader's LD_PRELOAD can't name a path with a space or a colon; put the tree somewhere else\$"
    "$ROOT/scripts/dev/demo" --check
    # The check comes before set-up and build.
    contains "$(make -C "$ROOT" -n demo | grep -v '^make' | head -n 1)" '^scripts/dev/demo --check$'
}

@test "the demo trains with the same results in half the memory" {
    requires sim samples plain
    run "$ROOT/scripts/dev/demo" "$BUILD" mlp --batch=65536 --steps=2
    ended_with 0
    contains "$output" 'peak device memory +[0-9.]+ MiB +[0-9.]+ MiB'
    contains "$output" 'losses, gradients, parameters +identical'
    lacks "$output" 'moved to the host +- +0\.0 MiB'
    # The commands that it prints work in the directory of the call: here, and in the tree itself.
    local lines_typed line
    lines_typed=$(sed -nE 's/^  (LD_LIBRARY_PATH=.*|.*scripts\/command\/penstock report .*)$/\1/p' <<<"$output")
    equal 2 "$(wc -l <<<"$lines_typed")" "commands"
    rm "$BUILD/demo/report.html"
    while IFS= read -r line; do bash -euc "$line" >/dev/null; done <<<"$lines_typed"
    contains "$(cat "$BUILD/demo/report.html")" 'data-of="peak_resident_bytes"'
    contains "$output" "^The page is $BUILD/demo/report\.html\. Open it in a browser: file://$BUILD/demo/report\.html\$"
}
