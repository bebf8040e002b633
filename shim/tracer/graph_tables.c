#include "tracer/graph_tables.h"

#include <stdlib.h>

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
