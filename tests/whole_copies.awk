# A trace of the simulated device (CUDASIM_TRACE), named twice: the same trace, but a span that goes to several slots, or comes back from them, is one
# copy of all its bytes, in the place of the first. Its copies stand one behind the other on their stream; those of two spans have an event between.
FNR == 1 { pass++ }

$2 == "queued" && $4 == "cuMemcpyAsync" && /copy=(h2d|d2h)/ {
    if (pass == 1) {
        split($3, at, ":") # stream and place
        if (at[1] in place && place[at[1]] + 1 == at[2])
            part[FNR] = 1
        else
            first[at[1]] = FNR
        place[at[1]] = at[2]
        match($0, / bytes=[0-9]+/)
        bytes[first[at[1]]] += substr($0, RSTART + 7, RLENGTH - 7)
    } else if (FNR in part) {
        next
    } else {
        sub(/ bytes=[0-9]+/, " bytes=" bytes[FNR])
    }
}

pass == 2
