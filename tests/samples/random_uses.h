/*
 * What a random program does with its pointer tables and its graphs of nodes. Part of
 * random_orders.cu.
 */
#ifndef PENSTOCK_SAMPLES_RANDOM_USES_H
#define PENSTOCK_SAMPLES_RANDOM_USES_H

#include "random_program.h"

#define MOST_PLANS 3

/* ---- tables ---- */
static struct pointer_table *any_table(struct random_program *program)
{
    return &program->pointers.all[below(program, program->pointers.all.size())];
}

static tensor_ref any_named(struct random_program *program)
{
    return one_in(program, 6) ? nullptr : any_tensor(program);
}

static struct some_entries any_entries(struct random_program *program)
{
    struct some_entries entries = {};

    entries.count = one_in(program, 2) ? ENTRIES : 1 + below(program, ENTRIES);
    entries.first = below(program, ENTRIES - entries.count + 1);
    for (size_t i = 0; i < entries.count; i++)
        entries.named[i] = any_named(program);
    return entries;
}

/* A kernel's table is small memory, and is no variable (scripts/manual/verify.md). */
static bool may_be_made(const struct pointer_table *table)
{
    return table->place == ALONE || table->place == BESIDE;
}

static void make_entries_of(struct random_program *program, int stream, struct pointer_table *table)
{
    const tensor_ref a = any_tensor(program), b = any_tensor(program);
    struct some_entries entries = {0, 2, {a, b}};

    before_entries_are_written(&program->memory, stream, table);
    make_on_device(&program->memory, stream, table, a, b);
    name_entries(table, &entries);
}

static void write_entries(struct random_program *program, int stream)
{
    struct random_memory *memory = &program->memory;
    struct pointer_table *const table = any_table(program);
    struct some_entries entries = any_entries(program);
    const enum table_way way = static_cast<enum table_way>(below(program, TABLE_WAYS));

    if (way == BY_KERNEL && may_be_made(table)) {
        make_entries_of(program, stream, table);
        return;
    }
    if ((way == FROM_PAGEABLE || way == AT_ONCE) && !may_wait(program))
        return;
    before_entries_are_written(memory, stream, table);
    if (way == CLEARED)
        clear_entries(memory, stream, table, &entries);
    else if (way == FROM_PAGEABLE || way == AT_ONCE)
        copy_ordinary_entries(memory, stream, table, &entries, way == AT_ONCE);
    else if (has_host_buffer(program))
        copy_pinned_entries(memory, stream, table, &entries, way == IN_ROWS);
    else
        return;
    name_entries(table, &entries);
}

/* Captures work on a table that never runs. */
static void capture_in_vain(struct random_program *program)
{
    struct pointer_table *const table = any_table(program);
    const tensor_ref a = any_tensor(program), b = any_tensor(program);
    const cudaStream_t stream = program->opener;
    cudaGraph_t graph = nullptr;

    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    if (one_in(program, 2))
        CHECK(cudaMemsetAsync(table->device, 0, ENTRIES * sizeof(uint32_t *), stream));
    if (may_be_made(table))
        LAUNCH(stream, 2, make_entries, table->device, a->device, b->device, 2);
    launch_by_entries(stream, table, 0, 1, 2);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphDestroy(graph));
}

static void work_with_pointers(struct random_program *program, int stream)
{
    struct pointer_table *const table = any_table(program), *const other = any_table(program);
    struct some_entries entries = any_entries(program);

    switch (below(program, 10)) {
    case 0:
    case 1:
        write_entries(program, stream);
        return;
    case 2:
        if (table != other)
            copy_entries(&program->memory, stream, table, other, &entries);
        return;
    case 3:
        if (one_in(program, 3) && is_allocated(table) && may_wait(program) && program->plans.empty())
            replace_place(&program->memory, &program->pointers, table);
        else if (one_in(program, 2))
            capture_in_vain(program);
        return;
    default:
        use_entries(&program->memory, stream, table, below(program, ENTRIES), below(program, ENTRIES),
                    static_cast<uint32_t>(below(program, 1000)));
    }
}

