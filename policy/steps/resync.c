#include "policy/steps/resync.h"

#include "policy/steps/pattern.h"

#define SHIFTS PS_RESYNC_SHIFTS

/*
 * After this many launches, only a replaced launch is considered, not an inserted or a missing one.
 */
#define SHIFTED_WITHIN 32

void ps_resync_begin(struct ps_resync *lost, const struct ps_step_pattern *pattern, uint32_t expected,
                     uint64_t fingerprint)
{
    *lost = (struct ps_resync){.position = (expected + 1) % pattern->length};
    for (uint32_t i = 1; i <= SHIFTS; i++)
        lost->ahead |= (uint32_t)(pattern->fingerprint[(expected + i) % pattern->length] == fingerprint) << i;
}

uint32_t ps_resync_look(struct ps_resync *lost, const struct ps_step_pattern *pattern, uint64_t fingerprint)
{
    uint32_t found = PS_NOWHERE, found_away = UINT32_MAX;

    if (!pattern->length) /* the pattern was forgotten meanwhile */
        return PS_NOWHERE;
    const uint32_t shifts = lost->looked < SHIFTED_WITHIN && pattern->length > 2 * SHIFTS ? SHIFTS : 0;
    const uint32_t most = pattern->is_whole ? SHIFTS + shifts : SHIFTS;
    for (uint32_t i = SHIFTS - shifts; i <= most; i++) {
        uint32_t place = (lost->position + pattern->length + i - SHIFTS) % pattern->length;
        uint32_t away = i > SHIFTS ? i - SHIFTS : SHIFTS - i;
        lost->fits[i] = pattern->fingerprint[place] == fingerprint ? lost->fits[i] + 1 : 0;
        bool as_near = i > SHIFTS && away == found_away && (lost->ahead >> away & 1);
        if (lost->fits[i] >= PS_GRAM && (away < found_away || as_near)) {
            found = (place + 1) % pattern->length;
            found_away = away;
        }
    }
    lost->looked++;
    if (++lost->position == pattern->length)
        lost->position = 0;
    return found;
}
