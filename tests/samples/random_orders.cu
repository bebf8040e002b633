/*
 * Random programs, each correctly ordered by CUDA's rules, that check themselves:
 *
 *     random_orders SEED [OPERATIONS [STEPS [KIB]]] [masked=N] [branches] [gates] [threads]
 *
 * Each seed gives one program. It allocates and frees memory in each of CUDA's ways, on streams of
 * each kind that come and go. It fills, mixes and copies memory, captures graphs and launches them
 * again. It uses memory by tables of addresses that its kernels write. The host computes each word
 * too, and compares the words that it reads.
 *
 *     STEPS     the number of repetitions of the operations, a few of them different; 1 by default
 *     KIB       a tensor is one to four times as large (4)
 *     masked=N  some tables hold masked addresses, and are used within N launches
 *     branches  each program has graphs, with branches whose order matters
 *     gates     a stream is held now and then, until the host or another stream lets it go on
 *     threads   two host threads have a program each, and give each other tensors
 *
 * Prints "ok", or prints the failure and ends with 1. A program that is not over in time has
 * failed, too.
 */
#include "random_graphs.h"

#define MOST_GRAPHS 5
#define GATE_OPERATIONS 12
#define USUAL_OPERATIONS 250

static struct {
    unsigned long seed, operations, steps, kib;
    unsigned long reach; /* of masked tables, in launches; 0: no masked tables */
    bool branches, gates, threads;
} mode;

struct random_program {
    struct random_memory memory;
    std::vector<struct random_graph> graphs;
    struct random_streams lanes; /* of captures; none without `branches` */
    struct address_table table[TABLES];
    unsigned number; /* 0, or 1 for the second thread */
    size_t lasting;  /* the first `lasting` tensors outlive steps */
    size_t most;
    bool has_graphs, has_tables;
    /* Fixed for the program: a late number of the other opener would close the gate again. */
    bool host_opens;
    uint32_t gate_value;
    uint64_t gate_until; /* the operation at which the gate opens; 0: no gate is closed */
    cudaStream_t opener;
};

/* Tensors that threads give each other. Guarded by `given_lock`. */
static std::mutex given_lock;
static std::vector<tensor_ref> given;

static uint64_t below(struct random_program *program, uint64_t bound)
{
    return below(&program->memory.streams, bound);
}

static bool one_in(struct random_program *program, uint64_t n)
{
    return below(program, n) == 0;
}

static tensor_ref any_tensor(struct random_program *program)
{
    return program->memory.tensors[below(program, program->memory.tensors.size())];
}

/* While a gate is closed, no call may wait for the device. */
static bool may_wait(const struct random_program *program)
{
    return program->gate_until == 0;
}

/* ---- words ---- */
static void copy_from_host(struct random_program *program, int stream, struct tensor_words *tensor)
{
    struct random_memory *memory = &program->memory;
    uint32_t *const buffer = host_buffer(memory);

    memcpy(buffer, tensor->words.data(), bytes_of(tensor));
    CHECK(cudaMemcpyAsync(tensor->device, buffer, bytes_of(tensor), cudaMemcpyHostToDevice, handle_of(memory, stream)));
    was_written(tensor, worked(&memory->streams, stream));
    memory->looks.push_back({buffer, {}, moment_on(&memory->streams, stream), memory->issued});
}

static void fill_tensor(struct random_program *program, int stream, struct tensor_words *tensor)
{
    struct random_memory *memory = &program->memory;
    const size_t count = tensor->words.size();
    const uint32_t salt = static_cast<uint32_t>(program->memory.streams.random());
    const uint64_t way = below(program, 5);

    before_write(memory, stream, tensor);
    if (way == 0) {
        memset(tensor->words.data(), static_cast<int>(salt & 255), bytes_of(tensor));
        CHECK(
            cudaMemsetAsync(tensor->device, static_cast<int>(salt & 255), bytes_of(tensor), handle_of(memory, stream)));
        was_written(tensor, worked(&memory->streams, stream));
        return;
    }
    fill_words_body(whole, tensor->words.data(), salt, 0, count);
    if (way == 1) {
        copy_from_host(program, stream, tensor);
        return;
    }
    if (way == 2 && may_wait(program)) /* from pageable memory */
        CHECK(cudaMemcpyAsync(tensor->device, tensor->words.data(), bytes_of(tensor), cudaMemcpyHostToDevice,
                              handle_of(memory, stream)));
    else
        LAUNCH(handle_of(memory, stream), count, fill_words, tensor->device, salt, 0, count);
    memory->launches++;
    was_written(tensor, worked(&memory->streams, stream));
}

