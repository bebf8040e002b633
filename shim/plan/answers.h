/*
 * The plan's answers to the rooms below: fills residency/plan_table.h.
 */
#ifndef PS_ANSWERS_H
#define PS_ANSWERS_H

/* Called at the set-up of each device; only the first call has an effect. Any thread. */
void ps_plan_answers_open(void);

#endif
