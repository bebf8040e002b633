#include "tracer/graph_tables.h"

#include <stdlib.h>

#include "base/bytes_text.h"
#include "base/counters.h"
#include "base/log.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "tracer/graphs.h"
#include "tracer/table_copies.h"

bool ps_graph_tables_run(CUgraphExec executable, void (*note)(void *ctx, CUdeviceptr unit), void *ctx)
{
    size_t count;
    bool failed = false;

    ps_graph_makes(executable);
    struct ps_graph_copy *copies = ps_graph_copies(executable, &count, &failed);
    for (size_t i = 0; i < count; i++)
        ps_graph_copy_runs(&copies[i], note, ctx);
    if (count)
        ps_graph_makes(executable);
    free(copies);
    return !failed;
}

void ps_graph_look_for_room(struct ps_span *const *spans, size_t count)
{
    bool found = true;

    if (!ps_counted(accesses_on_slot))
        return;
    ps_registry_lock();
    for (size_t i = 0; found && i < count; i++)
        found = !spans[i]->holds.on_slot;
    ps_registry_unlock();
    if (!found)
        ps_log_warn_once(TRACER,
                         "a CUDA graph uses more at once than a budget of %s has room for: its kernels "
                         "find the rest on the host, and are slow. Raise PENSTOCK_BUDGET, or launch the "
                         "kernels one by one (JAX: XLA_FLAGS=--xla_gpu_enable_command_buffer=)",
                         ps_bytes_text(ps_budget.limit).text);
}
