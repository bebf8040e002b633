#!/usr/bin/env bats
# PENSTOCK_POLICY: the built-in policies by name, and external ones: the example, and some that
# can't be used.

load ../../lib/helper
load ../../lib/small_trainer

setup() {
    helper_setup
    requires samples cc
}

# policy NAME VERSION CHOICE: builds a shared object whose choose function has these statements.
policy() {
    gcc -std=gnu11 -Wall -I"$ROOT/include" -shared -fPIC -x c -o "$1" - <<END
#include <penstock/policy.h>
#include <unistd.h>
static size_t choose(const struct penstock_candidate *candidates, size_t n, uint64_t need, size_t *chosen) { $3 }
static const struct penstock_policy own = {.version = $2, .name = "own", .choose = choose};
const struct penstock_policy *penstock_policy(void) { return &own; }
END
}

@test "each built-in policy is chosen by its name, and the results are right" {
    local name
    for name in plan layers lru; do
        train PENSTOCK_POLICY=$name
        right_results
        said
        counted evictions
        sound
        train PENSTOCK_POLICY=$name PENSTOCK_LOG=info
        contains "$output" "the policy is $name\$"
    done
}

@test "the external example policy works, and the results are right" {
    train "PENSTOCK_POLICY=$SAMPLES/policy_example.so"
    right_results
    said
    counted evictions
    sound
    train "PENSTOCK_POLICY=$SAMPLES/policy_example.so" PENSTOCK_LOG=info
    contains "$output" 'the policy is longest gaps$'
}

@test "an external policy chooses what leaves" {
    requires plain
    # Chooses the first candidates that suffice, in their order.
    policy own.so PENSTOCK_POLICY_VERSION 'static int said;
        if (!said++ && write(2, "asked\n", 6) < 0) return 0;
        size_t k = 0;
        for (uint64_t got = 0; k < n && got < need; k++) { chosen[k] = k; got += candidates[k].bytes; }
        return k;'
    train "PENSTOCK_POLICY=$WORK/own.so"
    ended_with 0
    contains "$output" '^asked$'
    equal "$(plain | grep -v '^allocated')" "$(grep -vE '^penstock: |^asked$' <<<"$output")" "losses and gradients"
    said
    counted evictions
}

@test "a policy that can't be used is reported once, and the default is in force" {
    requires plain
    policy old.so PENSTOCK_POLICY_VERSION-1 'return 0;'
    train "PENSTOCK_POLICY=$WORK/old.so"
    right_results
    said "PENSTOCK_POLICY=$WORK/old.so: it was compiled for another version of penstock/policy.h; the default policy, plan, is used"
    counted evictions
    gcc -shared -x c -o other.so - <<<'int nothing;'
    train "PENSTOCK_POLICY=$WORK/other.so"
    right_results
    said "PENSTOCK_POLICY=$WORK/other.so: it does not export penstock_policy; the default policy, plan, is used"
    echo text >text.so
    train "PENSTOCK_POLICY=$WORK/text.so"
    right_results
    said "PENSTOCK_POLICY=$WORK/text.so: .*(invalid ELF header|file too short).*; the default policy, plan, is used"
    train "PENSTOCK_POLICY=$WORK/none.so"
    right_results
    contains "$output" "^penstock: PENSTOCK_POLICY=$WORK/none.so: expected plan, layers, lru or the absolute path of a shared object .*\(No such file or directory\)"
}

@test "an invalid plan from an external policy is not followed, and that is reported once" {
    gcc -std=gnu11 -Wall -I"$ROOT/include" -shared -fPIC -x c -o wild.so - <<'END'
#include <penstock/policy.h>
static size_t room(const struct penstock_step *step) { (void)step; return 1; }
static int wild(const struct penstock_step *step, const struct penstock_policy_options *options, void *workspace, struct penstock_plan *plan)
{
    (void)options, (void)workspace;
    plan->move[0] = (struct penstock_move){.span = step->spans, .evict_after = 0, .reload_from = 1, .needed_by = 2};
    plan->moves = 1;
    return 0;
}
static const struct penstock_policy own = {.version = PENSTOCK_POLICY_VERSION, .name = "wild", .workspace_bytes = room, .plan = wild};
const struct penstock_policy *penstock_policy(void) { return &own; }
END
    local long=("${TRAINER[@]/--steps=3/--steps=30}") expected
    run_sim "${long[@]}"
    expected=$output
    run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET="$(share 55)" "PENSTOCK_POLICY=$WORK/wild.so" "${long[@]}"
    ended_with 0
    equal "$expected" "$(grep -v '^penstock: ' <<<"$output")" "losses and gradients"
    equal 1 "$(grep -c "the plan of the policy wild is invalid and not followed: a move names a span that the step does not have;" <<<"$output")" "lines about it"
    equal 0 "$(report plan.steps)" "steps that followed it"
    counted evictions
}

@test "penstock run stops before the command when the policy's file does not exist" {
    PENSTOCK_POLICY=$WORK/none.so run_command run -- touch started
    ended_with 2
    contains "$output" "^penstock: PENSTOCK_POLICY=$WORK/none.so: expected .*\(No such file or directory\)"
    [ ! -e started ]
    mkdir here
    PENSTOCK_POLICY=$WORK/here run_command run -- touch started
    ended_with 2
    [ ! -e started ]
}

