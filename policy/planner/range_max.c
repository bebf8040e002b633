#include "policy/planner/range_max.h"

static uint32_t leaves_for(uint32_t moments)
{
    uint32_t leaves = 1;

    while (leaves < moments)
        leaves *= 2;
    return leaves;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

size_t ps_range_max_bytes(uint32_t moments)
{
    return (size_t)leaves_for(moments) * 3 * sizeof(int64_t);
}

void ps_range_max_init(struct ps_range_max *tree, uint32_t moments, const int64_t *bytes, void *memory)
{
    uint32_t leaves = leaves_for(moments);

    tree->moments = moments;
    tree->leaves = leaves;
    tree->most = memory;
    tree->added = tree->most + 2 * (size_t)leaves;
    for (uint32_t i = 0; i < leaves; i++) {
        tree->most[leaves + i] = i >= moments ? INT64_MIN / 2 : bytes ? bytes[i] : 0;
        tree->added[i] = 0;
    }
    for (uint32_t node = leaves; node-- > 1;)
        tree->most[node] = larger(tree->most[2 * node], tree->most[2 * node + 1]);
}

static void refresh(struct ps_range_max *tree, uint32_t node)
{
    tree->most[node] = larger(tree->most[2 * node], tree->most[2 * node + 1]) + tree->added[node];
}

/* Refreshes the nodes above two leaves; nodes above both are refreshed once. */
static void refresh_above(struct ps_range_max *tree, uint32_t left, uint32_t right)
{
    for (left /= 2, right /= 2; left != right; left /= 2, right /= 2) {
        refresh(tree, left);
        refresh(tree, right);
    }
    for (; left > 0; left /= 2)
        refresh(tree, left);
}

static void add_to_node(struct ps_range_max *tree, uint32_t node, int64_t bytes)
{
    tree->most[node] += bytes;
    if (node < tree->leaves)
        tree->added[node] += bytes;
}

/* Adds bytes to [from, end), which doesn't cross the ring's end. */
static void add_straight(struct ps_range_max *tree, uint32_t from, uint32_t end, int64_t bytes)
{
    if (from >= end)
        return;
    uint32_t left = from + tree->leaves, right = end + tree->leaves;
    for (; left < right; left /= 2, right /= 2) {
        if (left & 1)
            add_to_node(tree, left++, bytes);
        if (right & 1)
            add_to_node(tree, --right, bytes);
    }
    refresh_above(tree, from + tree->leaves, end - 1 + tree->leaves);
}

/*
 * Returns the end of the stretch's part before the ring's end. The rest, `*rest` moments, begins at
 * moment 0.
 */
static uint32_t straight_end(const struct ps_range_max *tree, struct ps_stretch stretch, uint32_t *rest)
{
    uint64_t end = (uint64_t)stretch.from + stretch.count;

    *rest = end > tree->moments ? (uint32_t)(end - tree->moments) : 0;
    return end > tree->moments ? tree->moments : (uint32_t)end;
}

void ps_range_max_add(struct ps_range_max *tree, struct ps_stretch stretch, int64_t bytes)
{
    uint32_t rest;
    uint32_t end = straight_end(tree, stretch, &rest);

    add_straight(tree, stretch.from, end, bytes);
    add_straight(tree, 0, rest, bytes);
}

/*
 * Returns the most bytes in [from, end) below the node. The node's moments are [low, low + width).
 */
static int64_t most_below(const struct ps_range_max *tree, uint32_t node, uint32_t low, uint32_t width, uint32_t from,
                          uint32_t end)
{
    if (from <= low && low + width <= end)
        return tree->most[node];
    if (end <= low || low + width <= from)
        return INT64_MIN / 2;
    int64_t left = most_below(tree, 2 * node, low, width / 2, from, end);
    int64_t right = most_below(tree, 2 * node + 1, low + width / 2, width / 2, from, end);
    return larger(left, right) + tree->added[node];
}

int64_t ps_range_max_most(const struct ps_range_max *tree, struct ps_stretch stretch)
{
    uint32_t rest;
    uint32_t end = straight_end(tree, stretch, &rest);
    int64_t most = INT64_MIN;

    if (stretch.from < end)
        most = most_below(tree, 1, 0, tree->leaves, stretch.from, end);
    if (rest > 0)
        most = larger(most, most_below(tree, 1, 0, tree->leaves, 0, rest));
    return most;
}

/*
 * Returns the moment after the last one in [from, end) that holds more than `bound`; `from` if none
 * does.
 */
static uint32_t after_last_above(const struct ps_range_max *tree, uint32_t node, uint32_t low, uint32_t width,
                                 uint32_t from, uint32_t end, int64_t bound)
{
    if (end <= low || low + width <= from || tree->most[node] <= bound)
        return from;
    if (width == 1)
        return low + 1;
    bound -= tree->added[node];
    uint32_t found = after_last_above(tree, 2 * node + 1, low + width / 2, width / 2, from, end, bound);
    return found > from ? found : after_last_above(tree, 2 * node, low, width / 2, from, end, bound);
}

uint32_t ps_range_max_tail_within(const struct ps_range_max *tree, struct ps_stretch stretch, int64_t bound)
{
    uint32_t rest;
    uint32_t end = straight_end(tree, stretch, &rest);

    if (rest > 0) {
        uint32_t after = after_last_above(tree, 1, 0, tree->leaves, 0, rest, bound);
        if (after > 0)
            return rest - after;
    }
    return rest + end - after_last_above(tree, 1, 0, tree->leaves, stretch.from, end, bound);
}
