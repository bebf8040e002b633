/*
 * Programs of several streams, rightly ordered by CUDA's rules, each a case that checks itself:
 *
 *     orders CASE [KIB [SECONDS]] [pool]     blocks of KIB KiB (8192); not over after SECONDS s (10) is an error; pool: blocks of a pool of its own
 *     orders --list
 *
 * Prints "ok" and ends with 0, or says what went wrong and ends with 1; 77 if the device lacks a call that the case is about. Where a case needs memory to be
 * short, a budget of eight blocks makes it so.
 */
#include "orders.h"

#include "orders_legacy.h"

static const struct order_case cases[] = {
    {"legacy-free", case_legacy_free, "a block freed and taken on the default stream, between kernels of blocking streams"},
    {"legacy-free-named", case_legacy_free_named, "the same by cudaStreamLegacy"},
    {"legacy-free-turns", case_legacy_free_turns, "the same, freed and taken three times"},
    {"legacy-free-event", case_legacy_free_event, "the same, the next owner's stream waits for an event on the default stream"},
    {"legacy-free-blocking", case_legacy_free_blocking, "a block freed on the default stream, taken on a blocking one"},
    {"legacy-free-per-thread", case_legacy_free_per_thread, "the former owner's kernel is on the thread's own default stream"},
    {"legacy-free-to-per-thread", case_legacy_free_to_per_thread, "the next owner's kernel is on the thread's own default stream"},
    {"legacy-free-thread", case_legacy_free_thread, "another thread frees and takes the block"},
    {"legacy-take", case_legacy_take, "a block freed on a blocking stream, taken on the default stream"},
};

static const struct order_case *find_case(const char *name)
{
    for (const struct order_case &candidate : cases)
        if (strcmp(candidate.name, name) == 0)
            return &candidate;
    return nullptr;
}

static bool read_number(const char *text, unsigned long most, unsigned long *number)
{
    char *end = nullptr;

    *number = strtoul(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && *number > 0 && *number <= most;
}

/* The case, or NULL if the command line is none. */
static const struct order_case *read_arguments(int argc, char **argv)
{
    unsigned long kibibytes = block_bytes >> 10, seconds = patience_s;

    if (argc > 2 && strcmp(argv[argc - 1], "pool") == 0) {
        own_pool = true;
        argc--;
    }
    if (argc < 2 || argc > 4 || (argc > 2 && !read_number(argv[2], 4u << 20, &kibibytes)) || (argc > 3 && !read_number(argv[3], 600, &seconds)))
        return nullptr;
    block_bytes = static_cast<size_t>(kibibytes) << 10;
    patience_s = static_cast<unsigned>(seconds);
    return find_case(argv[1]);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (const struct order_case &each : cases)
            printf("%-26s %s\n", each.name, each.what);
        return 0;
    }
    const struct order_case *chosen = read_arguments(argc, argv);
    if (chosen == nullptr) {
        fprintf(stderr, "usage: %s CASE [KIB [SECONDS]] [pool] | --list\n", argv[0]);
        return 2;
    }
    setvbuf(stdout, nullptr, _IOLBF, 0);
    std::thread watcher(watch);
    prepare_pool();
    prepare_gates();
    chosen->run();
    CHECK(cudaDeviceSynchronize());
    case_is_over = true;
    watcher.join();
    if (failures > 0)
        return 1;
    printf("ok\n");
    return 0;
}
