/*
 * Random programs, each correctly ordered by CUDA's rules, that check themselves:
 *
 *     random_orders SEED [OPERATIONS [STEPS [KIB]]] [WORD]...
 *
 * Each seed gives one program. It allocates and frees memory in each of CUDA's ways, on streams of
 * each kind that come and go. It fills, mixes and copies memory, captures graphs and launches them
 * again. It uses memory by tables of addresses that its kernels write. The host computes each word
 * too, and compares the words that it reads.
 *
 *     STEPS      the number of repetitions of the operations, a few of them different; 1 by default
 *     KIB        a tensor is one to four times as large (4)
 *     masked=N   some tables hold masked addresses, and are used within N launches
 *     branches   each program has graphs, with branches whose order matters
 *     gates      a stream is held now and then, until the host or another stream lets it go on
 *     ahead      work is queued before the work that it waits for (random_ahead.h)
 *     tables     kernels use tensors through tables of every kind (random_tables.h)
 *     nodes      graphs are made and changed node by node (random_nodes.h)
 *     green      some streams of the first device are of green contexts
 *     kinds      streams have priorities, memory is of every kind and size, graphs are updated, and
 *                other work goes on between the nodes of a capture
 *     threads=N  N host threads (up to 4) have a program each, and give each other tensors
 *     devices=2  programs use two devices, and copy between them
 *     to=SEED    all programs from the first seed to this one, in one process
 *
 * Prints "ok", or prints the failure and ends with 1. A program that is not over in time has
 * failed, too.
 */
#include "random_uses.h"

#define USUAL_OPERATIONS 250

/* ---- tables and graphs ---- */
static bool is_usable(const struct random_program *program, const struct address_table *table)
{
    if (table->to == nullptr)
        return false;
    return !table->mask || program->memory.launches - table->made_at < mode.reach;
}

static void work_with_table(struct random_program *program, int stream)
{
    struct address_table *table = &program->table[below(program, TABLES)];

    if (device_here != 0) /* tables are on the first device */
        return;
    if (is_usable(program, table) && !one_in(program, 4)) {
        use_table(&program->memory, stream, table, static_cast<uint32_t>(below(program, 1000)));
        return;
    }
    const tensor_ref to = any_tensor(program), from = any_tensor(program);
    if (to != from)
        write_table(&program->memory, stream, table, to, from, mode.reach && one_in(program, 2) ? MASK : 0);
}

/* Uses each table at once, or nearly so. */
static void use_latest_table(struct random_program *program, int stream)
{
    for (struct address_table &table : program->table)
        if (device_here == 0 && is_usable(program, &table) && program->memory.launches - table.made_at < 4)
            use_table(&program->memory, stream, &table, 1);
}

/*
 * During the capture of a blocking stream, no thread can use the legacy stream. So only programs of
 * one thread capture blocking streams.
 */
static bool may_be_captured(const struct random_program *program, int stream)
{
    const struct random_stream *const captured = &program->memory.streams.all[static_cast<size_t>(stream)];

    return captured->kind == NON_BLOCKING || (all_kinds && mode.threads == 1 && captured->kind == BLOCKING);
}

/*
 * A kernel that is given pinned memory may find any addresses there. With such a kernel in a graph,
 * Penstock would hold all memory in its place, and nothing would be tested any more.
 */
static bool is_for_graphs(const struct graph_node *node)
{
    const bool to_host = is_on_host(node->to.get()), from_host = is_on_host(node->from.get());

    return node->kind == NODE_COPY ? !(to_host && from_host) : !to_host && (node->kind != NODE_MIX || !from_host);
}

/* Chooses nodes; if there are former ones, of their kinds. */
static std::vector<struct graph_node> any_nodes(struct random_program *program,
                                                const std::vector<struct graph_node> *former)
{
    const uint64_t count =
        former ? former->size() : 1 + below(program, mode.branches ? MOST_BRANCHED_NODES : MOST_NODES);
    std::vector<struct graph_node> nodes;

    for (uint64_t i = 0; i < count; i++) {
        const tensor_ref to = any_tensor(program), from = any_tensor(program);

        if (to == from)
            continue;
        const struct graph_node node = {former ? (*former)[i].kind
                                               : static_cast<enum node_kind>(below(program, NODE_KINDS)),
                                        to, from, static_cast<uint32_t>(i * 77)};
        if (is_for_graphs(&node))
            nodes.push_back(node);
    }
    return nodes;
}

