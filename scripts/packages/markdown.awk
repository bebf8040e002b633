# Turns a page of scripts/manual into troff, for a man page:
#   awk -f markdown.awk [-v title=NAME] [-v table=FILE] PAGE.md
# `title` replaces the page's heading. FILE is troff that replaces the text between the marks of the
# settings table. It knows only the forms that those pages use: headings, paragraphs, lists, code
# that is indented by four spaces, tables, `code`, *emphasis*, **strong** and links.

function escaped(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    gsub(/\047/, "\\(aq", text)
    return text
}

# Returns the text with each part between two marks in the given font.
function with_font(text, mark, font,    parts, count, i, out) {
    count = split(text, parts, mark)
    out = parts[1]
    for (i = 2; i <= count; i++)
        out = out (i % 2 == 0 ? "\\f" font : "\\fR") parts[i]
    return out
}

# Code comes first, because marks inside it are part of it.
function formatted(text,    parts, count, i, part, out) {
    while (match(text, /\]\([^)]*\)/))
        text = substr(text, 1, RSTART - 1) "\001" substr(text, RSTART + RLENGTH)
    count = split(text, parts, "`")
    for (i = 1; i <= count; i++) {
        part = escaped(parts[i])
        if (i % 2 == 1) {
            gsub(/\*\*/, "\002", part)
            part = with_font(with_font(part, "\002", "B"), "[*]", "I")
        } else
            part = "\\fB" part "\\fR"
        out = out part
    }
    gsub(/\[(\\fB)?/, "&", out)
    while (match(out, /\[[^\[\001]*\001/))
        out = substr(out, 1, RSTART - 1) substr(out, RSTART + 1, RLENGTH - 2) substr(out, RSTART + RLENGTH)
    return out
}

# Text that begins a line must not look like a request.
function put(text) { print (text ~ /^[.\047]/ ? "\\&" : "") text }

function flush() {
    if (words != "") {
        if (kind == "item")
            print item
        else if (!fresh)
            print ".PP"
        put(formatted(words))
        fresh = 0
    }
    words = ""
    kind = ""
}

function end_code() {
    if (in_code)
        print ".fi\n.RE"
    in_code = held = 0
}

function row(line,    cells, count, i, cell, long_tag, begun) {
    gsub(/^\| *| *\|$/, "", line)
    count = split(line, cells, / +\| +/)
    if (!rows++) {
        for (i = 1; i <= count; i++)
            head[i] = cells[i]
        columns = count
        return
    }
    if (cells[1] ~ /^-+\|/)
        return
    # A tag is one line of the source.
    long_tag = length(cells[1]) > 70
    begun = 0
    print long_tag ? ".PP" : ".TP"
    put(formatted(cells[1]))
    if (long_tag)
        print ".RS 7"
    if (columns == 3 && head[3] == "meaning")
        put(formatted("(" cells[2] ") " cells[3]))
    else
        for (i = 2; i <= count; i++) {
            if (cells[i] == "-")
                continue
            cell = columns > 2 ? toupper(substr(head[i], 1, 1)) substr(head[i], 2) ": " cells[i] : cells[i]
            if (begun++)
                print ".br"
            put(formatted(cell))
        }
    if (long_tag)
        print ".RE"
    fresh = 0
}

/<!-- settings: begin/ {
    flush()
    while ((getline line < table) > 0)
        print line
    skipping = 1
    next
}
/<!-- settings: end/ { skipping = fresh = 0; next }
skipping { next }

/^\|/ { flush(); end_code(); row($0); next }
{ rows = 0 }

/^    / && (blank || in_code) && words == "" {
    if (!in_code)
        print (fresh ? "" : ".PP\n") ".RS 4\n.nf"
    for (; held > 0; held--)
        print ""
    in_code = 1
    fresh = 0
    put(escaped(substr($0, 5)))
    next
}
/^ *$/ { flush(); blank = 1; held += in_code; next }
{ end_code(); blank = 0 }

/^# / { flush(); print ".SH " (title != "" ? title : toupper(escaped(substr($0, 3)))); fresh = 1; next }
/^## / { flush(); print ".SS " escaped(substr($0, 4)); fresh = 1; next }
/^- / { flush(); kind = "item"; item = ".IP \\(bu 2"; words = substr($0, 3); next }
/^[0-9]+\. / { flush(); kind = "item"; item = ".IP " $1 " 4"; words = substr($0, length($1) + 2); next }
{ sub(/^ +/, ""); words = words (words == "" ? "" : " ") $0 }
END { flush(); end_code() }
