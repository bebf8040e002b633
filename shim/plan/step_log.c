#include "plan/step_log.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/per_device.h"
#include "plan/following.h"
#include "plan/live_values.h"

/* Steps kept for the writing thread: at 5 ms a step, these last for 2.5 s. */
#define KEPT 512u
/* When this many steps are kept, they are written even if their waits have not been reported. */
#define KEPT_LONG (KEPT / 2)

/* Guarded by the registry lock. */
static PS_PER_DEVICE struct {
    uint64_t count;      /* steps that have ended */
    uint64_t ended_at;   /* ns: end of the last step, or time at which the step was found */
    uint64_t began;      /* the first step begins after this launch */
    uint64_t exposed_ns; /* of the step under way */
    uint64_t planned;    /* steps under plans when the last one ended */
    uint64_t told;       /* waits of all launches before this one have been reported */
    struct {
        uint64_t ns, last_launch, exposed_ns;
        /* The figures of step n (counted from 0) are at n % PS_LIVE_RECENT. */
    } recent[PS_LIVE_RECENT];
    /* KEPT entries; step n is at n % KEPT. NULL: no thread reads them. */
    struct ps_live_step *kept;
    uint64_t taken, lost;
} first_dev;
#define dev (&PS_HERE(first_dev))

int ps_step_log_keep(void)
{
    if (!dev->kept) {
        dev->kept = calloc(KEPT, sizeof *dev->kept);
        dev->taken = dev->count;
    }
    return dev->kept ? 0 : -ENOMEM;
}

void ps_step_log_begin(uint64_t launch)
{
    dev->began = launch;
    dev->ended_at = ps_now_ns();
    dev->exposed_ns = 0;
}

static void keep(uint64_t launch, uint64_t now, bool planned)
{
    if (dev->count - dev->taken > KEPT) { /* the oldest step is dropped */
        dev->taken++;
        dev->lost++;
    }
    struct ps_live_step *step = &dev->kept[(dev->count - 1) % KEPT];
    step->t_ns = now;
    step->last_launch = launch;
    step->planned = planned;
    ps_live_values_process(&step->process);
    ps_live_values_device(&step->device);
    step->device.exposed_ns = dev->recent[(dev->count - 1) % PS_LIVE_RECENT].exposed_ns;
}

void ps_step_log_ended(uint64_t launch)
{
    uint64_t now = ps_now_ns(), under_plans = ps_following_steps(), n = dev->count++ % PS_LIVE_RECENT;

    dev->recent[n].ns = now - dev->ended_at;
    dev->recent[n].last_launch = launch;
    dev->recent[n].exposed_ns = dev->exposed_ns;
    dev->ended_at = now;
    dev->exposed_ns = 0;
    if (dev->kept)
        keep(launch, now, under_plans != dev->planned);
    dev->planned = under_plans;
}

void ps_step_log_waited(uint64_t launch, uint64_t ns)
{
    uint64_t step = dev->count;

    if (launch <= dev->began)
        return;
    /*
     * The wait belongs to the step under way, or to one that ended a moment ago. Waits of older
     * steps are not counted.
     */
    while (step && dev->count - step < PS_LIVE_RECENT && dev->recent[(step - 1) % PS_LIVE_RECENT].last_launch >= launch)
        step--;
    if (step == dev->count) {
        dev->exposed_ns += ns;
        return;
    }
    dev->recent[step % PS_LIVE_RECENT].exposed_ns += ns;
    if (dev->kept && step >= dev->taken)
        dev->kept[step % KEPT].device.exposed_ns += ns;
}

void ps_step_log_told(uint64_t launch)
{
    dev->told = launch;
}

uint64_t ps_step_log_count(void)
{
    return dev->count;
}

uint64_t ps_step_log_last_ns(void)
{
    return dev->count ? dev->recent[(dev->count - 1) % PS_LIVE_RECENT].ns : 0;
}

uint64_t ps_step_log_exposed_ns(void)
{
    for (uint64_t step = dev->count; step && dev->count - step < PS_LIVE_RECENT; step--)
        if (dev->recent[(step - 1) % PS_LIVE_RECENT].last_launch < dev->told)
            return dev->recent[(step - 1) % PS_LIVE_RECENT].exposed_ns;
    return 0;
}

void ps_step_log_recent(uint64_t ns[PS_LIVE_RECENT])
{
    for (uint64_t i = 0; i < PS_LIVE_RECENT; i++)
        ns[i] = i < dev->count ? dev->recent[(dev->count - 1 - i) % PS_LIVE_RECENT].ns : 0;
}

size_t ps_step_log_take(struct ps_live_step *out, size_t capacity, bool all, uint64_t *lost)
{
    size_t n = 0;

    *lost += dev->lost;
    dev->lost = 0;
    if (!dev->kept)
        return 0;
    for (; n < capacity && dev->taken < dev->count; n++) {
        const struct ps_live_step *step = &dev->kept[dev->taken % KEPT];
        if (!all && step->last_launch >= dev->told && dev->count - dev->taken < KEPT_LONG)
            break;
        out[n] = *step;
        dev->taken++;
    }
    return n;
}

uint64_t ps_step_log_left(void)
{
    return dev->kept ? dev->count - dev->taken + dev->lost : 0;
}
