/*
 * Corner cases of CUDA's memory calls. Each case checks what the program sees:
 *
 *     hostile CASE[,CASE]... [SPANS [MIB]]
 *     hostile --list
 *
 * SPANS allocations of MIB MiB each are in use beside it (16, 4). Prints "ok" and ends with 0, or
 * prints the failure and ends with 1. Ends with 77 if the device lacks a call that the case needs.
 */
#include "hostile.h"

#include "hostile_access.h"
#include "hostile_conditions.h"
#include "hostile_graphs.h"
#include "hostile_memory.h"
#include "hostile_process.h"
#include "hostile_tables.h"

#include "hostile_modules.h"

#include "hostile_nodes.h"

#include "hostile_makers.h"

#include "hostile_undecided.h"

static const struct hostile_case cases[] = {
    {"interior-free", case_interior_free, "cudaFree of addresses inside an allocation"},
    {"unknown-free", case_unknown_free, "cudaFree of addresses that were never allocated, and of null"},
    {"double-free", case_double_free, "cudaFree twice"},
    {"huge", case_huge, "allocations that no machine can serve, and one of 0 bytes"},
    {"beyond-device", case_beyond_device, "an allocation of more than the device holds"},
    {"meminfo", case_meminfo, "cudaMemGetInfo stays consistent"},
    {"attributes", case_attributes, "cudaPointerGetAttributes on memory of each kind"},
    {"managed", case_managed, "managed memory beside spans"},
    {"pitch", case_pitch, "cudaMallocPitch with copies and memsets of rows"},
    {"volume", case_volume, "cudaMalloc3D with copies of volumes"},
    {"pool", case_pool, "memory pools and their attributes"},
    {"churn", case_churn, "allocations of changing sizes, freed in another order"},
    {"views", case_views, "interior pointers passed to kernels"},
    {"past-end", case_past_end, "the end of a span passed to kernels"},
    {"outside", case_outside, "a base address outside of the span, with an offset into it"},
    {"struct-parameter", case_struct_parameter, "a structure that holds pointers, by value"},
    {"few-pointers", case_few_pointers, "400 pointers by value"},
    {"many-pointers", case_many_pointers, "600 pointers by value, beyond 4 KiB of parameters"},
    {"pointer-table", case_pointer_table, "pointers in device memory"},
    {"long-table", case_long_table, "pointers at the beginning of a long copy"},
    {"host-table", case_host_table, "a table in host memory"},
    {"host-view", case_host_view, "the same, where a structure leads to the table"},
    {"freed-table", case_freed_table, "a table that is freed ahead of the kernel that reads it"},
    {"table-grace-end", case_table_grace_end, "a masked table, used by the last launch of a grace, which needs room"},
    {"table-beside-capture", case_table_beside_capture, "the same, just after launches that are captured"},
    {"table-changes", case_table_changes, "a table that is changed in places, overwritten, moved and freed"},
    {"table-fields", case_table_fields, "a structure that is copied, and written over, field by field"},
    {"table-moves", case_table_moves, "a table that is copied in rows, and copied again on the device"},
    {"table-graph", case_table_graph, "a kernel in a graph that is given a table"},
    {"table-graph-memory", case_table_graph_memory, "the same, where the graph copies the table to memory of its own"},
    {"tensor-map", case_tensor_map, "tensor maps by value and in device memory"},
    {"module-table", case_module_table, "a table in a variable of the module, which no parameter names"},
    {"module-table-graph", case_module_table_graph, "the same, read by a kernel of a graph"},
    {"module-context", case_module_context, "the same in a second context, which then goes away"},
    {"table-captured", case_table_captured, "graphs that bring tables anew at each launch, and captures that bring none"},
    {"table-pieces", case_table_pieces, "tables of which a part is written anew, or never"},
    {"table-nodes", case_table_nodes, "graphs whose copies bring and move tables, and are made in another order"},
    {"table-graph-later", case_table_graph_later, "tables that are written when the graph that uses them is there"},
    {"table-condition", case_table_condition, "tables that copies in conditional nodes bring"},
    {"table-made-captured", case_table_made_captured, "kernels that write tables and are only captured"},
    {"made-beside-capture", case_made_beside_capture, "a kernel that writes a table while another stream is captured"},
    {"made-beside-copy", case_made_beside_copy, "the same, where memory beside the table is written over"},
    {"made-copied", case_made_copied, "the same, where the table is copied at once"},
    {"made-in-graph", case_made_in_graph, "the same, where only a graph launches the kernel"},
    {"made-inside", case_made_inside, "the same, where the table lies inside a structure"},
    {"made-in-pieces", case_made_in_pieces, "the same, where each launch writes one entry"},
    {"made-behind-numbers", case_made_behind_numbers, "the same, where numbers come before the table's address"},
    {"made-of-one", case_made_of_one, "the same, where the kernel is given one tensor, of one page"},
    {"made-by-nobody", case_made_by_nobody, "a kernel that reads a copied table, and is given one of its spans"},
    {"made-in-span", case_made_in_span, "the same, where the table lies in a span"},
    {"made-after-failures", case_made_after_failures, "the same, where the kernel's first launches fail"},
    {"made-anew", case_made_anew, "the same, where a second kernel writes the table anew"},
    {"made-by-many", case_made_by_many, "the same, in a graph of thousands of such kernels"},
    {"made-after-contexts", case_made_after_contexts, "the same, after contexts that came and went"},
    {"made-by-threads", case_made_by_threads, "the same in threads, while contexts come and go"},
    {"freed-untouched", case_freed_untouched, "memory freed on another stream while a kernel has it and leaves it alone"},
    {"table-disabled", case_table_disabled, "a graph's copy of a table that is disabled and enabled again"},
    {"green-streams", case_green_streams, "spans on streams of a green context, which then goes away"},
    {"green-current", case_green_current, "memory that a green context allocates and uses"},
    {"green-first", case_green_first, "the same, before any other memory"},
    {"texture", case_texture, "textures over spans"},
    {"copies", case_copies, "copies and memsets in every direction"},
    {"copies-ahead", case_copies_ahead, "copies that may read their source ahead of stream order"},
    {"free-in-use", case_free_in_use, "cudaFree while a kernel writes, then reuse"},
    {"free-while-read", case_free_while_read, "cudaFree while a kernel reads, then reuse"},
    {"free-async-in-use", case_free_async_in_use, "cudaFreeAsync and reuse by another stream"},
    {"stream-destroy", case_stream_destroy, "streams destroyed with work under way"},
    {"default-stream", case_default_stream, "the default stream's own ordering"},
    {"graph", case_graph, "a captured graph, launched again and again"},
    {"graph-join", case_graph_join, "captures that a second stream joins, beside another thread's work"},
    {"graph-beside", case_graph_beside, "captures in the global mode beside another thread's launches"},
    {"graph-early", case_graph_early, "a capture that begins before the first allocation"},
    {"graph-early-own", case_graph_early_own, "the same on the thread's own default stream"},
    {"graph-early-thread", case_graph_early_thread, "the same on another thread's own default stream"},
    {"graph-early-over", case_graph_early_over, "a thread's capture that is over before the first allocation"},
    {"graph-nodes", case_graph_nodes, "graphs of fills, copies and kernels, changed between their launches"},
    {"graph-copies-streams", case_graph_copies_streams, "copies are captured when many streams have just used memory"},
    {"graph-copies-legacy", case_graph_copies_legacy,
     "the same on the default stream, for which blocking streams wait"},
    {"graph-memory", case_graph_memory, "a graph with memory of its own, which spans are copied to and from"},
    {"graph-frees", case_graph_frees, "memory that one graph allocates, and another one uses and frees"},
    {"graph-changes", case_graph_changes, "a graph whose nodes get other memory before each launch"},
    {"graph-children", case_graph_children, "a graph whose child is rebuilt before each launch"},
    {"graph-conditions", case_graph_conditions, "a graph with a loop and a choice, whose bodies name its memory"},
    {"graph-pieces", case_graph_pieces, "a graph whose fill and copy reach over several pieces of an allocation"},
    {"graph-by-kernel", case_graph_by_kernel, "a graph that a kernel launches"},
    {"threads", case_threads, "64 threads allocate at once"},
    {"fork", case_fork, "fork with exec, exit and _exit"},
    {"reset", case_reset, "cudaDeviceReset at the end of the program"},
    {"exit", case_exit, "exit() with work under way"},
    {"exit-in-thread", case_exit_in_thread, "exit() by another thread with work under way"},
    {"signal", case_signal, "SIGTERM with work under way: prints ok, then ends by the signal"},
};

