/*
 * The answers of the plan to the rooms below: fills residency/plan_table.h.
 */
#ifndef PS_ANSWERS_H
#define PS_ANSWERS_H

/* At the set-up of each device; the first call has an effect. Any thread. */
void ps_plan_answers_open(void);

#endif
