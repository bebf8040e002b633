#!/usr/bin/env bats
# Products of the tree for others: manual pages, completions, and packages. Each is compared with
# the command's own texts and options.

load ../../lib/helper

setup() {
    helper_setup
    requires release
}

SUBCOMMANDS='run verify advise doctor plan summary report top'

# Runs make for this tree, as a person would.
make_here() { env -u MAKEFLAGS -u MAKELEVEL make -C "$ROOT" --no-print-directory DEBUG= OUT="${BUILD#"$ROOT"/}" "$@"; }

# --- help and manual pages ------------------------------------------------------------------------

@test "each help fits on a screen and has the common form" {
    local subcommand
    for subcommand in '' $SUBCOMMANDS; do
        # no word for the command itself
        run "$PENSTOCK" help $subcommand
        ended_with 0
        at_most 40 "${#lines[@]}" "lines of help $subcommand"
        equal '' "$(awk 'length > 80' <<<"$output")" "wide lines"
        # Otherwise the page and the completions would misread it: lists are indented by two,
        # continued lines by eight or more.
        equal '' "$(grep -E '^( | {3,6})[^ ]' <<<"$output")" "indented otherwise"
        [ -z "$subcommand" ] || contains "$output" '^  --help +this text$'
    done
}

# options_of SUBCOMMAND: prints the options in its help.
options_of() { "$PENSTOCK" help "$1" | grep -oE '^  --[a-z-]+' | tr -d ' ' | sort; }

# page NAME: prints its source, with the characters that troff escapes as they are.
page() { sed -e 's/\\-/-/g' -e 's/\\(aq/'"'"'/g' -e 's/\\(ga/`/g' "$BUILD/man/$1"; }

@test "penstock(1) and the helps have the same options" {
    local subcommand
    for subcommand in $SUBCOMMANDS; do
        at_least 2 "$(options_of "$subcommand" | wc -l)" "options of $subcommand"
        equal "$(options_of "$subcommand")" \
            "$(page penstock.1 | sed -n "/^\.SS $subcommand\$/,/^\.S[SH] /p" | sed -nE 's/^\.B (--[a-z-]+).*/\1/p' | sort)" "options of $subcommand"
    done
    # The texts match too, word for word; lists have other line lengths there.
    for subcommand in '' $SUBCOMMANDS; do
        # shellcheck disable=SC2086
        equal "$("$PENSTOCK" help $subcommand | sed 's/^usage://' | tr -s ' \n' '\n\n' | grep -v '^$' | sort)" \
            "$(page penstock.1 | in_section "${subcommand:-DESCRIPTION}" | grep -vE '^\.(SS|SH|TP|PP|br)' | sed -E 's/^\.B //' | tr -s ' \n' '\n\n' | grep -v '^$' | sort)" \
            "words of ${subcommand:-the command itself}"
    done
}

# in_section NAME: prints the lines of a section, or of a part of one; the synopsis belongs to the
# description.
in_section() { awk -v name="$1" '/^\.S[HS] / { inside = $2 == name || name == "DESCRIPTION" && $2 == "SYNOPSIS" } inside'; }

@test "libpenstock(7), the help of settings and the table have the same variables and texts" {
    local name default accepted help
    # The names come from the table's own source.
    equal "$(sed -nE 's/^PS_SETTING\([a-z_]+, ([A-Z_]+),.*/PENSTOCK_\1/p' "$ROOT/shim/base/settings.def")" \
        "$(page libpenstock.7 | sed -nE 's/^\.B (PENSTOCK_[A-Z_]+)$/\1/p')" "variables"
    local text
    text=$(page libpenstock.7 | tr '\n' ' ')
    while IFS=$'\037' read -r name _ default accepted help; do
        [[ "$text" == *".B $name $help .br Accepted: $accepted .br Default: ${default:-none} "* ]] || equal "the page's text of $name" "another one"
    done < <("$BUILD/penstock-settings" list | tr '\t' '\037')
}

