#!/usr/bin/env bats
# CUDA graphs: what a graph touches is known from its nodes and is there at each launch; nothing that Penstock does breaks a capture.

load helper
load small_trainer

setup() { helper_setup 60; }

@test "graphs of kernels, fills and copies find their bytes, changed or not, under every budget, guard and tracer" {
    local case budget guard tracer
    for case in graph graph-nodes; do
        for budget in 0 10MiB 24MiB 100MiB; do
            for guard in host unmap; do
                for tracer in cupti hook; do
                    hostile $case PENSTOCK_BUDGET=$budget PENSTOCK_GUARD=$guard PENSTOCK_TRACER=$tracer
                    goes_on || { echo "$case under $budget, $guard, $tracer" >&2 && return 1; }
                    sound untouched
                    said
                    counted graph_launches
                    equal 0 "$(report graph_launches_unknown)" "graphs that could not be read"
                    equal 0 "$(report eviction_errors)" "evictions that failed"
                done
            done
        done
    done
}

@test "what a graph touches leaves between its launches, and is back for each" {
    hostile graph-nodes PENSTOCK_GUARD=unmap PENSTOCK_BUDGET=16MiB
    goes_on
    sound untouched
    at_least 20 "$(report evictions)" evictions
    at_least 20 "$(report reloads)" reloads
}

@test "a capture with hardly any memory waits for nothing" {
    local began=$SECONDS
    hostile graph PENSTOCK_BUDGET=5MiB
    goes_on
    sound untouched
    at_most 20 $((SECONDS - began)) "seconds"
    at_most 5 "$(report host_wait_ns | awk '{ printf "%d", $1 / 1e9 }')" "seconds of waiting for pages"
}

@test "a graph that can't be read holds everything where it is, and it is said once" {
    requires sim
    for fault in cuGraphNodeGetType:error@1 cuGraphGetNodes:error@1 cuGraphKernelNodeGetParams_v2:error@1; do
        hostile graph CUDASIM_FAULT=$fault
        goes_on
        struck
        said "what a graph touches can't be read"
        equal "$(report graph_launches)" "$(report graph_launches_unknown)" "launches of a graph that could not be read"
    done
    # One that changes into something that can't be read is unknown from then on.
    hostile graph-nodes CUDASIM_FAULT=cuGraphNodeGetType:error@4
    goes_on
    struck
    said "what a graph touches can't be read"
    at_least 1 "$(report graph_launches_unknown)" "launches of the graph after it was changed"
    at_most "$(($(report graph_launches) - 3))" "$(report graph_launches_unknown)" "launches of the graph after it was changed"
}

@test "tracing that starts with a capture sees the graph" {
    requires sim
    hostile graph PENSTOCK_BUDGET=auto PENSTOCK_LOG=info
    goes_on
    contains "$output" 'launches are traced from now on: the program captures a graph'
    equal 3 "$(report graph_launches)" "launches of the graph"
    equal 0 "$(report graph_launches_unknown)" "graphs that could not be read"
}
