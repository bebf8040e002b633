#include "conditions.h"

#include <stdlib.h>
#include <string.h>

#include "../kernel_abi.h"
#include "engine.h"
#include "entries.h"
#include "graphs.h"
#include "ledger.h"

/* The value that a condition without a default begins a launch with: nothing that a kernel set. */
#define UNDEFINED 0xfffcdeadu

/*
 * A condition. It is never freed, because kernels that still run may name its handle. The list only
 * grows, at its front. Kernels walk it without the lock.
 */
struct cudasim_condition {
    CUgraphConditionalHandle handle;
    CUcontext context;
    CUgraph graph;          /* that it was made for; NULL once destroyed */
    CUgraphExec executable; /* that its node belongs to, or NULL */
    bool used;              /* it has its node */
    bool has_default;       /* CU_GRAPH_COND_ASSIGN_DEFAULT */
    unsigned int first;     /* the default */
    unsigned int value;     /* atomic */
    struct cudasim_condition *next;
};

static struct cudasim_condition *conditions; /* atomic */
static CUgraphConditionalHandle last_handle;

static struct cudasim_condition *first_condition(void)
{
    return __atomic_load_n(&conditions, __ATOMIC_ACQUIRE);
}

static struct cudasim_condition *condition_of(CUgraphConditionalHandle handle)
{
    struct cudasim_condition *condition = first_condition();
    while (condition && condition->handle != handle)
        condition = condition->next;
    return condition;
}

/* Returns whether the graph is `outer`, or a body of a conditional node in it, however deep. */
static bool lies_in(CUgraph graph, CUgraph outer)
{
    while (graph && graph != outer)
        graph = graph->outer;
    return graph != NULL;
}

CUresult cudasim_cuGraphConditionalHandleCreate(CUgraphConditionalHandle *pHandle_out, CUgraph hGraph, CUcontext ctx,
                                                unsigned int defaultLaunchValue, unsigned int flags)
{
    if (!pHandle_out || !hGraph || (flags & ~(unsigned int)CU_GRAPH_COND_ASSIGN_DEFAULT))
        return CUDA_ERROR_INVALID_VALUE;
    if (hGraph->is_child)
        return CUDA_ERROR_NOT_SUPPORTED; /* no child may have conditional nodes */
    struct cudasim_condition *made = calloc(1, sizeof *made);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *made = (struct cudasim_condition){
        .context = ctx ? ctx : cudasim_context_current(),
        .graph = hGraph,
        .has_default = flags & CU_GRAPH_COND_ASSIGN_DEFAULT,
        .first = defaultLaunchValue,
        .value = UNDEFINED,
    };
    cudasim_lock();
    made->handle = *pHandle_out = ++last_handle;
    made->next = conditions;
    __atomic_store_n(&conditions, made, __ATOMIC_RELEASE);
    cudasim_unlock();
    return CUDA_SUCCESS;
}

/* Only a kernel of a graph, in the handle's context, may set it. */
int cudasim_graph_set_conditional(unsigned long long handle, unsigned int value)
{
    const struct cudasim_operation *kernel = cudasim_kernel_running();
    struct cudasim_condition *condition = condition_of(handle);
    if (!condition || !kernel || !kernel->of_graph || !kernel->stream || kernel->stream->context != condition->context)
        return -1;
    __atomic_store_n(&condition->value, value, __ATOMIC_SEQ_CST);
    return 0;
}

void cudasim_conditions_graph_gone(CUgraph graph)
{
    for (struct cudasim_condition *each = first_condition(); each; each = each->next)
        if (each->graph == graph)
            each->graph = NULL;
}

/* ---- nodes ---- */

static struct cudasim_conditional *new_conditional(CUgraphConditionalNodeType type, unsigned int size)
{
    struct cudasim_conditional *made = calloc(1, sizeof *made);
    if (!made)
        return NULL;
    made->type = type;
    made->bodies = calloc(size, sizeof(CUgraph));
    for (; made->bodies && made->size < size && (made->bodies[made->size] = cudasim_graph_new()); made->size++)
        made->bodies[made->size]->restricted = true;
    if (made->size == size)
        return made;
    cudasim_conditional_free(made);
    return NULL;
}

