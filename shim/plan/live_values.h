/*
 * The present figures of live.def. The functions allocate nothing and make no system call.
 */
#ifndef PS_LIVE_VALUES_H
#define PS_LIVE_VALUES_H

#include "base/live_page.h"

void ps_live_values_process(struct ps_live_process_figures *out); /* any thread */
/* of the device that the thread is at [locked] */
void ps_live_values_device(struct ps_live_device_figures *out);

#endif