/*
 * No event may be recorded on a captured stream, nor on the legacy stream beside a blocking one. So
 * present works get their moments before.
 */
static void settle_works(struct random_program *program)
{
    for (const tensor_ref &tensor : program->memory.tensors)
        for (std::vector<struct work> *works : {&tensor->writes, &tensor->reads})
            for (struct work &work : *works)
                if (work.stream >= 0 && work.after == nullptr)
                    work.after = moment_on(&program->memory.streams, work.stream);
}

static void work_beside_capture(struct random_program *program, int captured, int captured_too)
{
    struct random_stream *const streams = program->memory.streams.all.data();
    const int stream = any_stream_here(program);

    if (stream == captured || stream == captured_too || streams[stream].kind == LEGACY ||
        streams[stream].kind == PER_THREAD)
        return;
    switch (below(program, 4)) {
    case 0:
        if (program->memory.tensors.size() < program->most) {
            const tensor_ref tensor = new_tensor(&program->memory, stream, false);
            fill_tensor(program, stream, tensor.get());
        }
        break;
    case 1:
        mix_tensors(program, stream);
        break;
    default:
        free_some(program, stream);
    }
}

/* Prepares the capture of the nodes on `stream`. Returns false if they can't be captured there. */
static bool prepare_capture(struct random_program *program, int stream, int beside,
                            const std::vector<struct graph_node> *nodes, struct graph_capture *capture)
{
    if (nodes->empty() || !may_be_captured(program, stream) || !may_be_captured(program, beside) ||
        (stream == beside && branch_of(*nodes) < nodes->size()))
        return false;
    capture->nodes = nodes;
    capture->stream = handle_of(&program->memory, stream);
    capture->beside = handle_of(&program->memory, beside);
    capture->lanes = mode.branches && device_here == 0 ? &program->lanes : nullptr;
    if (capture->lanes || !all_kinds || one_in(program, 2))
        return true;
    settle_works(program);
    capture->between = [program, stream, beside] { work_beside_capture(program, stream, beside); };
    return true;
}

static void make_graph(struct random_program *program, int stream)
{
    const int beside = any_stream_here(program);
    struct random_graph graph = {};
    struct graph_capture capture = {};

    if (program->graphs.size() >= MOST_GRAPHS || !may_be_captured(program, stream) || !may_be_captured(program, beside))
        return;
    graph.home = device_here;
    graph.nodes = any_nodes(program, nullptr);
    if (!prepare_capture(program, stream, beside, &graph.nodes, &capture))
        return;
    program->is_capturing = true;
    capture_graph(&graph, &capture);
    program->is_capturing = false;
    program->graphs.push_back(graph);
}

/* The graph gets other tensors, and other work if its nodes are another number. */
static void change_graph(struct random_program *program, int stream, struct random_graph *graph)
{
    std::vector<struct graph_node> nodes = any_nodes(program, &graph->nodes);
    struct graph_capture capture = {};

    if (!prepare_capture(program, stream, any_stream_here(program), &nodes, &capture))
        return;
    program->is_capturing = true;
    update_graph(graph, &nodes, &capture);
    program->is_capturing = false;
}

static void work_with_graph(struct random_program *program, int stream)
{
    if (program->graphs.empty() || one_in(program, 5)) {
        make_graph(program, stream);
        return;
    }
    const size_t at = below(program, program->graphs.size());
    if (program->graphs[at].home != device_here)
        return;
    if (all_kinds && one_in(program, 3))
        change_graph(program, stream, &program->graphs[at]);
    launch_graph(&program->memory, stream, &program->graphs[at]);
    if (one_in(program, 8)) {
        drop_graph(&program->graphs[at]);
        program->graphs.erase(program->graphs.begin() + static_cast<ptrdiff_t>(at));
    }
}

static void drop_graphs_and_tables(struct random_program *program)
{
    for (struct random_graph &graph : program->graphs)
        drop_graph(&graph);
    program->graphs.clear();
    for (struct address_table &table : program->table)
        clear_table(&table);
}

