/*
 * Programs of several streams, correctly ordered by CUDA's rules. Each case checks itself:
 *
 *     orders CASE [KIB [SECONDS]] [pool]
 *     orders --list
 *
 * Blocks have KIB KiB (8192). A case that takes more than SECONDS s (10) fails. With `pool`, blocks
 * come from a pool that the program made. Prints "ok" and ends with 0, or prints the failure and
 * ends with 1. Ends with 77 if the device lacks a call that the case needs. Cases that need memory
 * to be short expect a budget of eight blocks.
 */
#include "orders.h"

#include "orders_free.h"
#include "orders_legacy.h"
#include "orders_shared.h"
#include "orders_stalls.h"
#include "orders_waits.h"

static const struct order_case cases[] = {
    {"legacy-free", case_legacy_free,
     "a block freed and allocated on the default stream, between kernels of blocking streams"},
    {"legacy-free-named", case_legacy_free_named, "the same through cudaStreamLegacy"},
    {"legacy-free-turns", case_legacy_free_turns, "the same, freed and allocated three times"},
    {"legacy-free-event", case_legacy_free_event,
     "the same; the next owner's stream waits for an event on the default stream"},
    {"legacy-free-blocking", case_legacy_free_blocking,
     "a block freed on the default stream, allocated on a blocking one"},
    {"legacy-free-per-thread", case_legacy_free_per_thread,
     "the former owner's kernel is on the thread's own default stream"},
    {"legacy-free-to-per-thread", case_legacy_free_to_per_thread,
     "the next owner's kernel is on the thread's own default stream"},
    {"legacy-free-thread", case_legacy_free_thread, "another thread frees and allocates the block"},
    {"legacy-take", case_legacy_take, "a block freed on a blocking stream, allocated on the default stream"},
    {"free-on-another", case_free_on_another,
     "cudaFree while a kernel reads, then cudaFreeAsync and reuse on a stream made later"},
    {"free-on-two-others", case_free_on_two_others, "the same, with a third stream in between"},
    {"free-twice", case_free_twice, "cudaFree while a kernel reads, cudaFree once more, then reuse in stream order"},
    {"free-then-malloc", case_free_then_malloc, "cudaFree while a kernel reads, cudaFreeAsync, then cudaMalloc"},
    {"free-for-larger", case_free_for_larger, "the pages go to a larger block"},
    {"free-unseen", case_free_unseen, "cudaFree while a kernel reads through an address that no parameter shows"},
    {"turns", case_turns, "two streams allocate, use and free blocks in turn"},
    {"turns-of-three", case_turns_of_three, "the same with three streams"},
    {"turns-blocking", case_turns_blocking, "the same with two blocking streams"},
    {"turns-of-threads", case_turns_of_threads, "the same with two threads, on their own default streams"},
    {"meeting", case_meeting, "two streams allocate, use and free blocks, and wait for each other in each round"},
    {"meeting-of-three", case_meeting_of_three, "the same with three streams"},
    {"meeting-blocking", case_meeting_blocking, "the same with two blocking streams"},
    {"meeting-alike", case_meeting_alike, "the same with three streams and blocks of similar sizes"},
    {"async-behind-wait", case_async_behind_wait,
     "a request in stream order beside a freed block whose last use waits for the requester"},
    {"async-behind-wait-blocking", case_async_behind_wait_blocking, "the same on blocking streams"},
    {"async-behind-wait-smaller", case_async_behind_wait_smaller, "the same with a request for a smaller block"},
    {"async-behind-wait-larger", case_async_behind_wait_larger, "the same with a request for a larger block"},
    {"async-behind-wait-per-thread", case_async_behind_wait_per_thread, "the same on the thread's own default stream"},
    {"async-behind-wait-thread", case_async_behind_wait_thread, "the same by another thread"},
    {"async-behind-wait-third", case_async_behind_wait_third,
     "the same while a third stream allocates and frees blocks"},
    {"malloc-behind-wait", case_malloc_behind_wait, "the same by cudaMalloc"},
    {"malloc-behind-wait-blocking", case_malloc_behind_wait_blocking, "the same on blocking streams"},
    {"malloc-behind-wait-smaller", case_malloc_behind_wait_smaller, "the same for a smaller block"},
    {"malloc-behind-wait-larger", case_malloc_behind_wait_larger, "the same for a larger block"},
    {"malloc-behind-wait-steps", case_malloc_behind_wait_steps, "the same after steps of a loop"},
    {"free-behind-wait", case_free_behind_wait, "cudaFree of a block whose last use waits for the host"},
    {"legacy-barrier-leaves", case_legacy_barrier_leaves,
     "a block of the default stream leaves while a blocking stream waits for another"},
    {"legacy-barrier-taken", case_legacy_barrier_taken, "the program allocates a block by cudaMalloc meanwhile"},
    {"legacy-barrier-launches", case_legacy_barrier_launches, "the program makes many launches meanwhile"},
    {"legacy-barrier-freed", case_legacy_barrier_freed,
     "the program allocates a block that was freed on the default stream"},
    {"scarce-async", case_scarce_async,
     "a request in stream order where memory is short, beside a freed block whose last use waits"},
    {"scarce-malloc", case_scarce_malloc, "the same by cudaMalloc"},
    {"scarce-async-all", case_scarce_async_all, "the same where all memory has been freed behind the wait"},
    {"scarce-malloc-all", case_scarce_malloc_all, "the same by cudaMalloc"},
    {"free-beside-capture", case_free_beside_capture,
     "cudaFree while another thread captures, among many streams; then the device is idle"},
    {"free-beside-capture-larger", case_free_beside_capture_larger, "the same, then a request for a larger block"},
    {"free-beside-capture-queried", case_free_beside_capture_queried,
     "the same, where the host queries the streams instead of waiting for the device"},
    {"device-wait", case_device_wait,
     "a thread waits for the device, and another needs memory before it can end that wait"},
    {"device-wait-green", case_device_wait_green, "the same with a green context current in that thread"},
    {"stream-wait", case_stream_wait, "the same with a wait for the stream"},
    {"event-wait", case_event_wait, "the same with a wait for an event"},
    {"oldest-waits", case_oldest_waits,
     "memory is short, and the oldest block is in use behind a gate that the requester opens"},
    {"oldest-wait-many", case_oldest_wait_many, "the same for more than half of the blocks"},
    {"all-wait", case_all_wait, "the same for all blocks"},
    {"all-wait-steps", case_all_wait_steps, "the same in each step of a loop"},
    {"launch-stands", case_launch_stands,
     "memory is short while a thread's launch, which uses a table, blocks in its call"},
    {"look-beside-table", case_look_beside_table,
     "copies of blocks are captured while another thread's launches use them through a table"},
    {"freed-wait-many", case_freed_wait_many,
     "the blocks freed first are in use behind a gate, the blocks freed last are idle"},
    {"legacy-barrier-taken-busy", case_legacy_barrier_taken_busy,
     "legacy-barrier-taken with a block that a kernel still uses"},
    {"second-stream-takes", case_second_stream_takes,
     "a block of the only stream is freed, then allocated by cudaMalloc beside a second stream"},
    {"second-stream-comes", case_second_stream_comes, "the same, allocated before there is a second stream"},
    {"reload-behind-wait", case_reload_behind_wait,
     "two blocks come back, one into memory whose last use waits for the other"},
    {"reload-for-another", case_reload_for_another,
     "two streams read a block that comes back; then one opens the other's gate"},
    {"reload-for-another-legacy", case_reload_for_another_legacy, "the same; the default stream waits"},
    {"reload-for-another-to-legacy", case_reload_for_another_to_legacy, "the same; the default stream opens the gate"},
    {"reload-for-another-per-thread", case_reload_for_another_per_thread,
     "the same; the thread's own default stream waits"},
    {"reload-for-another-first", case_reload_for_another_first,
     "the same; the opener reads the block for the first time"},
    {"reload-for-another-host", case_reload_for_another_host,
     "the same; the host opens the gate once the opener has read the block"},
    {"reload-for-another-behind", case_reload_for_another_behind,
     "the same; there is memory for the block, but not for one before it"},
    {"reload-for-another-third", case_reload_for_another_third,
     "the same; the opener waits for a third stream that reads the block"},
    {"reload-for-another-copied", case_reload_for_another_copied,
     "the same; the host copies the block and opens the gate"},
    {"reload-for-another-steps", case_reload_for_another_steps, "the same in each step of a loop"},
    {"reload-for-another-early", case_reload_for_another_early,
     "the same; the block may come back before any stream reads it"},
    {"reload-for-another-all", case_reload_for_another_all, "the same, where all memory is in use behind the gate"},
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

/* Returns the case, or NULL if the command line is wrong. */
static const struct order_case *read_arguments(int argc, char **argv)
{
    unsigned long kibibytes = block_bytes >> 10, seconds = patience_s;

    if (argc > 2 && strcmp(argv[argc - 1], "pool") == 0) {
        own_pool = true;
        argc--;
    }
    if (argc < 2 || argc > 4 || (argc > 2 && !read_number(argv[2], 4u << 20, &kibibytes)) ||
        (argc > 3 && !read_number(argv[3], 600, &seconds)))
        return nullptr;
    block_bytes = static_cast<size_t>(kibibytes) << 10;
    patience_s = static_cast<unsigned>(seconds);
    return find_case(argv[1]);
}

int main(int argc, char **argv)
{
    /*
     * On a GPU, loading a kernel at its first launch waits for the device, and so for closed gates.
     */
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (const struct order_case &each : cases)
            printf("%-30s %s\n", each.name, each.what);
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
    free_what_is_left();
    return end_watch(&watcher);
}
