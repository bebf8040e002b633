# Prints a trace of the simulated device (CUDASIM_TRACE), whose file is named twice. A span that
# goes to or from several slots becomes one copy of all its bytes, in the place of the first copy.
# So does a span that moves in pieces with looks at the copy gate between them. The copies of one
# span follow each other on their stream, and their bytes follow each other on the device. Copies of
# two spans have an event between them, unless two threads reload at once.
FNR == 1 { pass++ }

# Returns the value of a hexadecimal number with 0x, below 2^53.
function number(text, i, value) {
    for (i = 3; i <= length(text); i++)
        value = value * 16 + index("123456789abcdef", substr(text, i, 1))
    return value
}
function field(pattern) {
    match($0, " " pattern)
    return substr($0, RSTART + 1, RLENGTH - 1)
}

pass == 1 && $2 == "queued" && / wait-word=/ {
    split($3, at, ":")
    if (at[1] in place && place[at[1]] + 1 == at[2])
        place[at[1]] = at[2]
}

$2 == "queued" && $4 == "cuMemcpyAsync" && /copy=(h2d|d2h)/ {
    if (pass == 1) {
        split($3, at, ":") # stream and place
        device = number(substr(field(/copy=d2h/ ? "from=0x[0-9a-f]+" : "to=0x[0-9a-f]+"), /copy=d2h/ ? 6 : 4))
        if (at[1] in place && place[at[1]] + 1 == at[2] && end[at[1]] == device)
            part[FNR] = 1
        else
            first[at[1]] = FNR
        place[at[1]] = at[2]
        size = substr(field("bytes=[0-9]+"), 7)
        end[at[1]] = device + size
        bytes[first[at[1]]] += size
    } else if (FNR in part) {
        next
    } else {
        sub(/ bytes=[0-9]+/, " bytes=" bytes[FNR])
    }
}

pass == 2
