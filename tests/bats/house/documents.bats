#!/usr/bin/env bats
# The documents match the tree: their paths, links, settings, commands, modules, fields and figures
# exist.

load ../../lib/helper

# documents: lists all of them but the changelog.
documents() { (cd "$ROOT" && find . -path ./build -prune -o -type d -name '.?*' -prune -o -name '*.md' ! -name CHANGELOG.md -print | sort); }

# section FILE NAME: prints that section of a document.
section() { awk -v name="## $2" '/^## / { inside = $0 == name } inside' "$ROOT/$1"; }

# first_words: prints the code in the first column of the table on stdin, one word a line.
first_words() { sed -nE 's/^\| (`[^|]*) \|.*/\1/p' | grep -oE '`[^`]+`' | tr -d '`'; }

@test "every file that a document names exists" {
    local named
    named=$(cd "$ROOT" && documents | grep -v '^./tests/results/' | xargs grep -hoE '`(tests|scripts|policy|shim|include)/[^` *]+`' | tr -d '`' | sort -u)
    at_least 40 "$(wc -l <<<"$named")" "paths"
    equal '' "$(cd "$ROOT" && while read -r path; do [ -e "$path" ] || echo "$path"; done <<<"$named")" "paths that lead nowhere"
}

# anchors FILE: prints the anchors that a link may name in it, made of its headings as Markdown
# renderers do.
anchors() { sed -nE 's/^#+ //p' "$1" | tr '[:upper:]' '[:lower:]' | sed -e 's/[^a-z0-9 _-]//g' -e 's/ /-/g'; }

@test "every link in a document leads to a file and heading that exist" {
    local document link file count=0
    for document in $(documents); do
        while read -r link; do
            file=${link%%#*}
            file=$ROOT/$([ -z "$file" ] && echo "$document" || echo "$(dirname "$document")/$file")
            [ -e "$file" ] || equal "$link in $document" "nowhere"
            [[ "$link" != *'#'* ]] || anchors "$file" | grep -qxF -- "${link#*#}" || equal "$link in $document" "no such heading"
            count=$((count + 1))
        done < <(grep -oE '\]\([^)]+\)' "$ROOT/$document" | sed -E 's/^\]\((.*)\)$/\1/')
    done
    at_least 40 $count links
}

@test "code cites only headings that exist, and no document outside the tree" {
    local cited count=0
    while read -r cited; do
        anchors "$ROOT/${cited%#*}" | grep -qxF -- "${cited#*#}" || equal "$cited" "no such heading"
        count=$((count + 1))
    done < <(cd "$ROOT" && grep -rhoE '[a-z/]*README\.md#[a-z0-9-]+' shim policy include scripts tests/cudasim tests/unit tests/gpu | sort -u)
    at_least 10 $count "headings that code cites"
    equal "" "$(cd "$ROOT" && grep -rnwE 'FACTS|DESIGN(\.md)?' shim policy include scripts tests/cudasim tests/unit tests/gpu tests/bats | grep -v documents)" "documents that are elsewhere"
}

@test "every variable that a document names is a setting" {
    local named
    named=$(cd "$ROOT" && documents | grep -v '^./tests/' | xargs grep -hoE 'PENSTOCK_[A-Z_]+' | grep -vE '^PENSTOCK_(TEST|DIRECTION|POLICY_VERSION|NAME)' | sort -u)
    at_least 25 "$(wc -l <<<"$named")" settings
    equal '' "$(comm -23 <(echo "$named") <("$BUILD/penstock-settings" list | cut -f 1 | sort))" "settings that are none"
    # Each setting is also mentioned outside the table.
    equal '' "$("$BUILD/penstock-settings" list | cut -f 1 | sort | comm -23 - <(cd "$ROOT" && documents | grep -v '^./tests/' | xargs cat |
        sed '/settings: begin/,/settings: end/d' | grep -oE 'PENSTOCK_[A-Z_]+' | sort -u))" "settings in the table alone"
}

@test "the README's table gives the settings' real defaults" {
    local name default count=0
    while IFS='|' read -r _ name default _; do
        name=$(tr -d '` ' <<<"$name")
        equal "$("$BUILD/penstock-settings" list | awk -F'\t' -v name="$name" '$1 == name { print $3 == "" ? "none" : $3 }')" "$(sed 's/^ *//; s/ *$//' <<<"$default")" "$name"
        count=$((count + 1))
    done < <(section README.md Settings | grep '^| `PENSTOCK_')
    equal 6 $count settings
}

