/*
 * The order of a graph's nodes: after ps_graph_order each node comes after those that it depends
 * on, whatever order the driver lists nodes and edges in.
 */
#include "tracer/graph_order.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/driver.h"
#include "expect.h"
#include "stub_driver.h"

#define NODES 12u
#define EDGES 40u

static char node[NODES]; /* a handle is the address of one of these */
static unsigned from[EDGES], to[EDGES];
static size_t edges;
static bool fails;

static CUgraphNode handle(unsigned number)
{
    return (CUgraphNode)(void *)&node[number];
}

static unsigned number_of(CUgraphNode its)
{
    return (unsigned)((const char *)(const void *)its - node);
}

static CUresult CUDAAPI get_edges(CUgraph graph, CUgraphNode *sources, CUgraphNode *targets, CUgraphEdgeData *data,
                                  size_t *count)
{
    (void)graph;
    EXPECT(!sources == !data); /* the driver refuses edges with data otherwise */
    for (size_t i = 0; sources && i < edges; i++) {
        sources[i] = handle(from[i]);
        targets[i] = handle(to[i]);
    }
    *count = edges;
    return sources && fails ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static void shuffle(unsigned *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const size_t k = (size_t)rand() % (i + 1);
        const unsigned other = numbers[k];
        numbers[k] = numbers[i];
        numbers[i] = other;
    }
}

/* Sorts the nodes of these numbers, and writes the place of each. All must still be there. */
static void sort_nodes(const unsigned *numbers, size_t count, size_t *place)
{
    CUgraphNode nodes[NODES];

    for (size_t i = 0; i < count; i++)
        nodes[i] = handle(numbers[i]);
    ps_graph_order(NULL, nodes, count);
    for (size_t i = 0; i < NODES; i++)
        place[i] = SIZE_MAX;
    for (size_t i = 0; i < count; i++) {
        EXPECT_U64(SIZE_MAX, place[number_of(nodes[i])]);
        place[number_of(nodes[i])] = i;
    }
}

/* Edges of a random order, among nodes that the driver lists in another. */
static void test_any_order(void)
{
    unsigned right[NODES], listed[NODES];
    size_t place[NODES];

    for (unsigned round = 0; round < 200; round++) {
        for (unsigned i = 0; i < NODES; i++)
            right[i] = listed[i] = i;
        shuffle(right, NODES);
        shuffle(listed, NODES);
        edges = (size_t)rand() % EDGES;
        for (size_t i = 0; i < edges; i++) {
            const unsigned a = (unsigned)rand() % (NODES - 1);
            from[i] = right[a];
            to[i] = right[a + 1 + (unsigned)rand() % (NODES - 1 - a)];
        }
        sort_nodes(listed, NODES, place);
        for (size_t i = 0; i < edges; i++)
            EXPECT(place[from[i]] < place[to[i]]);
    }
}

static void expect_as_listed(void)
{
    const unsigned listed[] = {2, 0, 1};
    size_t place[NODES];

    sort_nodes(listed, 3, place);
    EXPECT_U64(0, place[2]);
    EXPECT_U64(1, place[0]);
    EXPECT_U64(2, place[1]);
}

/* Without an answer the nodes stay as listed. So they do without edges, and in a circle. */
static void test_no_order(void)
{
    edges = 0;
    expect_as_listed();
    from[0] = 0, to[0] = 2, edges = 1;
    fails = true;
    expect_as_listed();
    fails = false;
    from[1] = 2, to[1] = 0, edges = 2;
    expect_as_listed();
    edges = 1;
    ps_cu.cuGraphGetEdges = NULL; /* an older driver */
    expect_as_listed();
}

int main(void)
{
    stub_driver_with(&(struct ps_real_cuda){.cuGraphGetEdges = get_edges});
    test_any_order();
    test_no_order();
    return expect_status();
}
