/*
 * The figures of live.def, as they are now. They allocate nothing and make no system call.
 */
#ifndef PS_LIVE_VALUES_H
#define PS_LIVE_VALUES_H

#include "base/live_page.h"

void ps_live_values_process(struct ps_live_process_figures *out); /* any thread */
void ps_live_values_device(struct ps_live_device_figures *out);   /* of the device that the thread is at [locked] */

#endif