@test "every command and assignment in the documents is accepted" {
    local word lines
    lines=$(cd "$ROOT" && documents | grep -v '^./tests/' | xargs cat)
    # Assignments are accepted.
    while read -r word; do
        run env "$word" "$BUILD/penstock-settings" check
        ended_with 0
    done < <(grep -oE "PENSTOCK_[A-Z_]+=('[^']*'|[^ \`\"\$]+)" <<<"$lines" | grep -vE '=(FILE|step|/path/)' | tr -d "'" | sort -u)
    equal '' "$(comm -23 <(grep -oE '(`|^    |- )penstock [a-z]+' <<<"$lines" | grep -oE 'penstock [a-z]+' | cut -d' ' -f2 | sort -u) <("$PENSTOCK" --help | awk '/^  [a-z]/ { print $1 }' | sort))" \
        "subcommands that are none"
    # The options of its subcommands exist.
    equal '' "$(grep -oE '(`|^    )penstock [a-z]+ [^`]*' <<<"$lines" | sed -e 's/ -- .*//' -e 's/ #.*//' | while read -r _ word lines; do
        comm -23 <(grep -oE -- '--[a-z-]+' <<<"$lines" | sort -u) <("$PENSTOCK" help "$word" | grep -oE -- '--[a-z-]+' | sort -u) | sed "s/^/$word /"
    done)" "options that are none"
}

@test "the figures in the README's questions were measured" {
    requires jq
    local text word figures
    text=$(section README.md Questions)
    equal 5 "$(grep -c '^\*\*.*?\*\*' <<<"$text")" questions
    figures=$(grep -oE '\b[0-9]+\.[0-9]+\b|\b[0-9]+ ms' <<<"$text" | sort -u)
    at_least 5 "$(wc -l <<<"$figures")" figures
    # The figures are in the tables, which another test compares with the measurements, or are the
    # memory of a run.
    {
        cat "$ROOT/README.md" "$ROOT/tests/results/README.md" | sed -n '/results: begin/,/results: end/p'
        jq -r '.smi_peak_mib, .host_peak_mib | numbers / 1024' "$ROOT/tests/results/yardstick.jsonl" | awk '{ printf "%.1f %.2f\n", $1, $1 }'
    } >known
    while read -r word; do
        grep -qwF -- "$word" known || equal "$word in a table" nowhere
    done <<<"$figures"
    # The range is that of both cards, and the exceptions are all of the rows that are not within 1.011.
    local range above
    range=$(sed -n '/results: begin median/,/results: end/p' "$ROOT/tests/results/README.md" |
        awk -F' *[|] *' '/^\| H[0-9]+ \|/ { if (!least || $6 < least) least = $6; if ($8 > most) most = $8 } END { print least " to " most }')
    contains "$(tr '\n' ' ' <<<"$text")" "The range was $range\."
    above=$(grep -oE '^\|[^|]+\|[^|]+\|[^|]+\|[^|]+\|[^|]+\| no: [0-9.]+ of plain \|' "$ROOT/tests/results/README.md" | grep -oE '[0-9.]+ of plain' | sort)
    contains "$(tr '\n' ' ' <<<"$text")" "except five with $(head -n 1 <<<"${above// of plain/}") to $(tail -n 1 <<<"${above// of plain/}")\."
    equal 5 "$(wc -l <<<"$above")" "rows above that"
}

# modules FOLDER: lists the modules that exist, as room/name.
modules() { (cd "$ROOT/$1" && find . -type f ! -name README.md -printf '%P\n') | sed -E "s/\.[ch]$//; /\//! s|^|$1/|" | LC_ALL=C sort -u; }

# listed FILE SECTION: lists the modules of a table whose rows begin with a room: `room/` | purpose
# | `name`, `name`.
listed() {
    section "$1" "$2" | grep '^| `' | while IFS='|' read -r _ room _ names; do
        room=$(tr -d ' `' <<<"$room")
        grep -oE '`[^`]+`' <<<"$names" | tr -d '`' | sed "s|^|$room|"
    done | LC_ALL=C sort
}

@test "the tables of modules list exactly the existing modules" {
    equal "$(modules shim)" "$(listed shim/README.md 'Rooms and floors')" "modules of shim/"
    equal "$(modules policy)" "$(listed policy/README.md Modules)" "modules of policy/"
    equal "$(cd "$ROOT/scripts" && ls -p | grep -vx README.md)" "$(sed '/^## /q' "$ROOT/scripts/README.md" | first_words)" "folders of scripts/"
    local folder title
    while read -r folder title; do
        equal "$(ls -p "$ROOT/scripts/$folder" | LC_ALL=C.UTF-8 sort)" "$(section scripts/README.md "$title" | first_words | LC_ALL=C.UTF-8 sort)" "files of scripts/$folder/"
    done <<<$'command The command\ndev For developers'
}

@test "shim/README.md lists exactly the threads that are started" {
    equal "$(find "$ROOT/shim" -name '*.c' -exec grep -ohE '"penstock-[a-z]+"' {} + | tr -d '"' | sort -u)" \
        "$(section shim/README.md 'Threads and locks' | first_words | sort)" threads
}

@test "the manual describes exactly the fields of a step's line" {
    equal "$( (echo t_ns && echo device && echo planned && find "$ROOT/shim" -name live.def -exec sed -nE 's/^PS_LIVE_(PROCESS|DEVICE)\(([a-z_]+), .*/\2/p' {} +) | sort)" \
        "$(section scripts/manual/live.md 'Lines for each step' | first_words | sort)" fields
}
