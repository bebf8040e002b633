/*
 * Random programs whose streams run side by side, and that check themselves:
 *
 *     random_overlap SEED [OPERATIONS [ROUNDS [KIB]]] [WORD]...
 *
 * Each seed gives one program. Each of its streams allocates, uses and frees memory. After every
 * OPERATIONS (12) operations it says that it has arrived, and waits until all other streams have
 * arrived as often. Each does so ROUNDS (8) times. The host queues all of that without a wait, and
 * some streams' work rounds ahead of others'. A stream that is made to wait for a later round of
 * another never ends. A tensor is handed to another stream only if that one's work is queued as
 * far. The host computes each word too, and compares them.
 *
 *     KIB      a tensor is one to four times as large (4)
 *     kinds    streams have priorities, memory is of more kinds and of small sizes, too
 *     threads  each stream has a host thread, and no tensor is handed over
 *     to=SEED  all programs from the first seed to this one, in one process
 *
 * Prints "ok", or prints the failure and ends with 1. A program that is not over in time has
 * failed, too. The ledger of a simulated device has the longest chain of kernels. It is the same in
 * each run where nothing waits that need not.
 */
#include "random_graphs.h"

#define MOST_PARTIES 5
#define MOST_OWN 12

static struct {
    unsigned long seed, last_seed, operations, rounds, kib;
    bool threads;
} mode;

/* A stream with its memory and random numbers. Its only stream has the number 0. */
struct party {
    struct random_memory memory;
    unsigned number;   /* also of its gate */
    uint64_t queued;   /* operations so far */
    uint64_t arrivals; /* rounds that are queued */
};

static std::vector<struct party> parties;

static uint64_t below(struct party *party, uint64_t bound)
{
    return below(&party->memory.streams, bound);
}

static cudaStream_t stream_of(const struct party *party)
{
    return handle_of(&party->memory, 0);
}

/* ---- operations ---- */
static void fill_by_kernel(struct party *party, const tensor_ref &tensor)
{
    const uint32_t salt = static_cast<uint32_t>(party->memory.streams.random());
    const size_t count = tensor->words.size();

    before_write(&party->memory, 0, tensor.get());
    LAUNCH(stream_of(party), count, fill_words, tensor->device, salt, 0, count);
    fill_words_body(whole, tensor->words.data(), salt, 0, count);
    was_written(tensor.get(), worked(&party->memory.streams, 0));
}

static void take(struct party *party)
{
    static const enum memory_kind kinds[] = {STREAM_ORDERED, STREAM_ORDERED, STREAM_ORDERED,
                                             FOR_ALL,        FROM_POOL,      MAPPED};
    const enum memory_kind kind = kinds[below(party, all_kinds ? 6 : 4)];

    if (party->memory.tensors.size() >= MOST_OWN)
        return;
    party->memory.tensors.push_back(new_tensor_of(&party->memory, 0, kind, any_bytes(&party->memory.streams)));
    fill_by_kernel(party, party->memory.tensors.back());
}

static void give(struct party *party)
{
    const size_t at = below(party, party->memory.tensors.size());
    const tensor_ref tensor = party->memory.tensors[at];

    if (!is_in_stream_order(tensor->kind)) /* each way to free it may wait for the device */
        return;
    free_in_order(&party->memory, 0, tensor.get());
    forget_tensor(&party->memory, at);
}

static void mix(struct party *party)
{
    const tensor_ref to = party->memory.tensors[below(party, party->memory.tensors.size())];
    const tensor_ref from = party->memory.tensors[below(party, party->memory.tensors.size())];
    const struct graph_node node = {to == from ? NODE_ADD : static_cast<enum node_kind>(below(party, NODE_KINDS)), to,
                                    from, static_cast<uint32_t>(party->queued)};

    before_write(&party->memory, 0, to.get());
    before_read(&party->memory, 0, from.get());
    capture_node(stream_of(party), &node);
    do_on_host(&node);
    const struct work work = worked(&party->memory.streams, 0);
    was_read(from.get(), work);
    was_written(to.get(), work);
}

/*
 * Gives a tensor to a party whose work is queued as far, and to which this party's work is known.
 */
static void hand_over(struct party *party)
{
    struct party *const other = &parties[below(party, parties.size())];
    const size_t at = below(party, party->memory.tensors.size());
    const tensor_ref tensor = party->memory.tensors[at];

    if (mode.threads || other == party || other->arrivals < party->arrivals || other->memory.tensors.size() >= MOST_OWN)
        return;
    for_others(&party->memory, &tensor->writes);
    for_others(&party->memory, &tensor->reads);
    other->memory.tensors.push_back(tensor);
    forget_tensor(&party->memory, at);
}

static void arrive(struct party *party)
{
    const uint32_t round = static_cast<uint32_t>(++party->arrivals);

    open_on(stream_of(party), party->number, round);
    for (const struct party &other : parties)
        if (other.number != party->number)
            hold(stream_of(party), other.number, round);
}

static void operate(struct party *party)
{
    const uint64_t what = below(party, 10);

    if (party->memory.tensors.size() < 2 || what < 3)
        take(party);
    else if (what < 6)
        give(party);
    else if (what < 9)
        mix(party);
    else
        hand_over(party);
    if (++party->queued % mode.operations == 0)
        arrive(party);
}