/* ---- streams ---- */
static void replace_stream(struct random_program *program, int stream)
{
    struct random_streams *streams = &program->memory.streams;

    if (mode.steps > 1 || !is_own(&streams->all[static_cast<size_t>(stream)]) || streams->all.size() > 40)
        return;
    add_stream(streams, one_in(program, 3) ? BLOCKING : NON_BLOCKING);
    destroy_stream(streams, stream);
}

static void close_gate(struct random_program *program, int stream)
{
    if (!may_wait(program))
        return;
    hold(handle_of(&program->memory, stream), program->number * GATES_OF_THREAD, ++program->gate_value);
    program->gate_until = program->memory.issued + 1 + below(program, GATE_OPERATIONS);
}

static void open_gate(struct random_program *program)
{
    const unsigned gate = program->number * GATES_OF_THREAD;
    const at_device there(0);

    if (program->gate_until == 0)
        return;
    if (!program->host_opens)
        open_on(program->opener, gate, program->gate_value);
    else
        open_from_host(gate, program->gate_value);
    program->gate_until = 0;
}

/* Has a stream read a tensor that an opener of its device writes some operations later. */
static void queue_ahead(struct random_program *program, int stream)
{
    struct random_memory *memory = &program->memory;
    struct opener *const opener = &program->openers[below(program, MOST_AHEAD)];
    const at_device there(home_of(program, opener->stream));

    if (opener->until != 0) {
        work_ahead(memory, opener);
        return;
    }
    const size_t at = below(program, memory->tensors.size());
    const tensor_ref read = memory->tensors[at];
    if (home_of(program, stream) != device_here || at < program->lasting || read->home != device_here ||
        read->held > 0 || tensors_here(program) < 2)
        return;
    opener->by_host = mode.threads == 1 && may_wait(program) && one_in(program, 3);
    forget_tensor(memory, at);
    close_ahead(memory, opener, stream, any_tensor(program), read);
    opener->until = memory->issued + 1 + below(program, GATE_OPERATIONS);
}

/* Opens the gates whose operation has come, or all. */
static void open_what_is_due(struct random_program *program, bool all)
{
    if (program->gate_until != 0 && (all || program->memory.issued > program->gate_until))
        open_gate(program);
    for (struct opener &opener : program->openers) {
        if (opener.until == 0 || (!all && program->memory.issued <= opener.until))
            continue;
        const at_device there(home_of(program, opener.stream));
        open_ahead(&program->memory, &opener);
    }
}

static void wait_on_host(struct random_program *program, int stream)
{
    if (!may_wait(program))
        return;
    if (mode.threads == 1 && one_in(program, 4)) /* another thread may capture */
        CHECK(cudaDeviceSynchronize());
    else
        CHECK(cudaStreamSynchronize(handle_of(&program->memory, stream)));
    if (one_in(program, 2))
        compare_all(&program->memory);
}

/* ---- programs ---- */
static void work_with_words(struct random_program *program, int stream)
{
    switch (below(program, 10)) {
    case 0:
        fill_tensor(program, stream, any_tensor(program).get());
        break;
    case 1:
        copy_rows(program, stream);
        break;
    case 2:
        if (has_host_buffer(program))
            look_at(&program->memory, stream, any_tensor(program).get());
        break;
    case 3:
    case 4:
    case 5:
        add_to_tensor(program, stream);
        break;
    default:
        mix_tensors(program, stream);
    }
}

static void work_with_others(struct random_program *program, int stream)
{
    const bool rarely = one_in(program, 8);

    switch (below(program, 6)) {
    case 0:
        if (rarely)
            replace_stream(program, stream);
        break;
    case 1:
        if (rarely)
            wait_on_host(program, stream);
        break;
    case 2:
        if (mode.gates)
            close_gate(program, stream);
        break;
    case 3:
        if (mode.threads > 1)
            give_away(program);
        break;
    case 4:
        if (mode.threads > 1)
            take_given(program);
        break;
    default:
        use_latest_table(program, stream);
    }
}