@test "libpenstock(7) has every page of the manual, with all of its code" {
    local page word text
    text=$(page libpenstock.7 | sed -e 's/\\f[BIR]//g' -e 's/^\\&//' -e 's/\\e/\\/g')
    for page in "$ROOT"/scripts/manual/*.md; do
        # Its heading is a section; the section of the settings has the name usual in manual pages.
        contains "$text" "^\.SH $(sed -n '1s/^# //p' "$page" | sed 's/^Settings$/ENVIRONMENT/' | tr '[:lower:]' '[:upper:]')\$"
        equal '' "$(sed -n 's/^## //p' "$page" | while IFS= read -r word; do grep -qxF ".SS $word" <<<"$text" || echo "$word"; done)" "sections of ${page##*/} that are missing"
        # Lines of the page are filled; lines of code are not.
        equal '' "$(sed '/settings: begin/,/settings: end/d' "$page" | grep -oE '`[^`]+`' | tr -d '`' | sort -u |
            while IFS= read -r word; do grep -qF -- "$word" <(tr '\n' ' ' <<<"$text") || echo "$word"; done)" "code of ${page##*/} that is missing"
        equal '' "$(sed -n 's/^    //p' "$page" | while IFS= read -r word; do grep -qxF -- "$word" <<<"$text" || echo "$word"; done)" "lines of code of ${page##*/} that are missing"
    done
    lacks "$text" '\*\*|\]\('
}

@test "every option in a help is accepted, and no other one" {
    local subcommand option taken
    for subcommand in $SUBCOMMANDS; do
        for option in $(options_of "$subcommand"); do
            # Neither a value nor a command is given: the error is about something other than the
            # option.
            run "$PENSTOCK" "$subcommand" "$option"
            lacks "$output" 'no such option|unrecognized'
        done
        run "$PENSTOCK" "$subcommand" --frobnicate=1 something
        contains "$output" 'no such option|unrecognized'
    done
    # Every option that the launcher looks for is in some help.
    taken=$(grep -oE '^ +(-h \| )?--[a-z-]+( \| --[a-z=*-]+)*\)' "$PENSTOCK" | grep -oE -- '--[a-z-]+' | sort -u)
    at_least 15 "$(wc -l <<<"$taken")" "options in the launcher"
    equal '' "$(comm -23 <(echo "$taken") <({ for subcommand in $SUBCOMMANDS; do options_of "$subcommand"; done; } | sort -u))" "options that no help has"
}

@test "the pages give no warning in mandoc or groff" {
    requires man
    local file
    for file in penstock.1 libpenstock.7; do
        run env LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings -l "$BUILD/man/$file"
        ended_with 0
        equal '' "$(grep -iE 'warning|error:' <<<"$output")" "said about $file"
        ! command -v mandoc >/dev/null || equal '' "$(mandoc -T lint "$BUILD/man/$file")" "mandoc about $file"
    done
}

# --- completion -----------------------------------------------------------------------------------