/* ---- graphs of nodes ---- */
static bool is_for_plans(const tensor_ref &tensor)
{
    return !is_on_host(tensor.get());
}

static struct planned any_planned(struct random_program *program, enum plan_kind kind)
{
    struct planned node = {};

    node.kind = kind;
    node.by = static_cast<uint32_t>(below(program, 1000));
    node.table = below(program, program->pointers.all.size());
    node.other = below(program, program->pointers.all.size());
    node.turns = static_cast<uint32_t>(below(program, kind == PLAN_IF ? 2 : MOST_TURNS + 1));
    if (kind < PLAN_USE || kind == PLAN_MAKE) {
        node.to = any_tensor(program);
        node.from = any_tensor(program);
    }
    if (kind == PLAN_USE) {
        node.entries.first = below(program, ENTRIES);
        node.entries.count = below(program, ENTRIES);
    } else if (kind == PLAN_BRING || kind == PLAN_MOVE) {
        node.entries.count = 1 + below(program, ENTRIES);
        node.entries.first = below(program, ENTRIES - node.entries.count + 1);
    }
    return node;
}

/* Returns whether the node can be in a graph. Its tensors must differ. */
static bool is_possible(const struct random_program *program, const struct planned *node)
{
    if (node->to != nullptr && (node->to == node->from || !is_for_plans(node->to) || !is_for_plans(node->from)))
        return false;
    if (node->kind == PLAN_MAKE)
        return mode.graphs_make && may_be_made(&program->pointers.all[node->table]);
    return node->kind != PLAN_MOVE || node->table != node->other;
}

static bool is_alike(const tensor_ref &one, const tensor_ref &other)
{
    return one == nullptr || one->kind == other->kind;
}

/*
 * Returns whether the node may take the place of `former` in an executable graph. The memory of a
 * copy or fill stays of its kind: the driver refuses operands whose mappings change.
 */
static bool may_replace(const struct random_program *program, const struct planned *node, const struct planned *former)
{
    const std::vector<struct pointer_table> &tables = program->pointers.all;

    if (!is_copy(node) && node->kind != PLAN_FILL)
        return true;
    return is_alike(node->to, former->to) && is_alike(node->from, former->from) &&
           tables[node->table].place == tables[former->table].place &&
           tables[node->other].place == tables[former->other].place;
}

/* Returns a node of that kind with other memory, and inner nodes of the kinds of `former`'s. */
static bool choose_planned(struct random_program *program, enum plan_kind kind, const struct planned *former,
                           struct planned *node)
{
    for (unsigned tries = 0; tries < 16; tries++) {
        *node = any_planned(program, kind);
        if (is_possible(program, node) && (former == nullptr || may_replace(program, node, former)))
            break;
        if (tries == 15)
            return false;
    }
    if (!has_inner(node))
        return true;
    const uint64_t count = former == nullptr ? 1 + below(program, MOST_INNER) : former->inner.size();
    for (uint64_t i = 0; i < count; i++) {
        const enum plan_kind its =
            former == nullptr ? static_cast<enum plan_kind>(below(program, PLAN_SIMPLE_KINDS)) : former->inner[i].kind;
        struct planned inner;

        if (!choose_planned(program, its, former == nullptr ? nullptr : &former->inner[i], &inner))
            return false;
        node->inner.push_back(inner);
    }
    return true;
}

/* A changed node keeps its handles, its buffers, and the sizes of its copies of entries. */
static void keep_what_is_its(struct planned *node, const struct planned *former)
{
    node->pinned = former->pinned;
    node->left = former->left;
    node->event = former->event;
    node->condition = former->condition;
    node->first = former->first;
    node->last = former->last;
    if (former->kind == PLAN_BRING)
        node->entries = former->entries;
    for (size_t i = 0; i < node->inner.size(); i++)
        keep_what_is_its(&node->inner[i], &former->inner[i]);
}

