#include "tracer/graph_bodies.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct bodies {
    struct bodies *next;
    CUgraphNode node;
    CUgraph graph; /* that the node is in */
    size_t count;
    CUgraph body[];
};

static struct bodies *known;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf: nothing is called with it held */

/* Returns the place of the first entry for the node, or for the graph. One is NULL. [locked] */
static struct bodies **place_of(CUgraphNode node, CUgraph graph)
{
    struct bodies **at = &known;

    while (*at && (node ? (*at)->node != node : (*at)->graph != graph))
        at = &(*at)->next;
    return at;
}

/* Takes that entry out, and the caller frees it. Returns NULL if no entry was found. */
static struct bodies *take_out(CUgraphNode node, CUgraph graph)
{
    pthread_mutex_lock(&lock);
    struct bodies **at = place_of(node, graph), *found = *at;
    if (found)
        *at = found->next;
    pthread_mutex_unlock(&lock);
    return found;
}

void ps_graph_bodies_added(CUgraph graph, CUgraphNode node, const CUDA_CONDITIONAL_NODE_PARAMS *params)
{
    const size_t count = params->phGraph_out ? params->size : 0;
    struct bodies *made = malloc(sizeof *made + count * sizeof *made->body);

    free(take_out(node, NULL));
    if (!made || !count) {
        free(made);
        return;
    }
    *made = (struct bodies){.node = node, .graph = graph, .count = count};
    memcpy(made->body, params->phGraph_out, count * sizeof *made->body);
    pthread_mutex_lock(&lock);
    made->next = known;
    known = made;
    pthread_mutex_unlock(&lock);
}

CUgraph *ps_graph_bodies_of(CUgraphNode node, size_t *count)
{
    CUgraph *copy = NULL;

    pthread_mutex_lock(&lock);
    const struct bodies *found = *place_of(node, NULL);
    *count = found ? found->count : 0;
    if (found && (copy = malloc(found->count * sizeof *copy)))
        memcpy(copy, found->body, found->count * sizeof *copy);
    pthread_mutex_unlock(&lock);
    return copy;
}

void ps_graph_bodies_forget(CUgraph graph, void (*gone)(CUgraph body))
{
    struct bodies *found;

    while ((found = take_out(NULL, graph))) {
        for (size_t i = 0; i < found->count; i++)
            gone(found->body[i]);
        free(found);
    }
}