static void operate(struct random_program *program)
{
    const int stream = any_stream(&program->memory.streams);

    go_to(home_of(program, stream));
    program->memory.issued++;
    open_what_is_due(program, false);
    if (tensors_here(program) < 4) {
        take_some(program, stream);
        return;
    }
    if (mode.ahead && one_in(program, 6)) {
        queue_ahead(program, stream);
        return;
    }
    if (mode.tables && device_here == 0 && one_in(program, 4)) {
        work_with_pointers(program, stream);
        return;
    }
    if (mode.nodes && device_here == 0 && one_in(program, 6)) {
        work_with_plan(program, stream);
        return;
    }
    switch (below(program, 16)) {
    case 0:
    case 1:
    case 2:
        take_some(program, stream);
        break;
    case 3:
    case 4:
        free_some(program, stream);
        break;
    case 5:
    case 6:
        if (mode.branches)
            work_with_graph(program, stream);
        else if (program->has_tables)
            work_with_table(program, stream);
        break;
    case 7:
        if (program->has_graphs)
            work_with_graph(program, stream);
        break;
    case 8:
    case 9:
        work_with_others(program, stream);
        break;
    default:
        work_with_words(program, stream);
    }
}

/* Compares all words, and frees all but the first tensors. */
static void free_all_but(struct random_program *program, size_t kept)
{
    struct random_memory *memory = &program->memory;

    while (memory->tensors.size() > kept) {
        go_to(memory->tensors.back()->home);
        look_at(memory, any_stream_here(program), memory->tensors.back().get());
        free_tensor(program, any_stream_here(program), memory->tensors.size() - 1);
    }
    compare_all(memory);
}

static void run_step(struct random_program *program, uint64_t seed)
{
    program->memory.streams.random.seed(seed);
    for (unsigned long i = 0; i < mode.operations && failures == 0; i++)
        operate(program);
    open_what_is_due(program, true);
    drop_graphs_and_tables(program);
    if (mode.tables || mode.nodes)
        drop_plans_and_entries(program);
    free_all_but(program, program->lasting);
}

static int first_stream_here(const struct random_program *program)
{
    int stream = 0;

    while (home_of(program, stream) != device_here)
        stream++;
    return stream;
}

/* Penstock knows kernels that write tables by their first launches. */
static void prepare_tables(struct random_program *program, int stream)
{
    for (struct address_table &table : program->table) {
        void *device = nullptr;

        CHECK(cudaMalloc(&device, 2 * sizeof(uint32_t *)));
        table.device = static_cast<uint32_t **>(device);
    }
    for (unsigned i = 0; program->has_tables && i < 8; i++) {
        write_table(&program->memory, stream, &program->table[0], program->memory.tensors[0],
                    program->memory.tensors[1], 0);
        CHECK(cudaStreamSynchronize(handle_of(&program->memory, stream)));
    }
}

/* Those of the first tables must be spans, by which Penstock learns what the kernel does. */
static tensor_ref new_lasting(struct random_memory *memory, int stream)
{
    if (!all_kinds || memory->tensors.size() >= 2)
        return new_tensor(memory, stream, true);
    memory->tensors.push_back(new_tensor_of(memory, stream, STREAM_ORDERED, unit_bytes));
    return memory->tensors.back();
}

static void prepare(struct random_program *program)
{
    struct random_memory *memory = &program->memory;

    memory->streams.random.seed(mode.seed * 2 + program->number);
    for (int device = device_count; device-- > 0; prepare_streams(&memory->streams))
        go_to(device);
    for (unsigned i = 0; mode.ahead && i < MOST_AHEAD; i++) {
        const at_device there(static_cast<int>(i) % device_count);
        prepare_opener(memory, &program->openers[i], program->number * GATES_OF_THREAD + 1 + i);
    }
    program->has_graphs = one_in(program, 2) || mode.branches;
    program->lanes.random.seed(mode.seed);
    for (unsigned i = 0; mode.branches && i < LANES; i++)
        add_stream(&program->lanes, NON_BLOCKING);
    program->has_tables = one_in(program, 2) || mode.reach;
    program->most = 8 + below(program, 24);
    program->lasting = 2 + below(program, 6);
    program->host_opens = one_in(program, 2);
    program->opener = new_stream();
    const int first = first_stream_here(program);
    for (size_t i = 0; i < program->lasting; i++)
        fill_tensor(program, first, new_lasting(memory, first).get());
    for (unsigned i = 0; i < 24; i++)
        memory->spare_buffers.push_back(new_host_buffer());
    prepare_tables(program, first);
    if (mode.tables || mode.nodes)
        prepare_pointers(program, first);
}

