/*
 * What the rooms below ask the plan in force. The plan fills this table when it is opened (plan/following.c); without it every answer is no.
 *
 * Threads: any, with the registry lock where nothing else is said. The table is constant after the set-up.
 */
#ifndef PS_PLAN_TABLE_H
#define PS_PLAN_TABLE_H

#include <stdbool.h>
#include <stddef.h>

struct ps_recorded_layer;
struct ps_span;

struct ps_plan_table {
    bool (*learns)(void);                              /* launches are timed and recorded; no lock needed */
    bool (*is_on)(void);                               /* a plan is in force: nothing is evicted ahead of need but by it */
    bool (*moves_spans)(void);                         /* and it has something to do */
    bool (*will_bring)(const struct ps_span *span);    /* as ps_following_will_bring */
    size_t (*leaving)(struct ps_span **spans, size_t); /* as ps_following_leaving */
    void (*layer)(struct ps_recorded_layer *layer);    /* as ps_following_layer */
    void (*allocated)(size_t bytes, bool found);       /* as ps_preallocation_allocated */
    bool (*is_making)(size_t bytes);                   /* as ps_preallocation_is_making */
    bool (*can_spare)(const struct ps_span *span);     /* as ps_preallocation_can_spare */
};

extern struct ps_plan_table ps_plan;

#endif