static const struct hostile_case *find_case(const char *name)
{
    for (const struct hostile_case &candidate : cases)
        if (strcmp(candidate.name, name) == 0)
            return &candidate;
    return nullptr;
}

/*
 * Finds the cases of a comma-separated list of names. Returns their number, or 0 if a name is
 * unknown or there are too many.
 */
static size_t find_cases(char *names, const struct hostile_case **chosen, size_t most)
{
    size_t found = 0;

    for (char *name = strtok(names, ","); name != nullptr; name = strtok(nullptr, ","))
        if (found == most || (chosen[found++] = find_case(name)) == nullptr)
            return 0;
    return found;
}

static bool read_count(const char *text, size_t most, size_t *count)
{
    char *end = nullptr;
    const unsigned long long value = strtoull(text, &end, 10);

    *count = value;
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && value >= 4 && value <= most;
}

int main(int argc, char **argv)
{
    const struct hostile_case *chosen[16] = {};
    size_t chosen_count = 0, mebibytes = span_bytes >> 20;

    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (const struct hostile_case &each : cases)
            printf("%-20s %s\n", each.name, each.what);
        return 0;
    }
    if (argc >= 2)
        chosen_count = find_cases(argv[1], chosen, sizeof(chosen) / sizeof(chosen[0]));
    if (chosen_count == 0 || argc > 4 || (argc > 2 && !read_count(argv[2], MAX_SPANS, &span_count)) ||
        (argc > 3 && !read_count(argv[3], 1024, &mebibytes))) {
        fprintf(stderr, "usage: %s CASE[,CASE]... [SPANS [MIB]] | --list     (at least 4 spans of 4 MiB)\n", argv[0]);
        return 2;
    }
    span_bytes = mebibytes << 20;
    setvbuf(stdout, nullptr, _IOLBF, 0);
    for (size_t i = 0; i < chosen_count; i++)
        chosen[i]->run();
    CHECK(cudaDeviceSynchronize());
    if (failures > 0)
        return 1;
    printf("ok\n");
    return 0;
}
