#include "plan/rank_timings.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/rank_exchange.h"
#include "memory/registry.h"
#include "policy/base/hash.h"

/* The figures that ranks exchange: the link, then each launch. */
struct figures {
    struct penstock_links links;
    struct took {
        uint64_t duration_ns, host_ns;
    } launch[];
};

/*
 * Returns a hash of the step's shape: its launches, and its spans with their moments. Ranks with
 * equal hashes have equal steps.
 */
static uint64_t shape_of(const struct penstock_step *step)
{
    uint64_t shape = step->launches;

    for (uint32_t l = 0; l < step->launches; l++)
        shape = ps_hash_u64(shape ^ step->launch[l].moment);
    for (uint32_t s = 0; s < step->spans; s++)
        shape = ps_hash_u64(ps_hash_u64(ps_hash_u64(shape ^ step->span[s].bytes) ^ step->span[s].born) ^
                            step->span[s].freed);
    return shape;
}

static void take_less(uint64_t *least, uint64_t other)
{
    *least = other < *least ? other : *least;
}

static void take_more(uint64_t *most, uint64_t other)
{
    *most = other > *most ? other : *most;
}

/* A host time of 0 means unknown. */
static void take_less_known(uint64_t *least, uint64_t other)
{
    if (other && (!*least || other < *least))
        *least = other;
}

static void heard(void *ctx, const void *theirs)
{
    struct penstock_step *step = ctx;
    struct penstock_launch *launch = (struct penstock_launch *)step->launch; /* the array is in the caller's memory */
    const struct figures *other = theirs;

    for (uint32_t l = 0; l < step->launches; l++) {
        take_less(&launch[l].duration_ns, other->launch[l].duration_ns);
        take_less_known(&launch[l].host_ns, other->launch[l].host_ns);
    }
    take_less(&step->links.d2h_bytes_per_s, other->links.d2h_bytes_per_s);
    take_less(&step->links.h2d_bytes_per_s, other->links.h2d_bytes_per_s);
    take_less(&step->links.d2h_bytes_per_s_both, other->links.d2h_bytes_per_s_both);
    take_less(&step->links.h2d_bytes_per_s_both, other->links.h2d_bytes_per_s_both);
    take_more(&step->links.evict_overhead_ns, other->links.evict_overhead_ns);
    take_more(&step->links.reload_overhead_ns, other->links.reload_overhead_ns);
    take_more(&step->links.mapping_ns, other->links.mapping_ns);
}

static uint64_t step_ns(const struct penstock_step *step)
{
    uint64_t ns = 0;

    for (uint32_t l = 0; l < step->launches; l++)
        ns += step->launch[l].duration_ns;
    return ns;
}

void ps_rank_timings_reach(struct penstock_step *step, uint64_t first, bool (*is_over)(void))
{
    const size_t bytes = sizeof(struct figures) + step->launches * sizeof(struct took);
    struct figures *mine = malloc(bytes);
    const struct ps_rank_exchange_key key = {PS_RANK_EXCHANGE_TIMES, ps_address_device(ps_registry.start),
                                             shape_of(step), first};
    const uint64_t own_ns = step_ns(step);

    if (!mine)
        return;
    mine->links = step->links;
    for (uint32_t l = 0; l < step->launches; l++)
        mine->launch[l] = (struct took){step->launch[l].duration_ns, step->launch[l].host_ns};
    const uint32_t others = ps_rank_exchange_exchange(key, mine, bytes, is_over, heard, step);
    free(mine);
    if (others)
        ps_log_info(POLICY,
                    "a step of %u launches is planned with the timings of %u ranks: "
                    "%llu ms without transfers, %llu ms by this rank's own",
                    step->launches, others + 1, (unsigned long long)(step_ns(step) / 1000000),
                    (unsigned long long)(own_ns / 1000000));
}