static bool is_over(const struct party *party)
{
    return party->arrivals >= mode.rounds;
}

static void look_at_all(struct party *party)
{
    for (const tensor_ref &tensor : party->memory.tensors)
        look_at(&party->memory, 0, tensor.get());
}

/* ---- programs ---- */

/*
 * Memory that was used on the legacy default stream, and is free again. Nothing may be ordered by
 * way of that stream later.
 */
static void use_legacy_stream(struct random_streams *streams)
{
    uint32_t *former[4];

    for (uint32_t *&each : former) {
        const size_t words = any_bytes(streams) / sizeof(uint32_t);

        each = allocate(one_in(streams, 2) ? STREAM_ORDERED : FOR_ALL, words * sizeof(uint32_t), nullptr);
        LAUNCH(nullptr, words, fill_words, each, 1, 0, words);
    }
    for (uint32_t *each : former)
        CHECK(cudaFreeAsync(each, nullptr));
    CHECK(cudaDeviceSynchronize());
}

/*
 * Only one stream of each host thread's default ones exists. A legacy stream has no blocking
 * streams beside it.
 */
static enum stream_kind any_party_kind(struct random_streams *streams, unsigned number, bool all_non_blocking)
{
    if (all_non_blocking)
        return number == 0 && one_in(streams, 2) ? LEGACY : NON_BLOCKING;
    if (number == 0 || mode.threads)
        return one_in(streams, 3) ? PER_THREAD : BLOCKING;
    return one_in(streams, 2) ? BLOCKING : NON_BLOCKING;
}

static void prepare(struct party *party, bool all_non_blocking)
{
    party->memory.streams.random.seed(mode.seed * MOST_PARTIES + party->number);
    add_stream(&party->memory.streams, any_party_kind(&party->memory.streams, party->number, all_non_blocking));
    for (unsigned i = 0; i < MOST_OWN; i++)
        party->memory.spare_buffers.push_back(new_host_buffer());
}

static void queue_in_turn(struct random_streams *streams)
{
    for (size_t over = 0; over < parties.size();) {
        over = 0;
        for (const struct party &party : parties)
            over += is_over(&party);
        struct party *const next = &parties[below(streams, parties.size())];
        /* Several at a time: one stream's work gets far ahead of another's. */
        for (uint64_t i = 1 + below(streams, 2 * mode.operations); i > 0 && !is_over(next); i--)
            operate(next);
    }
}

static void queue_in_threads(void)
{
    std::vector<std::thread> threads;

    for (struct party &party : parties)
        threads.emplace_back([&party] {
            while (!is_over(&party))
                operate(&party);
            look_at_all(&party); /* only this thread can name its own default stream */
        });
    for (std::thread &each : threads)
        each.join();
}

/* Compares all words, and frees everything. The device is idle. */
static void end(struct party *party)
{
    compare_all(&party->memory);
    for (const tensor_ref &tensor : party->memory.tensors)
        release(tensor->kind, tensor->device);
    free_buffers(&party->memory);
    if (is_own(&party->memory.streams.all[0]))
        CHECK(cudaStreamDestroy(stream_of(party)));
}

static void run_program(void)
{
    struct random_streams streams = {};

    streams.random.seed(mode.seed);
    const bool all_non_blocking = one_in(&streams, 3);
    parties.clear();
    parties.resize(2 + below(&streams, MOST_PARTIES - 1));
    use_legacy_stream(&streams);
    for (unsigned i = 0; i < parties.size(); i++) {
        parties[i].number = i;
        prepare(&parties[i], all_non_blocking);
    }
    if (mode.threads) {
        queue_in_threads();
    } else {
        queue_in_turn(&streams);
        for (struct party &party : parties)
            look_at_all(&party);
    }
    CHECK(cudaDeviceSynchronize());
    for (struct party &party : parties)
        end(&party);
}

static bool read_arguments(int argc, char **argv)
{
    unsigned long *const number[] = {&mode.seed, &mode.operations, &mode.rounds, &mode.kib};
    size_t numbers = 0;

    mode.operations = 12;
    mode.rounds = 8;
    mode.kib = 4;
    for (int i = 1; i < argc; i++) {
        if (numbers < 4 && read_number(argv[i], UINT32_MAX, number[numbers]))
            numbers++;
        else if (strcmp(argv[i], "kinds") == 0)
            all_kinds = true;
        else if (strcmp(argv[i], "threads") == 0)
            mode.threads = true;
        else if (strncmp(argv[i], "to=", 3) != 0 || !read_number(argv[i] + 3, UINT32_MAX, &mode.last_seed))
            return false;
    }
    unit_bytes = mode.kib << 10;
    return numbers > 0;
}

int main(int argc, char **argv)
{
    prepare_process();
    if (!read_arguments(argc, argv)) {
        fprintf(stderr, "usage: %s SEED [OPERATIONS [ROUNDS [KIB]]] [kinds] [threads] [to=SEED]\n", argv[0]);
        return 2;
    }
    prepare_gates();
    prepare_memory(mode.seed % 2 == 0);
    run_seeds(&mode.seed, mode.last_seed, run_program);
    forget_memory();
    return failures > 0;
}