void cudasim_conditional_free(struct cudasim_conditional *conditional)
{
    for (unsigned int i = 0; i < conditional->size; i++)
        cudasim_graph_free(conditional->bodies[i]);
    free(conditional->bodies);
    free(conditional);
}

struct cudasim_conditional *cudasim_conditional_clone(const struct cudasim_conditional *conditional)
{
    struct cudasim_conditional *made = new_conditional(conditional->type, conditional->size);
    bool complete = made != NULL;
    for (unsigned int i = 0; i < conditional->size && complete; i++)
        complete = cudasim_nodes_clone(&conditional->bodies[i]->nodes, &made->bodies[i]->nodes) == CUDA_SUCCESS;
    if (made && !complete) {
        cudasim_conditional_free(made);
        return NULL;
    }
    if (made)
        made->condition = conditional->condition;
    return made;
}

bool cudasim_conditional_same_kind(const struct cudasim_conditional *one, const struct cudasim_conditional *other)
{
    return one->type == other->type && one->size == other->size;
}

static bool valid_size(const CUDA_CONDITIONAL_NODE_PARAMS *params)
{
    switch (params->type) {
    case CU_GRAPH_COND_TYPE_IF:
        return params->size == 1 || params->size == 2;
    case CU_GRAPH_COND_TYPE_WHILE:
        return params->size == 1;
    case CU_GRAPH_COND_TYPE_SWITCH:
        return params->size > 0;
    default:
        return false;
    }
}

/* Returns the handle's condition if a node of the graph may have it now; else NULL. */
static struct cudasim_condition *condition_for(CUgraph graph, const CUDA_CONDITIONAL_NODE_PARAMS *params)
{
    struct cudasim_condition *condition = condition_of(params->handle);
    const CUcontext context = params->ctx ? params->ctx : cudasim_context_current();
    return condition && !condition->used && condition->graph && lies_in(graph, condition->graph) &&
                   condition->context == context
               ? condition
               : NULL;
}

/* Adds the node, if its handle may be used. */
static CUresult add_node(CUgraph graph, const CUgraphNode *dependencies, size_t count,
                         CUDA_CONDITIONAL_NODE_PARAMS *params, struct cudasim_operation *operation, CUgraphNode *made)
{
    struct cudasim_conditional *conditional = operation->conditional;
    struct cudasim_condition *condition = condition_for(graph, params);
    if (!condition || graph->is_child) {
        cudasim_operation_free(operation);
        return condition ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    }
    conditional->condition = condition;
    for (unsigned int i = 0; i < conditional->size; i++)
        conditional->bodies[i]->outer = graph;
    CUresult result = cudasim_graph_add(graph, dependencies, count, operation, made);
    if (result == CUDA_SUCCESS) {
        condition->used = true;
        params->phGraph_out = conditional->bodies;
    }
    return result;
}

