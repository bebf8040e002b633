# Reads a trace of the simulated device (CUDASIM_TRACE) from a run of the MLP with --layers=LAYERS.
# For each span of BYTES that leaves in forward and comes back in backward, prints the layers in
# which its copies were queued. One line a copy, in host order:
#
#   reload STEP LAYER AHEAD FIRST   needed by backward of LAYER, queued AHEAD layers before it;
#                                   FIRST 1: before the first launch of backward
#   evict STEP LAYER LATE           used last in forward of LAYER, queued LATE layers after it
#
# A reload belongs to the layer of the launch that is queued next, an eviction to that of the launch
# queued last. A layer begins with its norm_forward or dropout_backward. The update is part of the
# last layer.
function value(word) { return substr(word, index(word, "=") + 1) }

$2 == "queued" && /kernel=/ {
    for (i = 5; i <= NF; i++)
        if ($i ~ /^kernel=/)
            kernel = value($i)
    if (kernel == "norm_forward") {
        if (backward) {
            step++
            forward = backward = 0
        }
        visit = forward++
    }
    if (kernel == "dropout_backward")
        visit = LAYERS + backward++
    if (kernel ~ /^loss_/)
        next # these name only memory that is too small to be managed
    at[launches++] = visit
    for (i = 5; i <= NF; i++) {
        if ($i !~ /^p[0-9]+=0x/)
            continue
        span = value($i)
        if (span in coming) {
            if (visit >= LAYERS && coming_in[span] == step)
                line[coming_line[span]] = "reload " step " " 2 * LAYERS - 1 - visit " " visit - at[coming[span]] " " (at[coming[span] - 1] < LAYERS)
            delete coming[span]
        }
        named[span] = visit
        named_in[span] = step
    }
}

$2 == "queued" && $4 == "cuMemcpyAsync" && /copy=(h2d|d2h)/ {
    for (i = 5; i <= NF; i++) {
        if ($i ~ /^bytes=/) bytes = value($i)
        if ($i ~ /^to=/) to = value($i)
        if ($i ~ /^from=/) from = value($i)
    }
    if (bytes != BYTES)
        next
    if (/copy=h2d/) {
        coming[to] = launches
        coming_line[to] = lines++
        coming_in[to] = step
    } else if (from in named && named_in[from] == step && named[from] < LAYERS) {
        line[lines++] = "evict " step " " named[from] " " visit - named[from]
    }
}

END {
    for (i = 0; i < lines; i++)
        if (i in line)
            print line[i]
}
