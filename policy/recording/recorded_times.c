#include "policy/recording/recorded_times.h"

#include <string.h>

#include "policy/base/hash.h"
#include "policy/recording/recorder_ring.h"

/* The number of rounds from which the host's time is taken. */
#define HOST_ROUNDS 5u

/* The times of the launches of one kernel and shape that were timed. */
struct kind_times {
    uint64_t fingerprint, sum_ns, timed;
    bool taken;
};

struct times {
    const struct ps_recorder *recorder;
    uint64_t first;
    uint32_t length;
    struct kind_times *kinds;
    uint32_t kind_slots; /* a power of two */
};

static uint32_t kind_slots(uint32_t length)
{
    uint32_t slots = 16;

    while (slots < 2 * (uint64_t)length)
        slots *= 2;
    return slots;
}

size_t ps_recorded_times_bytes(uint32_t length)
{
    return kind_slots(length) * sizeof(struct kind_times);
}

/*
 * Returns the shorter duration of this round and the one before, if that is kept and had the same
 * launch. Other work between launches while memory is short makes them longer, never shorter.
 * Returns 0 if unknown; else the duration + 1, as it is kept.
 */
static uint64_t shortest_duration(const struct times *m, uint32_t launch)
{
    uint64_t number = m->first + launch;
    const struct ps_recorded_launch *now = ps_kept_launch(m->recorder, number);

    if (number < m->length || m->recorder->launches - (number - m->length) > PS_RECORDER_LAUNCHES - 1)
        return now->duration;
    const struct ps_recorded_launch *before = ps_kept_launch(m->recorder, number - m->length);
    if (before->duration == 0 || before->fingerprint != now->fingerprint)
        return now->duration;
    return now->duration == 0 || before->duration < now->duration ? before->duration : now->duration;
}

/*
 * Returns the median of the host's times in the latest rounds that are kept and had the same
 * launch. Of two middle values the lower one counts.
 */
static uint64_t usual_host_ns(const struct times *m, uint32_t launch)
{
    const struct ps_recorder *recorder = m->recorder;
    const uint64_t length = m->length, fingerprint = ps_kept_launch(recorder, m->first + launch)->fingerprint;
    uint64_t number = m->first + launch, ns[HOST_ROUNDS];
    unsigned known = 0;

    for (unsigned round = 0; round < HOST_ROUNDS && recorder->launches - number < PS_RECORDER_LAUNCHES;
         round++, number -= length) {
        const struct ps_recorded_launch *then = ps_kept_launch(recorder, number);
        if (then->host_ns && then->fingerprint == fingerprint) {
            unsigned at = known++;
            for (; at > 0 && ns[at - 1] > then->host_ns; at--)
                ns[at] = ns[at - 1];
            ns[at] = then->host_ns;
        }
        if (number < length)
            break;
    }
    return known ? ns[(known - 1) / 2] : 0;
}

static struct kind_times *kind_of(const struct times *m, uint32_t launch)
{
    uint64_t fingerprint = ps_kept_launch(m->recorder, m->first + launch)->fingerprint, i = ps_hash_u64(fingerprint);
    uint32_t mask = m->kind_slots - 1;

    while (m->kinds[i & mask].taken && m->kinds[i & mask].fingerprint != fingerprint)
        i++;
    m->kinds[i & mask].fingerprint = fingerprint;
    m->kinds[i & mask].taken = true;
    return &m->kinds[i & mask];
}

static uint64_t mean_ns(struct kind_times times)
{
    return times.timed != 0 ? times.sum_ns / times.timed : 0;
}

/*
 * Returns the bit of the launch's stream: its number modulo 64. Two streams that share a bit count
 * as one.
 */
static uint64_t stream_bit(const struct times *m, uint32_t launch)
{
    return UINT64_C(1) << ps_kept_launch(m->recorder, m->first + launch)->stream % 64;
}

static uint64_t timed_streams(const struct times *m)
{
    uint64_t streams = 0;

    for (uint32_t i = 0; i < m->length; i++)
        streams |= shortest_duration(m, i) != 0 ? stream_bit(m, i) : 0;
    return streams;
}

void ps_recorded_times(const struct ps_recorder *recorder, uint64_t first, uint32_t length, void *workspace,
                       struct penstock_launch *launch, bool *timed)
{
    const struct times times = {recorder, first, length, workspace, kind_slots(length)}, *m = &times;
    const uint64_t streams = timed_streams(m);
    struct kind_times all = {0};

    memset(m->kinds, 0, m->kind_slots * sizeof *m->kinds);
    for (uint32_t i = 0; i < m->length; i++) {
        uint64_t duration = shortest_duration(m, i);
        bool is_beside = streams != 0 && (streams & stream_bit(m, i)) == 0;
        timed[i] = duration != 0 || is_beside;
        launch[i].host_ns = usual_host_ns(m, i);
        launch[i].duration_ns = 0;
        if (!timed[i] || is_beside)
            continue;
        launch[i].duration_ns = duration - 1;
        struct kind_times *sums[] = {kind_of(m, i), &all};
        for (size_t j = 0; j < sizeof sums / sizeof *sums; j++) {
            sums[j]->sum_ns += launch[i].duration_ns;
            sums[j]->timed++;
        }
    }
    for (uint32_t i = 0; i < m->length; i++) {
        if (timed[i])
            continue;
        struct kind_times alike = *kind_of(m, i);
        launch[i].duration_ns = mean_ns(alike.timed != 0 ? alike : all);
    }
}