CUresult cudasim_add_conditional_node(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                      CUDA_CONDITIONAL_NODE_PARAMS *params)
{
    if (!valid_size(params))
        return CUDA_ERROR_INVALID_VALUE;
    struct cudasim_operation *operation = cudasim_operation_new(CUDASIM_OPERATION_CONDITIONAL);
    if (!operation)
        return CUDA_ERROR_OUT_OF_MEMORY;
    operation->call = cudasim_call_name();
    operation->conditional = new_conditional(params->type, params->size);
    if (!operation->conditional) {
        free(operation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    cudasim_lock();
    CUresult result = add_node(graph, dependencies, count, params, operation, made);
    cudasim_unlock();
    return result;
}

/* ---- the conditions of a graph ---- */

bool cudasim_nodes_have_conditions(const struct cudasim_node_list *nodes)
{
    CUgraphNode node;
    TAILQ_FOREACH (node, nodes, link)
        if (node->operation->kind == CUDASIM_OPERATION_CONDITIONAL)
            return true;
    return false;
}

bool cudasim_conditions_are_used(CUgraph graph)
{
    for (const struct cudasim_condition *each = first_condition(); each; each = each->next)
        if (!each->used && each->graph && lies_in(each->graph, graph))
            return false;
    return true;
}

/* Calls `visit` for the condition of each node, those in bodies too, until it returns false. */
static bool visit_conditions(const struct cudasim_node_list *nodes,
                             bool (*visit)(void *context, struct cudasim_condition *condition), void *context)
{
    CUgraphNode node;
    TAILQ_FOREACH (node, nodes, link) {
        const struct cudasim_conditional *conditional = node->operation->conditional;
        if (node->operation->kind != CUDASIM_OPERATION_CONDITIONAL)
            continue;
        if (!visit(context, conditional->condition))
            return false;
        for (unsigned int i = 0; i < conditional->size; i++)
            if (!visit_conditions(&conditional->bodies[i]->nodes, visit, context))
                return false;
    }
    return true;
}

static bool is_free_for(void *executable, struct cudasim_condition *condition)
{
    return !condition->executable || condition->executable == executable;
}

static bool give_to(void *executable, struct cudasim_condition *condition)
{
    condition->executable = executable;
    return true;
}

bool cudasim_conditions_are_taken(const struct cudasim_node_list *nodes, CUgraphExec executable)
{
    return !visit_conditions(nodes, is_free_for, executable);
}

void cudasim_conditions_take(const struct cudasim_node_list *nodes, CUgraphExec executable)
{
    visit_conditions(nodes, give_to, executable);
}

void cudasim_conditions_leave(CUgraphExec executable)
{
    for (struct cudasim_condition *each = first_condition(); each; each = each->next)
        if (each->executable == executable)
            each->executable = NULL;
}

/* ---- launches ---- */

static bool collect(void *operation, struct cudasim_condition *condition)
{
    struct cudasim_operation *to = operation;
    struct cudasim_condition **grown =
        realloc(to->conditions.array, (to->conditions.count + 1) * sizeof *to->conditions.array);
    if (grown) {
        to->conditions.array = grown;
        grown[to->conditions.count++] = condition;
    }
    return grown != NULL;
}

struct cudasim_operation *cudasim_conditions_begin(const struct cudasim_node_list *nodes)
{
    struct cudasim_operation *operation = cudasim_operation_new(CUDASIM_OPERATION_CONDITIONS_BEGIN);
    if (!operation)
        return NULL;
    operation->call = cudasim_call_name();
    if (visit_conditions(nodes, collect, operation))
        return operation;
    cudasim_operation_free(operation);
    return NULL;
}

void cudasim_conditions_assign(const struct cudasim_operation *operation)
{
    for (size_t i = 0; i < operation->conditions.count; i++) {
        struct cudasim_condition *condition = operation->conditions.array[i];
        __atomic_store_n(&condition->value, condition->has_default ? condition->first : UNDEFINED, __ATOMIC_SEQ_CST);
    }
}

/* Returns the body that the condition's value chooses, or NULL. */
static CUgraph chosen_body(const struct cudasim_conditional *conditional)
{
    const unsigned int value = __atomic_load_n(&conditional->condition->value, __ATOMIC_SEQ_CST);
    const unsigned int body = conditional->type == CU_GRAPH_COND_TYPE_SWITCH ? value : value ? 0 : 1;
    return body < conditional->size ? conditional->bodies[body] : NULL;
}

bool cudasim_conditional_step(struct cudasim_operation *operation)
{
    struct cudasim_conditional *conditional = operation->conditional;
    CUcontext context = operation->stream->context;
    CUgraph body = conditional->over ? NULL : chosen_body(conditional);
    if (!body)
        return true;
    conditional->over = conditional->type != CU_GRAPH_COND_TYPE_WHILE;
    operation->dependency_count = 0;
    CUresult result = cudasim_graph_run_body(body, operation);
    if (result != CUDA_SUCCESS && context->sticky == CUDA_SUCCESS) {
        context->sticky = result;
        cudasim_ledger_sticky(result);
    }
    return result != CUDA_SUCCESS;
}
