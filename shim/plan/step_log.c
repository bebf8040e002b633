#include "plan/step_log.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/per_device.h"
#include "plan/following.h"
#include "plan/live_values.h"

/* Steps that are kept for the thread that writes: at 5 ms a step, what it takes in 2.5 s. */
#define KEPT 512u
/* When so many are kept, they are written whether or not their waits have been told. */
#define KEPT_LONG (KEPT / 2)

/* Guarded by the registry lock. */
static PS_PER_DEVICE struct {
    uint64_t count;      /* steps that have ended */
    uint64_t ended_at;   /* the last one, or the one that was found; ns */
    uint64_t began;      /* the launch that the first one begins behind */
    uint64_t exposed_ns; /* of the step under way */
    uint64_t planned;    /* steps under plans when the last one ended */
    uint64_t told;       /* waits have been told of all launches before this one */
    struct {
        uint64_t ns, last_launch, exposed_ns;
    } recent[PS_LIVE_RECENT];  /* of step n (counted from 0) at n % PS_LIVE_RECENT */
    struct ps_live_step *kept; /* KEPT of them, likewise; NULL: nobody wants them */
    uint64_t taken, lost;
} of_first;
#define here PS_HERE(of_first)

int ps_step_log_keep(void)
{
    if (!here.kept) {
        here.kept = calloc(KEPT, sizeof *here.kept);
        here.taken = here.count;
    }
    return here.kept ? 0 : -ENOMEM;
}

void ps_step_log_begin(uint64_t launch)
{
    here.began = launch;
    here.ended_at = ps_now_ns();
    here.exposed_ns = 0;
}

static void keep(uint64_t launch, uint64_t now, bool planned)
{
    if (here.count - here.taken > KEPT) { /* the oldest gives way */
        here.taken++;
        here.lost++;
    }
    struct ps_live_step *step = &here.kept[(here.count - 1) % KEPT];
    step->t_ns = now;
    step->last_launch = launch;
    step->planned = planned;
    ps_live_values_process(&step->process);
    ps_live_values_device(&step->device);
    step->device.exposed_ns = here.recent[(here.count - 1) % PS_LIVE_RECENT].exposed_ns;
}

void ps_step_log_ended(uint64_t launch)
{
    uint64_t now = ps_now_ns(), under_plans = ps_following_steps(), n = here.count++ % PS_LIVE_RECENT;

    here.recent[n].ns = now - here.ended_at;
    here.recent[n].last_launch = launch;
    here.recent[n].exposed_ns = here.exposed_ns;
    here.ended_at = now;
    here.exposed_ns = 0;
    if (here.kept)
        keep(launch, now, under_plans != here.planned);
    here.planned = under_plans;
}

void ps_step_log_waited(uint64_t launch, uint64_t ns)
{
    uint64_t step = here.count;

    if (launch <= here.began)
        return;
    /* It is that of the step under way, or of one that ended a moment ago; of an older one nobody wants to know any more. */
    while (step && here.count - step < PS_LIVE_RECENT && here.recent[(step - 1) % PS_LIVE_RECENT].last_launch >= launch)
        step--;
    if (step == here.count) {
        here.exposed_ns += ns;
        return;
    }
    here.recent[step % PS_LIVE_RECENT].exposed_ns += ns;
    if (here.kept && step >= here.taken)
        here.kept[step % KEPT].device.exposed_ns += ns;
}

void ps_step_log_told(uint64_t launch)
{
    here.told = launch;
}

uint64_t ps_step_log_count(void)
{
    return here.count;
}

uint64_t ps_step_log_last_ns(void)
{
    return here.count ? here.recent[(here.count - 1) % PS_LIVE_RECENT].ns : 0;
}

uint64_t ps_step_log_exposed_ns(void)
{
    for (uint64_t step = here.count; step && here.count - step < PS_LIVE_RECENT; step--)
        if (here.recent[(step - 1) % PS_LIVE_RECENT].last_launch < here.told)
            return here.recent[(step - 1) % PS_LIVE_RECENT].exposed_ns;
    return 0;
}

void ps_step_log_recent(uint64_t ns[PS_LIVE_RECENT])
{
    for (uint64_t i = 0; i < PS_LIVE_RECENT; i++)
        ns[i] = i < here.count ? here.recent[(here.count - 1 - i) % PS_LIVE_RECENT].ns : 0;
}

size_t ps_step_log_take(struct ps_live_step *out, size_t capacity, bool all, uint64_t *lost)
{
    size_t n = 0;

    *lost += here.lost;
    here.lost = 0;
    if (!here.kept)
        return 0;
    for (; n < capacity && here.taken < here.count; n++) {
        const struct ps_live_step *step = &here.kept[here.taken % KEPT];
        if (!all && step->last_launch >= here.told && here.count - here.taken < KEPT_LONG)
            break;
        out[n] = *step;
        here.taken++;
    }
    return n;
}

uint64_t ps_step_log_left(void)
{
    return here.kept ? here.count - here.taken + here.lost : 0;
}
