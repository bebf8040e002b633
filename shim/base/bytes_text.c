#include "base/bytes_text.h"

#include <stdio.h>

struct ps_bytes_text ps_bytes_text(uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    struct ps_bytes_text out;
    unsigned unit = 0;
    uint64_t whole = bytes, rest = 0; /* rest: in 1024ths of a unit */

    for (; whole >= 1024 && unit < 6; unit++) {
        rest = whole % 1024;
        whole /= 1024;
    }
    if (unit)
        snprintf(out.text, sizeof out.text, "%u.%02u %s", (unsigned)whole, (unsigned)(rest * 100 / 1024), units[unit]);
    else
        snprintf(out.text, sizeof out.text, "%u bytes", (unsigned)whole);
    return out;
}
