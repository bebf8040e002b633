#include "observe/live_json.h"

static void put(struct ps_json *json, const char *name, enum ps_live_unit unit, uint64_t value)
{
    if (unit == PS_LIVE_BYTES && value == UINT64_MAX)
        ps_json_null(json, name);
    else
        ps_json_u64(json, name, value);
}

void ps_live_json_process(struct ps_json *json, const struct ps_live_process_figures *figures)
{
#define PS_LIVE_PROCESS(name, kind, unit, metric, source, help) put(json, #name, PS_LIVE_##unit, figures->name);
#include "base/live.def"
}

void ps_live_json_device(struct ps_json *json, const struct ps_live_device_figures *figures)
{
#define PS_LIVE_DEVICE(name, kind, unit, metric, source, help) put(json, #name, PS_LIVE_##unit, figures->name);
#include "base/live.def"
}