# completes LINE WORD...: bash offers these words at the end of the line, called as by readline:
# words are split at COMP_WORDBREAKS.
completes() {
    local line=$1 got
    shift
    got=$(
        COMP_WORDBREAKS=${BREAKS-$' \t\n"\'><=;|&(:'}
        # shellcheck source=/dev/null
        source "$BUILD/completions/bash"
        # split as readline does, an equals sign by itself
        if [[ "$COMP_WORDBREAKS" == *=* ]]; then set -- ${line//=/ = }; else set -- $line; fi
        COMP_WORDS=("$@")
        [[ "$line" != *' ' ]] || COMP_WORDS+=('')
        # shellcheck disable=SC2034
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_LINE=$line COMP_POINT=${#line}
        _penstock 2>&1
        printf '%s\n' "${COMPREPLY[@]}" | sort -u
    )
    equal "$(printf '%s\n' "$@" | sort -u)" "$got" "completion of: $line"
}

@test "bash completes subcommands, options, values, settings and files" {
    # shellcheck disable=SC2086 # words
    completes 'penstock ' $SUBCOMMANDS help --help --version
    completes 'penstock v' verify
    local subcommand
    for subcommand in $SUBCOMMANDS; do
        # shellcheck disable=SC2046
        completes "penstock $subcommand --" $(options_of "$subcommand") $([[ $subcommand != @(run|verify|advise) ]] || echo --)
    done
    completes 'penstock run --guard ' auto host unmap
    completes 'penstock run --guard=' auto host unmap
    completes 'penstock run --guard=h' host
    completes 'penstock verify --budget u' unlimited
    completes 'penstock plan --policy l' layers lru
    completes 'penstock run --guard host --rep' --report
    completes 'penstock run --set G' GUARD= GRACE=
    completes 'penstock run --set TRACER=' auto cupti hook
    completes 'penstock run --set PENSTOCK_TRACER=c' cupti
    completes 'penstock run --set=ALLOC_CONF=' 0 1
    completes 'penstock help s' summary settings
    touch report.json report.txt
    completes 'penstock run --report rep' report.json report.txt
    completes 'penstock run --set REPORT=report.j' report.json
    completes 'penstock summary report.json report.t' report.txt
    # Where an equals sign does not break words, the whole word is replaced.
    BREAKS=$' \t\n' completes 'penstock run --set=GUARD=h' --set=GUARD=host
    # A wrong subcommand has no completions, and no message is printed.
    completes 'penstock frobnicate ' ''
}

@test "after -- bash completes the command's own words" {
    touch train.py
    printf '#!/bin/sh\n' >penstock-test-trainer
    chmod +x penstock-test-trainer
    PATH=$WORK:$PATH completes 'penstock run --budget 1GiB -- penstock-test-t' penstock-test-trainer
    PATH=$WORK:$PATH completes 'penstock run penstock-test-t' penstock-test-trainer
    completes 'penstock run -- penstock-test-trainer tra' train.py
    # The command's own completion, where bash-completion can call it.
    _command_offset() { COMPREPLY=("offset $1"); }
    export -f _command_offset
    completes 'penstock run --budget 1GiB -- trainer --b' 'offset 5'
    completes 'penstock verify trainer --b' 'offset 2'
}

@test "values of settings that completion offers are accepted" {
    local name word
    at_least 15 "$("$BUILD/penstock-settings" words | grep -vc FILE)" words
    while IFS=$'\t' read -r name word; do
        [ "$word" = FILE ] || env "$name=$word" "$BUILD/penstock-settings" check
    done < <("$BUILD/penstock-settings" words)
    equal 'auto cupti hook' "$("$BUILD/penstock-settings" words | awk '$1 == "PENSTOCK_TRACER" { print $2 }' | paste -sd' ')"
    # The helps list the same values as the settings.
    for name in guard policy; do
        equal "$("$BUILD/penstock-settings" words | awk -v name="PENSTOCK_${name^^}" '$1 == name && $2 != "FILE" { print $2 }' | paste -sd'|')" \
            "$("$PENSTOCK" help plan | sed -nE "s/^  --$name ([a-z|]+)\$/\1/p")" "$name of penstock plan"
    done
    equal 'auto|host|unmap' "$("$PENSTOCK" help run | sed -nE 's/^  --guard ([a-z|]+)$/\1/p')"
}

@test "completion works in a bash at a terminal" {
    requires python
    cp "$BUILD/completions/bash" completion
    run python3 - <<'EOF'
import os, pty, select, time

pid, terminal = pty.fork()
if pid == 0:
    os.environ.update(TERM="dumb", PS1="$ ", HISTFILE="")
    os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
said = b""


def type_and_wait(keys, wanted):
    """Types, and reads until that is shown."""
    global said
    said = b""
    os.write(terminal, keys)
    end = time.monotonic() + 20
    while wanted not in said and time.monotonic() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            said += os.read(terminal, 65536)
    print(keys, "->", said, "" if wanted in said else "MISSING", flush=True)


type_and_wait(b". ./completion; echo rea''dy\n", b"ready\r\n")
type_and_wait(b"echo penstock; penstock ver\t", b"penstock verify ")
type_and_wait(b"--min\t", b"--min-span ")
type_and_wait(b"4MiB --set TRACER=cu\t", b"TRACER=cupti ")
os.close(terminal)
os.waitpid(pid, 0)
EOF
    ended_with 0
    lacks "$output" MISSING
}

@test "zsh and fish can read their completions" {
    local shell
    for shell in zsh fish; do
        contains "$(cat "$BUILD/completions/$shell")" '(--budget|-l budget)'
        lacks "$(cat "$BUILD/completions/$shell")" '@TABLES@'
        ! command -v $shell >/dev/null || $shell -n "$BUILD/completions/$shell"
    done
    requires fish
    run fish --no-config -c "source $BUILD/completions/fish; complete -C 'penstock run --guard '"
    equal 'auto host unmap' "$(cut -f 1 <<<"$output" | sort | paste -sd' ')"
}

# --- programs that are built against the library --------------------------------------------------

# annotated: writes a program that pins an allocation by the annotation API and prints the results.
annotated() {
    cat >annotated.c <<'EOF'
#include <dlfcn.h>
#include <penstock/penstock.h>
#include <stdio.h>

int main(void)
{
    void *runtime = dlopen("libcudart.so.13", RTLD_NOW), *memory = NULL;
    int (*allocate)(void **, size_t) = runtime ? (int (*)(void **, size_t))dlsym(runtime, "cudaMalloc") : NULL;

    penstock_layer_begin("block", 3, PENSTOCK_DIRECTION_FORWARD);
    if (!allocate || allocate(&memory, 4 << 20) != 0)
        return 1;
    penstock_layer_end();
    penstock_step();
    printf("pin %d", penstock_pin(memory));
    printf(" idle %d", penstock_hint_idle(memory));
    printf(" unpin %d", penstock_unpin(memory));
    printf(" unpin %d\n", penstock_unpin(memory));
    return 0;
}
EOF
}

@test "a program built by pkg-config runs with Penstock and without" {
    requires sim cc clang pkg-config
    local flags compiler kind variable
    make_here install DESTDIR= PREFIX="$WORK/prefix"
    export PKG_CONFIG_PATH=$WORK/prefix/share/pkgconfig
    equal "$("$PENSTOCK" --version)" "penstock $(pkg-config --modversion penstock)"
    variable=$(pkg-config --variable=preload penstock)
    equal "$WORK/prefix/lib/libpenstock.so" "$variable"
    annotated
    read -ra flags <<<"$(pkg-config --cflags --libs penstock)"
    for compiler in gcc clang; do
        for kind in pie no-pie; do
            "$compiler" -Wall -Werror -O1 -f$kind -$kind -o annotated annotated.c "${flags[@]}" -ldl
            lacks "$(objdump -p annotated)" 'NEEDED.*penstock'
            run_sim ./annotated
            ended_with 0
            equal 'pin -2 idle -2 unpin -2 unpin -2' "$output" "$compiler -$kind, without"
            run with_device LD_PRELOAD="$variable" ./annotated
            ended_with 0
            contains "$output" '^pin 0 idle 0 unpin 0 unpin -22$'
        done
    done
    # gcc needs no flag for it.
    gcc -O1 -fno-pie -no-pie -o annotated annotated.c "-I$WORK/prefix/include" -ldl
    run with_device LD_PRELOAD="$variable" ./annotated
    contains "$output" '^pin 0 '
}

@test "the library has a version in its name, and its functions have none" {
    requires sim cc
    make_here install DESTDIR= PREFIX="$WORK/prefix"
    local major
    major=$(sed -n 's/^#define PENSTOCK_VERSION_MAJOR //p' "$ROOT/include/penstock/version.h")
    contains "$(objdump -p "$WORK/prefix/lib/libpenstock.so")" "SONAME +libpenstock\.so\.$major\$"
    equal "$WORK/prefix/lib/libpenstock.so.$major" "$(readlink -f "$WORK/prefix/lib/libpenstock.so")"
    # CUDA's own references to the hooks have CUDA's versions, or none. A version of ours would
    # satisfy neither.
    lacks "$(objdump -p "$PENSTOCK_SO")" '^Version definitions'
    # A program that does link with it asks for that name, and gets it.
    annotated
    gcc -o annotated annotated.c "-I$WORK/prefix/include" "-L$WORK/prefix/lib" -Wl,--no-as-needed -lpenstock -ldl
    contains "$(objdump -p annotated)" "NEEDED +libpenstock\.so\.$major\$"
    run env LD_LIBRARY_PATH="$WORK/prefix/lib:$SIM" ./annotated
    ended_with 0
    contains "$output" '^pin 0 '
}

# --- packages -------------------------------------------------------------------------------------

# made KIND: makes a package of this tree in an empty directory and prints its path.
made() { DEBFULLNAME='A Tester' DEBEMAIL=tester@example.invalid make_here "$1" packages="$WORK/packages" | tail -n 1; }

# trains COMMAND: that `penstock` trains on the simulated device in half of plain's memory, with
# plain's results, by its own library.
trains() {
    local plain trainer=("$SAMPLES/mlp" --layers=6 --width=64 --batch=256 --steps=3)
    plain=$(CUDASIM_GRANULARITY=4096 with_device "${trainer[@]}")
    run with_device CUDASIM_GRANULARITY=4096 "$1" run --budget 400KiB --min-span 4096 --report "$REPORT" -- "${trainer[@]}"
    ended_with 0
    equal "$plain" "$(grep -v '^penstock: ' <<<"$output")" "what the trainer prints"
    at_least 1 "$(report evicted_bytes)" "bytes moved out"
}

# shows COMMAND: that `penstock` makes a page of that run's report, with its own copy of the charts'
# library.
shows() {
    rm -f report.html
    run "$1" report "$REPORT"
    ended_with 0
    contains "$(cat report.html)" 'Chart\.js v3'
}

@test "the tarball has the committed sources, is reproducible, and builds by itself" {
    requires cc
    local first name
    [ -e "$ROOT/.git" ] || skip "not a checkout"
    first=$(made dist)
    name=penstock-$("$PENSTOCK" --version | cut -d' ' -f2)
    equal "$WORK/packages/$name.tar.gz" "$first"
    equal "$(git -C "$ROOT" ls-tree -r --name-only HEAD | sed "s|^|$name/|" | sort)" "$(tar -tzf "$first" | grep -v '/$' | sort)" "files"
    tar -xzf "$first"
    cd "$name"
    # The unpacked tree has no git: the same names and dates come from the sources.
    umask 077
    run env -u MAKEFLAGS -u MAKELEVEL make --no-print-directory dist
    ended_with 0
    cmp "$first" "build/release/packages/$name.tar.gz"
    run env -u MAKEFLAGS -u MAKELEVEL CUDA_HOME="$TOOLKIT" make --no-print-directory build/release/obj/policy/lru.o build/release/man/penstock.1
    ended_with 0
    contains "$(cat build/release/man/penstock.1)" \
        "^\.TH PENSTOCK 1 $(TZ=UTC git -C "$ROOT" log -1 --date=format-local:%F --format=%cd) \"Penstock ${name#penstock-}\" "
}

@test "the Debian package has the installed files, and works from its own directory" {
    requires sim samples dpkg-deb dpkg-shlibdeps
    local package tree=$WORK/tree
    package=$(made deb)
    contains "$package" "/penstock_$("$PENSTOCK" --version | sed 's/penstock //; s/-/~/')-1_$(dpkg --print-architecture)\.deb\$"
    cp "$package" "$BATS_FILE_TMPDIR/"
    package=$(made deb)
    cmp "$BATS_FILE_TMPDIR/${package##*/}" "$package"
    dpkg-deb -x "$package" "$tree"
    # It is built with the flags of Debian's own builds, and with flags that a builder adds.
    contains "$(DEB_CPPFLAGS_APPEND=-DADDED make_here -n deb)" "/deb .*CFLAGS='.*-O2 .*CPPFLAGS='.* -DADDED' LDFLAGS='.*relro.*' install "
    contains "$(readelf -dW "$tree/usr/lib/penstock/libpenstock.so")" 'BIND_NOW|FLAGS_1.* NOW'
    # The files are those installed with these directories, with Debian's places for documents.
    make_here install DESTDIR="$WORK/stage" PREFIX=/usr LIBDIR=/usr/lib/penstock ZSHDIR=/usr/share/zsh/vendor-completions
    {
        (cd stage && find . ! -type d) | sed -E -e 's|(/man/man[17]/.*)|\1.gz|' -e 's|CHANGELOG.md|changelog.gz|' -e 's|/LICENSE|/copyright|'
        echo ./usr/share/doc/penstock/changelog.Debian.gz
        echo ./usr/share/lintian/overrides/penstock
    } | sort >wanted
    (cd "$tree" && find . ! -type d | sort) | diff wanted -
    equal '' "$(dpkg-deb -c "$package" | grep -v ' root/root ')" "files that are not root's"
    contains "$(dpkg-deb -f "$package" Depends)" '^libc6 \(>= 2\.[0-9]+\)$'
    contains "$(dpkg-deb -f "$package" Maintainer)" '^A Tester <tester@example\.invalid>$'
    dpkg-deb -e "$package" control
    (cd "$tree" && md5sum --quiet -c "$WORK/control/md5sums")
    contains "$(cat "$tree/usr/share/doc/penstock/copyright")" 'MIT License'
    equal '' "$(broken_links "$tree/usr/share/doc/penstock")" "links that lead nowhere"

    equal "$("$PENSTOCK" --version)" "$("$tree/usr/bin/penstock" --version)"
    run with_device "$tree/usr/bin/penstock" doctor
    ended_with 0
    contains "$output" "^ok: library: $tree/usr/lib/penstock/libpenstock\.so\$"
    trains "$tree/usr/bin/penstock"
    shows "$tree/usr/bin/penstock"
}

@test "lintian has no complaint about the Debian package" {
    requires dpkg-deb dpkg-shlibdeps lintian
    local package
    # Uses the package of the test above, unless this test runs alone.
    package=$(compgen -G "$BATS_FILE_TMPDIR/*.deb" || made deb)
    run lintian --allow-root "$package"
    ended_with 0
    equal '' "$output"
}

@test "the wheel installs into an environment, trains from there, and uninstalls completely" {
    requires sim samples python pip
    local wheel needed
    wheel=$(made wheel)
    # The tag promises the libc of the newest symbol, and no newer one.
    needed=$(objdump -T "$PENSTOCK_SO" "$BUILD"/penstock-* | grep -oE 'GLIBC_2\.[0-9]+' | sort -uV | tail -n 1)
    contains "$wheel" "/penstock-[0-9.]+(\.dev0)?-py3-none-manylinux_2_${needed#GLIBC_2.}_$(uname -m)\.whl\$"
    cp "$wheel" .
    made wheel >/dev/null
    cmp "${wheel##*/}" "$wheel"

    python3 -m venv --without-pip env
    find env ! -type d | sort >before
    pip_there() { python3 -m pip --disable-pip-version-check --python "$WORK/env/bin/python" "$@"; }
    pip_there install --quiet --no-index --no-deps --no-compile "$wheel"
    equal "$("$PENSTOCK" --version)" "$(PATH=$WORK/env/bin:$PATH bash -c 'penstock --version')"
    local said='import os, penstock; print(penstock.loaded(), os.environ.get("LD_PRELOAD"))'
    equal 'False None' "$(env/bin/python -B -c "$said")"
    equal "True $WORK/env/lib/libpenstock.so" "$(with_device env/bin/penstock run -- env/bin/python -B -c "$said")"
    trains "$WORK/env/bin/penstock"
    run env/bin/penstock summary "$REPORT"
    ended_with 0
    shows "$WORK/env/bin/penstock"
    rm -f report.html
    pip_there uninstall --quiet --yes penstock
    find env ! -type d | sort | diff before -
}
