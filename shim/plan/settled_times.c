#include "plan/settled_times.h"

#include <stdlib.h>

#include "policy/recording/durations.h"

void ps_settled_times_take(struct ps_settled_times *shortest, uint64_t found, const struct penstock_step *step,
                           const bool *timed)
{
    if (shortest->found != found || shortest->length != step->launches) {
        free(shortest->ns);
        shortest->ns = calloc(step->launches, sizeof(uint64_t));
        shortest->length = step->launches;
        shortest->found = found;
    }
    void *workspace = malloc(ps_durations_workspace_bytes(step->launches));
    if (shortest->ns && workspace)
        /* The array is in the caller's memory. */
        ps_durations_settle((struct penstock_launch *)step->launch, timed, shortest->ns, step->launches, workspace);
    free(workspace);
}
