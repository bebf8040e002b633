#include "kernels/module_variables.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/array.h"
#include "base/log.h"
#include "cuda/driver.h"
#include "cuda/green_contexts.h"
#include "kernels/pointer_tables.h"

struct variable {
    const void *holder[PS_VARIABLE_HOLDERS]; /* NULL: no look-up of this kind was seen */
    CUcontext context;                       /* NULL: unknown */
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

/*
 * Returns the context of a variable, or NULL. That of a library is in the current one, that of a
 * module need not be. A green context has no memory of its own.
 */
static CUcontext context_of(CUdeviceptr start)
{
    CUcontext context = NULL;

    if (ps_cu.cuPointerGetAttribute &&
        ps_cu.cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, start) != CUDA_SUCCESS)
        context = NULL;
    if (!context && ps_cu.cuCtxGetCurrent && ps_cu.cuCtxGetCurrent(&context) != CUDA_SUCCESS)
        context = NULL;
    return context ? ps_green_contexts_primary(context) : NULL;
}

/* Notes the variable. One that was known, but in another context or size, is gone. */
static void note(struct variable *v, const struct variable *found)
{
    const bool same = v->start == found->start && v->context == found->context && v->bytes == found->bytes;

    for (unsigned kind = 0; same && kind < PS_VARIABLE_HOLDERS; kind++)
        if (found->holder[kind])
            v->holder[kind] = found->holder[kind];
    if (!same)
        *v = *found;
}

void ps_module_variables_found(enum ps_variable_holder kind, const void *holder, CUdeviceptr start, size_t bytes)
{
    struct variable found = {.context = context_of(start), .start = start, .bytes = bytes};

    found.holder[kind] = holder;
    pthread_mutex_lock(&lock);
    const size_t at = find(start);
    struct variable *grown = at == count ? ps_grown_array(variables, count, &room, 16, sizeof *grown) : variables;
    if (grown) {
        variables = grown;
        if (at == count) {
            variables[at] = found;
            atomic_store(&count, at + 1);
        } else {
            note(&variables[at], &found);
        }
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

static bool is_of_holder(const struct variable *v, const void *holder)
{
    return v->holder[PS_VARIABLE_OF_MODULE] == holder || v->holder[PS_VARIABLE_OF_LIBRARY] == holder;
}

static bool is_in_context(const struct variable *v, const void *context)
{
    return v->context == context;
}

/* Takes one variable that goes off the list. Returns false if the list has no more. */
static bool take(bool (*goes)(const struct variable *v, const void *with), const void *with, struct variable *taken)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count && !found; i++) {
        found = goes(&variables[i], with);
        if (!found)
            continue;
        *taken = variables[i];
        variables[i] = variables[count - 1];
        atomic_store(&count, count - 1);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static void forget(bool (*goes)(const struct variable *v, const void *with), const void *with)
{
    struct variable variable;

    while (with && take(goes, with, &variable))
        ps_pointer_tables_overwritten(variable.start, variable.bytes);
}

void ps_module_variables_gone(const void *holder)
{
    forget(is_of_holder, holder);
}

void ps_module_variables_context_ends(CUcontext context)
{
    forget(is_in_context, context);
}