static void add_to_tensor(struct random_program *program, int stream)
{
    struct random_memory *memory = &program->memory;
    const tensor_ref tensor = any_tensor(program);
    const uint32_t by = static_cast<uint32_t>(below(program, 1000));
    const size_t count = tensor->words.size(), first = one_in(program, 2) ? below(program, count) : 0;

    before_write(memory, stream, tensor.get());
    LAUNCH(handle_of(memory, stream), count - first, add_to_words, tensor->device + first, by, count - first);
    memory->launches++;
    add_to_words_body(whole, tensor->words.data() + first, by, count - first);
    was_written(tensor.get(), worked(&memory->streams, stream));
}

static void mix_tensors(struct random_program *program, int stream)
{
    struct random_memory *memory = &program->memory;
    const tensor_ref to = any_tensor(program), from = any_tensor(program);
    const size_t count = std::min(to->words.size(), from->words.size());

    if (to == from)
        return;
    const struct graph_node node = {one_in(program, 4) ? NODE_COPY : NODE_MIX, to, from, static_cast<uint32_t>(count)};
    before_write(memory, stream, to.get());
    before_read(memory, stream, from.get());
    capture_node(handle_of(memory, stream), &node);
    memory->launches++;
    do_on_host(&node);
    const struct work work = worked(&memory->streams, stream);
    was_written(to.get(), work);
    was_read(from.get(), work);
}

/* Copies every other row of 64 words. */
static void copy_rows(struct random_program *program, int stream)
{
    struct random_memory *memory = &program->memory;
    const tensor_ref to = any_tensor(program), from = any_tensor(program);
    const size_t row = 64, rows = std::min(to->words.size(), from->words.size()) / (2 * row);

    if (to == from)
        return;
    before_write(memory, stream, to.get());
    before_read(memory, stream, from.get());
    CHECK(cudaMemcpy2DAsync(to->device, 2 * row * sizeof(uint32_t), from->device + row, 2 * row * sizeof(uint32_t),
                            row * sizeof(uint32_t), rows, cudaMemcpyDeviceToDevice, handle_of(memory, stream)));
    memory->launches++;
    for (size_t i = 0; i < rows; i++)
        memcpy(to->words.data() + i * 2 * row, from->words.data() + row + i * 2 * row, row * sizeof(uint32_t));
    const struct work work = worked(&memory->streams, stream);
    was_written(to.get(), work);
    was_read(from.get(), work);
}

/* ---- memory ---- */
static void free_tensor(struct random_program *program, int stream, size_t at)
{
    struct random_memory *memory = &program->memory;
    const tensor_ref tensor = memory->tensors[at];

    if (may_wait(program) && one_in(program, tensor->in_stream_order ? 8 : 2))
        free_for_all(memory, tensor.get());
    else
        free_in_order(memory, stream, tensor.get());
    forget_tensor(memory, at);
}

static void free_some(struct random_program *program, int stream)
{
    const size_t count = program->memory.tensors.size();
    const size_t at = below(program, count);

    const struct tensor_words *const tensor = program->memory.tensors[at].get();

    /* Each way to free memory of cudaMalloc may wait for the device. */
    if (at >= program->lasting && tensor->held == 0 && (tensor->in_stream_order || may_wait(program)))
        free_tensor(program, stream, at);
}

static void take_some(struct random_program *program, int stream)
{
    if (program->memory.tensors.size() >= program->most)
        return;
    const tensor_ref tensor = new_tensor(&program->memory, stream);
    if (may_wait(program) && one_in(program, 15)) /* never used */
        free_tensor(program, stream, program->memory.tensors.size() - 1);
    else
        fill_tensor(program, one_in(program, 3) ? any_stream(&program->memory.streams) : stream, tensor.get());
}

/* Makes the tensor's works ready for another thread to wait for. */
static void for_others(struct random_memory *memory, std::vector<struct work> *works)
{
    for (struct work &work : *works) {
        if (work.after == nullptr)
            work.after = moment_on(&memory->streams, work.stream);
        work.stream = -1;
    }
}

