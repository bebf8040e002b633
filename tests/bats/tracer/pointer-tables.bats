#!/usr/bin/env bats
# Pointer tables in device memory, tensor maps among them: addresses copied there from the host are
# known, and a launch that is given such a table is an access to the spans that it names. Tables in
# variables of modules, which no parameter shows, are accesses of every launch.
# tests/bats/memory/ordering-rules.bats has these cases fail without that rule.
# tests/unit/kernels/test_pointer_tables.c checks the kept tables.

load ../../lib/helper
load ../../lib/small_trainer

setup() { helper_setup 60; requires sim samples jq; }

@test "kernels find the right bytes through tables, under every budget, both guards and tracers" {
    local case budget guard tracer
    while IFS=: read -r case budget guard tracer; do
        hostile $case PENSTOCK_BUDGET=$budget PENSTOCK_GUARD=$guard PENSTOCK_TRACER=$tracer
        { goes_on && sound untouched && said_with_room && counted pointer_tables; } || { echo "$case under $budget, $guard, $tracer" >&2 && return 1; }
    done < <(some_of 3 {pointer-table,long-table,freed-table,table-changes,table-fields,table-moves,table-graph,table-graph-memory,tensor-map,module-table,module-table-graph,module-context,table-captured,table-pieces,table-nodes,table-graph-later,table-disabled}:{0,12MiB,24MiB,200MiB}:{host:hook,unmap:cupti})
}

@test "work on a table that may not run leaves what is known of the table, and adds what it may write" {
    local guard
    for guard in host unmap auto; do
        hostile table-made-captured PENSTOCK_BUDGET=12MiB PENSTOCK_GUARD=$guard
        goes_on && counted made_tables || return 1
        hostile table-condition PENSTOCK_BUDGET=12MiB PENSTOCK_GUARD=$guard
        goes_on && counted pointer_tables || return 1
    done
}

@test "tables count from the first launch of the kernel that writes them, before it is known to do so" {
    local case budget guard
    while IFS=: read -r case budget guard; do
        hostile $case PENSTOCK_BUDGET=$budget PENSTOCK_GUARD=$guard PENSTOCK_GRACE=0
        { goes_on && sound untouched; } || { echo "$case under $budget, $guard" >&2 && return 1; }
    done < <(printf "%s\n" made-{beside-capture,beside-copy,copied,in-graph,inside,in-pieces,in-span,behind-numbers,of-one,by-nobody}:{8MiB,12MiB}:{unmap,host})
}

@test "tables count while their kernels are learnt late, or learnt anew" {
    local case budget guard
    while IFS=: read -r case budget guard; do
        hostile $case PENSTOCK_BUDGET=$budget PENSTOCK_GUARD=$guard PENSTOCK_GRACE=0
        { goes_on && sound untouched; } || { echo "$case under $budget, $guard" >&2 && return 1; }
    done < <(printf "%s\n" made-{after-failures,anew,by-many,after-contexts,by-threads}:{8MiB,12MiB}:{unmap,host})
}

@test "memory that a kernel is given may be freed on another stream while the kernel waits, and leaves it alone" {
    local budget guard
    while IFS=: read -r budget guard; do
        hostile freed-untouched PENSTOCK_BUDGET=$budget PENSTOCK_GUARD=$guard
        { goes_on && sound untouched; } || { echo "under $budget, $guard" >&2 && return 1; }
    done < <(printf "%s\n" {8MiB,12MiB}:{unmap,host})
}

@test "structures of tables that kernels make, copy and use at random are right, in graphs and beside ending contexts" {
    local how seed
    for how in "" direct graphs contexts "graphs contexts" "mixed" "mixed graphs contexts"; do
        for seed in $RANDOM $RANDOM $RANDOM $RANDOM; do
            # shellcheck disable=SC2086 # words
            run_penstock PENSTOCK_MIN_SPAN=4096 PENSTOCK_BUDGET=24KiB PENSTOCK_GUARD=unmap PENSTOCK_GRACE=0 CUDASIM_GRANULARITY=4096 "$SAMPLES/structures" "$seed" 150 $how
            { ended_with 0 && contains "$output" '^ok$'; } || { echo "seed $seed $how" >&2 && return 1; }
        done
    done
}