static void free_everything(struct random_program *program)
{
    struct random_memory *memory = &program->memory;

    free_all_but(program, 0);
    for (struct address_table &table : program->table)
        CHECK(cudaFree(table.device));
    if (mode.tables || mode.nodes)
        free_pointer_tables(&program->pointers);
    free_buffers(memory);
    for (size_t i = 0; i < memory->streams.all.size(); i++)
        if (is_own(&memory->streams.all[i]))
            CHECK(cudaStreamDestroy(memory->streams.all[i].handle));
    for (const struct random_stream &lane : program->lanes.all)
        CHECK(cudaStreamDestroy(lane.handle));
    CHECK(cudaStreamDestroy(program->opener));
}

static void run_program(unsigned number)
{
    struct random_program program = {};

    device_here = 0; /* as in each new thread */
    program.number = number;
    prepare(&program);
    const uint64_t usual = program.memory.streams.random(), odd_every = 4 + below(&program, 8);
    for (unsigned long step = 0; step < mode.steps && failures == 0; step++)
        run_step(&program, step % odd_every == odd_every - 1 ? usual + step : usual);
    program.lasting = 0;
    free_everything(&program);
    go_to(0);
}

/* Runs the program of each thread. */
static void run_programs(void)
{
    std::vector<std::thread> more;

    for (unsigned number = 1; number < mode.threads; number++)
        more.emplace_back(run_program, number);
    run_program(0);
    for (std::thread &each : more)
        each.join();
    for (int device = 0; device < device_count; device++) {
        const at_device there(device);

        CHECK(cudaDeviceSynchronize());
    }
    for (const tensor_ref &tensor : given)
        release(tensor->kind, tensor->device);
    given.clear();
}

static bool read_word(const char *word)
{
    const struct {
        const char *name;
        bool *flag;
    } flags[] = {{"branches", &mode.branches}, {"gates", &mode.gates}, {"ahead", &mode.ahead},
                 {"tables", &mode.tables},     {"nodes", &mode.nodes}, {"green", &green_streams},
                 {"kinds", &all_kinds}};
    const struct {
        const char *name;
        unsigned long most, *number;
    } numbers[] = {{"masked=", 1000, &mode.reach},
                   {"threads=", GATES / GATES_OF_THREAD, &mode.threads},
                   {"devices=", MOST_DEVICES, &mode.devices},
                   {"to=", UINT32_MAX, &mode.last_seed}};

    for (const auto &each : flags)
        if (strcmp(word, each.name) == 0)
            return *each.flag = true;
    for (const auto &each : numbers)
        if (strncmp(word, each.name, strlen(each.name)) == 0)
            return read_number(word + strlen(each.name), each.most, each.number);
    return false;
}

static bool read_arguments(int argc, char **argv)
{
    unsigned long *const number[] = {&mode.seed, &mode.operations, &mode.steps, &mode.kib};
    size_t numbers = 0;

    mode.operations = USUAL_OPERATIONS;
    mode.steps = mode.threads = mode.devices = 1;
    mode.kib = 4;
    for (int i = 1; i < argc; i++) {
        if (numbers < 4 && read_number(argv[i], UINT32_MAX, number[numbers]))
            numbers++;
        else if (!read_word(argv[i]))
            return false;
    }
    unit_bytes = mode.kib << 10;
    device_count = static_cast<int>(mode.devices);
    return numbers > 0 && !(mode.threads > 1 && mode.reach); /* the other thread's launches count, too */
}

int main(int argc, char **argv)
{
    prepare_process();
    if (!read_arguments(argc, argv)) {
        fprintf(
            stderr,
            "usage: %s SEED [OPERATIONS [STEPS [KIB]]] [masked=N] [branches] [gates] [ahead] [tables] [nodes] [green] [kinds] [threads=N] [devices=N] "
            "[to=SEED]\n",
            argv[0]);
        return 2;
    }
    prepare_gates();
    prepare_memory(mode.seed % 2 == 0);
    run_seeds(&mode.seed, mode.last_seed, run_programs);
    forget_memory();
    destroy_green_contexts();
    return failures > 0;
}