static void give_away(struct random_program *program)
{
    const size_t at = below(program, program->memory.tensors.size());
    const tensor_ref tensor = program->memory.tensors[at];
    const std::lock_guard<std::mutex> guard(given_lock);

    if (at < program->lasting || tensor->held > 0 || given.size() > 4)
        return;
    for_others(&program->memory, &tensor->writes);
    for_others(&program->memory, &tensor->reads);
    given.push_back(tensor);
    forget_tensor(&program->memory, at);
}

static void take_given(struct random_program *program)
{
    const std::lock_guard<std::mutex> guard(given_lock);

    if (given.empty())
        return;
    program->memory.tensors.push_back(given.back());
    given.pop_back();
}

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
        if (is_usable(program, &table) && program->memory.launches - table.made_at < 4)
            use_table(&program->memory, stream, &table, 1);
}

static void make_graph(struct random_program *program, int stream)
{
    struct random_stream *const streams = program->memory.streams.all.data();
    const int beside = any_stream(&program->memory.streams);
    struct random_graph graph = {};

    /* During the capture of a blocking stream, the other thread could not use the legacy stream. */
    if (program->graphs.size() >= MOST_GRAPHS || streams[stream].kind != NON_BLOCKING ||
        streams[beside].kind != NON_BLOCKING)
        return;
    const uint64_t most = mode.branches ? MOST_BRANCHED_NODES : MOST_NODES;
    for (uint64_t i = 0, count = 1 + below(program, most); i < count; i++) {
        const tensor_ref to = any_tensor(program), from = any_tensor(program);

        if (to != from)
            graph.nodes.push_back(
                {static_cast<enum node_kind>(below(program, NODE_KINDS)), to, from, static_cast<uint32_t>(i * 77)});
    }
    if (graph.nodes.empty() || (stream == beside && branch_of(graph.nodes) < graph.nodes.size()))
        return;
    if (mode.branches)
        capture_branches(&graph, &program->lanes);
    else
        capture_graph(&graph, streams[stream].handle, streams[beside].handle);
    program->graphs.push_back(graph);
}

static void work_with_graph(struct random_program *program, int stream)
{
    if (program->graphs.empty() || one_in(program, 5)) {
        make_graph(program, stream);
        return;
    }
    const size_t at = below(program, program->graphs.size());
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
    hold(handle_of(&program->memory, stream), program->number, ++program->gate_value);
    program->gate_until = program->memory.issued + 1 + below(program, GATE_OPERATIONS);
}

static void open_gate(struct random_program *program)
{
    if (may_wait(program))
        return;
    if (!program->host_opens)
        open_on(program->opener, program->number, program->gate_value);
    else
        open_from_host(program->number, program->gate_value);
    program->gate_until = 0;
}

static void wait_on_host(struct random_program *program, int stream)
{
    if (!may_wait(program))
        return;
    if (!mode.threads && one_in(program, 4)) /* another thread may capture */
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
        if (mode.threads)
            give_away(program);
        break;
    case 4:
        if (mode.threads)
            take_given(program);
        break;
    default:
        use_latest_table(program, stream);
    }
}