@test "every table is seen once, by either tracer, and none is forgotten too early" {
    local tracer
    for tracer in cupti hook; do
        hostile table-changes PENSTOCK_TRACER=$tracer
        # Four copies in each of eight turns.
        equal 32 "$(report pointer_tables)" "tables"
        equal 0 "$(report pointer_tables_forgotten)" "tables forgotten"
        # In each turn one table in one row, two rows and two slices. A table that is copied on the
        # device is not counted again.
        hostile table-moves PENSTOCK_TRACER=$tracer
        equal 40 "$(report pointer_tables)" "tables in rows"
        equal 0 "$(report pointer_tables_forgotten)" "tables forgotten"
        hostile long-table PENSTOCK_TRACER=$tracer
        equal 2 "$(report pointer_tables)" "long tables"
        hostile freed-table PENSTOCK_TRACER=$tracer
        equal 6 "$(report pointer_tables)" "freed tables"
        # Four tables in each turn, of which one is copied to its variable on the device.
        hostile module-table PENSTOCK_TRACER=$tracer
        equal 32 "$(report pointer_tables)" "tables in variables"
        equal 0 "$(report pointer_tables_forgotten)" "tables forgotten"
        hostile tensor-map PENSTOCK_TRACER=$tracer
        equal 8 "$(report pointer_tables)" "tensor maps in memory"
    done
}