static void make_plan(struct random_program *program)
{
    struct plan plan = {};

    if (!may_wait(program) || program->plans.size() >= MOST_PLANS)
        return;
    plan.captured = one_in(program, 4);
    const uint64_t count = 2 + below(program, MOST_PLANNED - 1);
    for (uint64_t i = 0; i < count; i++) {
        struct planned node;

        if (choose_planned(program,
                           static_cast<enum plan_kind>(below(program, plan.captured ? PLAN_SIMPLE_KINDS : PLAN_KINDS)),
                           nullptr, &node))
            plan.nodes.push_back(node);
    }
    if (plan.nodes.empty())
        return;
    for (size_t i = 0; i < plan.nodes.size(); i++) {
        plan.made.push_back(i);
        std::swap(plan.made[i], plan.made[below(program, i + 1)]);
    }
    const struct pointer_table *const tables = program->pointers.all.data();
    hold_planned(plan.nodes, 1);
    prepare_planned(plan.nodes);
    order_plan(&plan, tables);
    plan.graph = graph_of(&plan, tables, program->opener);
    CHECK(cudaGraphInstantiate(&plan.executable, plan.graph, 0));
    program->plans.push_back(plan);
}

/* Puts other addresses into pinned buffers, and chooses other numbers of turns. */
static void change_contents(struct random_program *program, struct plan *plan, std::vector<struct planned> &nodes)
{
    for (struct planned &node : nodes) {
        if (node.kind == PLAN_BRING)
            for (size_t i = 0; i < node.entries.count; i++) {
                name_entry(&node.entries.named[i], any_named(program));
                node.pinned[i] = address_of(node.entries.named[i]);
            }
        if ((node.kind == PLAN_IF || node.kind == PLAN_WHILE) && one_in(program, 2)) {
            node.turns = static_cast<uint32_t>(below(program, node.kind == PLAN_IF ? 2 : MOST_TURNS + 1));
            set_parameters(plan, &node, program->pointers.all.data());
        }
        change_contents(program, plan, node.inner);
    }
}

/*
 * Returns whether the node of an executable graph may get these parameters: a kernel stays the same
 * function, and a fill keeps its width.
 */
static bool may_become(const struct planned *former, const struct planned *node, const struct pointer_table *tables)
{
    if (former->kind == PLAN_FILL) {
        const struct graph_node before = as_graph_node(former), after = as_graph_node(node);

        return count_of(&before) == count_of(&after);
    }
    if (former->kind == PLAN_USE)
        return (tables[former->table].place == IN_VARIABLE) == (tables[node->table].place == IN_VARIABLE);
    for (size_t i = 0; i < former->inner.size(); i++)
        if (!may_become(&former->inner[i], &node->inner[i], tables))
            return false;
    return true;
}

/* Gives one node of the executable graph other memory, if the graph's order allows it. */
static void change_one(struct random_program *program, struct plan *plan)
{
    const size_t at = below(program, plan->nodes.size());
    const struct pointer_table *const tables = program->pointers.all.data();
    std::vector<struct planned> nodes = plan->nodes;

    if (plan->captured || !choose_planned(program, nodes[at].kind, &plan->nodes[at], &nodes[at]))
        return;
    keep_what_is_its(&nodes[at], &plan->nodes[at]);
    if (nodes[at].kind == PLAN_IF || nodes[at].kind == PLAN_WHILE || !is_ordered(nodes, plan, tables) ||
        !may_become(&plan->nodes[at], &nodes[at], tables))
        return;
    hold_planned(nodes, 1);
    hold_planned(plan->nodes, -1);
    plan->nodes.swap(nodes);
    set_parameters(plan, &plan->nodes[at], tables);
}

