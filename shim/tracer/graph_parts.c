#include "tracer/graph_parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "kernels/made_tables.h"
#include "policy/base/lower_bound.h"
#include "tracer/graph_order.h"
#include "tracer/table_copies.h"

void ps_graph_part_free(struct ps_graph_part *part)
{
    for (size_t i = 0; i < part->nodes; i++)
        ps_graph_part_free(&part->inner[i]);
    free(part->inner);
    ps_graph_needs_free(&part->needs);
}

void ps_graph_part_gather(struct ps_graph_needs *to, const struct ps_graph_part *part)
{
    ps_graph_needs_add(to, &part->needs);
    for (size_t i = 0; i < part->nodes; i++)
        ps_graph_part_gather(to, &part->inner[i]);
}

/* Returns the node's place among the part's own nodes, or the place where it belongs. */
static size_t place_of(const struct ps_graph_part *part, CUgraphNode node)
{
    return PS_LOWER_BOUND(part->nodes, i, (uintptr_t)part->inner[i].node < (uintptr_t)node);
}

bool ps_graph_part_has_copies(const struct ps_graph_part *part)
{
    bool has = part->needs.copies > 0;

    for (size_t i = 0; i < part->nodes && !has; i++)
        has = ps_graph_part_has_copies(&part->inner[i]);
    return has;
}

/* Gives the copies in the part new places from `first` on. `now`: all of them, in order. */
static void number(struct ps_graph_part *part, const struct ps_graph_needs *now, uint64_t first)
{
    for (size_t i = 0; i < part->needs.copies; i++) {
        struct ps_graph_copy *copy = &part->needs.copy[i];
        copy->order = first + PS_LOWER_BOUND(now->copies, k, now->copy[k].order < copy->order);
    }
    for (size_t i = 0; i < part->nodes; i++)
        number(&part->inner[i], now, first);
}

void ps_graph_part_number_copies(struct ps_graph_part *part, CUgraph graph, CUgraphNode *nodes, size_t count)
{
    ps_graph_order(graph, nodes, count);
    for (size_t i = 0; i < count; i++) {
        struct ps_graph_part *its = &part->inner[place_of(part, nodes[i])];
        struct ps_graph_needs now = {.count = 0};
        if (!ps_graph_part_has_copies(its))
            continue;
        ps_graph_part_gather(&now, its);
        ps_graph_needs_sort(&now);
        number(its, &now, ps_graph_needs_places(now.copies));
        ps_graph_needs_free(&now);
    }
}

struct ps_graph_part *ps_graph_part_find(struct ps_graph_part *part, CUgraphNode node)
{
    const size_t place = place_of(part, node);
    struct ps_graph_part *found = place < part->nodes && part->inner[place].node == node ? &part->inner[place] : NULL;

    for (size_t i = 0; i < part->nodes && !found; i++)
        found = part->inner[i].nodes ? ps_graph_part_find(&part->inner[i], node) : NULL;
    return found;
}

struct ps_graph_part *ps_graph_part_add(struct ps_graph_part *part, CUgraphNode node)
{
    const size_t place = place_of(part, node);
    struct ps_graph_part *grown = ps_grown_array(part->inner, part->nodes, &part->nodes_room, 16, sizeof *grown);

    if (!grown)
        return NULL;
    part->inner = grown;
    memmove(&grown[place + 1], &grown[place], (part->nodes++ - place) * sizeof *grown);
    grown[place] = (struct ps_graph_part){.node = node};
    return &grown[place];
}

/*
 * Gives each copy in the part the place of the copy that it replaces. Both lists are in order.
 * Copies beyond those have the last place.
 */
static void take_places(struct ps_graph_part *part, const struct ps_graph_needs *now,
                        const struct ps_graph_needs *before)
{
    for (size_t i = 0; before->copies && i < part->needs.copies; i++) {
        struct ps_graph_copy *copy = &part->needs.copy[i];
        const size_t at = PS_LOWER_BOUND(now->copies, k, now->copy[k].order < copy->order);
        const struct ps_graph_copy *its = &before->copy[at < before->copies ? at : before->copies - 1];
        copy->order = its->order;
        copy->is_sometimes |= its->is_sometimes;
    }
    for (size_t i = 0; i < part->nodes; i++)
        take_places(&part->inner[i], now, before);
}

static void keep_places(const struct ps_graph_part *part, struct ps_graph_part *found)
{
    struct ps_graph_needs before = {.count = 0}, now = {.count = 0};

    ps_graph_part_gather(&before, part);
    ps_graph_part_gather(&now, found);
    ps_graph_needs_sort(&before);
    ps_graph_needs_sort(&now);
    take_places(found, &now, &before);
    ps_graph_needs_free(&before);
    ps_graph_needs_free(&now);
}

void ps_graph_part_runs_sometimes(struct ps_graph_part *part)
{
    for (size_t i = 0; i < part->needs.copies; i++)
        part->needs.copy[i].is_sometimes = true;
    for (size_t i = 0; i < part->nodes; i++)
        ps_graph_part_runs_sometimes(&part->inner[i]);
}

void ps_graph_part_disable(struct ps_graph_part *part, bool is_disabled)
{
    part->is_disabled = is_disabled;
    for (size_t i = 0; i < part->needs.copies; i++)
        part->needs.copy[i].is_disabled = is_disabled;
}

void ps_graph_part_replace(struct ps_graph_part *part, struct ps_graph_part found)
{
    if (part->node && ps_graph_part_has_copies(&found))
        keep_places(part, &found);
    ps_graph_part_disable(&found, part->is_disabled);
    ps_graph_part_free(part);
    found.node = part->node;
    *part = found;
}

bool ps_graph_part_has_makers(const struct ps_graph_part *part)
{
    bool has = part->needs.makers > 0;

    for (size_t i = 0; i < part->nodes && !has; i++)
        has = ps_graph_part_has_makers(&part->inner[i]);
    return has;
}

void ps_graph_part_makes(struct ps_graph_part *part)
{
    for (size_t i = 0; i < part->needs.makers; i++)
        ps_made_tables_run(&part->needs.maker[i]);
    for (size_t i = 0; i < part->nodes; i++)
        ps_graph_part_makes(&part->inner[i]);
}
