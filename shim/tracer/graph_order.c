#include "tracer/graph_order.h"

#include <stdint.h>
#include <stdlib.h>

#include "cuda/driver.h"
#include "cuda/questions.h"
#include "policy/base/lower_bound.h"

struct edges {
    size_t count;
    CUgraphNode *from, *to;
    CUgraphEdgeData *data;
};

static void drop(struct edges *edges)
{
    free(edges->from);
    free(edges->to);
    free(edges->data);
}

/* Returns whether the driver told the edges. The caller drops them. */
static bool ask(CUgraph graph, struct edges *e)
{
    if (!ps_cu.cuGraphGetEdges || !PS_TOLD(ps_cu.cuGraphGetEdges(graph, NULL, NULL, NULL, &e->count)) || !e->count)
        return false;
    e->from = calloc(e->count, sizeof(CUgraphNode));
    e->to = calloc(e->count, sizeof(CUgraphNode));
    e->data = calloc(e->count, sizeof *e->data); /* without it the driver refuses edges that have data */
    return e->from && e->to && e->data && PS_TOLD(ps_cu.cuGraphGetEdges(graph, e->from, e->to, e->data, &e->count));
}

struct place {
    CUgraphNode node;
    size_t before;      /* the number of nodes that must still come before it */
    size_t first, last; /* its edges, among those that are sorted by their source */
};

struct edge {
    size_t from, to; /* places */
};

static int by_node(const void *a, const void *b)
{
    const uintptr_t one = (uintptr_t)((const struct place *)a)->node,
                    other = (uintptr_t)((const struct place *)b)->node;

    return (one > other) - (one < other);
}

static int by_source(const void *a, const void *b)
{
    const struct edge *one = a, *other = b;

    return (one->from > other->from) - (one->from < other->from);
}

/* Returns the node's place, or `count`. */
static size_t find(const struct place *places, size_t count, CUgraphNode node)
{
    const size_t at = PS_LOWER_BOUND(count, i, (uintptr_t)places[i].node < (uintptr_t)node);

    return at < count && places[at].node == node ? at : count;
}

/* Fills both arrays. */
static void connect(struct place *places, size_t count, const struct edges *e, struct edge *edge)
{
    size_t n = 0;

    for (size_t i = 0; i < e->count; i++) {
        edge[n] = (struct edge){find(places, count, e->from[i]), find(places, count, e->to[i])};
        if (edge[n].from == count || edge[n].to == count)
            continue;
        places[edge[n].to].before++;
        n++;
    }
    qsort(edge, n, sizeof *edge, by_source);
    for (size_t i = n; i-- > 0;) {
        struct place *source = &places[edge[i].from];
        source->last = source->last ? source->last : i + 1;
        source->first = i;
    }
}

/* Writes the places in order. Returns their number, which is less than `count` in a circle. */
static size_t walk(struct place *places, size_t count, const CUgraphNode *nodes, const struct edge *edge, size_t *order)
{
    size_t found = 0;

    for (size_t i = 0; i < count; i++) {
        const size_t at = find(places, count, nodes[i]);
        if (!places[at].before)
            order[found++] = at;
    }
    for (size_t done = 0; done < found; done++)
        for (size_t i = places[order[done]].first; i < places[order[done]].last; i++)
            if (!--places[edge[i].to].before)
                order[found++] = edge[i].to;
    return found;
}

CUgraphNode *ps_graph_nodes(CUgraph graph, size_t *count, bool *unknown)
{
    CUgraphNode *nodes = NULL;

    *count = 0;
    if (!ps_cu.cuGraphGetNodes || !PS_TOLD(ps_cu.cuGraphGetNodes(graph, NULL, count)))
        *unknown = true;
    else if (*count &&
             (!(nodes = malloc(*count * sizeof *nodes)) || !PS_TOLD(ps_cu.cuGraphGetNodes(graph, nodes, count))))
        *unknown = true;
    if (*unknown || !nodes)
        *count = 0;
    return nodes;
}

void ps_graph_order(CUgraph graph, CUgraphNode *nodes, size_t count)
{
    struct edges e = {.count = 0};

    if (count < 2 || !ask(graph, &e)) {
        drop(&e);
        return;
    }
    struct place *places = calloc(count, sizeof *places);
    struct edge *edge = calloc(e.count, sizeof *edge);
    size_t *order = calloc(count, sizeof *order);
    if (places && edge && order) {
        for (size_t i = 0; i < count; i++)
            places[i].node = nodes[i];
        qsort(places, count, sizeof *places, by_node);
        connect(places, count, &e, edge);
        if (walk(places, count, nodes, edge, order) == count)
            for (size_t i = 0; i < count; i++)
                nodes[i] = places[order[i]].node;
    }
    free(places);
    free(edge);
    free(order);
    drop(&e);
}
