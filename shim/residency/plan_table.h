/*
 * The questions that the rooms below put to the plan in force. The plan fills this table when it is
 * opened (plan/answers.c). Until then every answer is no, except that can_spare answers yes.
 *
 * Threads: any, with the registry lock unless a comment says otherwise. The table is constant after
 * the set-up.
 */
#ifndef PS_PLAN_TABLE_H
#define PS_PLAN_TABLE_H

#include <stdbool.h>
#include <stddef.h>

struct ps_recorded_layer;
struct ps_span;

struct ps_plan_table {
    /* Launches are timed and recorded; no lock is needed. */
    bool (*learns)(void);
    /* A plan is in force: only the plan evicts ahead of need. */
    bool (*is_on)(void);
    bool (*moves_spans)(void);                         /* a plan is in force and has moves */
    bool (*will_bring)(const struct ps_span *span);    /* as ps_following_will_bring */
    size_t (*leaving)(struct ps_span **spans, size_t); /* as ps_following_leaving */
    void (*layer)(struct ps_recorded_layer *layer);    /* as ps_following_layer */
    void (*allocated)(size_t bytes, bool found);       /* as ps_preallocation_allocated */
    bool (*is_making)(size_t bytes);                   /* as ps_preallocation_is_making */
    bool (*can_spare)(const struct ps_span *span);     /* as ps_preallocation_can_spare */
};

extern struct ps_plan_table ps_plan;

#endif
