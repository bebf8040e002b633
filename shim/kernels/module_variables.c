#include "kernels/module_variables.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/array.h"
#include "base/log.h"
#include "kernels/pointer_tables.h"

struct variable {
    const void *module;
    CUdeviceptr start;
    size_t bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct variable *variables; /* under the lock, in no order */
static size_t room;
static atomic_size_t count; /* changed under the lock */

/* Returns the index of the variable that begins there, or the count. [locked] */
static size_t find(CUdeviceptr start)
{
    size_t i = 0;

    while (i < count && variables[i].start != start)
        i++;
    return i;
}

void ps_module_variables_found(const void *module, CUdeviceptr start, size_t bytes)
{
    pthread_mutex_lock(&lock);
    const size_t at = find(start);
    struct variable *grown = at == count ? ps_grown_array(variables, count, &room, 16, sizeof *grown) : variables;
    if (grown) {
        variables = grown;
        variables[at] = (struct variable){module, start, bytes};
        if (at == count)
            atomic_store(&count, at + 1);
    }
    pthread_mutex_unlock(&lock);
    if (!grown)
        ps_log_warn_once(TRACER, "no memory to record a module's variable: spans that it points to may be evicted when "
                                 "a kernel uses it; a lower PENSTOCK_HOST_BUDGET makes the slab smaller");
}

bool ps_module_variables_touch(CUdeviceptr start, size_t bytes)
{
    bool found = false;

    if (!atomic_load_explicit(&count, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count && !found; i++)
        found = variables[i].start < start + bytes && start < variables[i].start + variables[i].bytes;
    pthread_mutex_unlock(&lock);
    return found;
}

/* Takes one variable of the module off the list. Returns false if the list has no more. */
static bool take(const void *module, struct variable *taken)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count && !found; i++) {
        found = variables[i].module == module;
        if (!found)
            continue;
        *taken = variables[i];
        variables[i] = variables[count - 1];
        atomic_store(&count, count - 1);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void ps_module_variables_gone(const void *module)
{
    struct variable variable;

    while (take(module, &variable))
        ps_pointer_tables_overwritten(variable.start, variable.bytes);
}
