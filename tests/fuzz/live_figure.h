/* A figure of a live page as JSON: an unknown number of bytes is null. */
#ifndef PENSTOCK_FUZZ_LIVE_FIGURE_H
#define PENSTOCK_FUZZ_LIVE_FIGURE_H

#include "base/live_page.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/json_reader.h"

/* Requires that the member `name` of the object `of` is this figure. */
static void check_figure(const struct json_value *of, const char *name, enum ps_live_unit unit, uint64_t value)
{
    if (unit == PS_LIVE_BYTES && value == UINT64_MAX)
        fuzz_require(json_member(of, name)->kind == JSON_NULL);
    else
        fuzz_require(json_is_u64(json_member(of, name), value));
}

#endif
