#!/usr/bin/env bats
# The same library with CUDA 12.4: a program linked with libcudart.so.12, its CUPTI, and a driver
# that lacks newer functions.

load ../../lib/helper
load ../../lib/small_trainer

setup() {
    helper_setup 60
    requires sim
    TRAINER=("$SAMPLES/mlp-12" "${TRAINER[@]:1}")
}

@test "a program of CUDA 12.4 is managed, planned for and traced like one of 13" {
    local wanted13 wanted tracer bytes
    bytes=$(SIM=$BUILD/sim12 share 60)
    run_sim "$SAMPLES/mlp" "${TRAINER[@]:1}" --steps=12
    ended_with 0
    wanted=$output
    run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET="$bytes" "$SAMPLES/mlp" "${TRAINER[@]:1}" --steps=12
    wanted13="$(report launches) $(report copies_seen)"
    SIM=$BUILD/sim12
    run_sim "${TRAINER[@]}" --steps=12
    equal "$wanted" "$output" "losses and gradients without Penstock"
    for tracer in cupti hook auto; do
        run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET="$bytes" PENSTOCK_TRACER=$tracer "${TRAINER[@]}" --steps=12
        ended_with 0
        equal "$wanted" "$(grep -v '^penstock: ' <<<"$output")" "losses and gradients"
        said
        sound untouched
        equal "${tracer/auto/cupti}" "$(report tracer)" tracer
        equal "$wanted13" "$(report launches) $(report copies_seen)" "launches and copies"
        equal 0 "$(report launches_without_layout)" "launches that could not be read"
        at_least 5 "$(report plan.steps)" "steps under a plan"
        counted evictions
    done
}

@test "when a CUPTI refuses the driver, another one is used" {
    requires cc
    SIM=$BUILD/sim12
    mkdir newer
    gcc -shared -fPIC -Wl,-soname,libcupti.so.13 -x c -o newer/libcupti.so.13 - <<<'
        int cuptiSubscribe(void **s, void *f, void *u) { return 17; } /* CUPTI_ERROR_OLD_DRIVER or another */
        int cuptiUnsubscribe(void *s) { return 0; }
        int cuptiEnableCallback(int on, void *s, int domain, int id) { return 17; }
        int cuptiGetResultString(int r, const char **text) { *text = "refused"; return 0; }'
    train PENSTOCK_CUPTI="$WORK/newer/libcupti.so.13"
    right_results
    equal cupti "$(report tracer)" tracer
    counted evictions
}
