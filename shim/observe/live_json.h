/*
 * The figures of live.def as members of a JSON object, for lines of metrics and for `penstock top`.
 * Pure.
 */
#ifndef PS_LIVE_JSON_H
#define PS_LIVE_JSON_H

#include "base/json.h"
#include "base/live_page.h"

/* Add all figures to the open object; bytes without a limit are null. */
void ps_live_json_process(struct ps_json *json, const struct ps_live_process_figures *figures);
void ps_live_json_device(struct ps_json *json, const struct ps_live_device_figures *figures);

#endif
