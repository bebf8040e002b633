#include "plan/host_pace.h"

#include "base/clock.h"
#include "base/per_device.h"
#include "base/waits.h"

/* A launch that comes later than this waited for something in the program. */
#define LONGEST_NS 1000000u

/*
 * ns by the host's clock: time of the latest launch, and how long threads had been kept by then.
 * Guarded by the registry lock.
 */
static PS_PER_DEVICE struct {
    uint64_t at, kept;
} first_dev;
#define latest PS_HERE(first_dev)

uint64_t ps_host_pace_launched(void)
{
    const uint64_t now = ps_now_ns(), kept = ps_waits_kept_ns();
    const uint64_t passed = now - latest.at, of_it = kept - latest.kept;
    const uint64_t took = passed > of_it ? passed - of_it : 1;

    latest.at = now;
    latest.kept = kept;
    return took < LONGEST_NS ? took : LONGEST_NS;
}