@test "a policy that chooses too little, or what does not exist, does not run the program out of memory" {
    requires plain
    local choice
    for choice in 'chosen[0] = n + 5; return 1;' 'return 0;' 'return n + 1;' 'return (size_t)-1;'; do
        policy wrong.so PENSTOCK_POLICY_VERSION "$choice"
        train "PENSTOCK_POLICY=$WORK/wrong.so"
        right_results
        said 'the policy own chose [0-9]+ of [0-9]+ spans, which is not enough; the least recently used are evicted instead'
        counted evictions
        sound
    done
}

@test "the addresses of a span that a plan does not bring back lead to its slot under the default guard" {
    requires sim plain jq
    # Each span that is born in the step leaves after its last use and does not come back. The
    # sample reads one of them just before its free, through a pointer that Penstock does not see.
    gcc -std=gnu11 -Wall -Werror -I"$ROOT/include" -shared -fPIC -x c -o leaves.so - <<'END'
#include <penstock/policy.h>
static int plan(const struct penstock_step *step, const struct penstock_policy_options *options, void *workspace, struct penstock_plan *out)
{
    (void)options, (void)workspace;
    out->moves = 0;
    for (uint32_t l = 0; l < step->launches; l++)
        for (uint32_t i = 0; i < step->spans; i++) {
            const struct penstock_step_span *s = &step->span[i];
            if (s->born != PENSTOCK_NEVER && !s->fixed && s->uses && step->use[s->first_use + s->uses - 1] == l && s->freed > step->launch[l].moment + 3)
                out->move[out->moves++] = (struct penstock_move){i, l, PENSTOCK_NEVER, PENSTOCK_NEVER, 0};
        }
    return 0;
}
static size_t needs_none(const struct penstock_step *step) { (void)step; return 1; }
static const struct penstock_policy own = {.version = PENSTOCK_POLICY_VERSION, .name = "leaves", .workspace_bytes = needs_none, .plan = plan};
const struct penstock_policy *penstock_policy(void) { return &own; }
END
    late() { run_penstock CUDASIM_KERNEL_NS=3000000 PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET=$((15 * 65536)) PENSTOCK_POLICY=$WORK/leaves.so "$@" "$SAMPLES/hidden" 16 late; }
    run_sim "$SAMPLES/hidden" 16 late
    ended_with 0
    local right=$output
    late PENSTOCK_GUARD=unmap
    ended_with 1
    at_least 1 "$(ledger unmapped_accesses)" "accesses to what is away, with nothing in its place"
    late
    ended_with 0
    equal "$right" "$(grep -v '^penstock: ' <<<"$output")" "what it prints"
    counted plan.evictions
    sound
}

@test "under the default guard, addresses that no kernel may keep lead nowhere while a plan has the span away" {
    # An optimizer's state that only kernels with torch's names know, and the same state given once
    # to another kernel.
    requires sim jq
    run_sim "$SAMPLES/hidden" 40 state
    ended_with 0
    local right=$output peak known unknown unmapped guarded_known guarded_unknown guarded_unmapped
    peak=$(ledger peak.device)
    # mappings WORD VARIABLE GUARD: sets VARIABLE to the mappings for 100 evictions: two each where
    # the addresses lead to the slot first, else one. Sets guarded_VARIABLE to the number of spans
    # that outlive the step and are guarded, by the recording.
    mappings() {
        run_penstock CUDASIM_LAUNCH_NS=200000 CUDASIM_TRACE="$WORK/trace" PENSTOCK_MIN_SPAN=64KiB PENSTOCK_BUDGET=$((peak * 80 / 100)) \
            PENSTOCK_GUARD="$3" PENSTOCK_RECORDING="$WORK/step" "$SAMPLES/hidden" 40 "$1"
        goes_on && sound && equal "$right" "$(grep -v '^penstock: ' <<<"$output")" "weights" &&
            at_least 100 "$(report evictions)" "evictions" && counted plan.evictions || return 1 # on a busy machine reacting takes many
        printf -v "$2" %s $((100 * $(grep -c 'call cuMemMap ' trace) / $(report evictions)))
        printf -v "guarded_$2" %s "$(grep -c '^s .* guarded$' step)"
    }
    mappings state known auto
    mappings state unmapped unmap
    mappings kept unknown auto
    echo "mappings for 100 evictions: $known, unmap $unmapped, with a kernel that may keep addresses $unknown"
    at_most $(((unmapped + unknown) / 2)) "$known" "mappings for 100 evictions, of state that torch's kernels alone know"
    at_least $((known + 40)) "$unknown" "mappings for 100 evictions, of state that another kernel knows"
    equal 0 "$guarded_unmapped" "guarded spans under unmap"
    equal $((guarded_known + 8)) "$guarded_unknown" "guarded spans, the state of eight layers among them"
}

@test "under a plan only spans whose addresses no kernel may keep leave without a grace" {
    # A grace longer than any gap: a span that must wait for it stays. The state is known to torch's
    # kernels alone, or was given once to another kernel.
    requires sim jq
    run_sim "$SAMPLES/hidden" 40 state
    ended_with 0
    local right=$output peak
    peak=$(ledger peak.device)
    planned() {
        run_penstock CUDASIM_LAUNCH_NS=200000 PENSTOCK_MIN_SPAN=64KiB PENSTOCK_BUDGET=$((peak * 80 / 100)) PENSTOCK_GRACE=1000000 "$SAMPLES/hidden" 40 "$1"
        goes_on && sound && equal "$right" "$(grep -v '^penstock: ' <<<"$output")" "weights"
    }
    planned state
    at_least 100 "$(report plan.evictions)" "planned evictions of spans without unseen uses"
    planned kept
    equal 0 "$(report plan.evictions)" "planned evictions of what a kernel may have kept"
}