static void operate(struct random_program *program)
{
    const int stream = any_stream(&program->memory.streams);

    program->memory.issued++;
    if (program->gate_until != 0 && program->memory.issued > program->gate_until)
        open_gate(program);
    if (program->memory.tensors.size() < 4) {
        take_some(program, stream);
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
        if (program->has_tables && !mode.branches)
            work_with_table(program, stream);
        else if (mode.branches)
            work_with_graph(program, stream);
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

static void run_step(struct random_program *program, uint64_t seed)
{
    program->memory.streams.random.seed(seed);
    for (unsigned long i = 0; i < mode.operations && failures == 0; i++)
        operate(program);
    open_gate(program);
    drop_graphs_and_tables(program);
    while (program->memory.tensors.size() > program->lasting) {
        look_at(&program->memory, any_stream(&program->memory.streams), program->memory.tensors.back().get());
        free_tensor(program, any_stream(&program->memory.streams), program->memory.tensors.size() - 1);
    }
    compare_all(&program->memory);
}

/* Penstock knows kernels that write tables by their first launches. */
static void prepare_tables(struct random_program *program)
{
    for (struct address_table &table : program->table) {
        void *device = nullptr;

        CHECK(cudaMalloc(&device, 2 * sizeof(uint32_t *)));
        table.device = static_cast<uint32_t **>(device);
    }
    for (unsigned i = 0; program->has_tables && i < 8; i++) {
        write_table(&program->memory, 0, &program->table[0], program->memory.tensors[0], program->memory.tensors[1], 0);
        CHECK(cudaStreamSynchronize(handle_of(&program->memory, 0)));
    }
}

static void prepare(struct random_program *program)
{
    struct random_memory *memory = &program->memory;

    memory->streams.random.seed(mode.seed * 2 + program->number);
    prepare_streams(&memory->streams);
    program->has_graphs = one_in(program, 2) || mode.branches;
    program->lanes.random.seed(mode.seed);
    for (unsigned i = 0; mode.branches && i < LANES; i++)
        add_stream(&program->lanes, NON_BLOCKING);
    program->has_tables = one_in(program, 2) || mode.reach;
    program->most = 8 + below(program, 24);
    program->lasting = 2 + below(program, 6);
    program->host_opens = one_in(program, 2);
    program->opener = new_stream();
    for (size_t i = 0; i < program->lasting; i++)
        fill_tensor(program, 0, new_tensor(memory, 0).get());
    for (unsigned i = 0; i < 24; i++)
        memory->spare_buffers.push_back(host_buffer(memory));
    prepare_tables(program);
}

static void free_everything(struct random_program *program)
{
    struct random_memory *memory = &program->memory;

    while (!memory->tensors.empty()) {
        look_at(memory, any_stream(&memory->streams), memory->tensors.back().get());
        free_tensor(program, any_stream(&memory->streams), memory->tensors.size() - 1);
    }
    compare_all(memory);
    for (struct address_table &table : program->table)
        CHECK(cudaFree(table.device));
    for (uint32_t *buffer : memory->spare_buffers)
        CHECK(cudaFreeHost(buffer));
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

    program.number = number;
    prepare(&program);
    const uint64_t usual = program.memory.streams.random(), odd_every = 4 + below(&program, 8);
    for (unsigned long step = 0; step < mode.steps && failures == 0; step++)
        run_step(&program, step % odd_every == odd_every - 1 ? usual + step : usual);
    program.lasting = 0;
    free_everything(&program);
}

/* Leaves the number as it is if the text is not one. */
static bool read_number(const char *text, unsigned long most, unsigned long *number)
{
    char *end = nullptr;
    const unsigned long read = text[0] >= '0' && text[0] <= '9' ? strtoul(text, &end, 10) : 0;

    if (read == 0 || *end != '\0' || read > most)
        return false;
    *number = read;
    return true;
}

static bool read_word(const char *word)
{
    if (strcmp(word, "branches") == 0)
        return mode.branches = true;
    if (strcmp(word, "gates") == 0)
        return mode.gates = true;
    if (strcmp(word, "threads") == 0)
        return mode.threads = true;
    return strncmp(word, "masked=", 7) == 0 && read_number(word + 7, 1000, &mode.reach);
}

static bool read_arguments(int argc, char **argv)
{
    unsigned long *const number[] = {&mode.seed, &mode.operations, &mode.steps, &mode.kib};
    size_t numbers = 0;

    mode.operations = USUAL_OPERATIONS;
    mode.steps = 1;
    mode.kib = 4;
    for (int i = 1; i < argc; i++) {
        if (numbers < 4 && read_number(argv[i], UINT32_MAX, number[numbers]))
            numbers++;
        else if (!read_word(argv[i]))
            return false;
    }
    unit_bytes = mode.kib << 10;
    return numbers > 0 && !(mode.threads && mode.reach); /* the other thread's launches count, too */
}

int main(int argc, char **argv)
{
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    if (!read_arguments(argc, argv)) {
        fprintf(stderr, "usage: %s SEED [OPERATIONS [STEPS [KIB]]] [masked=N] [branches] [gates] [threads]\n", argv[0]);
        return 2;
    }
    patience_s = 60;
    std::thread watcher(watch);
    prepare_gates();
    if (mode.threads) {
        std::thread second(run_program, 1);
        run_program(0);
        second.join();
    } else {
        run_program(0);
    }
    CHECK(cudaDeviceSynchronize());
    for (const tensor_ref &tensor : given)
        CHECK(cudaFree(tensor->device));
    destroy_events();
    return end_watch(&watcher);
}