/* Gives the executable graph the nodes of another graph. */
static void change_all(struct random_program *program, struct plan *plan)
{
    const struct pointer_table *const tables = program->pointers.all.data();
    struct plan other = *plan;
    cudaGraphExecUpdateResultInfo info = {};

    for (size_t i = 0; i < other.nodes.size(); i++) {
        if (!choose_planned(program, other.nodes[i].kind, &plan->nodes[i], &other.nodes[i]))
            return;
        keep_what_is_its(&other.nodes[i], &plan->nodes[i]);
        if (!may_become(&plan->nodes[i], &other.nodes[i], tables))
            return;
    }
    if (!plan->captured && !is_ordered(other.nodes, plan, tables))
        return;
    const cudaGraph_t graph = graph_of(&other, tables, program->opener);
    if (cudaGraphExecUpdate(plan->executable, graph, &info) != cudaSuccess) {
        cudaGetLastError(); /* for example a fill of another width */
        CHECK(cudaGraphDestroy(graph));
        return;
    }
    hold_planned(other.nodes, 1);
    hold_planned(plan->nodes, -1);
    CHECK(cudaGraphDestroy(graph));
    for (size_t i = 0; i < other.nodes.size(); i++) { /* nodes go by the handles of the first graph */
        other.nodes[i].first = plan->nodes[i].first;
        other.nodes[i].last = plan->nodes[i].last;
    }
    plan->nodes.swap(other.nodes);
}

/* A conditional node's handle belongs to the primary context, and so must its launches. */
static bool may_be_launched(const struct random_program *program, int stream, const struct plan *plan)
{
    if (!program->memory.streams.all[static_cast<size_t>(stream)].green)
        return true;
    for (const struct planned &node : plan->nodes)
        if (node.kind == PLAN_IF || node.kind == PLAN_WHILE)
            return false;
    return true;
}

static void work_with_plan(struct random_program *program, int stream)
{
    if (program->plans.empty() || one_in(program, 5)) {
        make_plan(program);
        return;
    }
    const size_t at = below(program, program->plans.size());
    struct plan *const plan = &program->plans[at];
    if (!may_be_launched(program, stream, plan))
        return;
    if (may_wait(program) && !one_in(program, 3)) {
        if (plan->over != nullptr)
            CHECK(cudaEventSynchronize(plan->over->event));
        change_contents(program, plan, plan->nodes);
    }
    if (one_in(program, 3))
        change_one(program, plan);
    else if (one_in(program, 4))
        change_all(program, plan);
    launch_plan(&program->memory, stream, plan, &program->pointers.all);
    if (may_wait(program) && one_in(program, 10)) {
        drop_plan(plan);
        program->plans.erase(program->plans.begin() + static_cast<ptrdiff_t>(at));
    }
}

/* ---- the program ---- */
static void drop_plans_and_entries(struct random_program *program)
{
    for (struct plan &plan : program->plans)
        drop_plan(&plan);
    program->plans.clear();
    go_to(0);
    for (struct pointer_table &table : program->pointers.all) {
        const int stream = any_stream_here(program);
        struct some_entries none = {0, ENTRIES, {}};

        before_entries_are_written(&program->memory, stream, &table);
        clear_entries(&program->memory, stream, &table, &none);
        forget_entries(&table);
    }
}

/* Penstock knows kernels that write tables by their first launches. */
static void prepare_pointers(struct random_program *program, int stream)
{
    const tensor_ref a = program->memory.tensors[0], b = program->memory.tensors[1];

    prepare_pointer_tables(&program->pointers, program->number);
    for (unsigned i = 0; i < 8; i++) {
        struct pointer_table *const table = &program->pointers.all[ALONE];
        struct some_entries entries = {0, 2, {a, b}};

        before_entries_are_written(&program->memory, stream, table);
        make_on_device(&program->memory, stream, table, a, b);
        name_entries(table, &entries);
        CHECK(cudaStreamSynchronize(handle_of(&program->memory, stream)));
    }
}

#endif