@test "the cases of scripts/gpu/programs have the expected number of tables, in one process with more spans" {
    requires python
    local cases wanted
    read -r cases wanted < <(cd "$ROOT/scripts/gpu" && python3 -B -c 'import program_rows as p
print(p.TABLES, next(row.report["pointer_tables"] for row in p.ROWS if row.name == "tables"))')
    run_penstock PENSTOCK_MIN_SPAN=$SPAN_FROM PENSTOCK_BUDGET=39MiB python3 -B "$ROOT/tests/gpu/sample.py" "$SAMPLES/hostile" "$cases" 16 4
    goes_on
    contains "$output" '^{"loss": \[\], "chk": 0}$'
    sound untouched
    counted evictions
    equal "$wanted" "$(report pointer_tables)" "tables"
    run_sim "$SAMPLES/hostile" pointer-table,no-such-case
    ended_with 2
    run_sim python3 -B "$ROOT/tests/gpu/sample.py" echo "no steps, and no ok"
    ended_with 1
}

@test "kernels find the right bytes through tables in host memory, under every budget, guard and tracer" {
    local case budget guard tracer
    while IFS=: read -r case budget guard tracer; do
        hostile $case PENSTOCK_BUDGET=$budget PENSTOCK_GUARD=$guard PENSTOCK_TRACER=$tracer
        { goes_on && sound untouched && said; } || { echo "$case, $budget, $guard, $tracer" >&2 && return 1; }
    done < <(some_of 6 {host-table,host-view}:{0,12MiB,24MiB,200MiB}:{auto,host,unmap}:{hook,cupti})
}

@test "a table in host memory that the host fills in each step is seen under a plan, whenever its use begins" {
    local words right budget
    for words in mapped "mapped graph" "mapped since" "mapped since graph"; do
        run_sim "$SAMPLES/hidden" 60 $words
        ended_with 0
        right=$output budget=$(($(ledger peak.device) * 72 / 100))
        run_penstock CUDASIM_LAUNCH_NS=200000 PENSTOCK_MIN_SPAN=64KiB PENSTOCK_BUDGET=$budget PENSTOCK_LOG=info PENSTOCK_RECORDING="$WORK/step" \
            "$SAMPLES/hidden" 60 $words
        { ended_with 0 && equal "$right" "$(grep -v '^penstock: ' <<<"$output")" "what it prints" && sound && counted evictions && counted plan.steps; } ||
            { echo "$words" >&2 && return 1; }
        equal 1 "$(grep -c 'a kernel is given host memory, .* maps every evicted span to its copy on the host' <<<"$output")" "lines about it"
        # Each span that can move is guarded, including those that are born in the step.
        [[ $words = *since* ]] || equal "$(grep -c '^s ' step)" "$(grep -c '^s .* guarded$' step)" "guarded spans"
    done
}

@test "a context takes the tables in its variables along: launches behind its end do not bring their spans" {
    local tracer
    for tracer in cupti hook; do
        hostile module-context PENSTOCK_TRACER=$tracer
        { goes_on && sound untouched; } || return 1
        equal 1 "$(report pointer_tables)" "tables"
        # Each span may come back once for the launches, and once to be checked.
        at_most 16 "$(report reloads)" "reloads"
    done
}

@test "programs without tables have none" {
    train PENSTOCK_LOG=info
    right_results
    equal 0 "$(report pointer_tables)" "tables"
    lacks "$output" 'is given host memory'
}

@test "copies from memory that the processor can't read are left alone" {
    # The wrong direction, which the driver tolerates; and addresses of spans in device memory that
    # no copy brought from the host.
    build_probe directions "-L$SIM" -l:libcuda.so.1 <<'END'
int main(void)
{
    void *span = new_span(3, NULL), *small, *other;
    CUdeviceptr pointer = (CUdeviceptr)span;

    CHECK(cudaMalloc(&small, 64));
    CHECK(cudaMalloc(&other, 64));
    CHECK(cudaMemcpy(small, &pointer, sizeof pointer, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(other, small, 8, cudaMemcpyDeviceToDevice));
    CHECK(cudaMemcpy(other, small, 8, cudaMemcpyDefault));
    EXPECT(cuMemcpy((CUdeviceptr)other, (CUdeviceptr)small, 8) == CUDA_SUCCESS);
    EXPECT(cuMemcpy((CUdeviceptr)small, pointer, 8) == CUDA_SUCCESS);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(small));
    CHECK(cudaFree(other));
    EXPECT(holds(span, 3, NULL));
    puts("ok");
    return 0;
}
END
    run_probe directions
    goes_on
    sound
    equal 1 "$(report pointer_tables)" "tables"
}

@test "batches bring tables from the host" {
    build_probe batches "-L$SIM" -l:libcuda.so.1 <<'END'
static cudaStream_t stream;

static void copy(void *to, const void *from, size_t bytes)
{
    CUdeviceptr dst = (CUdeviceptr)to, src = (CUdeviceptr)from;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    size_t first = 0;

    EXPECT(cuMemcpyBatchAsync_v2(&dst, &src, &bytes, 1, &attributes, &first, 1, stream) == CUDA_SUCCESS);
}

static void copy_volume(void *to, const void *from, size_t row, size_t rows)
{
    CUDA_MEMCPY3D_BATCH_OP op = {.extent = {row, rows, 1}, .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};

    op.src.type = op.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    op.dst.op.ptr.ptr = (CUdeviceptr)to;
    op.dst.op.ptr.rowLength = 4 * row;
    op.src.op.ptr.ptr = (CUdeviceptr)from;
    EXPECT(cuMemcpy3DBatchAsync_v2(1, &op, 0, stream) == CUDA_SUCCESS);
}

int main(void)
{
    void *table[2] = {new_span(3, NULL), new_span(4, NULL)};
    char *small;

    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc((void **)&small, 4096));
    copy(small, table, sizeof table);              /* one */
    copy_volume(small + 256, table, 8, 2);         /* one in each row: two more */
    copy(small + 1024, small, sizeof table);       /* on the device: no new table */
    copy_volume(small + 2048, small, 8, 2);
    CHECK(cudaDeviceSynchronize());
    EXPECT(holds(table[0], 3, NULL) && holds(table[1], 4, NULL));
    puts("ok");
    return 0;
}
END
    local tracer
    for tracer in cupti hook; do
        run_probe batches PENSTOCK_TRACER=$tracer
        goes_on
        sound
        equal 3 "$(report pointer_tables)" "tables"
    done
}
